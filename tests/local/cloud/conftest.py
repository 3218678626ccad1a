"""A stand-in cloud for each test module, and the real clients pointed at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from google.cloud import container_v1, monitoring_v3
from google.cloud.container_v1.services.cluster_manager.transports import (
    ClusterManagerGrpcTransport,
)
from google.cloud.monitoring_v3.services.metric_service.transports import (
    MetricServiceGrpcTransport,
)

from infra.local.cloud import Cloud
from tests.local.cloud.support import PROJECT, QUICK


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    """Return a running cloud with two buckets."""
    with Cloud(tmp_path, PROJECT, timings=QUICK, buckets=("exports", "state")) as found:
        yield found


@pytest.fixture
def gke(cloud: Cloud) -> container_v1.ClusterManagerClient:
    """Return the real GKE client."""
    channel = grpc.insecure_channel(cloud.endpoints["container"])
    return container_v1.ClusterManagerClient(
        transport=ClusterManagerGrpcTransport(channel=channel)
    )


@pytest.fixture
def metrics(cloud: Cloud) -> monitoring_v3.MetricServiceClient:
    """Return the real Monitoring client."""
    channel = grpc.insecure_channel(cloud.endpoints["monitoring"])
    return monitoring_v3.MetricServiceClient(transport=MetricServiceGrpcTransport(channel=channel))


@pytest.fixture
def rest(cloud: Cloud) -> Iterator[httpx.Client]:
    """Return an HTTP client of the REST endpoint."""
    with httpx.Client(base_url=cloud.endpoints["lustre"], trust_env=False) as client:
        yield client
