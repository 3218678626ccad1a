"""What is read from a RayCluster and its pods."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

from infra.local.cloud.cluster import KubeCluster, PodRuntime
from infra.local.cloud.kube_bodies import is_over
from infra.local.cloud.object_values import Object
from infra.local.cloud.objects import RESOURCES
from infra.local.cloud.raycluster_status import node_type

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
PODS = RESOURCES["pods"]


def find_fault(item: Object) -> tuple[str, str] | None:
    """Return reason and text of what KubeRay refuses in a RayCluster, None if nothing."""
    name, spec = item["metadata"]["name"], item.get("spec") or {}
    if len(name) > 53:
        return (
            "InvalidRayClusterMetadata",
            f"RayCluster name should be no more than 53 characters, got {len(name)}",
        )
    if not _DNS_1035.fullmatch(name):
        return (
            "InvalidRayClusterMetadata",
            f"RayCluster name {name} should be a valid DNS1035 label",
        )
    head = (spec.get("headGroupSpec") or {}).get("template") or {}
    if not (head.get("spec") or {}).get("containers"):
        return "InvalidRayClusterSpec", "headGroupSpec should have at least one container"
    names = set()
    for group in spec.get("workerGroupSpecs") or []:
        if not ((group.get("template") or {}).get("spec") or {}).get("containers"):
            return "InvalidRayClusterSpec", "workerGroupSpec should have at least one container"
        if group.get("minReplicas", 0) > group.get("maxReplicas", 0):
            return (
                "InvalidRayClusterSpec",
                f"worker group {group['groupName']} minReplicas "
                "cannot be greater than maxReplicas",
            )
        if group["groupName"] in names:
            return "InvalidRayClusterSpec", f"worker group {group['groupName']} is given twice"
        names.add(group["groupName"])
    return None


def unbound_claim(cluster: KubeCluster, pod: Object) -> str | None:
    """Return the claim of a pod that is not bound, None if there is none."""
    for volume in pod["spec"].get("volumes") or []:
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim and cluster.claim_folder(pod["metadata"]["namespace"], claim) is None:
            return str(claim)
    return None


def env_value(cluster: KubeCluster, pod: Object, entry: Object) -> str:
    """Return the value of one entry of a container's environment."""
    source = entry.get("valueFrom") or {}
    for key, plural in (("secretKeyRef", "secrets"), ("configMapKeyRef", "configmaps")):
        if key in source:
            found = cluster.store.find(plural, pod["metadata"]["namespace"], source[key]["name"])
            text = str(((found or {}).get("data") or {}).get(source[key]["key"], ""))
            return base64.b64decode(text).decode() if plural == "secrets" else text
    return str(entry.get("value") or "")


def pods_of(cluster: KubeCluster, item: Object) -> list[Object]:
    """Return the pods of a RayCluster."""
    meta = item["metadata"]
    return cluster.store.select(PODS, meta["namespace"], f"ray.io/cluster={meta['name']}")


def head_mounts(cluster: KubeCluster, service: Object) -> tuple[int | None, dict[str, Path]]:
    """Return dashboard port and mounts of the running head behind a service."""
    selector = ",".join(f"{key}={value}" for key, value in service["spec"]["selector"].items())
    for pod in cluster.store.select(PODS, service["metadata"]["namespace"], selector):
        runtime = cluster.pods.get(pod["metadata"]["name"])
        if runtime is not None and runtime.raylet is not None and not is_over(pod):
            return runtime.raylet.dashboard, dict(runtime.mounts)
    return None, {}


def head_runtime(cluster: KubeCluster, item: Object) -> PodRuntime | None:
    """Return what runs as the head of a RayCluster, None if nothing does."""
    for pod in pods_of(cluster, item):
        if node_type(pod) == "head" and not is_over(pod):
            return cluster.pods.get(pod["metadata"]["name"])
    return None


def group_of(item: Object, pod: Object) -> Any:
    """Return the group of a RayCluster that a pod belongs to."""
    name = pod["metadata"]["labels"]["ray.io/group"]
    for group in item["spec"].get("workerGroupSpecs") or []:
        if group["groupName"] == name and node_type(pod) == "worker":
            return group
    return item["spec"]["headGroupSpec"]


def replicas(group: Object) -> int:
    """Return how many pods a worker group should have."""
    least, most = group.get("minReplicas", 0), group.get("maxReplicas", 0)
    return int(min(max(group.get("replicas", least), least), most))


def given_up(cluster: KubeCluster, group: Object, pod: Object) -> bool:
    """Remove a worker whose pod the group's scaleStrategy names; say whether it did."""
    leaving = (group.get("scaleStrategy") or {}).get("workersToDelete") or []
    if pod["metadata"]["name"] not in leaving:
        return False
    cluster.remove_pod(pod)
    return True


def cpu_limit(container: Object) -> str:
    """Return the CPUs of a container as Ray is told them."""
    resources = container.get("resources") or {}
    text = str((resources.get("limits") or resources.get("requests") or {}).get("cpu", "1"))
    return str(float(text[:-1]) / 1000) if text.endswith("m") else text


def owner_reference(item: Object) -> Object:
    """Return the owner reference to a RayCluster."""
    meta = item["metadata"]
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def tell_once(cluster: KubeCluster, item: Object, reason: str, text: str) -> None:
    """Write the Warning of an invalid RayCluster, unless it is written."""
    meta = item["metadata"]
    for event in cluster.store.select(RESOURCES["events"], meta["namespace"]):
        about = event["involvedObject"]
        if about.get("uid") == meta["uid"] and event["message"].endswith(text):
            return
    what = "metadata" if reason.endswith("Metadata") else "spec"
    cluster.event(
        item,
        "RayCluster",
        reason,
        f"The RayCluster {what} is invalid {meta['namespace']}/{meta['name']}: {text}",
    )
