"""Cloud Monitoring (gRPC): `ListTimeSeries` of Managed Lustre, computed from the folder.

Names, kinds and labels: metrics list of Managed Lustre (`lustre.googleapis.com/instance/...`, per
target). An idle file system gives no performance series, as the service's documentation says.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from google.cloud import monitoring_v3 as api

from infra.local.cloud.lustre import GIB
from infra.local.cloud.state import Problem, State

PREFIX = "lustre.googleapis.com/instance/"
GAUGES = {
    "available_bytes": "ost",
    "free_bytes": "ost",
    "capacity_bytes": "ost",
    "inodes_free": "mdt",
    "inodes_maximum": "mdt",
    "connected_clients": "mdt",
}
DELTAS = {"write_bytes_total": "ost", "read_bytes_total": "ost"}
OSTS = 2
INODES = 10_000_000
_TERM = re.compile(r'([\w.]+)\s*=\s*"?([^"\s)]+)"?')


class Monitoring:
    """Time series of the instances of one project."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._seen: dict[str, tuple[float, int]] = {}

    def answer(self, request: Any) -> Any:
        """Answer ListTimeSeries: one sample per series, "now". Raises Problem."""
        refused = self._state.faults.refusal("monitoring.ListTimeSeries")
        if refused is not None:
            raise Problem("UNAVAILABLE", refused[1])
        self._state.check_project(request.name.removeprefix("projects/"))
        terms = dict(_TERM.findall(request.filter))
        metric = terms.get("metric.type", "")
        if not metric:
            raise Problem(
                "INVALID_ARGUMENT",
                "The supplied filter does not specify a valid "
                "combination of metric and monitored resource descriptors.",
            )
        answer: Any = api.ListTimeSeriesResponse()
        if not metric.startswith(PREFIX):
            return answer
        name = metric.removeprefix(PREFIX)
        with self._state.lock:
            instances = [dict(item) for item in self._state.instances.values()]
        for instance in instances:
            short, zone = instance["name"].rsplit("/", 1)[-1], instance["name"].split("/")[3]
            wanted = terms.get(
                "resource.labels.instance_id", terms.get("resource.label.instance_id")
            )
            if instance["state"] != "ACTIVE" or (wanted and wanted != short):
                continue
            for labels, value in self._values(name, short, int(instance["capacityGib"]) * GIB):
                component = terms.get("metric.labels.component", labels["component"])
                if component == labels["component"]:
                    answer.time_series.append(
                        _series(
                            metric,
                            name in DELTAS,
                            labels,
                            value,
                            {
                                "instance_id": short,
                                "location": zone,
                                "resource_container": f"projects/{self._state.number}",
                            },
                        )
                    )
        return answer

    def _values(self, name: str, instance: str, capacity: int) -> list[tuple[dict[str, str], int]]:
        component = {**GAUGES, **DELTAS}.get(name)
        if component is None:
            return []
        total = self._state.series.get((instance, name))
        if total is None:
            total = self._computed(name, instance, capacity)
        if total is None:
            return []
        if component == "mdt":
            return [({"component": "mdt", "target": "lustrefs-MDT0000"}, total)]
        parts = [total // OSTS] * OSTS
        parts[0] += total - sum(parts)
        extra = {"operation": name.split("_")[0]} if name in DELTAS else {}
        return [
            ({"component": "ost", "target": f"lustrefs-OST{index:04x}", **extra}, part)
            for index, part in enumerate(parts)
        ]

    def _computed(self, name: str, instance: str, capacity: int) -> int | None:
        folder = self._state.root / "lustre" / instance
        if name == "capacity_bytes":
            return capacity
        used, files = _usage(folder)
        if name in ("available_bytes", "free_bytes"):
            return max(0, capacity - used)
        if name == "inodes_maximum":
            return INODES
        if name == "inodes_free":
            return INODES - files
        if name == "connected_clients":
            with self._state.lock:
                return sum(
                    int(cluster.kubernetes.running_pods())
                    for cluster in self._state.clusters.values()
                    if cluster.name == instance
                )
        if name == "write_bytes_total":
            # Growth since last asked: the folder keeps no counter of what was overwritten.
            _, before = self._seen.get(instance, (0.0, 0))
            self._seen[instance] = (time.time(), used)
            return used - before if used > before else None
        return None


def _usage(folder: Path) -> tuple[int, int]:
    used = files = 0
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                used, files = used + path.stat().st_size, files + 1
        except OSError:  # pruned while we look
            continue
    return used, files


def _series(
    metric: str, delta: bool, labels: dict[str, str], value: int, resource: dict[str, str]
) -> Any:
    end = int(time.time())
    start = end - 60 if delta else end
    return api.TimeSeries(
        metric={"type": metric, "labels": labels},
        resource={"type": "lustre.googleapis.com/Instance", "labels": resource},
        metric_kind="DELTA" if delta else "GAUGE",
        value_type="INT64",
        points=[
            {
                "interval": {"start_time": {"seconds": start}, "end_time": {"seconds": end}},
                "value": {"int64_value": value},
            }
        ],
    )
