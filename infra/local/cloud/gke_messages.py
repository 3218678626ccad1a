"""The messages of `google.container.v1` as JSON, and what both doors of GKE need to read them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from google.cloud import container_v1 as api
from google.protobuf import json_format

from infra.local.cloud.state import Problem, State

VERSION = "1.35.4-gke.1042000"
PoolStatus: Any = api.NodePool.Status
# Of each method: the messages of its request and of its answer (None: google.protobuf.Empty).
MESSAGES: dict[str, tuple[Any, Any]] = {
    "ListClusters": (api.ListClustersRequest, api.ListClustersResponse),
    "GetCluster": (api.GetClusterRequest, api.Cluster),
    "CreateCluster": (api.CreateClusterRequest, api.Operation),
    "DeleteCluster": (api.DeleteClusterRequest, api.Operation),
    "SetLabels": (api.SetLabelsRequest, api.Operation),
    "ListNodePools": (api.ListNodePoolsRequest, api.ListNodePoolsResponse),
    "GetNodePool": (api.GetNodePoolRequest, api.NodePool),
    "CreateNodePool": (api.CreateNodePoolRequest, api.Operation),
    "DeleteNodePool": (api.DeleteNodePoolRequest, api.Operation),
    "SetNodePoolSize": (api.SetNodePoolSizeRequest, api.Operation),
    "SetNodePoolAutoscaling": (api.SetNodePoolAutoscalingRequest, api.Operation),
    "ListOperations": (api.ListOperationsRequest, api.ListOperationsResponse),
    "GetOperation": (api.GetOperationRequest, api.Operation),
    "CancelOperation": (api.CancelOperationRequest, None),
    "GetServerConfig": (api.GetServerConfigRequest, api.ServerConfig),
}


@dataclass
class ClusterState:
    """A cluster's message, and what is behind its endpoint."""

    message: Any
    kubernetes: Any
    busy: dict[str, str] = field(default_factory=dict)  # "" or pool name -> operation name

    @property
    def name(self) -> str:
        """Return the short name."""
        return str(self.message.name)

    @property
    def location(self) -> str:
        """Return zone or region."""
        return str(self.message.location)

    def pool(self, name: str) -> Any | None:
        """Return the node pool of that name, or None."""
        return next((pool for pool in self.message.node_pools if pool.name == name), None)


def to_json(message: Any) -> dict[str, Any]:
    """Return a proto-plus message as the JSON of the REST API."""
    found: dict[str, Any] = json_format.MessageToDict(type(message).pb(message))
    return found


def from_json(kind: Any, body: dict[str, Any]) -> Any:
    """Read a message from JSON. Raises Problem, naming the unknown or ill-typed field."""
    message = kind()
    try:
        json_format.ParseDict(body, kind.pb(message))
    except json_format.ParseError as error:
        raise Problem("INVALID_ARGUMENT", f"Invalid JSON payload received. {error}") from None
    return message


def target_of(request: Any) -> str:
    fields = type(request).meta.fields
    for key in ("name", "parent"):
        if key in fields and getattr(request, key):
            return str(getattr(request, key))
    return ""


def fingerprint(labels: Any) -> str:
    text = json.dumps(dict(labels), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise Problem("INVALID_ARGUMENT", f"Invalid resource name {text!r}.")
    return match


def code_of(status: int) -> str:
    return {
        400: "FAILED_PRECONDITION",
        403: "PERMISSION_DENIED",
        404: "NOT_FOUND",
        409: "ABORTED",
        429: "RESOURCE_EXHAUSTED",
        503: "UNAVAILABLE",
        504: "DEADLINE_EXCEEDED",
    }.get(status, "INTERNAL")


def accounts_of(cluster: Any) -> list[str]:
    """Return the service account of each node pool of a cluster that is to be made, "" for none.

    A cluster that names no pool, or a configuration of nodes of its own, begins with one more.
    """
    accounts = [pool.config.service_account for pool in cluster.node_pools]
    return (
        [*accounts, cluster.node_config.service_account] if "node_config" in cluster else accounts
    )


def check_accounts(state: State, accounts: Iterable[str]) -> None:
    """Refuse node pools as an account that the caller may not act as (iam.serviceAccounts.actAs).

    A pool that names none runs as the project's default Compute Engine account; so says GKE then,
    in these words.

    Raises:
        Problem: PERMISSION_DENIED.
    """
    for account in accounts:
        if state.acts_as is not None and account not in state.acts_as:
            raise Problem(
                "PERMISSION_DENIED",
                f'The user does not have access to service account "{account or "default"}". Ask '
                "a project owner to grant you the iam.serviceAccountUser role on the service "
                "account.",
            )


def fill_pool(pool: Any, cluster: Any) -> None:
    """Fill what the service fills in a new node pool, in place."""
    pool.status = PoolStatus.PROVISIONING
    pool.version = VERSION
    pool.config.machine_type = pool.config.machine_type or "e2-medium"
    if not pool.locations:
        pool.locations = list(cluster.locations)[:1]
    pool.self_link = f"{cluster.self_link}/nodePools/{pool.name}"
