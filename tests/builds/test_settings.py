"""What a build was told, before anything of it is used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builds.conftest import FIXED, RUN, SUBSTITUTIONS
from tests.builds.paths import STEPS, load

settings = load("settings")
TOLD = {
    **{f"LUSTRUM{key}": value for key, value in SUBSTITUTIONS.items()},
    **FIXED,
    "LUSTRUM_BUILD_ID": "b-1",
    "LUSTRUM_LOCATION": "us-east1",
}
REFUSED = {
    "ACTION": ["Deploy", "deploy;", "", "apply"],
    "RUN_ID": ["rl-1", "rl-4f0c2a9d3", "rl-4F0C2A9D31", "../rl-4f0c2a9d31", "rl-4f0c2a9d31\n"],
    "ZONE_ATTEMPT": ["0", "-1", "one", "01"],
    "PROJECT": ["P", "my_project", "-p", "$(id)"],
    "ZONE": ["us-east1", "us-east1-b; x", "US-EAST1-B"],
    "NODES": ["0", "eight", "8.0", "1e3"],
    "CAPACITY": ["flex", "Spot"],
    "RESERVATION": ["Bad_Name", "a b", "x/y"],
    "LUSTRE_CAPACITY_GIB": ["36TB", "0"],
    "LUSTRE_THROUGHPUT": ["100", "5000"],
    "EXPIRES": ["2026-01-01", "17987616000", "0"],
    "RDMA_NETWORK": ["projects/p/global/networks/n", f"roce-{RUN}"],
    "NETWORK": ["projects/p/global/networks/n", "n/../x", f"vpc-{RUN}"],
    "CONTROL_PLANE_CIDR": ["172.20.0.0/24", "172.20.0.8/28", "300.1.1.0/28"],
    "NODE_ACCOUNT": ["someone@example.com", "n@p"],
    "STATE_BUCKET": ["B", "gs://b", "a/b"],
}


def check(told: dict[str, str], cwd: Path) -> tuple[int, str]:
    """Run the check as a build does."""
    env = {"PATH": os.environ["PATH"], **told}
    done = subprocess.run(
        [sys.executable, str(STEPS / "settings.py"), "check"],
        capture_output=True,
        text=True,
        env=env,
        cwd=cwd,
        timeout=30,
        check=False,
    )
    return done.returncode, done.stdout


class TestSettings:
    def test_check_accepts_what_is_right(self, tmp_path: Path) -> None:
        assert check(TOLD, tmp_path) == (0, "")

    @pytest.mark.parametrize(
        ("name", "value"), [(name, one) for name, many in REFUSED.items() for one in many]
    )
    def test_value_outside_its_list_is_refused(self, name: str, value: str) -> None:
        values = settings.read({**TOLD, f"LUSTRUM_{name}": value})
        found = settings.problems(values, settings.IDENTITY) + settings.problems(
            values, settings.BLUEPRINT
        )
        assert any(f"_{name}" in one for one in found), found

    @pytest.mark.parametrize(
        "name",
        sorted({*settings.IDENTITY, *settings.BLUEPRINT} - {"RESERVATION", "RDMA_NETWORK"}),
    )
    def test_check_names_what_is_missing(self, name: str, tmp_path: Path) -> None:
        code, said = check({k: v for k, v in TOLD.items() if k != f"LUSTRUM_{name}"}, tmp_path)
        assert code == 1
        assert f"_{name} is missing" in said
        result = json.loads((tmp_path / "result.json").read_text())
        assert (result["ok"], result["class"]) == (False, "CONFIG")

    def test_destroy_needs_only_who_and_where(self, tmp_path: Path) -> None:
        told = {
            key: value
            for key, value in TOLD.items()
            if key.removeprefix("LUSTRUM_") in settings.IDENTITY
        } | {"LUSTRUM_ACTION": "destroy"}
        code, said = check(told, tmp_path)
        assert code == 0
        assert "warning" in said

    def test_spot_and_reservation_exclude_each_other(self) -> None:
        both = settings.read({**TOLD, "LUSTRUM_RESERVATION": "block"})
        assert settings.problems(both, settings.BLUEPRINT)

    def test_none_is_the_empty_string(self) -> None:
        assert settings.read(TOLD)["RESERVATION"] == ""

    @pytest.mark.parametrize("reservation", ["", "b200-block", "b200/reservationBlocks/block-1"])
    def test_deployment_file_of_each_variant(self, reservation: str) -> None:
        values = settings.read(
            {
                **TOLD,
                "LUSTRUM_CAPACITY": "reservation" if reservation else "spot",
                "LUSTRUM_RESERVATION": reservation,
            }
        )
        assert not settings.problems(values, settings.BLUEPRINT)
        affinity = (
            {
                "consume_reservation_type": "SPECIFIC_RESERVATION",
                "specific_reservations": [{"name": reservation}],
            }
            if reservation
            else {"consume_reservation_type": "NO_RESERVATION", "specific_reservations": []}
        )
        assert settings.deployment(values) == {
            "terraform_backend_defaults": {
                "type": "gcs",
                "configuration": {"bucket": "my-project-state", "prefix": f"{RUN}/z1/terraform"},
            },
            "vars": {
                "project_id": "my-project",
                "deployment_name": RUN,
                "region": "us-east1",
                "zone": "us-east1-b",
                "nodes": 8,
                "spot": not reservation,
                "reservation_affinity": affinity,
                "lustre_size_gib": 36000,
                "lustre_throughput": 500,
                "expires": "1798761600",  # text: labels are text
                "network": "lustrum",
                "subnetwork": "lustrum-us-east1-0",
                "pods_range": "lustrum-us-east1-0-pods",
                "services_range": "lustrum-us-east1-0-services",
                "control_plane_cidr": "172.20.0.0/28",
                "node_account": "lustrum-node@my-project.iam.gserviceaccount.com",
                "additional_networks": [],
            },
        }

    def test_rdma_is_eight_networks_in_the_order_of_the_nics(self) -> None:
        values = settings.read({**TOLD, "LUSTRUM_RDMA_NETWORK": "lustrum-rdma-us-east1-b"})
        assert not settings.problems(values, settings.BLUEPRINT)
        found = settings.rdma_interfaces(values)
        assert [one["subnetwork"] for one in found] == [
            f"lustrum-rdma-us-east1-b-{number}" for number in range(8)
        ]
        # The module's type has no optional field: one that is absent ends the plan.
        assert {frozenset(one) for one in found} == {
            frozenset(
                (
                    "network",
                    "subnetwork",
                    "subnetwork_project",
                    "network_ip",
                    "nic_type",
                    "stack_type",
                    "queue_count",
                    "access_config",
                    "ipv6_access_config",
                    "alias_ip_range",
                )
            )
        }
        assert {one["nic_type"] for one in found} == {"MRDMA"}
