"""What is deployed is what the repository holds: functions, environments, build, network."""

from __future__ import annotations

import ast
import re
from ipaddress import IPv4Network
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from .configuration import BOOTSTRAP, ROOT, local_values, resources, variables

FUNCTIONS = sorted(path.parent.name for path in (ROOT / "functions").glob("*/main.py"))
# Read by the local stack, or made by the functions themselves; never set in the cloud.
LOCAL_ONLY = {"LUSTRUM_ENDPOINTS", "LUSTRUM_KUBECONFIG"}


class TestFunctions:
    def test_functions_are_the_folders(self) -> None:
        assert sorted(local_values()["functions"]) == FUNCTIONS

    def test_entry_point_is_the_folders_name(self) -> None:
        function = resources()["google_cloudfunctions2_function"]["function"]
        (build,) = function["build_config"]
        assert build["entry_point"] == "${each.key}"
        assert function["name"] == '${replace(each.key, "_", "-")}'

    @pytest.mark.parametrize("name", FUNCTIONS)
    def test_main_defines_its_entry_point(self, name: str) -> None:
        tree = ast.parse((ROOT / "functions" / name / "main.py").read_text())
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in defined

    def test_only_react_to_event_may_be_kept_warm(self) -> None:
        (service,) = resources()["google_cloudfunctions2_function"]["function"]["service_config"]
        assert service["min_instance_count"] == (
            '${each.key == "react_to_event" && var.warm_react_to_event ? 1 : 0}'
        )


class TestEnvironment:
    def test_every_variable_a_function_reads_is_set(self) -> None:
        read = _variables_read(ROOT / "shared" / "lustrum" / "wiring" / "settings.py")
        for path in (ROOT / "functions").rglob("*.py"):
            read |= _variables_read(path)
        assert "LUSTRUM_PROJECT" in read
        given = {*local_values()["environment"], *local_values()["secret_ids"]}
        assert read - given - LOCAL_ONLY == set()

    def test_every_variable_a_workflow_reads_is_set(self) -> None:
        given = set(local_values()["workflow_environment"])
        read = set()
        for path in (ROOT / "workflows").glob("*.yaml"):
            read |= set(re.findall(r'sys\.get_env\("(LUSTRUM_\w+)"', path.read_text()))
        assert read
        assert read <= given

    def test_environment_of_a_workflow_fits(self) -> None:
        given = local_values()["workflow_environment"]
        assert len(given) <= 20
        assert not [name for name in given if name.startswith(("GOOGLE", "WORKFLOWS"))]

    def test_no_secret_is_a_plain_variable(self) -> None:
        assert set(local_values()["environment"]).isdisjoint(local_values()["secret_ids"])

    def test_secrets_exist_before_the_functions_that_name_them(self) -> None:
        assert sorted(local_values()["secret_ids"].values()) == sorted(
            local_values(BOOTSTRAP)["secrets"]
        )
        assert "google_secret_manager_secret_version" not in resources(BOOTSTRAP)
        assert "google_secret_manager_secret_version" not in resources()


@pytest.fixture(scope="module")
def build() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "cloudbuild.yaml").read_text())
    return found


class TestBuild:
    def test_trigger_is_made_from_the_file(self) -> None:
        assert local_values()["build"] == (
            '${yamldecode(file("${path.module}/../../cloudbuild.yaml"))}'
        )

    def test_trigger_carries_over_every_key_of_the_file(self, build: dict[str, Any]) -> None:
        keys = local_values()
        assert set(build) <= set(keys["build_keys"])
        assert set(build.get("options", {})) <= set(keys["option_keys"])
        for step in build["steps"]:
            assert set(step) <= set(keys["step_keys"])

    def test_what_the_trigger_claims_to_carry_is_in_its_body(self) -> None:
        body = str(resources()["google_cloudbuild_trigger"]["run"])
        for key in {*local_values()["step_keys"], *local_values()["option_keys"]} - {"volumes"}:
            assert f".{key}" in body, key

    def test_build_says_its_limits(self, build: dict[str, Any]) -> None:
        """Case F8: the defaults are 60 minutes and an account of Google's choice."""
        for key in ("timeout", "queueTtl", "serviceAccount", "tags"):
            assert build[key]
        assert build["options"]["logging"]

    def test_fixed_substitutions_are_known_to_the_build(self, build: dict[str, Any]) -> None:
        text = (ROOT / "infra" / "terraform" / "build.tf").read_text()
        fixed = set(re.findall(r"^\s+(_[A-Z_]+)\s+= ", text, flags=re.MULTILINE))
        assert fixed == {"_PROJECT", "_SCRIPTS", "_STATE_BUCKET", "_NODE_ACCOUNT"}
        assert fixed <= set(build["substitutions"])


class TestBuckets:
    @pytest.mark.parametrize("name", sorted(resources()["google_storage_bucket"]))
    def test_bucket_is_private(self, name: str) -> None:
        bucket = resources()["google_storage_bucket"][name]
        assert bucket["uniform_bucket_level_access"] is True
        assert bucket["public_access_prevention"] == "enforced"

    def test_state_is_versioned_and_nothing_live_of_it_expires(self) -> None:
        state = resources()["google_storage_bucket"]["state"]
        assert state["versioning"] == [{"enabled": True}]
        for rule in state["lifecycle_rule"]:
            assert set(rule["condition"][0]) <= {
                "days_since_noncurrent_time",
                "num_newer_versions",
            }

    def test_checkpoints_are_kept_and_their_deletion_can_be_undone(self) -> None:
        exports = resources()["google_storage_bucket"]["exports"]
        assert exports["hierarchical_namespace"] == [{"enabled": True}]
        assert "lifecycle_rule" not in exports
        assert exports["soft_delete_policy"] == [{"retention_duration_seconds": 604800}]

    @pytest.mark.parametrize("name", ["state", "exports", "reports"])
    def test_data_goes_only_when_asked(self, name: str) -> None:
        bucket = resources()["google_storage_bucket"][name]
        assert bucket["force_destroy"] == "${var.destroy_data}"

    def test_reports_have_an_end(self) -> None:
        (rule,) = resources()["google_storage_bucket"]["reports"]["lifecycle_rule"]
        assert rule["condition"] == [{"age": 400}]

    def test_control_planes_state_is_versioned(self) -> None:
        bucket = resources(BOOTSTRAP)["google_storage_bucket"]["control_plane_state"]
        assert bucket["versioning"] == [{"enabled": True}]
        assert bucket["force_destroy"] is False


class TestLedger:
    def test_database_has_a_name_and_does_not_trap_a_destroy(self) -> None:
        ledger = resources()["google_firestore_database"]["ledger"]
        assert ledger["name"] != "(default)"
        assert ledger["deletion_policy"] == "DELETE"

    def test_records_expire(self) -> None:
        field = resources()["google_firestore_field"]["expiry"]
        assert field["for_each"] == '${toset(["runs", "events"])}'
        assert field["field"] == "expire_at"
        assert field["ttl_config"] == [{}]


class TestNetwork:
    def test_ranges_of_all_slots_are_apart(self) -> None:
        """The same arithmetic as network.tf, for every region and slot it admits."""
        space = IPv4Network("10.64.0.0/12")
        taken: list[IPv4Network] = []
        for place in range(4 * 8):
            taken += [
                _cidrsubnet(space, 6, place),
                _cidrsubnet(_cidrsubnet(space, 4, 8), 7, place),
                _cidrsubnet(_cidrsubnet(space, 4, 9), 6, place),
                _cidrsubnet(_cidrsubnet(space, 4, 10), 12, place),
                _cidrsubnet(_cidrsubnet(space, 4, 12), 7, place),
            ]
        taken.sort()
        assert all(not a.overlaps(b) for a, b in pairwise(taken))
        assert {n.prefixlen for n in taken} == {18, 22, 23, 28}
        slots = local_values()["slots"]
        for expression in (
            "cidrsubnet(var.address_space, 6, r * 8 + k)",
            "cidrsubnet(cidrsubnet(var.address_space, 4, 8), 7, r * 8 + k)",
            "cidrsubnet(cidrsubnet(var.address_space, 4, 9), 6, r * 8 + k)",
            "cidrsubnet(cidrsubnet(var.address_space, 4, 10), 12, r * 8 + k)",
            "cidrsubnet(cidrsubnet(var.address_space, 4, 12), 7, r * 8 + k)",
        ):
            assert expression in slots

    def test_ranges_of_rdma_are_apart_and_not_a_slots(self) -> None:
        """The same arithmetic as rdma.tf; a pod network of a cluster may overlap none of its."""
        place = _cidrsubnet(IPv4Network("10.64.0.0/12"), 4, 13)
        taken = [
            _cidrsubnet(_cidrsubnet(place, 4, zone), 3, nic)
            for zone in range(16)
            for nic in range(8)
        ]
        assert all(not a.overlaps(b) for a, b in pairwise(sorted(taken)))
        assert {one.prefixlen for one in taken} == {23}
        nested = "cidrsubnet(cidrsubnet(cidrsubnet(var.address_space, 4, 13), 4, z), 3, nic)"
        assert nested in local_values()["rdma_subnets"]
        used_by_slots = re.findall(r"var\.address_space, 4, (\d+)", local_values()["slots"])
        assert "13" not in used_by_slots and len(used_by_slots) == 4  # and 0 to 7 are the pods'

    def test_rdma_is_opt_in_and_its_subnets_are_named_as_the_build_expects(self) -> None:
        assert variables()["rdma_zones"]["default"] == []
        network = resources()["google_compute_network"]["rdma"]
        assert network["network_profile"].endswith("/networkProfiles/${each.value}-vpc-roce")
        assert "mtu" not in network  # the profile's
        name = resources()["google_compute_subnetwork"]["rdma"]["name"]
        assert name == "${google_compute_network.rdma[each.value.zone].name}-${each.value.nic}"

    def test_lustre_gets_a_23_per_slot_and_its_ports(self) -> None:
        psa = resources()["google_compute_global_address"]["psa"]
        assert (psa["purpose"], psa["prefix_length"]) == ("VPC_PEERING", 23)
        (rule,) = resources()["google_compute_firewall"]["lustre"]["allow"]
        assert rule == {"protocol": "tcp", "ports": ["988", "6988"]}

    def test_no_static_address_is_kept(self) -> None:
        assert "google_compute_address" not in resources()
        nat = resources()["google_compute_router_nat"]["nat"]
        assert nat["nat_ip_allocate_option"] == "AUTO_ONLY"

    def test_services_include_iam_which_the_recipe_forgets(self) -> None:
        assert {"iam.googleapis.com", "lustre.googleapis.com"} <= set(local_values()["services"])


def _variables_read(path: Path) -> set[str]:
    return set(re.findall(r"\bLUSTRUM_[A-Z_]+\b", path.read_text()))


def _cidrsubnet(network: IPv4Network, bits: int, number: int) -> IPv4Network:
    """Terraform's cidrsubnet."""
    size = 2 ** (32 - network.prefixlen - bits)
    return IPv4Network((int(network.network_address) + number * size, network.prefixlen + bits))


class TestWorkflowsAgent:
    def test_workflows_wait_for_their_service_agent(self) -> None:
        made = resources()["google_project_service_identity"]["agent"]
        assert "workflows.googleapis.com" in str(made["for_each"])
        workflow = resources()["google_workflows_workflow"]["workflow"]
        assert "google_project_service_identity.agent" in str(workflow["depends_on"])
