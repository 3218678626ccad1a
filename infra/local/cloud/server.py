"""The stand-in cloud as one object: its servers, its controller thread, its processes."""

from __future__ import annotations

import atexit
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from google.cloud import monitoring_v3
from google.protobuf import empty_pb2
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler, make_server

from infra.local.cloud import rayclusters
from infra.local.cloud.cluster import KubeCluster
from infra.local.cloud.compute import Compute
from infra.local.cloud.faults import Faults
from infra.local.cloud.gke import Gke
from infra.local.cloud.gke_messages import ClusterState
from infra.local.cloud.kubernetes_api import KubernetesApi
from infra.local.cloud.lustre import Lustre
from infra.local.cloud.monitoring import Monitoring
from infra.local.cloud.raylets import Raylets
from infra.local.cloud.rest import rest_application
from infra.local.cloud.state import Problem, State, Timings
from infra.local.cloud.storage import Storage
from infra.local.processes import LOOPBACK

SITE = Path(__file__).with_name("node_site")  # first on the path of a pod's Python
TICK = 0.1  # seconds between two looks of the controller


class Cloud:
    """A Google Cloud of one project on loopback, as far as Lustrum needs one.

    Args:
        root: folder for buckets, Lustre, logs and pods; made if absent.
        project: the project id.
        timings: how long operations take.
        pod_env: what every pod's environment has besides its template's.
        workdir: working folder of the pods' containers (default: a folder of their own).
        buckets: buckets to make.
        host: address of this machine that the REST services listen on.
        lustre: folder that is the file system of any Lustre instance, never deleted; without it
            each has its own below ``root``.
        pubsub: base URL of the Pub/Sub emulator, which serves REST on loopback alone: what pods
            elsewhere publish is passed on to it.
        acts_as: service accounts that makers of node pools may act as; empty: as any.
    """

    def __init__(
        self,
        root: Path,
        project: str,
        *,
        timings: Timings | None = None,
        pod_env: Mapping[str, str] | None = None,
        workdir: Path | None = None,
        buckets: tuple[str, ...] = (),
        host: str = LOOPBACK,
        lustre: Path | None = None,
        pubsub: str = "",
        acts_as: tuple[str, ...] = (),
    ) -> None:
        self.root = Path(root).resolve()
        self.root.mkdir(parents=True, exist_ok=True)
        self.faults = Faults()
        self.state = State(self.root, project, timings or Timings(), self.faults)
        self.state.acts_as = frozenset(acts_as) or None
        self._file_systems = self.root / "lustre"
        site = {"PYTHONPATH": str(SITE), "LUSTRUM_LOCAL_LUSTRE": str(self._file_systems)}
        self.raylets = Raylets(self.root, {**site, **(pod_env or {})}, workdir)
        self.lustre = Lustre(self.state, lustre)
        self.storage = Storage(self.state)
        self.compute = Compute(self.state)
        self.monitoring = Monitoring(self.state)
        self.gke = Gke(self.state, self._open_cluster)
        self.pubsub = pubsub
        self._host = host
        self.endpoints: dict[str, str] = {}
        for bucket in buckets:
            if not (self.root / "buckets" / bucket).exists():
                self.storage.create_bucket(bucket)
        self._stopping = threading.Event()
        self._stopped = False
        self._servers: list[Callable[[], None]] = []
        self._controller = threading.Thread(target=self._control, name="cloud", daemon=True)

    def start(self) -> Cloud:
        """Open every server and return at once; `endpoints` then says where they are."""
        atexit.register(self.stop)
        grpc_server = grpc.server(
            futures.ThreadPoolExecutor(max_workers=16), options=[("grpc.so_reuseport", 0)]
        )
        grpc_server.add_generic_rpc_handlers((self._cluster_manager(), self._metrics()))
        port = grpc_server.add_insecure_port(f"{LOOPBACK}:0")
        grpc_server.start()
        self._servers.append(lambda: _stop_grpc(grpc_server))
        host, shut = _serve(rest_application(self), self._host)
        self._servers.append(shut)
        rest = f"http://{host}"
        self.endpoints = {
            "container": f"{LOOPBACK}:{port}",
            "monitoring": f"{LOOPBACK}:{port}",
            "container_rest": rest,
            "lustre": rest,
            "storage": rest,
            "compute": rest,
            "cloudresourcemanager": rest,
            "admin": f"{rest}/_local",
            "metadata": host,
        }
        self._controller.start()
        return self

    def stop(self) -> None:
        """End every process, close every server. May be called twice."""
        if self._stopped:
            return
        self._stopped = True
        self._stopping.set()
        self.state.wake.set()
        if self._controller.is_alive():
            self._controller.join(30)
        with self.state.lock:
            for cluster in self.state.clusters.values():
                cluster.kubernetes.closed = True
        self.raylets.stop()
        with self.state.lock:
            for cluster in list(self.state.clusters.values()):
                cluster.kubernetes.close()
            self.state.clusters.clear()
        for shut in self._servers:
            shut()
        atexit.unregister(self.stop)

    def __enter__(self) -> Cloud:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def inventory(self) -> dict[str, list[str]]:
        """Return the names of everything that costs money, and the Ray processes."""
        with self.state.lock:
            clusters = list(self.state.clusters.values())
            return {
                "clusters": [cluster.name for cluster in clusters],
                "node_pools": [
                    f"{cluster.name}/{pool.name}"
                    for cluster in clusters
                    for pool in cluster.message.node_pools
                ],
                "instances": [name.rsplit("/", 1)[-1] for name in self.state.instances],
                "vms": [vm["name"] for vm in self.compute.instances()],
                "pods": [
                    name
                    for cluster in clusters
                    for name, pod in cluster.kubernetes.pods.items()
                    if pod.raylet is not None and pod.raylet.alive
                ],
                "operations": [
                    item.name
                    for item in self.state.gke_operations.values()
                    if item.status.name != "DONE"
                ]
                + [
                    name for name, item in self.state.lustre_operations.items() if not item["done"]
                ],
            }

    def preempt(self, node: str, *, stopped: bool = False) -> list[str]:
        """Take a node away as Spot does and return the pods that were on it.

        ``stopped`` leaves its VM behind, TERMINATED. Raises Problem NOT_FOUND.
        """
        with self.state.lock:
            for cluster in self.state.clusters.values():
                if cluster.kubernetes.store.find("nodes", "", node) is None:
                    continue
                vm = next(vm for vm in self.compute.instances() if vm["name"] == node)
                if stopped:
                    self.state.vms[node] = {**vm, "status": "TERMINATED"}
                lost: list[str] = cluster.kubernetes.lose_node(
                    node, "Pod was terminated in response to imminent node shutdown."
                )
                self.state.log("compute", f"preempted {node} pods {','.join(lost)}")
                return lost
        raise Problem("NOT_FOUND", f"there is no node {node}")

    def fill(self, instance: str, share: float) -> None:
        """Make a Lustre instance look so full (0..1), in its metrics and to what runs in pods.

        Raises Problem: no such instance, or a share that is none.
        """
        if not 0 <= share <= 1:
            raise Problem("INVALID_ARGUMENT", f"share must be 0 to 1, not {share}")
        with self.state.lock:
            found = next(
                (
                    one
                    for name, one in self.state.instances.items()
                    if name.endswith("/" + instance)
                ),
                None,
            )
            if found is None:
                raise Problem("NOT_FOUND", f"there is no Lustre instance {instance}")
            total = int(found["capacityGib"]) * 2**30
            for metric in ("available_bytes", "free_bytes"):
                self.state.series[(instance, metric)] = int(total * (1 - share))
            self._file_systems.mkdir(parents=True, exist_ok=True)
            (self._file_systems / f".{instance}.used").write_text(str(share))

    def _control(self) -> None:
        # The one thread that starts processes, see raylets.Raylets.
        while not self._stopping.is_set():
            due = self.state.next_due()
            self.state.wake.wait(TICK if due is None else min(TICK, due))
            self.state.wake.clear()
            try:
                self.state.run_due()
                for cluster in list(self.state.clusters.values()):
                    with self.state.lock:
                        cluster.kubernetes.bind_claims()
                        rayclusters.reconcile(cluster.kubernetes)
            except Exception:
                logging.getLogger(__name__).exception("the stand-in cloud's controller failed")
                time.sleep(TICK)

    def _open_cluster(self, gke: ClusterState) -> KubeCluster:
        return KubeCluster(
            self.state, gke, self.raylets, lambda cluster: _serve(KubernetesApi(cluster))
        )

    def _cluster_manager(self) -> Any:
        handlers = {}
        for name, (request, response, _) in self.gke.methods.items():
            handlers[name] = grpc.unary_unary_rpc_method_handler(
                self._rpc(name),
                request_deserializer=request.deserialize,
                response_serializer=response.serialize
                if response is not None
                else lambda _: empty_pb2.Empty().SerializeToString(),
            )
        return grpc.method_handlers_generic_handler("google.container.v1.ClusterManager", handlers)

    def _rpc(self, name: str) -> Callable[[Any, Any], Any]:
        def answer(request: Any, context: Any) -> Any:
            return _guard(context, lambda: self.gke.call(name, request))

        return answer

    def _metrics(self) -> Any:
        handler = grpc.unary_unary_rpc_method_handler(
            lambda request, context: _guard(context, lambda: self.monitoring.answer(request)),
            request_deserializer=monitoring_v3.ListTimeSeriesRequest.deserialize,
            response_serializer=monitoring_v3.ListTimeSeriesResponse.serialize,
        )
        return grpc.method_handlers_generic_handler(
            "google.monitoring.v3.MetricService", {"ListTimeSeries": handler}
        )


def _stop_grpc(server: Any) -> None:
    server.stop(0.2).wait(2)


def _guard(context: Any, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Problem as problem:
        context.abort(getattr(grpc.StatusCode, problem.code), problem.message)


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:
        if type == "error":
            super().log(type, message, *args)


def _serve(application: Any, host: str = LOOPBACK) -> tuple[str, Callable[[], None]]:
    server = make_server(host, 0, application, threaded=True, request_handler=_Quiet)
    assert isinstance(server, ThreadedWSGIServer)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()

    def shut() -> None:
        server.shutdown()
        server.server_close()

    return f"{host}:{server.server_port}", shut


def write_endpoints(cloud: Cloud, path: Path) -> None:
    """Write the endpoints as JSON, complete or not at all."""
    fresh = path.with_suffix(".part")
    fresh.write_text(json.dumps(cloud.endpoints))
    fresh.replace(path)
