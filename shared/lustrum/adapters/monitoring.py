"""Monitoring: how full a run's Lustre is, through google-cloud-monitoring."""

from __future__ import annotations

import time
from typing import Any

from lustrum.core.settings import Settings

WINDOW = 600  # seconds; samples come every 60 s and are visible up to 120 s later


class Monitoring:
    """The metrics of one project."""

    def __init__(self, settings: Settings) -> None:
        self._project = settings.project
        self._client = _client(settings)

    def lustre_fill(self, instance: str) -> float | None:
        """Return the used share of an instance, 0..1; None when there is no sample.

        Values are per target: the sum over all OSTs counts (metrics list of Managed Lustre).
        """
        total = self._sum(instance, "capacity_bytes")
        free = self._sum(instance, "available_bytes")
        return None if not total or free is None else 1 - free / total

    def _sum(self, instance: str, metric: str) -> float | None:
        now = int(time.time())
        series = self._client.list_time_series(
            request={
                "name": f"projects/{self._project}",
                "filter": (
                    f'metric.type="lustre.googleapis.com/instance/{metric}" '
                    'AND metric.labels.component="ost" '
                    'AND resource.type="lustre.googleapis.com/Instance" '
                    f'AND resource.labels.instance_id="{instance}"'
                ),
                "interval": {
                    "start_time": {"seconds": now - WINDOW},
                    "end_time": {"seconds": now},
                },
                "view": "FULL",
            },
            timeout=20.0,
        )
        newest = [one.points[0].value.int64_value for one in series if one.points]
        return float(sum(newest)) if newest else None


def _client(settings: Settings) -> Any:
    from google.cloud import monitoring_v3

    local = settings.endpoints.get("monitoring")
    if local is None:
        return monitoring_v3.MetricServiceClient()
    import grpc
    from google.cloud.monitoring_v3.services.metric_service.transports import (
        MetricServiceGrpcTransport,
    )

    return monitoring_v3.MetricServiceClient(
        transport=MetricServiceGrpcTransport(channel=grpc.insecure_channel(local))
    )
