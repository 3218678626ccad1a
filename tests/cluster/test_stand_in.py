"""The local stand-in of the Kubernetes API beside the real one: the same calls, the same answers.

What is compared is what our adapters look at: the status code, ``reason`` of a Status, and some
fields of the object. Users and rights are not: the stand-in takes any token that has not expired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from google.cloud import container_v1
from google.cloud.container_v1.services.cluster_manager.transports import (
    ClusterManagerGrpcTransport,
)
from lustrum.core import kubernetes_objects
from lustrum.core.run_plan import RunPlan

from infra.local.cloud import Cloud
from testing.cluster.harness import ControlPlane
from testing.cluster.plans import EXPIRES, companions, fresh_plan
from testing.cluster.processes import Child
from tests.local.cloud.support import PROJECT, QUICK, kubernetes_of, make_cluster

PLAN = fresh_plan(profile="tiny-grpo")
STRICT = {"fieldManager": "lustrum", "force": "true", "fieldValidation": "Strict"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
CLUSTERS = "/apis/ray.io/v1/namespaces/default/rayclusters"


@dataclass(frozen=True)
class Server:
    """One of the two."""

    http: httpx.Client

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.http.request(method, path, **options)

    def apply(self, path: str, body: Any, **query: str) -> httpx.Response:
        return self("PATCH", path, params=STRICT | query, headers=APPLY, json=body)


Case = Callable[[Server], Any]


@pytest.fixture(scope="module")
def real(plane: ControlPlane, operator: Child) -> Server:
    """The real API server."""
    return Server(plane.api().http)


@pytest.fixture(scope="module")
def stand_in(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The stand-in, in the same network namespace."""
    root: Path = tmp_path_factory.mktemp("cloud")
    with Cloud(root, PROJECT, timings=QUICK, buckets=("exports",)) as cloud:
        gke = container_v1.ClusterManagerClient(
            transport=ClusterManagerGrpcTransport(
                channel=grpc.insecure_channel(cloud.endpoints["container"])
            )
        )
        host = kubernetes_of(gke, make_cluster(gke)).configuration.host
        headers = {"Authorization": "Bearer x"}
        yield Server(httpx.Client(base_url=host, headers=headers, trust_env=False, timeout=30))


def outcome(answer: httpx.Response) -> tuple[int, str | None]:
    """Status code and the machine-readable reason of a failure."""
    if answer.status_code < 400:
        return answer.status_code, None
    is_status = answer.headers.get("Content-Type", "").startswith("application/json")
    return answer.status_code, answer.json().get("reason") if is_status else None


def _config_map(name: str = "probe", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def _ray_cluster(plan: RunPlan = PLAN, workers: int = 0) -> dict[str, Any]:
    body = kubernetes_objects.ray_cluster(plan, EXPIRES, workers)
    body["spec"]["suspend"] = True  # the object alone is compared, no pod comes
    return body


def create_then_change(server: Server) -> Any:
    path = f"{CONFIG_MAPS}/probe"
    answers = [
        server.apply(path, _config_map(a="1")),
        server.apply(path, _config_map(a="1")),
        server.apply(path, _config_map(b="2")),
    ]
    data = server("GET", path).json()["data"]
    gone = server("DELETE", path)
    return [outcome(one) for one in answers], data, outcome(gone), outcome(server("GET", path))


def unchanged_apply_keeps_the_version(server: Server) -> Any:
    path = f"{CONFIG_MAPS}/probe"
    versions = [
        server.apply(path, _config_map(a="1")).json()["metadata"]["resourceVersion"]
        for _ in range(2)
    ]
    server("DELETE", path)
    return versions[0] == versions[1]


def unknown_field_of_a_config_map(server: Server) -> Any:
    return outcome(server.apply(f"{CONFIG_MAPS}/probe", _config_map() | {"dta": {}}))


def unknown_field_of_a_ray_cluster(server: Server) -> Any:
    body = _ray_cluster()
    body["spec"]["rayVerson"] = "2.54.0"
    return outcome(server.apply(f"{CLUSTERS}/{PLAN.run_id}", body))


def unknown_field_deep_in_a_pod_template(server: Server) -> Any:
    body = _ray_cluster()
    body["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["imag"] = "x"
    return outcome(server.apply(f"{CLUSTERS}/{PLAN.run_id}", body))


def missing_required_field(server: Server) -> Any:
    body = _ray_cluster()
    del body["spec"]["headGroupSpec"]
    return outcome(server.apply(f"{CLUSTERS}/{PLAN.run_id}", body))


def wrong_type(server: Server) -> Any:
    body = _ray_cluster()
    body["spec"]["workerGroupSpecs"][0]["replicas"] = "two"
    return outcome(server.apply(f"{CLUSTERS}/{PLAN.run_id}", body))


def name_of_path_and_body_differ(server: Server) -> Any:
    return outcome(server.apply(f"{CONFIG_MAPS}/other", _config_map("probe")))


def bad_name(server: Server) -> Any:
    return outcome(server.apply(f"{CONFIG_MAPS}/Bad_Name", _config_map("Bad_Name")))


def bad_label(server: Server) -> Any:
    body = _config_map()
    body["metadata"]["labels"] = {"lustrum-run": "not a label!"}
    return outcome(server.apply(f"{CONFIG_MAPS}/probe", body))


def surrogate_pairs_in_an_apply(server: Server) -> Any:
    text = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"probe"},"data":{"a":"%s"}}'
    sent = text % b"\\ud83d\\udcca"
    answer = server("PATCH", f"{CONFIG_MAPS}/probe", params=STRICT, headers=APPLY, content=sent)
    return outcome(answer)


def apply_without_a_manager(server: Server) -> Any:
    answer = server("PATCH", f"{CONFIG_MAPS}/probe", headers=APPLY, json=_config_map())
    return outcome(answer)


def absent_objects(server: Server) -> Any:
    return [
        outcome(server("GET", f"{CLUSTERS}/none")),
        outcome(server("DELETE", f"{CLUSTERS}/none")),
        outcome(server("GET", "/apis/ray.io/v1/namespaces/default/rayservers")),
        outcome(server("GET", "/api/v1/namespaces/absent/pods")),
        server("GET", "/api/v1/namespaces/absent/pods").json().get("items"),
    ]


def proxy_to_no_service(server: Server) -> Any:
    path = "/api/v1/namespaces/default/services/http:none-head-svc:8265/proxy/api/version"
    return outcome(server("GET", path)), outcome(server("POST", path, json={}))


def secret_is_stored_as_data(server: Server) -> Any:
    secret = kubernetes_objects.tokens(PLAN, EXPIRES, "hf", "wandb")
    path = f"/api/v1/namespaces/default/secrets/{secret['metadata']['name']}"
    stored = server.apply(path, secret).json()
    server("DELETE", path)
    return sorted(stored["data"]), "stringData" in stored, stored["type"]


def objects_of_a_run(server: Server) -> Any:
    found = []
    for one in companions(PLAN):
        plural = one["kind"].lower() + "s"
        path = f"/api/v1/namespaces/default/{plural}/{one['metadata']['name']}"
        server("DELETE", path)  # other tests leave theirs
        found.append(outcome(server.apply(path, one)))
        found.append(outcome(server.apply(path, one)))
    return found


def ray_cluster_object(server: Server) -> Any:
    path = f"{CLUSTERS}/{PLAN.run_id}"
    first = server.apply(path, _ray_cluster())
    again = server.apply(path, _ray_cluster())
    grown = server.apply(path, _ray_cluster(workers=2))
    stored = server("GET", path).json()
    generations = [one.json()["metadata"]["generation"] for one in (first, again, grown)]
    fields = {key: stored["metadata"].get(key) for key in ("labels", "annotations", "finalizers")}
    listed = server("GET", CLUSTERS, params={"labelSelector": f"lustrum-run={PLAN.run_id}"})
    server("DELETE", path, params={"propagationPolicy": "Background"})
    return (
        [outcome(one) for one in (first, again, grown)],
        generations,
        fields,
        stored["kind"],
        [one["metadata"]["name"] for one in listed.json()["items"]],
    )


def wrong_content_type(server: Server) -> Any:
    answer = server(
        "PATCH",
        f"{CONFIG_MAPS}/probe",
        params=STRICT,
        headers={"Content-Type": "application/json"},
        json=_config_map(),
    )
    return outcome(answer)


CASES = [
    create_then_change,
    unchanged_apply_keeps_the_version,
    unknown_field_of_a_config_map,
    unknown_field_of_a_ray_cluster,
    unknown_field_deep_in_a_pod_template,
    missing_required_field,
    wrong_type,
    name_of_path_and_body_differ,
    bad_name,
    bad_label,
    surrogate_pairs_in_an_apply,
    apply_without_a_manager,
    absent_objects,
    proxy_to_no_service,
    secret_is_stored_as_data,
    objects_of_a_run,
    ray_cluster_object,
    wrong_content_type,
]


class TestStandIn:
    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
    def test_stand_in_answers_as_the_real_server(
        self, real: Server, stand_in: Server, case: Case
    ) -> None:
        assert case(stand_in) == case(real)
