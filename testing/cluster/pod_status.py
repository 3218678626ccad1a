"""What kubelets write: statuses of pods, and their events. Pure."""

from __future__ import annotations

import datetime
from typing import Any

Pod = dict[str, Any]


def pod_status(pod: Pod, phase: str, state: dict[str, Any], *, ready: bool) -> dict[str, Any]:
    """The status of a pod whose containers are all in one state."""
    containers = [
        {
            "name": c["name"],
            "image": c["image"],
            "imageID": "",
            "restartCount": 0,
            "ready": ready,
            "started": phase == "Running",
            "state": state,
        }
        for c in pod["spec"]["containers"]
    ]
    inits = [
        {
            "name": c["name"],
            "image": c["image"],
            "imageID": "",
            "restartCount": 0,
            "ready": True,
            "state": {"terminated": {"exitCode": 0, "reason": "Completed"}},
        }
        for c in pod["spec"].get("initContainers", [])
    ]
    conditions = [
        condition("PodScheduled", True),
        condition("Initialized", True),
        condition("ContainersReady", ready),
        condition("Ready", ready),
    ]
    return {
        "phase": phase,
        "conditions": conditions,
        "containerStatuses": containers,
        "initContainerStatuses": inits,
        "startTime": timestamp(),
    }


def terminated() -> dict[str, Any]:
    """A pod on a node that shuts down in time."""
    return {
        "phase": "Failed",
        "reason": "Terminated",
        "message": "Pod was terminated in response to imminent node shutdown.",
        "conditions": [condition("Ready", False), condition("ContainersReady", False)],
    }


def shutdown_event(node: str) -> dict[str, Any]:
    """What the kubelet's shutdown manager says of its node (events of nodes are in default)."""
    return {
        "metadata": {"generateName": f"{node}."},
        "involvedObject": {"kind": "Node", "name": node, "uid": node},
        "type": "Normal",
        "reason": "Shutdown",
        "message": "Shutdown manager detected shutdown event",
        "source": {"component": "kubelet", "host": node},
        "firstTimestamp": timestamp(),
        "lastTimestamp": timestamp(),
        "count": 1,
    }


def condition(kind: str, true: bool) -> dict[str, Any]:
    """A condition, since now."""
    return {"type": kind, "status": str(true), "lastTransitionTime": timestamp()}


def conditions_of(pod: Pod) -> list[dict[str, Any]]:
    """The conditions of a pod, [] before it has any."""
    conditions: list[dict[str, Any]] = pod["status"].get("conditions") or []
    return conditions


def waiting_reason(pod: Pod) -> str | None:
    """Why its first container waits, None when it does not."""
    for status in pod["status"].get("containerStatuses") or []:
        reason: str | None = status["state"].get("waiting", {}).get("reason")
        return reason
    return None


def timestamp() -> str:
    """Now, as Kubernetes writes it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
