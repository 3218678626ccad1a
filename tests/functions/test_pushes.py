"""All that Pub/Sub can bring, as raw HTTP, to the two functions it feeds. Cases E and M1."""

from __future__ import annotations

import base64
import gzip
import json
import threading
from typing import Any

import pytest

from testing.services import FakeServices, push
from tests.functions.support import PUSHED, client, post

B64 = base64.b64encode(b"{}").decode()
MALFORMED = {
    "json array": b"[1]",
    "json null": b"null",
    "json number": b"7",
    "json text": b'"hello"',
    "empty body": b"",
    "not json": b"hello{",
    "half json": b'{"message": {"data": "',
    "not utf-8": b"\xff\xfe\x00",
    "deep": b"[" * 100_000,
    "no message": b"{}",
    "message is a list": b'{"message": []}',
    "message is text": b'{"message": "x"}',
    "data is a number": b'{"message": {"messageId": "1", "data": 7}}',
    "data is an object": b'{"message": {"messageId": "1", "data": {"a": 1}}}',
    "data is not base64": b'{"message": {"messageId": "1", "data": "%%%"}}',
    "attributes are a list": b'{"message": {"messageId": "1", "attributes": [1]}}',
    "a huge number": b'{"message": {"messageId": "1", "data": ' + b"9" * 6000 + b"}}",
    "half a surrogate": b'{"message": {"messageId": "\\ud800", "data": "%"}}',
}
# In start_run these reach the parser of requests; the value is what the message holds.
BAD_REQUESTS: dict[str, tuple[bytes, str]] = {
    "nodes in words": (b'{"nodes": "eight"}', "nodes"),
    "nodes as a float": (b'{"nodes": 8.5}', "nodes"),
    "an unknown key": (b'{"nodez": 8}', "nodez"),
    "an unknown key in depth": (b'{"limits": {"hourz": 1}}', "limits.hourz"),
    "an unknown action": (b'{"action": "destroy"}', "action"),
    "an array": (b"[]", "message"),
    "not json": (b"{", "message"),
    "not utf-8": (b"\xff", "message"),
    "nan": (b'{"limits": {"hours": NaN}}', "message"),
    "infinity": (b'{"limits": {"hours": 1e999}}', "limits.hours"),
    "a twin": (b'{"nodes": 1, "nodes": 2}', "nodes"),
    "broken gzip": (b"\x1f\x8b\x08garbage", "message"),
    "a gzip bomb": (gzip.compress(b" " * 50_000_000), "message"),
    "too large": (b'{"name": "' + b"a" * 70_000 + b'"}', "message"),
    "a path": (b'{"name": "../../x"}', "name"),
    "a shell": (
        b'{"overrides": {"policy.model_name": "a b; rm -rf /"}}',
        "overrides.policy.model_name",
    ),
    "an environment": (
        b'{"overrides": {"policy.model_name": "${oc.env:HF_TOKEN}"}}',
        "overrides.policy.model_name",
    ),
    "a folder above": (b'{"overrides": {"logger.x": "/lustre/../etc"}}', "overrides.logger.x"),
    "a foreign project": (b'{"project_id": "other"}', "project_id"),
    "a deployment name": (b'{"deployment_name": "../../x"}', "deployment_name"),
    "a bucket with dots": (
        b'{"checkpoints": {"export_to": "gs://b/../c"}}',
        "checkpoints.export_to",
    ),
    "a checkpoint folder": (
        b'{"overrides": {"checkpointing.checkpoint_dir": "/x"}}',
        "overrides.checkpointing.checkpoint_dir",
    ),
    "a strange zone": (b'{"zones": ["us-east1-b; ls"]}', "zones.0"),
    "no zone": (b'{"zones": []}', "zones"),
    "a missing price": (b'{"capacity": "on-demand"}', "capacity"),
    "too dear": (b'{"limits": {"cost_usd": 10}}', "limits.cost_usd"),
    "too long": (b'{"limits": {"hours": 169}}', "limits.hours"),
    "an unknown image": (b'{"image": "evil/image:1"}', "image"),
    "an unknown profile": (b'{"profile": "gpt"}', "profile"),
    "half a surrogate as a key": (b'{"\\ud800": 1}', "message"),
    "half a surrogate as a value": (b'{"name": "\\ud800"}', "name"),
    "a run nobody knows": (b'{"action": "cancel", "run_id": "rl-0000000000"}', "run_id"),
    "no run id": (b'{"action": "cancel", "run_id": "x"}', "run_id"),
    "true for a number": (b'{"nodes": true}', "nodes"),
    "null": (b"null", "message"),
}


def check_rejected_once(services: FakeServices, field: str | None = None) -> dict[str, Any]:
    """One notification with field and reason, one dead letter, nothing created."""
    told = services.outbox.notifications
    assert len(told) == 1, told
    assert told[0]["kind"].endswith("rejected")
    assert told[0]["reason"]
    assert len(services.outbox.dead_letters) == 1
    assert services.memory.run_ids() == []
    assert services.executions.executions == []
    assert services.cloud.calls == []
    if field is not None:
        assert told[0]["field"] == field
    return told[0]


class TestBadBodies:
    @pytest.mark.parametrize("name", PUSHED)
    @pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
    def test_e1_e3_a_body_that_is_no_push_is_answered_once_and_acknowledged(
        self, name: str, body: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = FakeServices()
        app = client(name, services, monkeypatch)
        for _ in range(5):
            assert 200 <= post(app, body).status_code < 300
        check_rejected_once(services)

    @pytest.mark.parametrize("name", PUSHED)
    @pytest.mark.parametrize(
        "content_type",
        (
            None,
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/cloudevents+json",
            "multipart/form-data; boundary=x",
            "application/json; charset=utf-7",
        ),
    )
    def test_m1_the_content_type_decides_nothing(
        self, name: str, content_type: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = FakeServices()
        app = client(name, services, monkeypatch)
        assert post(app, b"a=1", content_type).status_code == 200
        check_rejected_once(services)

    @pytest.mark.parametrize("name", PUSHED)
    def test_m1_a_get_is_no_message(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        services = FakeServices()
        answer = client(name, services, monkeypatch).get("/")
        assert answer.status_code == 200  # never a crash, never a redelivery
        check_rejected_once(services)

    @pytest.mark.parametrize("name", PUSHED)
    def test_a_large_body_is_kept_shortened(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = FakeServices()
        app = client(name, services, monkeypatch)
        assert post(app, b"x" * 9_000_000).status_code == 200
        check_rejected_once(services)
        assert len(services.outbox.dead_letters[0][0]) <= 1_000_000


class TestBadRequests:
    @pytest.mark.parametrize(("data", "field"), BAD_REQUESTS.values(), ids=BAD_REQUESTS)
    def test_e4_e14_it_is_named_once_kept_and_nothing_is_created(
        self, data: bytes, field: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = FakeServices()
        app = client("start_run", services, monkeypatch)
        for _ in range(5):
            answer = post(app, push(data))
            assert answer.status_code == 200
            assert answer.get_json()["status"] == "rejected"
        told = check_rejected_once(services, field)
        assert told["message_id"] == "1"
        assert services.outbox.dead_letters[0][0] == data[:1_000_000]

    def test_a_bad_schedule_names_the_attribute(self, monkeypatch: pytest.MonkeyPatch) -> None:
        services = FakeServices()
        app = client("start_run", services, monkeypatch)
        for cron, tz in (("61 * * * *", "Etc/UTC"), ("* * * * *", "Mars/Base"), ("x", "")):
            body = push({}, cron, {"schedule": "s", "cron": cron, "tz": tz})
            assert post(app, body).get_json()["field"] == "attributes"
        assert len(services.outbox.notifications) == 3

    def test_a_dead_letter_survives_an_outage_of_the_publisher(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = FakeServices()
        app = client("start_run", services, monkeypatch)
        services.outbox.broken = ConnectionError("pubsub")
        for _ in range(3):
            assert post(app, push(b"[]")).status_code == 503
        services.outbox.broken = None
        assert post(app, push(b"[]")).status_code == 200
        check_rejected_once(services)


class TestGoodPushes:
    @pytest.mark.parametrize("attributes", (None, {}, {"origin": "test"}))
    def test_e2_attributes_are_not_needed(
        self, attributes: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = FakeServices()
        app = client("start_run", services, monkeypatch)
        assert post(app, push({}, "1", attributes)).get_json()["status"] == "started"

    @pytest.mark.parametrize(
        "body",
        (
            {"message": {"messageId": "1", "data": B64}},
            {"message": {"message_id": "1", "data": B64, "publish_time": "2026-01-01T00:00:00Z"}},
            {
                "message": {"messageId": "1", "message_id": "1", "data": "", "attributes": None},
                "subscription": "projects/p/subscriptions/s",
                "deliveryAttempt": 3,
            },
            {"message": {"messageId": "1"}},
            {
                "specversion": "1.0",
                "id": "1",
                "type": "google.cloud.pubsub.topic.v1.messagePublished",
                "source": "//pubsub",
                "data": {"message": {"messageId": "1", "data": B64}},
            },
        ),
    )
    def test_e2_the_emulators_and_cloud_events_shape_are_the_same_message(
        self, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = FakeServices()
        answer = post(client("start_run", services, monkeypatch), json.dumps(body).encode())
        assert answer.get_json()["run_id"] == "rl-3fb820c385"

    def test_m1_a_binary_cloud_event(self, monkeypatch: pytest.MonkeyPatch) -> None:
        services = FakeServices()
        headers = {
            "ce-id": "1",
            "ce-specversion": "1.0",
            "ce-source": "//pubsub",
            "ce-type": "google.cloud.pubsub.topic.v1.messagePublished",
        }
        answer = post(client("start_run", services, monkeypatch), push({}), headers=headers)
        assert answer.get_json()["status"] == "started"

    def test_gzip_is_a_request_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        services = FakeServices()
        body = push(gzip.compress(b'{"nodes": 4}'))
        answer = post(client("start_run", services, monkeypatch), body)
        run = services.memory.peek(answer.get_json()["run_id"])
        assert run.plan.nodes == 4

    def test_e5_trouble_that_may_pass_asks_for_another_delivery(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = FakeServices()
        app = client("start_run", services, monkeypatch)
        services.memory.broken = ConnectionError("firestore")
        answer = post(app, push({}))
        assert answer.status_code == 503
        assert answer.get_json()["error"]["retryable"] is True
        services.memory.broken = None
        assert post(app, push({})).get_json()["status"] == "started"

    def test_b7_five_deliveries_at_once_through_http(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = FakeServices()
        app = client("start_run", services, monkeypatch).application
        barrier = threading.Barrier(5)
        codes: list[int] = []

        def deliver() -> None:
            own = app.test_client()
            barrier.wait()
            codes.append(post(own, push({})).status_code)

        threads = [threading.Thread(target=deliver) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert codes == [200] * 5
        assert len(services.memory.run_ids()) == 1
        assert len(services.executions.of("rl-run")) == 1

    def test_a_token_in_the_environment_is_in_nothing_that_is_said(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        token = "hf_NobodyMayReadThisOne99"
        monkeypatch.setenv("LUSTRUM_HF_TOKEN", token)
        monkeypatch.setenv("HF_TOKEN", token)
        services = FakeServices()
        app = client("start_run", services, monkeypatch)
        post(app, push({}))
        post(app, push(b'{"nodes": "eight"}', "2"))
        said = capsys.readouterr()
        kept = services.memory.text() + str(services.outbox.sent)
        kept += str(services.executions.executions)
        assert token not in said.out + said.err + kept
        lines = [json.loads(line) for line in said.out.splitlines() if line.startswith("{")]
        assert {line["function"] for line in lines} == {"start_run"}
        assert lines[0]["run_id"] == "rl-3fb820c385"


class TestEvents:
    def event(self, key: str = "", **more: Any) -> bytes:
        return push(
            {
                "type": "job.progress",
                "run_id": "rl-3fb820c385",
                "attempt": 0,
                "event_id": "e",
                **more,
            },
            key=key,
        )

    @pytest.mark.parametrize(
        "data",
        (
            b"{}",
            b"[]",
            b"7",
            b"",
            b'{"type": 7}',
            b'{"type": "job.progress"}',
            b'{"type": "job.progress", "run_id": "x/rl-3fb820c385", "event_id": "e"}',
            b'{"type": "job.progress", "run_id": "rl-3fb820c385", "event_id": ""}',
            b'{"type": "job.progress", "run_id": "rl-3fb820c385", "event_id": "e", "step": -1}',
            b'{"type": "job.progress", "run_id": "rl-3fb820c385", "event_id": "\\ud800"}',
            b'{"incident": null}',
            b'{"incident": {}}',
            b'{"steps": [], "status": 7}',
            b'{"steps": [], "status": "SUCCESS", "id": "b", "substitutions": {"_ACTION": 7}}',
        ),
    )
    def test_e3_an_event_that_cannot_be_read_is_buried_once(
        self, data: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = FakeServices()
        app = client("react_to_event", services, monkeypatch)
        for _ in range(5):
            assert post(app, push(data)).status_code == 200
        check_rejected_once(services)

    @pytest.mark.parametrize(
        "data",
        (
            b'{"incident": {"incident_id": "\\ud800"}}',
            b'{"incident": {"incident_id": "i", "state": "open", "summary": "\\ud800"}}',
        ),
    )
    def test_an_odd_incident_is_kept(self, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
        app = client("react_to_event", FakeServices(), monkeypatch)
        assert post(app, push(data)).status_code == 200

    def test_an_event_of_a_run_nobody_knows_is_dropped(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = FakeServices()
        app = client("react_to_event", services, monkeypatch)
        answer = post(app, self.event())
        assert (answer.status_code, answer.get_json()["status"]) == (200, "ignored")
        assert services.outbox.sent == []

    def test_b9_an_event_delivered_twice_is_kept_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = FakeServices()
        post(client("start_run", services, monkeypatch), push({}))
        app = client("react_to_event", services, monkeypatch)
        key = services.memory.peek("rl-3fb820c385").event_key
        for _ in range(3):
            body = self.event(key, step=3, message="x" * 500_000)
            assert post(app, body).status_code == 200
        assert len(services.memory.events("rl-3fb820c385")) == 1

    def test_a_ledger_that_is_away_asks_for_another_delivery(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = FakeServices()
        services.memory.broken = ConnectionError("firestore")
        app = client("react_to_event", services, monkeypatch)
        assert post(app, self.event()).status_code == 503
