"""The Kubernetes API of one cluster with KubeRay in it, as values over time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from lustrum.adapters.kubernetes import Kubernetes
from lustrum.adapters.ray_jobs import RayReply
from lustrum.core import images
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.failures import Failure

from testing.agenda import Agenda
from testing.dashboard import Dashboard

_PROXY = re.compile(r"^/api/v1/namespaces/default/services/http:[^/]+:8265/proxy/(.*)$")


class FakeKubernetes(Kubernetes):
    """One cluster's objects. ``room`` says how many GPU nodes the zone has for it."""

    def __init__(self, agenda: Agenda, run_id: str, new_head: Callable[[str], Dashboard]) -> None:
        self.agenda = agenda
        self.run_id = run_id
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.kube_events: list[dict[str, Any]] = []
        self.head: Dashboard | None = None
        self.nodes: list[str] = []  # GPU nodes, each with its worker pod
        self.empty: list[str] = []  # GPU nodes whose worker was given up
        self.born: dict[str, float] = {}
        self.room = 64
        self.head_seconds = 90.0
        self.node_seconds = 240.0
        self.broken: ServiceError | None = None
        self.applied: list[dict[str, Any]] = []
        self.kuberay_is_up = True
        self._new_head = new_head
        self._generation = 0
        self._serial = 0
        self._heads = 0

    # What Kubernetes gives its users.

    def get(self, kind: str, name: str) -> dict[str, Any]:
        self._check()
        if (kind, name) not in self.objects:
            raise NotFound(f"Kubernetes answered 404: {kind} {name} not found")
        found = dict(self.objects[kind, name])
        if kind == "RayCluster":
            found["status"] = self._status(found)
        return found

    def items(self, kind: str, **query: str) -> list[dict[str, Any]]:
        self._check()
        return self._pods() if kind == "Pod" else list(self.kube_events)

    def apply(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        self._check()
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if kind == "RayCluster" and not self.kuberay_is_up:
            raise NotFound("Kubernetes answered 404: the server could not find rayclusters")
        self.applied.append(dict(manifest))
        before = self.objects.get((kind, name))
        after = {**manifest, "metadata": dict(manifest["metadata"])}
        if kind == "RayCluster" and (before is None or before["spec"] != after["spec"]):
            self._generation += 1
        after["metadata"]["generation"] = self._generation
        self.objects[kind, name] = after
        if kind == "RayCluster":
            self._reconcile()
            return self.get(kind, name)
        return after

    def delete(self, kind: str, name: str) -> None:
        self._check()
        self.objects.pop((kind, name), None)
        if kind == "RayCluster":
            self.head = None

    def request(self, method: str, path: str, **more: Any) -> RayReply:
        self._check()
        match = _PROXY.match(path)
        assert match is not None, path
        if ("RayCluster", self.run_id) not in self.objects:
            return RayReply(404, b'{"message":"services not found"}')
        if self.head is None:
            return RayReply(503, b'{"message":"no endpoints available for service"}')
        self.head.workers = len(self.nodes)
        return self.head.send(method, match.group(1), more.get("body"))

    # What a test does to it.

    def ready_claim(self) -> None:
        """The volume is there: the claim binds."""
        self.objects["PersistentVolumeClaim", "lustre-pvc"] = {
            "metadata": {"name": "lustre-pvc"},
            "status": {"phase": "Bound"},
        }

    def preempt(self, count: int = 1, *, leaves_events: bool = True) -> None:
        """Take nodes away; the autoscaler asks for others, and the training dies of it."""
        for _ in range(min(count, len(self.nodes))):
            node = self.nodes.pop()
            if leaves_events:
                self.event("Warning", "Preempted", f"node {node} was preempted", kind="Node")
        if self.head is not None:
            self.head.kill_trainings()
        self._reconcile()

    def remove_nodes(self, count: int) -> None:
        """Scale down, or lose the pool: a training dies of its workers' end, told to or not."""
        if count and self.nodes:
            del self.nodes[-count:]
            if self.head is not None:
                self.head.kill_trainings()

    def lose_head(self, seconds: float = 120.0) -> None:
        """The head pod dies and is made anew: another session, no job is known."""
        if self.head is not None:
            self.head.down = True  # and with it every driver
            for job in self.head.jobs.values():
                job.cause = job.cause or "head"
        self.head = None
        self.agenda.after(seconds, self._raise_head)

    def event(
        self, type_: str, reason: str, message: str, *, kind: str = "Pod", name: str | None = None
    ) -> None:
        """Record a Kubernetes event."""
        moment = datetime.fromtimestamp(self.agenda.now(), UTC).isoformat()
        self.kube_events.append(
            {
                "type": type_,
                "reason": reason,
                "message": message,
                "lastTimestamp": moment,
                "involvedObject": {"kind": kind, "name": name or f"{self.run_id}-worker-0"},
            }
        )

    @property
    def wanted_workers(self) -> int:
        """The replicas of the RayCluster, 0 when there is none."""
        cluster = self.objects.get(("RayCluster", self.run_id))
        return int(cluster["spec"]["workerGroupSpecs"][0]["replicas"]) if cluster else 0

    @property
    def _group(self) -> dict[str, Any]:
        cluster = self.objects.get(("RayCluster", self.run_id))
        return cluster["spec"]["workerGroupSpecs"][0] if cluster else {"template": {"spec": {}}}

    @property
    def _given_up(self) -> list[str]:
        return list(self._group.get("scaleStrategy", {}).get("workersToDelete", []))

    @property
    def _forbidden(self) -> list[str]:
        """The nodes that the workers' affinity excludes by name."""
        found: Any = self._group["template"]["spec"].get("affinity", {}).get("nodeAffinity", {})
        found = found.get("requiredDuringSchedulingIgnoredDuringExecution", {})
        terms = found.get("nodeSelectorTerms", [{}])[0]
        rules = terms.get("matchExpressions", [])
        return [name for rule in rules if rule["operator"] == "NotIn" for name in rule["values"]]

    def _worker(self, node: str) -> str:
        return f"{self.run_id}-worker-{node}-{self.born[node]:.0f}"

    def _reconcile(self) -> None:
        if self.head is None and self._heads == 0:
            self._heads = 1
            self.agenda.after(self.head_seconds, self._raise_head)
        for node in [one for one in self.nodes if self._worker(one) in self._given_up]:
            self.nodes.remove(node)
            self.empty.append(node)
        missing = self.wanted_workers - len(self.nodes)
        if missing > 0:
            self.agenda.after(self.node_seconds, self._bring_node)
        elif missing < 0:
            self.remove_nodes(-missing)

    def _bring_node(self) -> None:
        if self.wanted_workers <= len(self.nodes):
            return
        if len(self.nodes) >= self.room:
            self.event("Warning", "FailedScaleUp", "GCE out of resources")
            self.agenda.after(self.node_seconds, self._bring_node)
            return
        free = [one for one in self.empty if one not in self._forbidden]
        if free:
            self.empty.remove(node := free[0])
        else:
            self._serial += 1
            node = f"gpu-node-{self._serial}"
        self.nodes.append(node)
        self.born[node] = self.agenda.now()
        if self.wanted_workers > len(self.nodes):
            self.agenda.after(1, self._bring_node)

    def _raise_head(self) -> None:
        cluster = self.objects.get(("RayCluster", self.run_id))
        if cluster is None:
            self._heads = 0
            return
        self._heads += 1
        self.head = self._new_head(f"session_{self._heads}")
        image = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["image"]
        known = images.TABLE.get(image)
        self.head.ray_version = known.ray_version if known else cluster["spec"]["rayVersion"]
        worker = cluster["spec"]["workerGroupSpecs"][0]["rayStartParams"]
        self.head.gpus_per_node = int(worker["num-gpus"])

    def _status(self, cluster: dict[str, Any]) -> dict[str, Any]:
        ready = len(self.nodes)
        status: dict[str, Any] = {
            "state": "ready",  # sticky, as KubeRay's is
            "observedGeneration": cluster["metadata"]["generation"],
            "conditions": [
                {"type": "HeadPodReady", "status": "True" if self.head else "False"},
                {"type": "RayClusterProvisioned", "status": "True"},
            ],
        }
        if self.wanted_workers:  # zero is left out of the JSON
            status["desiredWorkerReplicas"] = self.wanted_workers
        if ready:
            status["readyWorkerReplicas"] = ready
        return status

    def _pods(self) -> list[dict[str, Any]]:
        if ("RayCluster", self.run_id) not in self.objects:
            return []
        head = _pod(f"{self.run_id}-head", "head", "Running" if self.head else "Pending", 0.0)
        running = [
            _pod(self._worker(node), "worker", "Running", self.born[node] - 60, node)
            for node in self.nodes
        ]
        pending = [
            _pod(f"{self.run_id}-worker-new-{number}", "worker", "Pending", self.agenda.now())
            for number in range(self.wanted_workers - len(self.nodes))
        ]
        return [head, *running, *pending]

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken


def unreachable() -> ServiceError:
    """Return what a control plane that is being repaired gives."""
    return ServiceError(Failure.INFRA_TRANSIENT, "Kubernetes GET: ConnectTimeout", retryable=True)


def address_of(node: str) -> str:
    """The address of the pod on a node."""
    return f"10.0.0.{node.rsplit('-', 1)[1]}"


def _pod(name: str, kind: str, phase: str, created: float, node: str = "") -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "labels": {"ray.io/node-type": kind},
            "creationTimestamp": datetime.fromtimestamp(created, UTC).isoformat(),
        },
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, **({"podIP": address_of(node)} if node else {})},
    }
