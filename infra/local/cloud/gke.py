"""GKE: `google.container.v1` clusters, node pools and operations, kept as the API's own messages.

One core, two doors: `rpc` serves the gRPC ClusterManager, `rest` the v1 JSON of the same messages
(google/container/v1/cluster_service.proto and its HTTP annotations). A cluster's resource-server
side, nodes and Kubernetes API, is `kubernetes_api`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from google.cloud import container_v1 as api

from infra.local.cloud.gke_messages import (
    MESSAGES,
    VERSION,
    ClusterState,
    PoolStatus,
    accounts_of,
    check_accounts,
    code_of,
    fill_pool,
    fingerprint,
    matched,
    target_of,
)
from infra.local.cloud.state import Problem, State, now, unique

_CLUSTER = re.compile(r"projects/([^/]+)/locations/([^/]+)/clusters/([^/]+)")
_POOL = re.compile(_CLUSTER.pattern + r"/nodePools/([^/]+)")
_OPERATION = re.compile(r"projects/([^/]+)/locations/([^/]+)/operations/([^/]+)")
_PARENT = re.compile(r"projects/([^/]+)/locations/([^/]+)")
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
Status: Any = api.Cluster.Status
Done, Running = api.Operation.Status.DONE, api.Operation.Status.RUNNING
Kind = api.Operation.Type


class Gke:
    """The Kubernetes Engine of one project.

    Args:
        state: the cloud.
        open_kubernetes: makes the API server of a new cluster; the object has ``endpoint``,
            ``start_nodes(pool)``, ``drop_pool(name)`` and ``close()``.
    """

    def __init__(self, state: State, open_kubernetes: Callable[[ClusterState], Any]) -> None:
        self._state = state
        self._open = open_kubernetes
        handlers: dict[str, Callable[[Any], Any]] = {
            "ListClusters": self.clusters,
            "GetCluster": self.get,
            "CreateCluster": self.create,
            "DeleteCluster": self.delete,
            "SetLabels": self.set_labels,
            "ListNodePools": self.pools,
            "GetNodePool": self.get_pool,
            "CreateNodePool": self.create_pool,
            "DeleteNodePool": self.delete_pool,
            "SetNodePoolSize": self.resize,
            "SetNodePoolAutoscaling": self.autoscale,
            "ListOperations": self.operations,
            "GetOperation": self.operation,
            "CancelOperation": self.cancel,
            "GetServerConfig": self.config,
        }
        self.methods = {name: (*MESSAGES[name], handler) for name, handler in handlers.items()}

    def call(self, method: str, request: Any) -> Any:
        """Answer one call. Raises Problem."""
        refused = self._state.faults.refusal(f"gke.{method}")
        if refused is not None:
            raise Problem(code_of(refused[0]), refused[1], refused[0])
        with self._state.lock:
            answer = self.methods[method][2](request)
        if not method.startswith(("Get", "List")):
            self._state.log("gke", f"{method} {target_of(request)}")
        lost = self._state.faults.lost(f"gke.{method}")
        if lost is not None:
            raise Problem(code_of(lost[0]), lost[1], lost[0])
        return answer

    # Clusters.

    def clusters(self, request: Any) -> Any:
        location = self._location(request.parent)
        missing = self._state.faults.value("gke.missing_zones") or []
        seen = [one for one in self._state.clusters.values() if one.location not in missing]
        here = [one.message for one in seen if location in ("-", one.location)]
        return api.ListClustersResponse(clusters=here, missing_zones=missing)

    def get(self, request: Any) -> Any:
        return self._cluster(request.name).message

    def create(self, request: Any) -> Any:
        location = self._location(request.parent)
        cluster: Any = api.Cluster(request.cluster)
        if not _NAME.fullmatch(cluster.name):
            accepted = "lowercase letters, digits and hyphens, at most 40."
            raise Problem(
                "INVALID_ARGUMENT", f"Cluster name {cluster.name!r} is not valid: {accepted}"
            )
        path = self._path(location, cluster.name)
        if (location, cluster.name) in self._state.clusters:
            raise Problem("ALREADY_EXISTS", f"Already exists: {path}.")
        if not cluster.node_pools:
            size = cluster.initial_node_count
            if not size:
                raise Problem(
                    "INVALID_ARGUMENT",
                    "Cluster.initial_node_count must be greater than zero, or node_pools given.",
                )
            cluster.node_pools.append(
                api.NodePool(name="default-pool", initial_node_count=size, config={})
            )
        check_accounts(self._state, accounts_of(cluster))
        names = [pool.name for pool in cluster.node_pools]
        if len(set(names)) != len(names):
            raise Problem("INVALID_ARGUMENT", f"node pool names are not unique: {names}")
        cluster.location = location
        cluster.self_link = f"https://container.googleapis.com/v1/{path}"
        cluster.status = Status.PROVISIONING
        cluster.create_time = now()
        cluster.id = unique(64)
        cluster.current_master_version = cluster.initial_cluster_version or VERSION
        cluster.label_fingerprint = fingerprint(cluster.resource_labels)
        if not cluster.locations:
            cluster.locations = [location if location.count("-") == 2 else f"{location}-b"]
        for pool in cluster.node_pools:
            fill_pool(pool, cluster)
        found = ClusterState(cluster, None)
        found.kubernetes = self._open(found)
        host = found.kubernetes.endpoint
        cluster.endpoint = host
        cluster.control_plane_endpoints_config.dns_endpoint_config.endpoint = host
        self._state.clusters[location, cluster.name] = found

        def done(error: str | None) -> None:
            cluster.status = Status.ERROR if error else Status.RUNNING
            if error:
                cluster.status_message = error
                return
            for pool in cluster.node_pools:
                pool.status = PoolStatus.RUNNING
                found.kubernetes.start_nodes(pool)

        return self._begin(
            found,
            "",
            Kind.CREATE_CLUSTER,
            "gke.CreateCluster",
            self._state.timings.cluster_create,
            done,
        )

    def delete(self, request: Any) -> Any:
        found = self._cluster(request.name)
        self._check_free(found, "", any_pool=True)
        found.message.status = Status.STOPPING
        found.kubernetes.stop_pods()

        def done(error: str | None) -> None:
            if error:
                found.message.status = Status.ERROR
                found.message.status_message = error
                return
            found.kubernetes.close()
            self._state.clusters.pop((found.location, found.name), None)

        return self._begin(
            found,
            "",
            Kind.DELETE_CLUSTER,
            "gke.DeleteCluster",
            self._state.timings.cluster_delete,
            done,
        )

    def set_labels(self, request: Any) -> Any:
        found = self._cluster(request.name)
        if request.label_fingerprint != found.message.label_fingerprint:
            raise Problem(
                "FAILED_PRECONDITION",
                "Labels could not be set due to fingerprint mismatch: read the cluster again.",
            )
        found.message.resource_labels = dict(request.resource_labels)
        found.message.label_fingerprint = fingerprint(request.resource_labels)
        return self._begin(
            found, None, Kind.UPDATE_CLUSTER, "gke.SetLabels", self._state.timings.update
        )

    # Node pools.

    def pools(self, request: Any) -> Any:
        return api.ListNodePoolsResponse(
            node_pools=self._cluster(request.parent).message.node_pools
        )

    def get_pool(self, request: Any) -> Any:
        return self._pool(request.name)[1]

    def create_pool(self, request: Any) -> Any:
        found = self._cluster(request.parent)
        pool: Any = api.NodePool(request.node_pool)
        if found.pool(pool.name) is not None:
            raise Problem(
                "ALREADY_EXISTS", f"Already exists: {request.parent}/nodePools/{pool.name}."
            )
        self._check_free(found, pool.name)
        check_accounts(self._state, [pool.config.service_account])
        fill_pool(pool, found.message)
        found.message.node_pools.append(pool)

        def done(error: str | None) -> None:
            kept = found.pool(pool.name)  # the list may have been written anew meanwhile
            if kept is None:
                return
            kept.status = PoolStatus.ERROR if error else PoolStatus.RUNNING
            if error:
                kept.status_message = error
            else:
                found.kubernetes.start_nodes(kept)

        return self._begin(
            found,
            pool.name,
            Kind.CREATE_NODE_POOL,
            "gke.CreateNodePool",
            self._state.timings.pool_create,
            done,
        )

    def delete_pool(self, request: Any) -> Any:
        found, pool = self._pool(request.name)
        self._check_free(found, pool.name)
        name = pool.name
        pool.status = PoolStatus.STOPPING

        def done(error: str | None) -> None:
            kept = found.pool(name)
            if error and kept is not None:
                kept.status = PoolStatus.ERROR
                kept.status_message = error
                return
            found.kubernetes.drop_pool(name)
            left = [item for item in found.message.node_pools if item.name != name]
            found.message.node_pools = left

        return self._begin(
            found,
            name,
            Kind.DELETE_NODE_POOL,
            "gke.DeleteNodePool",
            self._state.timings.pool_delete,
            done,
        )

    def resize(self, request: Any) -> Any:
        found, pool = self._pool(request.name)
        self._check_free(found, pool.name)
        pool.initial_node_count = request.node_count
        name = pool.name

        def done(error: str | None) -> None:
            kept = found.pool(name)
            if not error and kept is not None:
                found.kubernetes.start_nodes(kept)

        return self._begin(
            found,
            pool.name,
            Kind.SET_NODE_POOL_SIZE,
            "gke.SetNodePoolSize",
            self._state.timings.update,
            done,
        )

    def autoscale(self, request: Any) -> Any:
        found, pool = self._pool(request.name)
        self._check_free(found, pool.name)
        pool.autoscaling = request.autoscaling
        return self._begin(
            found,
            pool.name,
            Kind.UPDATE_CLUSTER,
            "gke.SetNodePoolAutoscaling",
            self._state.timings.update,
        )

    # Operations.

    def operations(self, request: Any) -> Any:
        location = self._location(request.parent)
        return api.ListOperationsResponse(
            operations=[
                item
                for item in self._state.gke_operations.values()
                if location in ("-", item.location)
            ],
            missing_zones=self._state.faults.value("gke.missing_zones") or [],
        )

    def operation(self, request: Any) -> Any:
        match = matched(_OPERATION, request.name)
        self._state.check_project(match[1])
        found = self._state.gke_operations.get(match[3])
        if found is None or found.location != match[2]:
            raise Problem("NOT_FOUND", f"Not found: {request.name}.")
        return found

    def cancel(self, request: Any) -> None:
        found = self.operation(request)
        # "GKE ... only node pool upgrades can be cancelled" (and none happens here).
        raise Problem(
            "FAILED_PRECONDITION",
            f"Operation {found.name} ({found.operation_type.name}) cannot be cancelled.",
        )

    def config(self, request: Any) -> Any:
        self._location(request.name)
        return api.ServerConfig(default_cluster_version=VERSION, valid_master_versions=[VERSION])

    # Within.

    def _begin(
        self,
        found: ClusterState,
        pool: str | None,
        kind: Any,
        call: str,
        seconds: float,
        done: Callable[[str | None], None] | None = None,
    ) -> Any:
        name = f"operation-{unique(13)}-{unique(8)}-{unique(8)}"
        target = self._path(found.location, found.name) + (f"/nodePools/{pool}" if pool else "")
        operation: Any = api.Operation(
            name=name,
            location=found.location,
            operation_type=kind,
            status=Running,
            start_time=now(),
            target_link=f"https://container.googleapis.com/v1/{target}",
            self_link="https://container.googleapis.com/v1/projects/"
            f"{self._state.number}/locations/{found.location}/operations/{name}",
        )
        self._state.gke_operations[name] = operation
        if pool is not None:
            found.busy[pool] = name
        error = self._state.failure(call)

        def finish() -> None:
            if pool is not None and found.busy.get(pool) == name:
                del found.busy[pool]
            if done is not None:
                done(error)
            operation.status = Done
            operation.end_time = now()
            if error:
                operation.status_message = error
                operation.error = {"code": 8 if "EXHAUSTED" in error else 13, "message": error}
            self._state.log("gke", f"done {kind.name} {target}" + (f": {error}" if error else ""))

        self._state.later(self._state.seconds(call, seconds), finish)
        return operation

    def _check_free(self, found: ClusterState, pool: str, *, any_pool: bool = False) -> None:
        busy = found.busy.get("") or found.busy.get(pool)
        if any_pool and not busy:
            busy = next(iter(found.busy.values()), None)
        if busy:
            raise Problem(
                "FAILED_PRECONDITION", f"Cluster is running incompatible operation {busy}."
            )

    def _cluster(self, name: str) -> ClusterState:
        match = matched(_CLUSTER, name)
        self._state.check_project(match[1])
        found = self._state.clusters.get((match[2], match[3]))
        if not isinstance(found, ClusterState):
            raise Problem("NOT_FOUND", f"Not found: {name}.")
        return found

    def _pool(self, name: str) -> tuple[ClusterState, Any]:
        match = matched(_POOL, name)
        found = self._cluster(name.rsplit("/nodePools/", 1)[0])
        pool = found.pool(match[4])
        if pool is None:
            raise Problem("NOT_FOUND", f"Not found: {name}.")
        return found, pool

    def _location(self, parent: str) -> str:
        match = matched(_PARENT, parent)
        self._state.check_project(match[1])
        return match[2]

    def _path(self, location: str, name: str) -> str:
        return f"projects/{self._state.project}/locations/{location}/clusters/{name}"
