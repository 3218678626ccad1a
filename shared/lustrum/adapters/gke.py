"""GKE through google-cloud-container: clusters of a run, their node pools and labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lustrum.adapters.google import CloudList, Tokens
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.failures import Failure
from lustrum.core.names import LABEL_EXPIRES
from lustrum.core.settings import Settings

TIMEOUT = 30.0  # seconds of one call


@dataclass(frozen=True)
class ClusterInfo:
    """One cluster: its location, status, DNS endpoint (host, "" while there is none) and
    labels.
    """

    name: str
    location: str
    status: str
    endpoint: str
    labels: Mapping[str, str]
    pools: tuple[str, ...] = ()
    fingerprint: str = ""


class Gke:
    """The clusters of one project."""

    def __init__(self, settings: Settings, tokens: Tokens) -> None:
        self._project = settings.project
        self._client = _client(settings)

    def list(self) -> CloudList[ClusterInfo]:
        """Return the clusters of all locations."""
        found = self._call("list_clusters", parent=f"projects/{self._project}/locations/-")
        return CloudList(
            [_info(item) for item in found.clusters], [str(zone) for zone in found.missing_zones]
        )

    def find(self, name: str) -> ClusterInfo:
        """Return a cluster by name, wherever it is. Raises NotFound; ServiceError on a partial
        answer.
        """
        listing = self.list()
        for cluster in listing.items:
            if cluster.name == name:
                return cluster
        if listing.missing:
            raise ServiceError(
                Failure.INFRA_TRANSIENT,
                f"cluster {name} was not seen, but {', '.join(listing.missing)} did not answer",
                retryable=True,
            )
        raise NotFound(f"there is no cluster {name}")

    def delete(self, cluster: ClusterInfo) -> None:
        """Begin to delete a cluster; one that is gone or going is fine."""
        self._forgiving("delete_cluster", name=self._path(cluster))

    def delete_pool(self, cluster: ClusterInfo, pool: str) -> None:
        """Begin to delete a node pool with all its nodes; one that is gone or going is fine."""
        self._forgiving("delete_node_pool", name=f"{self._path(cluster)}/nodePools/{pool}")

    def relabel(self, cluster: ClusterInfo, expires: float) -> None:
        """Store a new expiry on a cluster."""
        self._call(
            "set_labels",
            request={
                "name": self._path(cluster),
                "resource_labels": {**cluster.labels, LABEL_EXPIRES: str(int(expires))},
                "label_fingerprint": cluster.fingerprint,
            },
        )

    def _forgiving(self, method: str, **arguments: Any) -> None:
        try:
            self._call(method, **arguments)
        except NotFound:
            return
        except ServiceError as error:
            # A cluster busy with another operation is asked again by the next round.
            if not error.retryable:
                raise

    def _call(self, method: str, **arguments: Any) -> Any:
        from google.api_core import exceptions

        try:
            return getattr(self._client, method)(timeout=TIMEOUT, **arguments)
        except exceptions.NotFound as error:
            raise NotFound(f"GKE: {error.message}") from None
        except (exceptions.PermissionDenied, exceptions.Unauthenticated) as error:
            raise ServiceError(Failure.ACCESS, f"GKE {method}: {error.message}") from None
        except exceptions.FailedPrecondition as error:
            raise ServiceError(
                Failure.INFRA_TRANSIENT,
                f"GKE {method}: {error.message}",
                retryable=True,
                status=400,
            ) from None
        except (
            exceptions.ServerError,
            exceptions.TooManyRequests,
            exceptions.RetryError,
        ) as error:
            raise ServiceError(
                Failure.INFRA_TRANSIENT, f"GKE {method}: {error}", retryable=True
            ) from None
        except exceptions.GoogleAPICallError as error:
            raise ServiceError(Failure.CONFIG, f"GKE {method}: {error.message}") from None

    def _path(self, cluster: ClusterInfo) -> str:
        return f"projects/{self._project}/locations/{cluster.location}/clusters/{cluster.name}"


def _client(settings: Settings) -> Any:
    from google.cloud import container_v1

    local = settings.endpoints.get("container")
    if local is None:
        return container_v1.ClusterManagerClient()
    import grpc
    from google.cloud.container_v1.services.cluster_manager.transports import (
        ClusterManagerGrpcTransport,
    )

    return container_v1.ClusterManagerClient(
        transport=ClusterManagerGrpcTransport(channel=grpc.insecure_channel(local))
    )


def _info(item: Any) -> ClusterInfo:
    return ClusterInfo(
        name=item.name,
        location=item.location,
        status=item.status.name,
        endpoint=item.control_plane_endpoints_config.dns_endpoint_config.endpoint,
        labels=dict(item.resource_labels),
        pools=tuple(pool.name for pool in item.node_pools),
        fingerprint=item.label_fingerprint,
    )
