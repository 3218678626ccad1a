"""Nodes whose GPU broke: which one it was, and how a run's later attempts keep off it. Pure.

The functions may change one thing of a cluster, its RayCluster. That is enough: the workers'
template forbids the node by its name, and ``scaleStrategy.workersToDelete``, which KubeRay heeds
with and without its autoscaler, makes it delete the pod that is still there. No right on nodes or
pods is needed, and the autoscaler takes the node away once it is empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from lustrum.core.readiness import Object, kind_of
from lustrum.head.last_error import GPU_FAILED

MOST = 50  # nodes kept of a run; older ones are forgotten
_ADDRESS = re.compile(r"\bnode ([0-9]{1,3}(?:\.[0-9]{1,3}){3})\b")
_HOST = "kubernetes.io/hostname"


def broken_node(message: str, pods: Iterable[Object], workers: int) -> str | None:
    """Return the name of the node whose GPU a training says failed.

    Args:
        message: of the supervisor; "a GPU failed on node 10.4.2.7: ..." names a pod's address.
        pods: the run's, as Kubernetes lists them.
        workers: how many the run has: the only one needs no address.

    Returns:
        None when the message is of something else, or nobody can tell which node it was.
    """
    if not message.startswith(GPU_FAILED):
        return None
    placed = [pod for pod in pods if kind_of(pod) == "worker" and node_of(pod)]
    if workers == 1 and len(placed) == 1:
        return node_of(placed[0])
    found = _ADDRESS.search(message)
    if found is None:
        return None
    at = [pod for pod in placed if (pod.get("status") or {}).get("podIP") == found.group(1)]
    return node_of(at[0]) if len(at) == 1 else None


def node_of(pod: Object) -> str:
    """Return the node a pod was placed on, "" when it was not yet."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def pods_on(pods: Iterable[Object], nodes: Iterable[str]) -> list[str]:
    """Return the names of the workers' pods that are on one of these nodes, sorted."""
    avoided = set(nodes)
    return sorted(
        pod["metadata"]["name"]
        for pod in pods
        if kind_of(pod) == "worker" and node_of(pod) in avoided
    )


def keep_off(spec: dict[str, Any], nodes: Iterable[str], pods: Iterable[str]) -> None:
    """Forbid the workers of a RayCluster spec some nodes, in place, and give up these pods."""
    avoided, leaving = list(nodes), list(pods)
    for group in spec["workerGroupSpecs"]:
        if avoided:
            rule = {"key": _HOST, "operator": "NotIn", "values": avoided}
            terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
            group["template"]["spec"]["affinity"] = {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
            }
        if leaving:
            group["scaleStrategy"] = {"workersToDelete": leaving}


def avoided(cluster: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """Return what `keep_off` put into a RayCluster: the affinities and the pods given up."""
    groups = cluster["spec"].get("workerGroupSpecs") or []
    return (
        [group["template"]["spec"].get("affinity") for group in groups],
        [(group.get("scaleStrategy") or {}).get("workersToDelete") or [] for group in groups],
    )
