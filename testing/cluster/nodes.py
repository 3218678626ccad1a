"""Nodes played through the API: scheduler, autoscaler, kubelet and Spot market in one thread.

Pods get bound where labels, taints and resources allow it, their Secrets, ConfigMaps and claims
must exist, and they become Running and Ready, unless a test says otherwise. What a real cluster
would write, this writes through the same subresources (binding, status), so the API server and
all controllers see nothing unusual.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from kubernetes.utils.quantity import parse_quantity as _untyped_quantity

from testing.cluster.api import Api, ApiError
from testing.cluster.network import BRIDGE_ADDRESS, pod_address
from testing.cluster.pod_status import (
    condition,
    conditions_of,
    pod_status,
    shutdown_event,
    terminated,
    timestamp,
    waiting_reason,
)
from testing.cluster.ray_pods import RayPods

Pod = dict[str, Any]
GPU = "nvidia.com/gpu"
_POLL_S = 0.1


@dataclass(frozen=True)
class NodePool:
    """Equal nodes. ``size`` is how many may exist; they come when pods need them."""

    name: str
    size: int
    labels: Mapping[str, str]
    allocatable: Mapping[str, str]
    taints: tuple[tuple[str, str], ...] = ()  # (key, value), all NoSchedule


SYSTEM_POOL = NodePool(
    "system",
    1,
    {"cloud.google.com/gke-nodepool": "system"},
    {"cpu": "15", "memory": "120Gi", "pods": "110"},
)


def a4_pool(size: int, *, gpus: int = 8) -> NodePool:
    """The GPU pool: a4-highgpu-8g has 224 vCPU and 3,968 GB, GKE keeps a part of both."""
    return NodePool(
        "a4",
        size,
        {
            "cloud.google.com/gke-nodepool": "a4",
            "cloud.google.com/gke-accelerator": "nvidia-b200",
            "cloud.google.com/gke-spot": "true",
        },
        {"cpu": "222", "memory": "3600Gi", "pods": "110", GPU: str(gpus)},
        ((GPU, "present"), ("cloud.google.com/gke-spot", "true")),
    )


@dataclass
class Behaviour:
    """How pods fare; tests change it while the thread runs."""

    # Pods for which a predicate is true stay where it says.
    never_ready: Callable[[Pod], bool] = lambda pod: False
    image_missing: Callable[[Pod], bool] = lambda pod: False
    never_terminates: Callable[[Pod], bool] = lambda pod: False
    # The address of a real head that answers for this pod as well, else None.
    answered_by: Callable[[Pod], str | None] = lambda pod: None
    # Pods that real Ray runs in; needs ``Nodes.ray``.
    real: Callable[[Pod], bool] = lambda pod: False


@dataclass
class Nodes:
    """The thread that plays all nodes of one cluster, between ``start`` and ``stop``."""

    api: Api
    pools: list[NodePool]
    behaviour: Behaviour = field(default_factory=Behaviour)
    ray: RayPods | None = None
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._play, name="nodes", daemon=True)
        self._pod_number = 1
        self._node_number = 0

    def start(self) -> None:
        """Begin to play."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; nodes and pods stay as they are."""
        self._stop.set()
        self._thread.join(timeout=30)
        if self.ray is not None:
            self.ray.close()

    def names(self, pool: str) -> list[str]:
        """The nodes of a pool that exist now."""
        listed = self.api.list("Node", labelSelector=f"cloud.google.com/gke-nodepool={pool}")
        return sorted(node["metadata"]["name"] for node in listed)

    def reset(self) -> None:
        """Back to the default behaviour."""
        with self._lock:
            self.behaviour = Behaviour()

    def resize(self, pool: str, size: int, *, gpus: int | None = None) -> None:
        """Let a pool have ``size`` nodes from now on, new ones with so many GPUs; others stay."""
        with self._lock:
            self.pools = [
                _resized(one, size, gpus) if one.name == pool else one for one in self.pools
            ]

    def preempt(self, node: str) -> None:
        """Take a Spot node back as GKE does: TERM to its pods, Failed, then no such node."""
        with self._lock:
            self.api.create("Event", shutdown_event(node))
            for pod in self._pods_on(node):
                self._end_process(pod)
                self._patch_status(pod, terminated())
            self.api.delete("Node", node)

    def vanish(self, node: str) -> None:
        """Lose a node without a word: its pods stay Running until the controllers notice."""
        with self._lock:
            for pod in self._pods_on(node):
                self._end_process(pod, grace_s=0.0)
            self.api.delete("Node", node)

    def _pods_on(self, node: str) -> list[Pod]:
        return [pod for pod in self._pods() if pod["spec"].get("nodeName") == node]

    def _play(self) -> None:
        while not self._stop.wait(_POLL_S):
            try:
                with self._lock:
                    self._step()
            except Exception as error:  # the API server is being stopped, or a defect to show
                self.errors.append(repr(error))

    def _pods(self) -> list[Pod]:
        return self.api.list("Pod", namespace="", resourceVersion="0")

    def _step(self) -> None:
        pods = self._pods()
        nodes = {node["metadata"]["name"]: node for node in self.api.list("Node")}
        for pod in pods:
            try:
                self._play_pod(pod, pods, nodes)
            except ApiError as error:
                # Another writer was first (409) or the object is gone (404): look again.
                if error.status not in (404, 409):
                    self.errors.append(str(error))

    def _play_pod(self, pod: Pod, pods: list[Pod], nodes: dict[str, Any]) -> None:
        node = pod["spec"].get("nodeName")
        if pod["metadata"].get("deletionTimestamp"):
            if (not node or node in nodes) and not self.behaviour.never_terminates(pod):
                self._finish_deletion(pod)
        elif not node:
            self._schedule(pod, pods, nodes)
        elif node in nodes and pod["status"].get("phase") == "Pending":
            self._run(pod)
        elif node in nodes and pod["status"].get("phase") == "Running":
            self._probe(pod)

    def _finish_deletion(self, pod: Pod) -> None:
        self._end_process(pod)
        meta = pod["metadata"]
        self.api.delete(
            "Pod",
            meta["name"],
            meta["namespace"],
            gracePeriodSeconds=0,
            preconditions={"uid": meta["uid"]},
        )

    def _schedule(self, pod: Pod, pods: list[Pod], nodes: dict[str, Any]) -> None:
        problem = self._missing_claim(pod)
        target = None if problem else _first_fit(pod, pods, nodes)
        if not problem and target is None:
            target = self._scale_up(pod, nodes)
            problem = "0 nodes are available: no pool fits or may grow"
        if target is None:
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": problem,
            }
            if not any(c.get("reason") == "Unschedulable" for c in conditions_of(pod)):
                self._patch_status(pod, {"conditions": [condition]})
            return
        meta = pod["metadata"]
        binding = {
            "metadata": {"name": meta["name"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": target},
        }
        self.api.create("Pod", binding, meta["namespace"], sub=f"{meta['name']}/binding")
        pod["spec"]["nodeName"] = target  # later pods of this round must see it

    def _missing_claim(self, pod: Pod) -> str:
        for volume in pod["spec"].get("volumes", []):
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            namespace = pod["metadata"]["namespace"]
            if claim and not self.api.find("PersistentVolumeClaim", claim, namespace):
                return f'persistentvolumeclaim "{claim}" not found'
        return ""

    def _scale_up(self, pod: Pod, nodes: dict[str, Any]) -> str | None:
        for pool in self.pools:
            count = sum(
                node["metadata"]["labels"].get("cloud.google.com/gke-nodepool") == pool.name
                for node in nodes.values()
            )
            self._node_number += 1
            node = _node_object(f"{pool.name}-{self._node_number}", pool)
            if count < pool.size and _fits(pod, [], node):
                name = str(node["metadata"]["name"])
                self.api.create("Node", node)
                self.api.patch("Node", f"{name}/status", {"status": node["status"]})
                nodes[name] = node
                return name
        return None

    def _run(self, pod: Pod) -> None:
        if (missing := self._missing_files(pod)) or self.behaviour.image_missing(pod):
            reason = "ContainerCreating" if missing else "ImagePullBackOff"
            waiting = {"waiting": {"reason": reason, "message": missing or "not found"}}
            if waiting_reason(pod) != reason:
                self._patch_status(pod, pod_status(pod, "Pending", waiting, ready=False))
            return
        self._pod_number += 1
        address = self.behaviour.answered_by(pod) or pod_address(self._pod_number)
        is_real = self.ray is not None and self.behaviour.real(pod)
        if self.ray is not None and is_real:
            self.ray.start(pod, address)
        ready = not is_real and not self.behaviour.never_ready(pod)
        status = pod_status(pod, "Running", {"running": {"startedAt": timestamp()}}, ready=ready)
        status |= {"podIP": address, "podIPs": [{"ip": address}], "hostIP": BRIDGE_ADDRESS}
        self._patch_status(pod, status)

    def _probe(self, pod: Pod) -> None:
        was_ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions_of(pod))
        ready = not self.behaviour.never_ready(pod)
        if self.ray is not None and self.ray.holds(pod):
            # Once ready, a probe per round would cost more than it tells: the process is watched.
            restarted = self.ray.restart_if_ended(pod)
            ready = ready and not restarted and (was_ready or self.ray.is_ready(pod))
        if ready != was_ready:
            status = pod_status(
                pod, "Running", {"running": {"startedAt": timestamp()}}, ready=ready
            )
            self._patch_status(pod, status)

    def _end_process(self, pod: Pod, grace_s: float = 3.0) -> None:
        if self.ray is not None:
            self.ray.stop(pod, grace_s)

    def _missing_files(self, pod: Pod) -> str:
        namespace = pod["metadata"]["namespace"]
        for volume in pod["spec"].get("volumes", []):
            for kind, source, key in (
                ("Secret", volume.get("secret"), "secretName"),
                ("ConfigMap", volume.get("configMap"), "name"),
            ):
                if not source or source.get("optional"):
                    continue
                name = source[key]
                if not self.api.find(kind, name, namespace):
                    return f'{kind.lower()}: "{name}" not found'
        return ""

    def _patch_status(self, pod: Pod, status: dict[str, Any]) -> None:
        # The uid keeps a late patch from hitting a new pod of the same name.
        meta = pod["metadata"]
        body = {"metadata": {"uid": meta["uid"]}, "status": status}
        self.api.patch("Pod", f"{meta['name']}/status", body, meta["namespace"])


def _resized(pool: NodePool, size: int, gpus: int | None) -> NodePool:
    room = pool.allocatable if gpus is None else {**pool.allocatable, GPU: str(gpus)}
    return replace(pool, size=size, allocatable=room)


def _node_object(name: str, pool: NodePool) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {**pool.labels, "kubernetes.io/hostname": name}},
        "spec": {
            "taints": [
                {"key": key, "value": value, "effect": "NoSchedule"} for key, value in pool.taints
            ]
        },
        "status": {
            "allocatable": dict(pool.allocatable),
            "capacity": dict(pool.allocatable),
            "conditions": [condition("Ready", True)],
        },
    }


def _first_fit(pod: Pod, pods: list[Pod], nodes: dict[str, Any]) -> str | None:
    for name, node in nodes.items():
        placed = [p for p in pods if p["spec"].get("nodeName") == name and _takes_room(p)]
        if _fits(pod, placed, node):
            return name
    return None


def _takes_room(pod: Pod) -> bool:
    return pod["status"].get("phase") not in ("Succeeded", "Failed")


def _fits(pod: Pod, placed: list[Pod], node: dict[str, Any]) -> bool:
    labels = node["metadata"]["labels"]
    if any(labels.get(k) != v for k, v in (pod["spec"].get("nodeSelector") or {}).items()):
        return False
    # The API server's own taint on a node without conditions is the lifecycle controller's to
    # remove; it is not played here.
    taints = [t for t in node["spec"].get("taints") or [] if not t["key"].startswith("node.k")]
    if not all(_tolerated(taint, pod["spec"].get("tolerations") or []) for taint in taints):
        return False
    wanted = _requests(pod)
    for other in placed:
        for resource, amount in _requests(other).items():
            wanted[resource] = wanted.get(resource, Decimal(0)) + amount
    room = node["status"]["allocatable"]
    return all(amount <= _quantity(room.get(r, "0")) for r, amount in wanted.items())


def _tolerated(taint: dict[str, Any], tolerations: list[dict[str, Any]]) -> bool:
    return any(
        toleration.get("key") in (None, taint["key"])
        and toleration.get("effect") in (None, "", taint["effect"])
        and (toleration.get("operator") == "Exists" or toleration.get("value") == taint["value"])
        for toleration in tolerations
    )


def _requests(pod: Pod) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for container in pod["spec"]["containers"]:
        resources = container.get("resources") or {}
        for name, value in (resources.get("requests") or {}).items():
            total[name] = total.get(name, Decimal(0)) + _quantity(value)
    return total


def _quantity(text: str) -> Decimal:
    return Decimal(_untyped_quantity(text))  # type: ignore[no-untyped-call]
