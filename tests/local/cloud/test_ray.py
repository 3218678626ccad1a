"""A RayCluster becomes a real Ray: head, two workers, a job, a preemption, and nothing left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import psutil
import pytest
from google.cloud import container_v1
from google.cloud.container_v1.services.cluster_manager.transports import (
    ClusterManagerGrpcTransport,
)
from kubernetes import client as kube

from infra.local.cloud import Cloud, reaper
from tests.local.cloud.support import (
    PARENT,
    PROJECT,
    RUN,
    ZONE,
    kubernetes_of,
    make_cluster,
    ray_cluster,
    until,
)

pytestmark = [pytest.mark.stack, pytest.mark.timeout(700)]
PATIENCE = 240.0  # seconds: beside another Ray a node now and then takes three minutes to start
SUPERVISOR = """
import json, os, sys
import ray
ray.init()
@ray.remote(num_gpus=8)
def where():
    return ray.util.get_node_ip_address()
seen = set()
while len(seen) < 2:
    seen |= set(ray.get([where.remote() for _ in range(4)]))
os.makedirs(sys.argv[1], exist_ok=True)
with open(os.path.join(sys.argv[1], "seen"), "w") as file:
    file.write(str(len(seen)))
print("SEEN", len(seen), sys.argv[1], os.environ["HF_HOME"], open(sys.argv[2]).read())
print("LEAK", os.environ.get("CLOUD_TEST_SECRET"))
"""


def _ground(rest: str, api: kube.ApiClient) -> None:
    made = httpx.post(
        f"{rest}/v1/{ZONE}/instances",
        params={"instanceId": RUN},
        json={
            "filesystem": "lustrefs",
            "capacityGib": "18000",
            "network": "n",
            "perUnitStorageThroughput": "500",
        },
    )
    assert made.status_code == 200
    core = kube.CoreV1Api(api)
    core.create_namespaced_service_account("default", {"metadata": {"name": "lustrum-job"}})
    core.create_namespaced_config_map(
        "default",
        {"metadata": {"name": "lustrum-job"}, "data": {"supervisor.py": SUPERVISOR}},
    )
    core.create_namespaced_secret(
        "default", {"metadata": {"name": "lustrum-tokens"}, "stringData": {"hf_token": "tok"}}
    )
    core.create_namespaced_persistent_volume_claim(
        "default", {"metadata": {"name": "lustre-pvc"}, "spec": {}}
    )


def _apply(api: kube.ApiClient, workers: int) -> None:
    answer = httpx.patch(
        f"{api.configuration.host}/apis/ray.io/v1/namespaces/default/rayclusters/{RUN}",
        params={"fieldManager": "t", "force": "true", "fieldValidation": "Strict"},
        headers={"Authorization": "Bearer x", "Content-Type": "application/apply-patch+yaml"},
        json=ray_cluster(workers),
    )
    assert answer.status_code in (200, 201), answer.text


def _ready(api: kube.ApiClient, workers: int) -> bool:
    found: dict[str, Any] = kube.CustomObjectsApi(api).get_namespaced_custom_object(
        "ray.io", "v1", "default", "rayclusters", RUN
    )
    status = found.get("status") or {}
    return bool(
        status.get("state") == "ready"
        and status.get("observedGeneration") == found["metadata"]["generation"]
        and status["conditions"][0]["status"] == "True"
        and status.get("desiredWorkerReplicas", 0) == workers
        and status.get("readyWorkerReplicas", 0) == workers
    )


class _Dashboard:
    """Ray's dashboard, through the API server."""

    def __init__(self, api: kube.ApiClient) -> None:
        base = f"{api.configuration.host}/api/v1/namespaces/default/services"
        self._client = httpx.Client(
            base_url=f"{base}/http:{RUN}-head-svc:8265/proxy/",
            headers={"Authorization": "Bearer x"},
            timeout=60.0,
            trust_env=False,
        )

    def get(self, path: str) -> Any:
        return self._client.get(path).json()

    def submit(self, identity: str, entrypoint: str) -> int:
        job = {"submission_id": identity, "entrypoint": entrypoint}
        return self._client.post("api/jobs/", json=job).status_code

    def nodes(self) -> list[dict[str, Any]]:
        found = self.get("nodes?view=summary")["data"]["summary"]
        return [node for node in found if node["raylet"].get("state") == "ALIVE"]


class TestRayCluster:
    def test_life_of_a_ray_cluster(
        self,
        cloud: Cloud,
        gke: container_v1.ClusterManagerClient,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("CLOUD_TEST_SECRET", "of-the-machine")
        path = make_cluster(gke)
        api = kubernetes_of(gke, path)
        _ground(cloud.endpoints["lustre"], api)
        _apply(api, 2)
        until(lambda: _ready(api, 2), PATIENCE, 0.1)
        dashboard = _Dashboard(api)
        until(lambda: len(dashboard.nodes()) == 3, 20)
        version = dashboard.get("api/version")
        assert version["ray_version"] == "2.54.0"

        # A job: container paths reach real folders, and come back as container paths.
        command = "python3 /etc/lustrum/supervisor.py /lustre/runs/a /etc/lustrum-tokens/hf_token"
        until(lambda: dashboard.submit("j-1", command) == 200, 30, 0.5)
        job = until(
            lambda: (
                found
                if (found := dashboard.get("api/jobs/j-1"))["status"] in ("SUCCEEDED", "FAILED")
                else None
            ),
            PATIENCE,
            0.2,
        )
        log = dashboard.get("api/jobs/j-1/logs")["logs"]
        assert job["status"] == "SUCCEEDED", log
        assert job["entrypoint"] == command
        assert "SEEN 2 /lustre/runs/a /lustre/cache/huggingface tok" in log
        assert "LEAK None" in log
        assert (cloud.root / "lustre" / RUN / "runs/a/seen").read_text() == "2"
        assert dashboard.submit("j-1", command) == 500

        # Spot takes a node back: the pod tells, the operator makes another.
        core = kube.CoreV1Api(api)
        lost = next(vm for vm in cloud.inventory()["vms"] if "-a4-" in vm)
        assert len(cloud.preempt(lost)) == 1
        failed = [
            pod
            for pod in core.list_namespaced_pod("default").items
            if pod.status.phase == "Failed"
        ]
        assert "node shutdown" in failed[0].status.message
        until(lambda: not _ready(api, 2), 10, 0.05)
        assert (
            kube.CustomObjectsApi(api).get_namespaced_custom_object(
                "ray.io", "v1", "default", "rayclusters", RUN
            )["status"]["state"]
            == "ready"
        )  # sticky, as KubeRay's
        until(lambda: _ready(api, 2), PATIENCE, 0.1)
        until(lambda: len(dashboard.nodes()) == 3, 30, 0.2)

        # The pool goes first, then the cluster; then nothing is left.
        _apply(api, 0)
        gke.delete_node_pool(name=f"{path}/nodePools/a4")
        until(lambda: not any("-a4-" in vm for vm in cloud.inventory()["vms"]), 20)
        gke.delete_cluster(name=path)
        until(lambda: not cloud.inventory()["clusters"], 20)
        assert cloud.inventory()["pods"] == []
        until(lambda: not _alive(cloud.raylets.mark), 15, 0.2)


def _alive(mark: str) -> list[str]:
    found = []
    for process in reaper.marked(mark):
        try:
            found.append(process.name())
        except psutil.NoSuchProcess:
            continue
    return found


@contextmanager
def _program(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str]]]:
    """Start the cloud as a program of its own."""
    places = folder / "endpoints.json"
    command = [sys.executable, "-m", "infra.local.cloud", "--root", str(folder / "root")]
    process = subprocess.Popen(
        [*command, "--project", PROJECT, "--endpoints", str(places)],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.DEVNULL,
    )
    try:
        until(places.exists, 60)
        yield process, json.loads(places.read_text())
    finally:
        process.kill()
        process.wait()


class TestEnd:
    def test_no_process_outlives_the_cloud(self, tmp_path: Path) -> None:
        """Both at once: most of each is waiting for Ray."""
        numbers = (signal.SIGTERM, signal.SIGKILL)
        folders = [tmp_path / number.name for number in numbers]
        for folder in folders:
            folder.mkdir()
        with ThreadPoolExecutor() as pool:
            assert list(pool.map(_end, folders, numbers)) == [None, None]


def _end(folder: Path, number: signal.Signals) -> None:
    """Run a job, end the cloud by a signal, and wait until no process of it is left."""
    with _program(folder) as (process, endpoints):
        channel = grpc.insecure_channel(endpoints["container"])
        client = container_v1.ClusterManagerClient(
            transport=ClusterManagerGrpcTransport(channel=channel)
        )
        make_cluster(client)
        api = kubernetes_of(client, f"{PARENT}/clusters/{RUN}")
        _ground(endpoints["lustre"], api)
        until(
            lambda: (
                httpx.get(
                    f"{api.configuration.host}/apis/ray.io/v1",
                    headers={"Authorization": "Bearer x"},
                ).status_code
                == 200
            )
        )
        _apply(api, 0)
        until(lambda: _ready(api, 0), PATIENCE, 0.1)
        # A job that would outlive its head: a session of its own, deaf to SIGTERM.
        deaf = "setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done'"
        until(lambda: _Dashboard(api).submit("deaf", deaf) == 200, 60, 0.5)
        family = psutil.Process(process.pid).children(recursive=True)
        until(lambda: len(_marks(family)) == 1, 5)
        mark = _marks(family).pop()
        until(lambda: "sleep" in _alive(mark), 60, 0.1)
        os.kill(process.pid, number)
        until(lambda: process.poll() is not None, 40, 0.1)
        until(lambda: not _alive(mark), 20, 0.1)
        # The reaper of a killed cloud goes last.
        until(lambda: not any(map(_lives, family)), 20, 0.1)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _marks(family: list[psutil.Process]) -> set[str]:
    found = set()
    for process in family:
        try:
            found.add(process.environ().get(reaper.MARK, ""))
        except psutil.Error:
            continue
    return found - {""}
