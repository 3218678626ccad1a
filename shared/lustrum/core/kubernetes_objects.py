"""The Kubernetes objects of a run: account, Secret, ConfigMap and RayCluster. Pure.

Tokens arrive as files from a Secret, never as environment: Ray returns ``env_vars`` in plain
text and NeMo-RL copies ``os.environ`` into every actor's runtime environment.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from lustrum.core import names, transport
from lustrum.core.broken_nodes import keep_off
from lustrum.core.profiles import Resources
from lustrum.core.run_plan import RunPlan
from lustrum.head.names import LUSTRE_MOUNT

Manifest = dict[str, Any]

HASH_ANNOTATION = "lustrum.dev/spec-hash"
TOKENS_MOUNT = "/etc/lustrum-tokens"
JOB_MOUNT = "/etc/lustrum"
EVENT_KEY = f"{TOKENS_MOUNT}/event_key"  # file
WORKER_GROUP = "gpu"


def account(plan: RunPlan, expires: float) -> Manifest:
    """Return the Kubernetes service account of the job; its one right is to publish events."""
    return _object("v1", "ServiceAccount", names.JOB_ACCOUNT, plan, expires)


def tokens(
    plan: RunPlan, expires: float, hf_token: str, wandb_key: str, event_key: str = ""
) -> Manifest:
    """Return the Secret with the tokens, and the key that signs the run's events, as files; absent
    ones are absent files.
    """
    data = {}
    if event_key:
        data["event_key"] = event_key
    if hf_token:
        data["hf_token"] = hf_token
    if wandb_key:
        data["netrc"] = f"machine api.wandb.ai\n  login user\n  password {wandb_key}\n"
    return {
        **_object("v1", "Secret", names.TOKENS_SECRET, plan, expires),
        "type": "Opaque",
        "stringData": data,
    }


def job_files(plan: RunPlan, expires: float, files: Mapping[str, bytes]) -> Manifest:
    """Return the ConfigMap that brings the supervisor to the head, file name -> content."""
    return {
        **_object("v1", "ConfigMap", names.JOB_CONFIG, plan, expires),
        "binaryData": {name: base64.b64encode(data).decode() for name, data in files.items()},
    }


def ray_cluster(
    plan: RunPlan,
    expires: float,
    workers: int,
    rdma: bool = False,
    avoid: Sequence[str] = (),
    leaving: Sequence[str] = (),
) -> Manifest:
    """Return the RayCluster with ``workers`` workers (0: the head alone), with ``rdma`` attached
    to the RDMA network of their zone.

    The head takes no GPU, sits on the on-demand system pool and may not be evicted: losing it
    loses every
    job record. Its limits equal its requests, since KubeRay takes Ray's memory from the limit.

    ``avoid``: nodes that no worker may use; ``leaving``: pods that are on one. Neither changes the
    hash: the other workers stay.
    """
    worker = _pod(
        plan, "ray-worker", plan.worker, gpus=plan.gpus_per_node, selector=_pool(names.GPU_POOL)
    )
    if rdma:
        transport.attach(worker, plan.machine, plan.gib)
    spec = {
        "rayVersion": plan.ray_version,
        "headGroupSpec": {
            "serviceType": "ClusterIP",
            "rayStartParams": {
                "dashboard-host": "0.0.0.0",
                "num-gpus": "0",
                "num-cpus": plan.head.cpu,
            },
            "template": _pod(plan, "ray-head", plan.head, gpus=0, selector=_pool("system")),
        },
        "workerGroupSpecs": [
            {
                "groupName": WORKER_GROUP,
                "replicas": workers,
                "minReplicas": 0,
                "maxReplicas": plan.nodes,
                "rayStartParams": {"num-gpus": str(plan.gpus_per_node)},
                "template": worker,
            }
        ],
    }
    body = _object("ray.io/v1", "RayCluster", plan.run_id, plan, expires)
    body["metadata"]["annotations"] = {HASH_ANNOTATION: spec_hash(spec)}
    keep_off(spec, avoid, leaving)
    body["spec"] = spec
    return body


def spec_hash(spec: Mapping[str, Any]) -> str:
    """Return a hash of a RayCluster spec but for its replicas: a changed template needs new
    pods.
    """
    plain = json.loads(json.dumps(spec))
    for group in plain["workerGroupSpecs"]:
        group.pop("replicas")
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def _object(api: str, kind: str, name: str, plan: RunPlan, expires: float) -> Manifest:
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": names.NAMESPACE,
            "labels": names.labels(plan.run_id, expires),
        },
    }


def _pool(name: str) -> dict[str, str]:
    return {"cloud.google.com/gke-nodepool": name}


def _pod(
    plan: RunPlan, name: str, resources: Resources, *, gpus: int, selector: dict[str, str]
) -> Manifest:
    amounts: dict[str, str] = {"cpu": resources.cpu, "memory": resources.memory}
    if gpus:
        amounts["nvidia.com/gpu"] = str(gpus)
    container: Manifest = {
        "name": name,
        "image": plan.image,
        "resources": {"requests": amounts, "limits": amounts},
        "env": [{"name": key, "value": value} for key, value in environment().items()],
        "volumeMounts": [
            {"name": "lustre", "mountPath": LUSTRE_MOUNT},
            {"name": "dshm", "mountPath": "/dev/shm"},
            {"name": "job", "mountPath": JOB_MOUNT, "readOnly": True},
            {"name": "tokens", "mountPath": TOKENS_MOUNT, "readOnly": True},
        ],
    }
    if not gpus:
        container["ports"] = [
            {"containerPort": port, "name": label}
            for label, port in (
                ("gcs", 6379),
                ("dashboard", names.DASHBOARD_PORT),
                ("client", 10001),
            )
        ]
    pod: Manifest = {
        "serviceAccountName": names.JOB_ACCOUNT,
        "nodeSelector": selector,
        "terminationGracePeriodSeconds": 120,
        "containers": [container],
        "volumes": [
            {"name": "lustre", "persistentVolumeClaim": {"claimName": names.CLAIM}},
            {"name": "dshm", "emptyDir": {"medium": "Memory"}},
            {"name": "job", "configMap": {"name": names.JOB_CONFIG}},
            {
                "name": "tokens",
                "secret": {"secretName": names.TOKENS_SECRET, "defaultMode": 0o400},
            },
        ],
    }
    if gpus:
        pod["tolerations"] = [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "cloud.google.com/gke-spot", "operator": "Exists", "effect": "NoSchedule"},
        ]
    return {
        "metadata": {
            "labels": {names.LABEL_RUN: plan.run_id},
            "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
        },
        "spec": pod,
    }


def environment() -> dict[str, str]:
    """Return the pods' environment: paths of the token files and of the cache, no secret."""
    return {
        "HF_HOME": names.model_cache(),
        "HF_TOKEN_PATH": f"{TOKENS_MOUNT}/hf_token",
        "NETRC": f"{TOKENS_MOUNT}/netrc",
    }
