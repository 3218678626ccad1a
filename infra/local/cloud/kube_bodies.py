"""Bodies that a cluster makes by itself (nodes, events), and what is read from a pod's."""

from __future__ import annotations

from collections.abc import Mapping

from infra.local.cloud.object_values import Object
from infra.local.cloud.objects import stamp
from infra.local.cloud.state import unique


def node_body(
    name: str, labels: Mapping[str, str], provider: str, capacity: Mapping[str, str]
) -> Object:
    """Return a node that is Ready, all of its capacity allocatable."""
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "lastTransitionTime": stamp(),
    }
    return {
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {"providerID": provider},
        "status": {
            "capacity": dict(capacity),
            "allocatable": dict(capacity),
            "conditions": [ready],
        },
    }


def event_body(about: Object, kind_of: str, reason: str, message: str, kind: str) -> Object:
    """Return an Event about an object of kind ``kind_of``; ``kind`` is Normal or Warning."""
    meta = about["metadata"]
    return {
        "metadata": {"name": f"{meta['name']}.{unique(16)}"},
        "involvedObject": {
            "kind": kind_of,
            "name": meta["name"],
            "namespace": meta.get("namespace", "default"),
            "uid": meta.get("uid", ""),
            "apiVersion": about.get("apiVersion", "v1"),
        },
        "reason": reason,
        "message": message,
        "type": kind,
        "count": 1,
        "firstTimestamp": stamp(),
        "lastTimestamp": stamp(),
        "reportingComponent": "",
        "source": {"component": "lustrum-stand-in"},
    }


def is_over(pod: Object) -> bool:
    """Say whether a pod has ended."""
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def gpus_of(pod: Object) -> int:
    """Return the GPUs a pod asks for."""
    resources = pod["spec"]["containers"][0].get("resources") or {}
    amount = (resources.get("limits") or {}).get("nvidia.com/gpu", 0)
    return int(amount)


def forbidden_nodes(pod: Object) -> list[str]:
    """Return the nodes that a pod's required affinity excludes by their names."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return [
        name
        for term in required.get("nodeSelectorTerms") or []
        for rule in term.get("matchExpressions") or []
        if rule["key"] == "kubernetes.io/hostname" and rule["operator"] == "NotIn"
        for name in rule.get("values") or []
    ]
