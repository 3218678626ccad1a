"""What the tests of the stand-in cloud share: names, waiting, bodies of requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from google.cloud import container_v1
from kubernetes import client as kube

from infra.local.cloud import Timings

PROJECT = "p-local"
RUN = "rl-0123456789"
PARENT = f"projects/{PROJECT}/locations/us-east1"
ZONE = f"projects/{PROJECT}/locations/us-east1-b"
QUICK = Timings(
    cluster_create=0.15,
    cluster_delete=0.05,
    pool_create=0.05,
    pool_delete=0.05,
    update=0.02,
    operator=0.0,
    node_boot=0.05,
    lustre_create=0.02,
    lustre_delete=0.02,
    transfer=0.05,
    recreate=0.5,
)


def until(condition: Callable[[], Any], seconds: float = 10.0, pause: float = 0.02) -> Any:
    """Poll a condition until it holds and return its value; fail after so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(pause)
    raise AssertionError(f"not within {seconds} s: {condition}")


def cluster_body(*, name: str = RUN, operator: bool = True, workers: int = 2) -> dict[str, Any]:
    """Return a cluster as the blueprint makes it."""
    return {
        "name": name,
        "locations": ["us-east1-b"],
        "resource_labels": {"lustrum-run": name},
        "addons_config": {"ray_operator_config": {"enabled": operator}},
        "node_pools": [
            {
                "name": "system",
                "initial_node_count": 1,
                "config": {"machine_type": "n2d-highmem-16"},
            },
            {
                "name": "a4",
                "initial_node_count": 0,
                "autoscaling": {"enabled": True, "total_max_node_count": workers},
                "config": {
                    "machine_type": "a4-highgpu-8g",
                    "spot": True,
                    "accelerators": [{"accelerator_type": "nvidia-b200", "accelerator_count": 8}],
                },
            },
        ],
    }


def make_cluster(gke: container_v1.ClusterManagerClient, **options: Any) -> str:
    """Create a cluster, wait until it runs, return its resource name."""
    body = cluster_body(**options)
    gke.create_cluster(parent=PARENT, cluster=body)
    path = f"{PARENT}/clusters/{body['name']}"
    until(lambda: gke.get_cluster(name=path).status.name == "RUNNING")
    return path


def kubernetes_of(gke: container_v1.ClusterManagerClient, path: str) -> kube.ApiClient:
    """Return the real Kubernetes client of a cluster's DNS endpoint."""
    found = gke.get_cluster(name=path).control_plane_endpoints_config.dns_endpoint_config
    configuration = kube.Configuration()
    configuration.host = f"http://{found.endpoint}"
    configuration.api_key = {"authorization": "Bearer local"}
    return kube.ApiClient(configuration)


def ray_cluster(workers: int, *, name: str = RUN, most: int = 2) -> dict[str, Any]:
    """Return a RayCluster like Lustrum's: Lustre, files from a ConfigMap and a Secret."""

    def pod(title: str, pool: str, gpus: int) -> dict[str, Any]:
        amounts = {"cpu": "1", "memory": "1Gi"}
        if gpus:
            amounts["nvidia.com/gpu"] = str(gpus)
        return {
            "spec": {
                "serviceAccountName": "lustrum-job",
                "nodeSelector": {"cloud.google.com/gke-nodepool": pool},
                "containers": [
                    {
                        "name": title,
                        "image": "nemo-rl:test",
                        "resources": {"limits": amounts, "requests": amounts},
                        "env": [{"name": "HF_HOME", "value": "/lustre/cache/huggingface"}],
                        "volumeMounts": [
                            {"name": "lustre", "mountPath": "/lustre"},
                            {"name": "job", "mountPath": "/etc/lustrum"},
                            {"name": "tokens", "mountPath": "/etc/lustrum-tokens"},
                        ],
                    }
                ],
                "volumes": [
                    {"name": "lustre", "persistentVolumeClaim": {"claimName": "lustre-pvc"}},
                    {"name": "job", "configMap": {"name": "lustrum-job"}},
                    {"name": "tokens", "secret": {"secretName": "lustrum-tokens"}},
                ],
            }
        }

    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "rayVersion": "2.54.0",
            "headGroupSpec": {
                "rayStartParams": {"num-cpus": "1"},
                "template": pod("ray-head", "system", 0),
            },
            "workerGroupSpecs": [
                {
                    "groupName": "gpu",
                    "replicas": workers,
                    "minReplicas": 0,
                    "maxReplicas": most,
                    "rayStartParams": {},
                    "template": pod("ray-worker", "a4", 8),
                }
            ],
        },
    }
