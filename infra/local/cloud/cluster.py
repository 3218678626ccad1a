"""What is behind a cluster's endpoint: its objects, its nodes, pods that are Ray processes."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from infra.local.cloud import mounts
from infra.local.cloud.kube_bodies import event_body, forbidden_nodes, gpus_of, is_over, node_body
from infra.local.cloud.object_values import Object
from infra.local.cloud.objects import RESOURCES, Store, stamp
from infra.local.cloud.raylets import Raylet, Raylets
from infra.local.cloud.state import State, unique

POOL = "cloud.google.com/gke-nodepool"
IDLE = 1.0  # seconds after which an autoscaled node without a pod goes; the real one waits 10 min


@dataclass
class PodRuntime:
    """What is behind a pod."""

    created: float
    raylet: Raylet | None = None
    healthy: bool = False
    mounts: dict[str, Path] = field(default_factory=dict)
    wanted_since: float | None = None  # since when a node is being brought for it
    said: set[str] = field(default_factory=set)  # events told once


class KubeCluster:
    """The inside of one GKE cluster.

    Args:
        state: the cloud.
        gke: the cluster's own record (`gke_messages.ClusterState`).
        raylets: starts its pods.
        serve: opens an API server for this object and returns its `host:port` and a way to close.
    """

    def __init__(
        self,
        state: State,
        gke: Any,
        raylets: Raylets,
        serve: Callable[[KubeCluster], tuple[str, Callable[[], None]]],
    ) -> None:
        self.state, self.gke, self.raylets = state, gke, raylets
        self.store = Store()
        self.pods: dict[str, PodRuntime] = {}  # by pod name
        self.started_at: float | None = None  # nodes and add-ons come with RUNNING
        self.closed = False
        self._idle: dict[str, float] = {}
        for name in ("default", "kube-system"):
            self.store.create(RESOURCES["namespaces"], "", {"metadata": {"name": name}})
        self.store.create(
            RESOURCES["serviceaccounts"], "default", {"metadata": {"name": "default"}}
        )
        self.endpoint, self._shut = serve(self)

    @property
    def folder(self) -> Path:
        """Return the folder of this cluster's pods."""
        return self.state.root / "pods" / str(self.gke.name)

    # What GKE asks.

    def start_nodes(self, pool: Any) -> None:
        """Bring a pool to the size it was made with (per location)."""
        if self.started_at is None:
            self.started_at = time.monotonic()
        wanted, scaling = pool.initial_node_count, pool.autoscaling
        if scaling.enabled:
            wanted = max(wanted, scaling.total_min_node_count or scaling.min_node_count)
        present = [node for node in self.nodes() if node["metadata"]["labels"][POOL] == pool.name]
        for _ in range(wanted - len(present)):
            self.add_node(pool, gpus=0)
        for node in present[wanted:]:
            self.lose_node(node["metadata"]["name"], "Node was removed by a resize.")

    def drop_pool(self, name: str) -> None:
        """Take a pool's nodes away with everything on them."""
        for node in self.nodes():
            if node["metadata"]["labels"][POOL] == name:
                self.lose_node(node["metadata"]["name"], "Node pool was deleted.")

    def stop_pods(self) -> None:
        """End every process of the cluster."""
        self.closed = True
        for runtime in self.pods.values():
            if runtime.raylet is not None:
                runtime.raylet.end()

    def close(self) -> None:
        """Take the cluster away: processes, files, API server."""
        self.stop_pods()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._shut()

    def nodes(self) -> list[Object]:
        """Return the nodes."""
        return self.store.select(RESOURCES["nodes"], "")

    def running_pods(self) -> int:
        """Return how many pods run."""
        return sum(1 for pod in self.pods.values() if pod.raylet is not None and pod.raylet.alive)

    # Nodes.

    def add_node(self, pool: Any, gpus: int) -> Object:
        """Add a node to a pool, with the pool's accelerators or else with ``gpus``."""
        accelerators = list(pool.config.accelerators)
        count = sum(item.accelerator_count for item in accelerators) or gpus
        zone = pool.locations[0] if pool.locations else self.gke.location
        capacity = {
            "cpu": "224" if count else "16",
            "memory": "3968Gi" if count else "64Gi",
            "pods": "110",
            **({"nvidia.com/gpu": str(count)} if count else {}),
        }
        name = f"gke-{self.gke.name}-{pool.name}-{unique(8)}-{unique(4)}"
        labels = {
            POOL: pool.name,
            "kubernetes.io/hostname": name,
            "topology.kubernetes.io/zone": zone,
            "topology.kubernetes.io/region": zone.rsplit("-", 1)[0],
            "node.kubernetes.io/instance-type": pool.config.machine_type,
            **dict(pool.config.labels),
        }
        if pool.config.spot:
            labels["cloud.google.com/gke-spot"] = "true"
        if accelerators:
            labels["cloud.google.com/gke-accelerator"] = accelerators[0].accelerator_type
        return self.store.create(
            RESOURCES["nodes"],
            "",
            node_body(name, labels, f"gce://{self.state.project}/{zone}/{name}", capacity),
        )

    def lose_node(self, name: str, message: str) -> list[str]:
        """Take a node away at once; its pods are Failed. Return their names."""
        node = self.store.find("nodes", "", name)
        if node is None:
            return []
        lost = []
        for pod in self.store.select(RESOURCES["pods"], ""):
            if pod["spec"].get("nodeName") != name or is_over(pod):
                continue
            self.fail_pod(pod, "Terminated", message)
            lost.append(pod["metadata"]["name"])
        self.store.remove("nodes", node)
        self.event(node, "Node", "RemovingNode", f"Node {name} event: {message}")
        return lost

    def drop_idle_nodes(self) -> None:
        """Take autoscaled nodes away that no pod uses any more."""
        used = {
            pod["spec"].get("nodeName")
            for pod in self.store.select(RESOURCES["pods"], "")
            if not is_over(pod)
        }
        for node in self.nodes():
            name, pool = node["metadata"]["name"], self.gke.pool(node["metadata"]["labels"][POOL])
            if pool is None or not pool.autoscaling.enabled or name in used:
                self._idle.pop(name, None)
                continue
            least = pool.autoscaling.total_min_node_count or pool.autoscaling.min_node_count
            peers = [n for n in self.nodes() if n["metadata"]["labels"][POOL] == pool.name]
            since = self._idle.setdefault(name, time.monotonic())
            if len(peers) > least and time.monotonic() - since > IDLE:
                del self._idle[name]
                self.store.remove("nodes", node)

    def place(self, pod: Object, runtime: PodRuntime) -> str | None:
        """Return the node for a pod, bringing one if its pool may grow; None: not yet."""
        selector, gpus = pod["spec"].get("nodeSelector") or {}, gpus_of(pod)
        for node in self.nodes():
            labels, capacity = node["metadata"]["labels"], node["status"]["capacity"]
            if any(labels.get(key) != value for key, value in selector.items()):
                continue
            if node["metadata"]["name"] in forbidden_nodes(pod):
                continue
            if gpus and int(capacity.get("nvidia.com/gpu", 0)) - self._gpus_on(node) < gpus:
                continue
            if not gpus and "nvidia.com/gpu" in capacity:
                continue  # GKE taints GPU nodes
            return str(node["metadata"]["name"])
        total = len(self.nodes())
        self.event(
            pod,
            "Pod",
            "FailedScheduling",
            f"0/{total} nodes are available: {total} node(s) didn't match Pod's node "
            "affinity/selector or had no free nvidia.com/gpu.",
            once=runtime,
        )
        self._bring_node(pod, runtime, selector, gpus)
        return None

    def _bring_node(
        self, pod: Object, runtime: PodRuntime, selector: dict[str, str], gpus: int
    ) -> None:
        pools = [
            pool
            for pool in self.gke.message.node_pools
            if pool.autoscaling.enabled
            and pool.status.name == "RUNNING"
            and selector.get(POOL, pool.name) == pool.name
            and (bool(gpus) == (bool(pool.config.accelerators) or POOL in selector) or not gpus)
        ]
        for pool in pools:
            most = pool.autoscaling.total_max_node_count or pool.autoscaling.max_node_count
            here = [n for n in self.nodes() if n["metadata"]["labels"][POOL] == pool.name]
            coming = sum(
                1
                for other in self.pods.values()
                if other is not runtime and other.wanted_since is not None
            )
            if len(here) + coming >= most:
                continue
            zone = pool.locations[0] if pool.locations else self.gke.location
            wanted = (f"compute.stockout.{pool.name}", f"compute.stockout.{zone}.{pool.name}")
            stockout = next(filter(None, map(self.state.faults.value, wanted)), None)
            if stockout is not None:
                self.event(pod, "Pod", "FailedScaleUp", str(stockout), once=runtime)
                runtime.wanted_since = None
                return
            if runtime.wanted_since is None:
                runtime.wanted_since = time.monotonic()
                self.event(
                    pod,
                    "Pod",
                    "TriggeredScaleUp",
                    f"pod triggered scale-up: {pool.name} "
                    f"{len(here)}->{len(here) + 1} (max: {most})",
                    kind="Normal",
                )
            boot = self.state.seconds("compute.boot", self.state.timings.node_boot)
            if time.monotonic() - runtime.wanted_since >= boot:
                runtime.wanted_since = None
                self.add_node(pool, gpus)
            return
        self.event(
            pod,
            "Pod",
            "NotTriggerScaleUp",
            "pod didn't trigger scale-up: no node pool matches, or its maximum size is reached",
            kind="Normal",
            once=runtime,
        )

    def _gpus_on(self, node: Object) -> int:
        return sum(
            gpus_of(pod)
            for pod in self.store.select(RESOURCES["pods"], "")
            if pod["spec"].get("nodeName") == node["metadata"]["name"] and not is_over(pod)
        )

    # Pods.

    def fail_pod(self, pod: Object, reason: str, message: str) -> None:
        """End a pod's process and mark the pod Failed."""
        runtime = self.pods.get(pod["metadata"]["name"])
        if runtime is not None and runtime.raylet is not None:
            runtime.raylet.end()
            runtime.healthy = False
        self.store.set_status(
            "pods",
            pod,
            {
                **(pod.get("status") or {}),
                "phase": "Failed",
                "reason": reason,
                "message": message,
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "False",
                        "reason": "PodFailed",
                        "lastTransitionTime": stamp(),
                    }
                ],
            },
        )

    def remove_pod(self, pod: Object) -> None:
        """End a pod's process and take the pod away."""
        runtime = self.pods.pop(pod["metadata"]["name"], None)
        if runtime is not None and runtime.raylet is not None:
            runtime.raylet.end()
        shutil.rmtree(self.folder / pod["metadata"]["name"], ignore_errors=True)
        self.store.remove("pods", pod)

    def mount(self, pod: Object, runtime: PodRuntime) -> str | None:
        """Make the folders of a pod's volumes; return why that cannot be done, or None."""
        injected = self.state.faults.value("kubernetes.mount")
        if injected is not None:
            return str(injected)
        namespace, spec = pod["metadata"]["namespace"], pod["spec"]
        volumes = {volume["name"]: volume for volume in spec.get("volumes") or []}
        base = self.folder / pod["metadata"]["name"]
        for mount in spec["containers"][0].get("volumeMounts") or []:
            volume, path = volumes.get(mount["name"], {}), mount["mountPath"].rstrip("/")
            local = base / "mnt" / path.strip("/")
            for source, plural, key, mode in (
                ("configMap", "configmaps", "name", 0o644),
                ("secret", "secrets", "secretName", 0o600),
            ):
                if source not in volume:
                    continue
                name = volume[source][key]
                found = self.store.find(plural, namespace, name)
                if found is None and not volume[source].get("optional"):
                    return (
                        f'MountVolume.SetUp failed for volume "{mount["name"]}" : '
                        f'{source.lower()} "{name}" not found'
                    )
                mounts.write_files(local, found or {}, mode)
                runtime.mounts[path] = local
            if "persistentVolumeClaim" in volume:
                folder = self.claim_folder(namespace, volume["persistentVolumeClaim"]["claimName"])
                if folder is None or not folder.is_dir():
                    return (
                        f'MountVolume.MountDevice failed for volume "{mount["name"]}" : '
                        "mount.lustre: Is the MGS running? (exit status 5)"
                    )
                runtime.mounts[path] = folder
        return None

    def bind_claims(self) -> None:
        """Bind each claim whose instance is there, as the volume controller does."""
        for claim in self.store.select(RESOURCES["persistentvolumeclaims"], ""):
            folder = self.claim_folder(claim["metadata"]["namespace"], claim["metadata"]["name"])
            phase = "Bound" if folder is not None and folder.is_dir() else "Pending"
            if (claim.get("status") or {}).get("phase") != phase:
                self.store.set_status("persistentvolumeclaims", claim, {"phase": phase})

    def claim_folder(self, namespace: str, claim: str) -> Path | None:
        """Return the folder behind a claim: its volume's instance, or the one named as we are."""
        found = self.store.find("persistentvolumeclaims", namespace, claim)
        if found is None:
            return None
        volume = self.store.find(
            "persistentvolumes", "", (found.get("spec") or {}).get("volumeName", "")
        )
        handle = ((volume or {}).get("spec") or {}).get("csi", {}).get("volumeHandle", "")
        # PROJECT/ZONE/INSTANCE, or what the toolkit writes: the same with a pool and a container
        parts = handle.split("/")
        instance = parts[2] if len(parts) > 2 else str(self.gke.name)
        return self.state.root / "lustre" / instance

    def watch_health(self, name: str, runtime: PodRuntime) -> None:
        """Ask a pod's probes, in a thread of their own, until they are content once."""
        threading.Thread(target=self._probe, args=(name, runtime), daemon=True).start()

    def _probe(self, name: str, runtime: PodRuntime) -> None:
        raylet = runtime.raylet
        assert raylet is not None
        asked = [f"http://127.0.0.1:{raylet.agent}/api/local_raylet_healthz"]
        if raylet.dashboard is not None:
            asked.append(f"http://127.0.0.1:{raylet.dashboard}/api/gcs_healthz")
        with httpx.Client(timeout=5.0, trust_env=False) as client:
            while raylet.alive and not self.closed:
                try:
                    if all(client.get(url).status_code == 200 for url in asked):
                        runtime.healthy = True
                        self.state.wake.set()
                        return
                except httpx.HTTPError:
                    pass
                time.sleep(0.1)

    def event(
        self,
        about: Object,
        kind_of: str,
        reason: str,
        message: str,
        *,
        kind: str = "Warning",
        once: PodRuntime | None = None,
    ) -> None:
        """Write an Event; with ``once`` only the first of that reason and text for a pod."""
        if once is not None:
            if f"{reason} {message}" in once.said:
                return
            once.said.add(f"{reason} {message}")
        namespace = about["metadata"].get("namespace", "default")
        self.store.create(
            RESOURCES["events"],
            namespace,
            event_body(about, kind_of, reason, message, kind),
        )
