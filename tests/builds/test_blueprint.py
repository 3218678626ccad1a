"""Promises of the blueprint. What only the real gcluster can say is in docs/deploy.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from lustrum.adapters.kubernetes import Kubernetes
from lustrum.core import names

from infra.local.builds.blueprint import Invalid, expand
from infra.local.builds.inside import manifests
from tests.builds.paths import BLUEPRINT, ROOT

Blueprint = dict[str, Any]


@pytest.fixture
def raw() -> Blueprint:
    return dict(yaml.safe_load((BLUEPRINT / "rl-a4.yaml").read_text()))


@pytest.fixture
def modules(raw: Blueprint) -> dict[str, Blueprint]:
    return {one["id"]: one for one in raw["deployment_groups"][0]["modules"]}


@pytest.fixture
def expanded(tmp_path: Path) -> Blueprint:
    values = {
        "project_id": "my-project",
        "deployment_name": "rl-4f0c2a9d31",
        "region": "us-east1",
        "zone": "us-east1-b",
        "nodes": 8,
        "spot": True,
        "lustre_size_gib": 36000,
        "reservation_affinity": {
            "consume_reservation_type": "NO_RESERVATION",
            "specific_reservations": [],
        },
        "lustre_throughput": 500,
        "expires": "1798761600",
        "network": "lustrum",
        "subnetwork": "s",
        "pods_range": "p",
        "services_range": "v",
        "control_plane_cidr": "172.20.0.0/28",
        "node_account": "n@my-project.iam",
        "additional_networks": [],
    }
    file = tmp_path / "deployment.yaml"
    file.write_text(yaml.safe_dump({"vars": values}))
    return expand(BLUEPRINT / "rl-a4.yaml", file)


class TestBlueprint:
    def test_blueprint_is_one_group(self, raw: Blueprint) -> None:
        assert [group["group"] for group in raw["deployment_groups"]] == ["primary"]

    def test_blueprint_makes_no_network_bucket_account_or_job(self, raw: Blueprint) -> None:
        sources = {one["source"] for one in raw["deployment_groups"][0]["modules"]}
        assert sources == {
            "modules/network/pre-existing-vpc",
            "modules/scheduler/gke-cluster",
            "modules/compute/gke-node-pool",
            "modules/file-system/managed-lustre",
            "modules/file-system/gke-persistent-volume",
            "modules/management/kubectl-apply",
        }

    def test_cluster_is_held_to_the_zone_and_can_be_destroyed(
        self, modules: dict[str, Blueprint]
    ) -> None:
        its = modules["cluster"]["settings"]
        assert its["cluster_availability_type"] == "REGIONAL"
        assert its["system_node_pool_zones"] == ["$(vars.zone)"]
        assert its["deletion_protection"] is False
        # The module's default is one /28 for all clusters of a VPC.
        assert its["master_ipv4_cidr_block"] == "$(vars.control_plane_cidr)"
        assert its["enable_private_endpoint"] is False
        assert its["enable_external_dns_endpoint"] is True
        assert its["gcp_public_cidrs_access_enabled"] is True
        assert its["enable_ray_operator"] is True
        assert its["enable_managed_lustre_csi"] is True
        assert its["maintenance_exclusions"][0]["exclusion_scope"] == "NO_MINOR_OR_NODE_UPGRADES"

    def test_system_pool_carries_the_ray_head(self, modules: dict[str, Blueprint]) -> None:
        its = modules["cluster"]["settings"]
        _, kind, cpus = its["system_node_pool_machine_type"].split("-")
        assert (kind, int(cpus) >= 16) == ("highmem", True)  # 8 GB a CPU; 64Gi for the head alone
        assert its["system_node_pool_disk_size_gb"] >= 200  # the NeMo-RL image, unpacked, and logs
        assert its["system_node_pool_taints"] == []
        assert its["system_node_pool_name"] == "system"
        assert "spot" not in its

    def test_gpu_pool_is_empty_at_first_and_has_the_clusters_networks(
        self, modules: dict[str, Blueprint]
    ) -> None:
        its = modules["a4-pool"]["settings"]
        assert its["name"] == names.GPU_POOL
        assert its["autoscaling_total_min_nodes"] == 0
        assert its["autoscaling_total_max_nodes"] == "$(vars.nodes)"
        assert "static_node_count" not in its
        # Both or neither: a pool's network that the cluster does not know is refused.
        assert its["additional_networks"] == "$(vars.additional_networks)"
        assert modules["cluster"]["settings"]["additional_networks"] == its["additional_networks"]
        # Google's own networks for RDMA would outlive the run.
        assert its["enable_dranet"] is False

    def test_lustre_uses_the_peering_that_exists(self, modules: dict[str, Blueprint]) -> None:
        its = modules["lustre"]["settings"]
        assert its["private_vpc_connection_peering"] == "servicenetworking-googleapis-com"
        assert its["name"] == "$(vars.deployment_name)"
        assert its["remote_mount"] == "lustrefs"
        assert its["gke_support_enabled"] is False

    def test_claim_has_the_name_the_job_asks_for_i1(self, modules: dict[str, Blueprint]) -> None:
        assert modules["lustre-pv"]["settings"]["pvc_name"] == names.CLAIM

    def test_labels_are_on_everything(self, expanded: Blueprint) -> None:
        wanted = names.labels("rl-4f0c2a9d31", 1798761600)
        assert wanted.items() <= expanded["vars"]["labels"].items()

    def test_variable_that_is_not_given_is_refused(self, tmp_path: Path) -> None:
        file = tmp_path / "deployment.yaml"
        file.write_text(yaml.safe_dump({"vars": {"project_id": "p"}}))
        with pytest.raises(Invalid, match="was not set"):
            expand(BLUEPRINT / "rl-a4.yaml", file)

    def test_terraform_makes_the_network_names_that_run_ids_cannot_be_part_of(self) -> None:
        # gcluster destroy --robust strips networks whose name contains the run id.
        assert "rl-" not in (ROOT / "infra" / "terraform" / "network.tf").read_text()


class TestInside:
    def test_label_values_stay_text(self, expanded: Blueprint) -> None:
        # The toolkit's template writes them unquoted, and Kubernetes refuses numbers.
        for one in manifests(expanded, "10.0.0.2@tcp:/lustrefs")[:2]:
            values = one["metadata"]["labels"].values()
            assert all(isinstance(value, str) for value in values), one["metadata"]

    def test_volume_points_at_the_instance(self, expanded: Blueprint) -> None:
        volume = manifests(expanded, "10.0.0.2@tcp:/lustrefs")[0]
        assert volume["spec"]["csi"]["volumeAttributes"] == {
            "ip": "10.0.0.2",
            "filesystem": "lustrefs",
        }
        assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"

    def roles(self, expanded: Blueprint) -> list[Blueprint]:
        found = manifests(expanded, "0@x")[2:]
        assert {one["kind"] for one in found} == {"Role", "RoleBinding"}
        return found

    def test_roles_have_no_wildcard_and_read_no_other_secret(self, expanded: Blueprint) -> None:
        for role in self.roles(expanded):
            for rule in role.get("rules", []):
                every = [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]
                assert "*" not in every
                if "secrets" in rule["resources"] and rule["verbs"] != ["create"]:
                    assert rule["resourceNames"] == [names.TOKENS_SECRET]

    def test_roles_reach_the_dashboard_as_the_adapter_does(self, expanded: Blueprint) -> None:
        path = Kubernetes.proxy(None, "rl-4f0c2a9d31-head-svc", 8265, "api/jobs/")  # type: ignore[arg-type]
        service = path.split("/services/")[1].split("/")[0]
        rules = [
            rule
            for role in self.roles(expanded)
            for rule in role.get("rules", [])
            if "services/proxy" in rule["resources"]
        ]
        assert rules
        assert all(rule["resourceNames"] == [service] for rule in rules)

    def test_bindings_name_the_accounts_of_functions_that_exist(self, expanded: Blueprint) -> None:
        bindings = [one for one in self.roles(expanded) if one["kind"] == "RoleBinding"]
        subjects = [one["name"] for binding in bindings for one in binding["subjects"]]
        assert len(subjects) == len(set(subjects))
        for name in subjects:
            account, domain = name.split("@")
            assert domain == "my-project.iam.gserviceaccount.com"
            folder = account.removeprefix("lustrum-").replace("-", "_")
            assert (ROOT / "functions" / folder / "main.py").is_file(), folder
            assert len(account) <= 30  # a service account id's limit

    def test_bindings_cover_every_function_that_may_reach_clusters(
        self, expanded: Blueprint
    ) -> None:
        # Those whose role in infra/terraform holds container.clusters.connect.
        text = (ROOT / "infra" / "terraform" / "functions.tf").read_text()
        if "clusters.connect" not in text:
            pytest.skip("infra/terraform words the right differently")
        bound = {
            one["name"].split("@")[0].removeprefix("lustrum-").replace("-", "_")
            for binding in self.roles(expanded)
            for one in binding.get("subjects", [])
        }
        assert {"apply_ray_cluster", "submit_ray_job", "check_ray_job"} <= bound
