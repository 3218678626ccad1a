"""Managed Lustre by REST, and its metrics behind google-cloud-monitoring."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.cloud import monitoring_v3

from infra.local.cloud import Cloud
from tests.local.cloud.support import PROJECT, RUN, ZONE, until

PATH = f"/v1/{ZONE}/instances/{RUN}"
BODY = {
    "filesystem": "lustrefs",
    "capacityGib": "18000",
    "perUnitStorageThroughput": "500",
    "network": "projects/p/global/networks/n",
    "labels": {"lustrum-run": RUN},
}


def _create(rest: httpx.Client) -> None:
    answer = rest.post(f"/v1/{ZONE}/instances", params={"instanceId": RUN}, json=BODY)
    assert answer.status_code == 200, answer.text
    until(lambda: rest.get(PATH).json().get("state") == "ACTIVE")


def _export(rest: httpx.Client, uri: str = "gs://exports/runs/") -> dict[str, Any]:
    body = {"lustrePath": {"path": "/runs"}, "gcsPath": {"uri": uri}}
    answer = rest.post(f"{PATH}:exportData", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = until(lambda: _done(rest, answer.json()["name"]))
    return found


def _done(rest: httpx.Client, name: str) -> dict[str, Any] | None:
    found: dict[str, Any] = rest.get(f"/v1/{name}").json()
    return found if found["done"] else None


def _counters(operation: dict[str, Any]) -> dict[str, int]:
    found = operation["metadata"]["operationMetadata"]["counters"]
    return {key: int(value) for key, value in found.items()}


@pytest.fixture
def files(cloud: Cloud, rest: httpx.Client) -> Path:
    _create(rest)
    folder = cloud.root / "lustre" / RUN / "runs"
    folder.mkdir()
    (folder / "a.bin").write_bytes(b"12345")
    (folder / "step_2").mkdir()
    (folder / "step_2" / "b.bin").write_bytes(b"123")
    return folder


class TestInstances:
    def test_request_id_makes_create_idempotent(self, rest: httpx.Client) -> None:
        query = {"instanceId": RUN, "requestId": "11111111-1111-4111-8111-111111111111"}
        first = rest.post(f"/v1/{ZONE}/instances", params=query, json=BODY).json()
        again = rest.post(f"/v1/{ZONE}/instances", params=query, json=BODY).json()
        assert first["name"] == again["name"]
        other = rest.post(f"/v1/{ZONE}/instances", params={"instanceId": RUN}, json=BODY)
        assert other.status_code == 409

    def test_capacity_must_fit_the_tier(self, rest: httpx.Client) -> None:
        answer = rest.post(
            f"/v1/{ZONE}/instances",
            params={"instanceId": RUN},
            json={**BODY, "capacityGib": "9000"},
        )
        assert answer.status_code == 400
        assert "18000" in answer.json()["error"]["message"]

    def test_labels_change_and_delete_removes_the_data(
        self, cloud: Cloud, rest: httpx.Client, files: Path
    ) -> None:
        labels = {"labels": {"lustrum-expires": "9"}}
        assert rest.patch(PATH, params={"updateMask": "labels"}, json=labels).status_code == 200
        assert rest.get(PATH).json()["labels"] == {"lustrum-expires": "9"}
        assert rest.delete(PATH).status_code == 200
        until(lambda: rest.get(PATH).status_code == 404)
        assert not files.exists()

    def test_silent_zone_is_named_and_hidden(self, cloud: Cloud, rest: httpx.Client) -> None:
        _create(rest)
        everywhere = f"/v1/projects/{PROJECT}/locations/-/instances"
        assert len(rest.get(everywhere).json()["instances"]) == 1
        cloud.faults.add({"operation": "lustre.unreachable", "value": ["us-east1-b"]})
        found = rest.get(everywhere).json()
        assert found["instances"] == []
        assert found["unreachable"] == [ZONE]


class TestTransfers:
    def test_second_export_skips_what_is_there(
        self, cloud: Cloud, rest: httpx.Client, files: Path
    ) -> None:
        first = _counters(_export(rest))
        assert first["objectsCopiedCount"] == first["objectsFoundCount"] == 2
        assert first["bytesCopiedCount"] == 8
        assert (cloud.root / "buckets/exports/runs/step_2/b.bin").read_bytes() == b"123"
        second = _counters(_export(rest))
        assert second["objectsFoundCount"] == second["objectsCopiedCount"] == 0
        assert second["objectsSkippedCount"] == 2

    def test_one_transfer_at_a_time(self, cloud: Cloud, rest: httpx.Client, files: Path) -> None:
        cloud.faults.add({"operation": "lustre.exportData", "delay": 30, "times": 1})
        body = {"lustrePath": {"path": "/runs"}, "gcsPath": {"uri": "gs://exports/"}}
        first = rest.post(f"{PATH}:exportData", json=body).json()
        second = rest.post(f"{PATH}:exportData", json=body)
        assert second.status_code == 409
        assert second.json()["error"]["status"] == "ABORTED"
        running = rest.get(f"/v1/{ZONE}/operations").json()["operations"]
        assert [o["name"] for o in running if not o.get("done", True)] == [first["name"]]
        assert rest.post(f"/v1/{first['name']}:cancel").status_code == 200
        assert until(lambda: _done(rest, first["name"]))["error"]["code"] == 1

    def test_failed_objects_end_without_an_error(
        self, cloud: Cloud, rest: httpx.Client, files: Path
    ) -> None:
        cloud.faults.add({"operation": "lustre.failed_objects", "value": 1, "times": 1})
        operation = _export(rest)
        assert "error" not in operation
        assert _counters(operation)["objectsFailedCount"] == 1
        assert operation["metadata"]["operationMetadata"]["errorSummaries"][0]["errorCount"] == "1"

    def test_denied_export_copies_nothing(
        self, cloud: Cloud, rest: httpx.Client, files: Path
    ) -> None:
        text = "PERMISSION_DENIED: the service agent may not write gs://exports"
        cloud.faults.add({"operation": "lustre.exportData", "end": text, "times": 1})
        assert _export(rest)["error"] == {"code": 7, "message": text}
        assert not (cloud.root / "buckets/exports/runs").exists()

    def test_uri_without_a_slash_is_refused(self, rest: httpx.Client, files: Path) -> None:
        body = {"lustrePath": {"path": "/runs"}, "gcsPath": {"uri": "gs://exports/runs"}}
        assert rest.post(f"{PATH}:exportData", json=body).status_code == 400

    def test_import_needs_its_folder(self, cloud: Cloud, rest: httpx.Client, files: Path) -> None:
        _export(rest)
        body = {"gcsPath": {"uri": "gs://exports/runs/"}, "lustrePath": {"path": "/back"}}
        assert rest.post(f"{PATH}:importData", json=body).status_code == 400
        (files.parent / "back").mkdir()
        answer = rest.post(f"{PATH}:importData", json=body).json()
        until(lambda: _done(rest, answer["name"]))
        assert (files.parent / "back/step_2/b.bin").read_bytes() == b"123"


class TestMetrics:
    def _sum(self, client: monitoring_v3.MetricServiceClient, metric: str) -> int | None:
        now = int(time.time())
        found = client.list_time_series(
            request={
                "name": f"projects/{PROJECT}",
                "filter": f'metric.type="lustre.googleapis.com/instance/{metric}" AND '
                'metric.labels.component="ost" AND resource.labels.instance_id='
                f'"{RUN}"',
                "interval": {"start_time": {"seconds": now - 600}, "end_time": {"seconds": now}},
            }
        )
        values = [one.points[0].value.int64_value for one in found]
        return sum(values) if values else None

    def test_capacity_less_files_is_available(
        self, metrics: monitoring_v3.MetricServiceClient, rest: httpx.Client, files: Path
    ) -> None:
        assert self._sum(metrics, "capacity_bytes") == 18000 * 2**30
        assert self._sum(metrics, "available_bytes") == 18000 * 2**30 - 8

    def test_idle_file_system_writes_no_data(
        self, metrics: monitoring_v3.MetricServiceClient, rest: httpx.Client, files: Path
    ) -> None:
        assert self._sum(metrics, "write_bytes_total") == 8
        assert self._sum(metrics, "write_bytes_total") is None

    def test_value_can_be_set(
        self, metrics: monitoring_v3.MetricServiceClient, rest: httpx.Client, files: Path
    ) -> None:
        body = {"instance": RUN, "metric": "available_bytes", "value": 5}
        assert rest.post("/_local/metric", json=body).status_code == 200
        assert self._sum(metrics, "available_bytes") == 5
