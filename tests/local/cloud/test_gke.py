"""GKE behind google-cloud-container and behind its REST shape."""

from __future__ import annotations

import httpx
import pytest
from google.api_core import exceptions
from google.cloud import container_v1

from infra.local.cloud import Cloud
from tests.local.cloud.support import PARENT, PROJECT, RUN, cluster_body, make_cluster, until

Client = container_v1.ClusterManagerClient
EVERYWHERE = f"projects/{PROJECT}/locations/-"


class TestClusters:
    def test_cluster_lives_from_create_to_delete(self, gke: Client) -> None:
        operation = gke.create_cluster(parent=PARENT, cluster=cluster_body())
        path = f"{PARENT}/clusters/{RUN}"
        found = gke.get_cluster(name=path)
        assert found.status.name == "PROVISIONING"
        assert [pool.name for pool in found.node_pools] == ["system", "a4"]
        until(lambda: gke.get_cluster(name=path).status.name == "RUNNING")
        name = f"{PARENT}/operations/{operation.name}"
        assert gke.get_operation(name=name).status.name == "DONE"
        assert [c.name for c in gke.list_clusters(parent=EVERYWHERE).clusters] == [RUN]
        gke.delete_cluster(name=path)
        until(lambda: not gke.list_clusters(parent=EVERYWHERE).clusters)
        with pytest.raises(exceptions.NotFound):
            gke.get_cluster(name=path)

    def test_create_twice_is_refused(self, gke: Client) -> None:
        gke.create_cluster(parent=PARENT, cluster=cluster_body())
        with pytest.raises(exceptions.AlreadyExists):
            gke.create_cluster(parent=PARENT, cluster=cluster_body())

    def test_delete_while_provisioning_is_refused(self, gke: Client, cloud: Cloud) -> None:
        cloud.faults.add({"operation": "gke.CreateCluster", "delay": 30})
        gke.create_cluster(parent=PARENT, cluster=cluster_body())
        with pytest.raises(exceptions.FailedPrecondition, match="incompatible operation"):
            gke.delete_cluster(name=f"{PARENT}/clusters/{RUN}")

    def test_foreign_project_is_refused(self, gke: Client) -> None:
        with pytest.raises(exceptions.PermissionDenied):
            gke.list_clusters(parent="projects/other/locations/-")

    def test_labels_need_the_fingerprint(self, gke: Client) -> None:
        path = make_cluster(gke)
        found = gke.get_cluster(name=path)
        request = {"name": path, "resource_labels": {"lustrum-expires": "7"}}
        with pytest.raises(exceptions.FailedPrecondition):
            gke.set_labels(request={**request, "label_fingerprint": "old"})
        gke.set_labels(request={**request, "label_fingerprint": found.label_fingerprint})
        assert dict(gke.get_cluster(name=path).resource_labels) == {"lustrum-expires": "7"}

    def test_silent_zone_hides_its_clusters_and_is_named(self, gke: Client, cloud: Cloud) -> None:
        make_cluster(gke)
        cloud.faults.add({"operation": "gke.missing_zones", "value": ["us-east1"], "times": 1})
        found = gke.list_clusters(parent=EVERYWHERE)
        assert not found.clusters
        assert list(found.missing_zones) == ["us-east1"]

    def test_create_that_ends_badly_leaves_a_cluster_in_error(
        self, gke: Client, cloud: Cloud
    ) -> None:
        text = "ZONE_RESOURCE_POOL_EXHAUSTED in us-east1-b"
        cloud.faults.add({"operation": "gke.CreateCluster", "end": text, "times": 1})
        operation = gke.create_cluster(parent=PARENT, cluster=cluster_body())
        name = f"{PARENT}/operations/{operation.name}"
        until(lambda: gke.get_operation(name=name).status.name == "DONE")
        assert gke.get_operation(name=name).error.message == text
        assert gke.get_cluster(name=f"{PARENT}/clusters/{RUN}").status.name == "ERROR"

    def test_lost_answer_still_creates(self, gke: Client, cloud: Cloud) -> None:
        cloud.faults.add({"operation": "gke.CreateCluster", "lost": 503, "times": 1})
        with pytest.raises(exceptions.ServiceUnavailable):
            gke.create_cluster(parent=PARENT, cluster=cluster_body())
        assert gke.list_clusters(parent=EVERYWHERE).clusters[0].name == RUN


class TestNodePools:
    def test_pool_is_made_sized_and_deleted(self, gke: Client, cloud: Cloud) -> None:
        path = make_cluster(gke)
        gke.create_node_pool(
            parent=path, node_pool={"name": "extra", "initial_node_count": 2, "config": {}}
        )
        until(lambda: gke.get_node_pool(name=f"{path}/nodePools/extra").status.name == "RUNNING")
        assert len(cloud.inventory()["vms"]) == 3
        gke.set_node_pool_size(request={"name": f"{path}/nodePools/extra", "node_count": 1})
        until(lambda: len(cloud.inventory()["vms"]) == 2)
        gke.delete_node_pool(name=f"{path}/nodePools/extra")
        until(lambda: len(gke.list_node_pools(parent=path).node_pools) == 2)
        assert len(cloud.inventory()["vms"]) == 1

    def test_one_operation_per_pool(self, gke: Client, cloud: Cloud) -> None:
        path = make_cluster(gke)
        cloud.faults.add({"operation": "gke.DeleteNodePool", "delay": 30, "times": 1})
        operation = gke.delete_node_pool(name=f"{path}/nodePools/a4")
        with pytest.raises(exceptions.FailedPrecondition):
            gke.delete_node_pool(name=f"{path}/nodePools/a4")
        gke.delete_node_pool(name=f"{path}/nodePools/system")
        with pytest.raises(exceptions.FailedPrecondition):
            gke.cancel_operation(name=f"{PARENT}/operations/{operation.name}")


class TestRest:
    def test_rest_and_grpc_see_the_same_cluster(self, gke: Client, rest: httpx.Client) -> None:
        body = {
            "cluster": {
                "name": RUN,
                "initialNodeCount": 1,
                "resourceLabels": {"a": "b"},
            }
        }
        made = rest.post(f"/v1/{PARENT}/clusters", json=body)
        assert made.status_code == 200
        assert made.json()["operationType"] == "CREATE_CLUSTER"
        until(
            lambda: (
                rest.get(f"/v1/{PARENT}/operations/{made.json()['name']}").json()["status"]
                == "DONE"
            )
        )
        assert dict(gke.get_cluster(name=f"{PARENT}/clusters/{RUN}").resource_labels) == {"a": "b"}
        listed = rest.get(f"/v1/{EVERYWHERE}/clusters").json()["clusters"]
        assert listed[0]["status"] == "RUNNING"
        assert listed[0]["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]["endpoint"]
        assert rest.delete(f"/v1/{PARENT}/clusters/{RUN}").status_code == 200
        until(lambda: rest.get(f"/v1/{PARENT}/clusters/{RUN}").status_code == 404)

    def test_unknown_field_is_named(self, rest: httpx.Client) -> None:
        answer = rest.post(f"/v1/{PARENT}/clusters", json={"cluster": {"nmae": "x"}})
        assert answer.status_code == 400
        assert "nmae" in answer.json()["error"]["message"]


class TestAccounts:
    NODE = "lustrum-node@my-project.iam.gserviceaccount.com"

    def test_pool_as_an_account_that_the_caller_may_not_act_as_is_refused(
        self, gke: Client, cloud: Cloud
    ) -> None:
        path = make_cluster(gke)
        cloud.state.acts_as = frozenset({self.NODE})
        pool = container_v1.NodePool(name="more", config={"service_account": self.NODE})
        gke.create_node_pool(parent=path, node_pool=pool)
        pool = container_v1.NodePool(name="other", config={})
        with pytest.raises(exceptions.PermissionDenied, match='service account "default"'):
            gke.create_node_pool(parent=path, node_pool=pool)

    def test_cluster_whose_first_pool_names_no_account_is_refused(
        self, gke: Client, cloud: Cloud
    ) -> None:
        cloud.state.acts_as = frozenset({self.NODE})
        body = container_v1.Cluster(name=RUN, initial_node_count=1)
        with pytest.raises(exceptions.PermissionDenied, match="serviceAccountUser role"):
            gke.create_cluster(parent=PARENT, cluster=body)
