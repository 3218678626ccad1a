"""Everything that arrives is an event, or a MalformedEvent; nothing else is raised."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lustrum.core.alerts import AlertAction, Incident
from lustrum.core.errors import MalformedEvent
from lustrum.core.events import (
    BuildNotice,
    ClusterNotice,
    JobEvent,
    Message,
    decode_event,
    decode_push,
)

from testing.samples import NOW, RUN_ID
from testing.services import topic_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
# The keys that decide what a message is, so that generated ones get past the first look.
KEYS = st.sampled_from(
    [
        "type",
        "run_id",
        "attempt",
        "step",
        "event_id",
        "at",
        "checkpoint",
        "steps",
        "status",
        "id",
        "substitutions",
        "tags",
        "incident",
        "version",
        "exit_code",
        "class",
        "message",
        "reward",
    ]
)
INCIDENT = st.dictionaries(
    st.sampled_from(
        [
            "incident_id",
            "state",
            "started_at",
            "ended_at",
            "resource",
            "metric",
            "summary",
            "policy_name",
            "policy_user_labels",
            "observed_value",
            "documentation",
        ]
    ),
    JSON,
)


def message(found: Any, **attributes: str) -> Message:
    return from_its_topic(json.dumps(found).encode(), attributes)


def from_its_topic(data: bytes, attributes: dict[str, str]) -> Message:
    subscription = f"projects/p/subscriptions/{topic_of(data, attributes)}-push"
    return Message(data, attributes, "m1", subscription=subscription)


def decode(found: Any, **attributes: str) -> Any:
    return decode_event(message(found, **attributes))


class TestAnything:
    @given(st.binary(max_size=300))
    def test_decode_push_any_bytes(self, body: bytes) -> None:
        try:
            decode_push(body)
        except MalformedEvent as bad:
            assert bad.field and bad.reason

    @given(st.dictionaries(st.sampled_from(["message", "subscription", "data"]), JSON))
    def test_decode_push_any_object(self, body: Any) -> None:
        try:
            found = decode_push(json.dumps(body).encode())
        except MalformedEvent:
            return
        assert isinstance(found.data, bytes)
        assert all(isinstance(one, str) for pair in found.attributes.items() for one in pair)

    @given(st.dictionaries(KEYS, JSON, max_size=8))
    def test_decode_event_any_object(self, found: Any) -> None:
        try:
            json.dumps(decode(found).model_dump(mode="json")).encode()
        except MalformedEvent as bad:
            assert bad.field and bad.reason

    @given(
        st.sampled_from(["job.progress", "checkpoint.saved", "stage.done"]),
        st.dictionaries(KEYS, JSON, max_size=6),
    )
    def test_decode_event_any_job_event(self, kind: str, found: Any) -> None:
        try:
            event = decode({"event_id": "e", **found, "type": kind, "run_id": RUN_ID})
        except MalformedEvent:
            return
        assert isinstance(event.moment(NOW), float) or event.moment(NOW) is not None

    @given(INCIDENT)
    def test_decode_event_any_incident(self, body: Any) -> None:
        try:
            event = decode({"version": "1.2", "incident": body})
        except MalformedEvent:
            return
        assert event.state in ("open", "closed", "test", "unknown")
        assert event.action in AlertAction
        event.event_id.encode()

    @given(st.binary(max_size=200), st.dictionaries(st.text(max_size=5), st.text(max_size=5)))
    def test_decode_event_any_attributes(self, data: bytes, attributes: dict[str, str]) -> None:
        for more in ({}, {"type_url": "x"}, {"buildId": "b"}):
            try:
                decode_event(from_its_topic(data, {**attributes, **more}))
            except MalformedEvent:
                continue


class TestPush:
    def test_decode_push_names_are_read_in_both_spellings(self) -> None:
        data = base64.b64encode(b"x").decode()
        for one in (
            {"messageId": "7", "publishTime": "2026-01-01T00:00:00.123456Z"},
            {"message_id": "7", "publish_time": "2026-01-01T00:00:00.123456Z"},
        ):
            found = decode_push(json.dumps({"message": {**one, "data": data}}).encode())
            assert (found.data, found.message_id) == (b"x", "7")
            assert found.published is not None and found.published.tzinfo is not None

    @pytest.mark.parametrize("moment", (None, 7, "", "yesterday", "2026-13-01T00:00:00Z"))
    def test_decode_push_a_publish_time_that_is_none(self, moment: Any) -> None:
        body = {"message": {"messageId": "1", "publishTime": moment}}
        assert decode_push(json.dumps(body).encode()).published is None


class TestBuildNotices:
    def notice(self, **more: Any) -> dict[str, Any]:
        return {
            "id": "b1",
            "status": "SUCCESS",
            "steps": [],
            "tags": ["lustrum", RUN_ID],
            "substitutions": {"_RUN_ID": RUN_ID, "_ACTION": "deploy"},
            **more,
        }

    def test_a_build_names_its_run_and_action(self) -> None:
        event = decode(self.notice(), buildId="b1", status="SUCCESS")
        assert isinstance(event, BuildNotice)
        assert (event.run_id, event.action, event.is_over) == (RUN_ID, "deploy", True)

    def test_a_build_names_its_run_by_tag_too(self) -> None:
        assert decode(self.notice(substitutions=None), buildId="b1").run_id == RUN_ID

    def test_a_foreign_build_names_none(self) -> None:
        event = decode(self.notice(substitutions={}, tags=["x", "not-rl-0123456789"]))
        assert event.run is None

    @pytest.mark.parametrize(
        ("status", "over"),
        (
            ("QUEUED", False),
            ("PENDING", False),
            ("WORKING", False),
            ("STATUS_UNKNOWN", False),
            ("SUCCESS", True),
            ("FAILURE", True),
            ("TIMEOUT", True),
            ("CANCELLED", True),
            ("INTERNAL_ERROR", True),
            ("EXPIRED", True),
        ),
    )
    def test_is_over(self, status: str, over: bool) -> None:
        assert decode(self.notice(status=status)).is_over is over

    def test_one_build_has_one_event_a_status(self) -> None:
        ids = {decode(self.notice(status=one)).event_id for one in ("QUEUED", "WORKING")}
        assert len(ids) == 2


class TestOthers:
    def test_a_notice_of_gke(self) -> None:
        event = decode_event(
            Message(
                b"text",
                {
                    "type_url": "type.googleapis.com/google.container.UpgradeEvent",
                    "cluster_name": RUN_ID,
                },
                "m",
                subscription="projects/p/subscriptions/lustrum-events-push",
            )
        )
        assert isinstance(event, ClusterNotice)
        assert (event.run, event.kind) == (RUN_ID, "UpgradeEvent")

    @pytest.mark.parametrize("run_id", ("x" + RUN_ID, RUN_ID + "\n", "a/" + RUN_ID, "", None, 7))
    def test_a_job_event_of_no_run(self, run_id: Any) -> None:
        with pytest.raises(MalformedEvent) as bad:
            decode({"type": "job.progress", "run_id": run_id, "event_id": "e"})
        assert bad.value.field == "run_id"

    def test_a_long_message_is_cut(self) -> None:
        event = decode(
            {"type": "job.completed", "run_id": RUN_ID, "event_id": "e", "message": "x" * 10**6}
        )
        assert isinstance(event, JobEvent) and len(event.message) <= 2000

    def test_a_secret_word_class_is_an_alias(self) -> None:
        event = decode(
            {"type": "stage.failed", "run_id": RUN_ID, "event_id": "e", "class": "ACCESS"}
        )
        assert event.failure == "ACCESS"


def incident(**more: Any) -> Incident:
    body = {
        "incident_id": "i1",
        "state": "open",
        "started_at": 1767225600,
        "ended_at": None,
        "policy_name": "Lustre is nearly full",
        "condition_name": "95 %",
        "policy_user_labels": {"lustrum-action": "stop"},
        "resource": {
            "type": "lustre.googleapis.com/Instance",
            "labels": {"instance_id": RUN_ID, "location": "us-east1-b"},
        },
        "metric": {"type": "x", "labels": {}},
        "observed_value": "0.96",
        "threshold_value": "0.95",
        "summary": "it is full",
        "url": "https://x",
        "documentation": {"content": "what to do", "mime_type": "text/markdown"},
    }
    found = decode({"version": "1.2", "incident": {**body, **more}})
    assert isinstance(found, Incident)
    return found


class TestIncidents:
    def test_m2_an_open_incident(self) -> None:
        one = incident()
        assert (one.state, one.run_id, one.action) == ("open", RUN_ID, AlertAction.STOP)
        assert (one.observed, one.at) == (0.96, 1767225600)

    def test_m2_open_and_closed_are_two_events_of_one_incident(self) -> None:
        closed = incident(state="closed", ended_at=1767229200)
        assert closed.state == "closed" and closed.at == 1767229200
        assert closed.event_id != incident().event_id

    @pytest.mark.parametrize(
        "more", ({"started_at": 0, "ended_at": 0, "state": "OPEN", "observed_value": "1.0"},)
    )
    def test_m2_the_consoles_test(self, more: dict[str, Any]) -> None:
        assert incident(**more).state == "test"
        body = {"version": "test", "incident": {"incident_id": "x", "state": "open"}}
        assert decode(body).state == "test"

    @pytest.mark.parametrize(
        "more",
        (
            {"state": None},
            {"state": "acknowledged"},
            {"state": "OPEN"},
            {"state": 7},
            {"resource": None},
            {"resource": "x"},
            {"resource": {"labels": None}},
            {"metric": None},
            {"metric": {"labels": []}},
            {"started_at": "yesterday"},
            {"started_at": None},
            {"observed_value": None},
            {"observed_value": "n/a"},
            {"observed_value": True},
            {"documentation": "text"},
            {"documentation": None},
            {"policy_user_labels": None},
            {"policy_user_labels": []},
            {"summary": None},
            {"policy_name": 7},
            {"unknown": {"deep": [1]}},
            {"incident_id": "i" * 1000},
        ),
    )
    def test_m2_a_broken_one_is_read_as_far_as_it_goes(self, more: dict[str, Any]) -> None:
        one = incident(**more)
        assert len(one.event_id) < 300
        if "state" in more:
            assert one.state == "unknown"

    @pytest.mark.parametrize(
        "body",
        (
            None,
            "x",
            [],
            7,
            {},
            {"incident_id": None},
            {"incident_id": ""},
            {"incident_id": 7},
        ),
    )
    def test_m2_no_incident_at_all(self, body: Any) -> None:
        with pytest.raises(MalformedEvent):
            decode({"version": "1.2", "incident": body})

    @pytest.mark.parametrize("action", AlertAction)
    def test_every_action_can_be_asked_for(self, action: AlertAction) -> None:
        assert incident(policy_user_labels={"lustrum-action": action}).action is action

    def test_an_action_nobody_knows_only_notifies(self) -> None:
        labels = {"lustrum-action": "destroy-everything"}
        assert incident(policy_user_labels=labels).action is AlertAction.NOTIFY

    @pytest.mark.parametrize(
        "labels",
        (
            {"instance_id": f"projects/p/locations/z/instances/{RUN_ID}"},
            {"cluster_name": RUN_ID},
        ),
    )
    def test_the_run_is_found_by_instance_or_cluster(self, labels: dict[str, str]) -> None:
        assert incident(resource={"labels": labels}).run_id == RUN_ID

    def test_a_foreign_resource_is_no_run(self) -> None:
        labels = {"instance_id": "somebodys-lustre"}
        assert incident(resource={"labels": labels}).run_id is None
