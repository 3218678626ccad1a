"""The Kubernetes API behind the `kubernetes` client; no Ray process is started here."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from google.cloud import container_v1
from kubernetes import client as kube
from kubernetes import dynamic
from kubernetes.client.exceptions import ApiException

from infra.local.cloud import Cloud
from tests.local.cloud.support import (
    RUN,
    kubernetes_of,
    make_cluster,
    ray_cluster,
    until,
)

RAY = ("ray.io", "v1", "default", "rayclusters")


@pytest.fixture
def api(gke: container_v1.ClusterManagerClient) -> kube.ApiClient:
    return kubernetes_of(gke, make_cluster(gke))


def _apply(api: kube.ApiClient, body: dict[str, Any], **query: str) -> httpx.Response:
    name = body["metadata"]["name"]
    return httpx.patch(
        f"{api.configuration.host}/apis/ray.io/v1/namespaces/default/rayclusters/{name}",
        params={"fieldManager": "lustrum", "force": "true", "fieldValidation": "Strict", **query},
        headers={"Authorization": "Bearer x", "Content-Type": "application/apply-patch+yaml"},
        json=body,
        timeout=10,
        trust_env=False,
    )


def _ray(api: kube.ApiClient) -> dict[str, Any]:
    found: dict[str, Any] = kube.CustomObjectsApi(api).get_namespaced_custom_object(*RAY, RUN)
    return found


def _events(api: kube.ApiClient, reason: str) -> list[Any]:
    found = kube.CoreV1Api(api).list_namespaced_event("default").items
    return [event for event in found if event.reason == reason]


class TestObjects:
    def test_token_is_needed_and_can_expire(self, api: kube.ApiClient, cloud: Cloud) -> None:
        core = kube.CoreV1Api(api)
        assert httpx.get(f"{api.configuration.host}/api", trust_env=False).status_code == 401
        cloud.faults.add({"operation": "kubernetes.token", "value": True, "times": 1})
        with pytest.raises(ApiException) as refused:
            core.list_node()
        assert refused.value.status == 401
        assert core.list_node().items
        short = httpx.post(cloud.endpoints["admin"] + "/token", json={"seconds": -1}).json()
        api.configuration.api_key = {"authorization": f"Bearer {short['access_token']}"}
        with pytest.raises(ApiException) as expired:
            core.list_node()
        assert expired.value.status == 401

    def test_secret_is_stored_as_data_and_conflicts(self, api: kube.ApiClient) -> None:
        core = kube.CoreV1Api(api)
        body = {"metadata": {"name": "s"}, "stringData": {"hf_token": "tok"}}
        core.create_namespaced_secret("default", body)
        assert core.read_namespaced_secret("s", "default").data == {"hf_token": "dG9r"}
        with pytest.raises(ApiException) as twice:
            core.create_namespaced_secret("default", body)
        assert twice.value.status == 409
        core.delete_namespaced_secret("s", "default")
        with pytest.raises(ApiException) as gone:
            core.read_namespaced_secret("s", "default")
        assert gone.value.status == 404

    def test_no_log_line_holds_a_secret(self, api: kube.ApiClient, cloud: Cloud) -> None:
        body = {"metadata": {"name": "s"}, "stringData": {"hf_token": "hf_very_secret"}}
        kube.CoreV1Api(api).create_namespaced_secret("default", body)
        text = (cloud.root / "logs/cloud.log").read_text()
        assert "secrets" in text
        assert "hf_very_secret" not in text

    def test_old_version_cannot_replace(self, api: kube.ApiClient) -> None:
        core = kube.CoreV1Api(api)
        body = {"metadata": {"name": "c"}, "data": {"a": "1"}}
        old = core.create_namespaced_config_map("default", body)
        core.patch_namespaced_config_map("c", "default", {"data": {"a": "2"}})
        with pytest.raises(ApiException) as conflict:
            core.replace_namespaced_config_map("c", "default", old)
        assert conflict.value.status == 409

    def test_labels_select(self, api: kube.ApiClient) -> None:
        core = kube.CoreV1Api(api)
        for name, label in (("a", "x"), ("b", "y"), ("c", "z")):
            core.create_namespaced_config_map(
                "default", {"metadata": {"name": name, "labels": {"k": label}}}
            )
        for selector, names in (("k=x", "a"), ("k in (x, z)", "ac"), ("k!=x", "bc"), ("!k", "")):
            found = core.list_namespaced_config_map("default", label_selector=selector).items
            assert "".join(item.metadata.name for item in found) == names


class TestApply:
    def test_crd_comes_after_the_cluster(
        self, gke: container_v1.ClusterManagerClient, cloud: Cloud
    ) -> None:
        cloud.faults.add({"operation": "kubernetes.operator", "value": "late"})
        api = kubernetes_of(gke, make_cluster(gke))
        assert _apply(api, ray_cluster(0)).status_code == 404
        cloud.faults.clear()
        until(lambda: _apply(api, ray_cluster(0)).status_code in (200, 201))

    def test_apply_twice_changes_nothing(self, api: kube.ApiClient) -> None:
        # No service account: no pod comes, the object stays still.
        assert _apply(api, ray_cluster(0)).status_code == 201
        first = until(lambda: _ray(api) if "status" in _ray(api) else None)
        assert _apply(api, ray_cluster(0)).status_code == 200
        assert _ray(api)["metadata"]["generation"] == first["metadata"]["generation"] == 1
        _apply(api, ray_cluster(2))
        changed = until(
            lambda: _ray(api) if _ray(api)["status"].get("desiredWorkerReplicas") == 2 else None
        )
        assert changed["metadata"]["generation"] == changed["status"]["observedGeneration"] == 2

    def test_dynamic_client_applies(self, api: kube.ApiClient) -> None:
        kinds = dynamic.DynamicClient(api).resources
        resource = kinds.get(api_version="ray.io/v1", kind="RayCluster")
        found = resource.server_side_apply(
            body=ray_cluster(0),
            name=RUN,
            namespace="default",
            field_manager="t",
            force_conflicts=True,
        )
        assert found.metadata.generation == 1

    @pytest.mark.parametrize(
        ("change", "status", "text"),
        [
            ({"workerGroupSpec": []}, 500, ".spec.workerGroupSpec: field not declared in schema"),
            ({"workerGroupSpecs": [{"groupName": "g"}]}, 422, "Required value"),
            ({"rayVersion": 2}, 500, "must be of type string"),
        ],
    )
    def test_wrong_spec_is_refused_by_name(
        self, api: kube.ApiClient, change: dict[str, Any], status: int, text: str
    ) -> None:
        body = ray_cluster(0)
        body["spec"] |= change
        answer = _apply(api, body)
        assert answer.status_code == status
        assert answer.json()["kind"] == "Status"
        assert text in answer.json()["message"]

    def test_unknown_field_deep_in_the_pod_is_refused(self, api: kube.ApiClient) -> None:
        body = ray_cluster(0)
        pod = body["spec"]["headGroupSpec"]["template"]["spec"]
        pod["containers"][0]["volumeMount"] = []
        message = _apply(api, body).json()["message"]
        assert "spec.headGroupSpec.template.spec.containers[0].volumeMount" in message

    def test_field_manager_is_needed_and_owns(self, api: kube.ApiClient) -> None:
        assert _apply(api, ray_cluster(0), fieldManager="").status_code == 422
        _apply(api, ray_cluster(0))
        other = _apply(api, ray_cluster(2), fieldManager="other", force="false")
        assert other.status_code == 409
        assert 'conflict with "lustrum"' in other.json()["message"]

    def test_invalid_name_is_only_an_event(self, api: kube.ApiClient) -> None:
        long = "rl-" + "x" * 60
        assert _apply(api, ray_cluster(0, name=long)).status_code == 201
        event = until(lambda: _events(api, "InvalidRayClusterMetadata"))[0]
        assert event.involved_object.name == long
        found = kube.CustomObjectsApi(api).get_namespaced_custom_object(*RAY, long)
        assert "status" not in found


class TestPodsThatCannotStart:
    def _ground(self, api: kube.ApiClient, *, claim: bool) -> None:
        core = kube.CoreV1Api(api)
        core.create_namespaced_service_account("default", {"metadata": {"name": "lustrum-job"}})
        if claim:
            core.create_namespaced_persistent_volume_claim(
                "default", {"metadata": {"name": "lustre-pvc"}, "spec": {}}
            )

    def test_missing_account_is_a_replica_failure(self, api: kube.ApiClient) -> None:
        _apply(api, ray_cluster(0))
        found = until(lambda: (_ray(api).get("status") or {}).get("conditions"))
        failure = next(item for item in found if item["type"] == "ReplicaFailure")
        assert 'serviceaccount "lustrum-job" not found' in failure["message"]

    def test_missing_claim_keeps_the_head_pending(self, api: kube.ApiClient) -> None:
        self._ground(api, claim=False)
        _apply(api, ray_cluster(0))
        event = until(lambda: _events(api, "FailedScheduling"))[0]
        assert event.message == 'persistentvolumeclaim "lustre-pvc" not found'
        pods = kube.CoreV1Api(api).list_namespaced_pod(
            "default", label_selector=f"ray.io/cluster={RUN}"
        )
        assert [pod.status.phase for pod in pods.items] == ["Pending"]

    def test_absent_file_system_fails_the_mount(self, api: kube.ApiClient) -> None:
        self._ground(api, claim=True)
        core = kube.CoreV1Api(api)
        core.create_namespaced_config_map("default", {"metadata": {"name": "lustrum-job"}})
        core.create_namespaced_secret("default", {"metadata": {"name": "lustrum-tokens"}})
        _apply(api, ray_cluster(0))
        event = until(lambda: _events(api, "FailedMount"))[0]
        assert "Is the MGS running?" in event.message

    def test_stock_out_leaves_workers_pending(self, api: kube.ApiClient, cloud: Cloud) -> None:
        text = "Node scale up in zones us-east1-b failed: GCE out of resources"
        cloud.faults.add({"operation": "compute.stockout.a4", "value": text})
        self._ground(api, claim=True)
        _apply(api, ray_cluster(2))
        until(lambda: len(_events(api, "FailedScaleUp")) == 2)
        assert len(kube.CoreV1Api(api).list_node().items) == 1
        assert "readyWorkerReplicas" not in _ray(api)["status"]

    def test_dashboard_without_a_head(self, api: kube.ApiClient) -> None:
        proxy = f"{api.configuration.host}/api/v1/namespaces/default/services"
        header = {"Authorization": "Bearer x"}
        absent = httpx.get(f"{proxy}/http:{RUN}-head-svc:8265/proxy/api/version", headers=header)
        assert absent.status_code == 404
        _apply(api, ray_cluster(0))
        until(lambda: (_ray(api).get("status") or {}).get("head"))
        pending = httpx.get(f"{proxy}/http:{RUN}-head-svc:8265/proxy/api/version", headers=header)
        assert pending.status_code == 503
        assert pending.json()["message"].startswith("no endpoints available")

    def test_delete_takes_pods_along(self, api: kube.ApiClient) -> None:
        self._ground(api, claim=False)
        _apply(api, ray_cluster(2))
        core = kube.CoreV1Api(api)
        until(lambda: len(core.list_namespaced_pod("default").items) == 3)
        kube.CustomObjectsApi(api).delete_namespaced_custom_object(
            *RAY, RUN, propagation_policy="Foreground"
        )
        until(lambda: not core.list_namespaced_pod("default").items)
        with pytest.raises(ApiException) as gone:
            _ray(api)
        assert gone.value.status == 404
