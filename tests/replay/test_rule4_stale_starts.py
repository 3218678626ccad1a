"""Rule 4: a start that waited too long is refused, once; cancels and completions never are."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from lustrum.core.record import Run
from lustrum.handlers import reactions
from lustrum.handlers import start as requests

from testing.life import Life
from testing.services import FakeServices, push
from testing.stories import check_nothing_is_left, in_state
from tests.functions.support import client, post

HOUR = 3600.0


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def old(
    services: FakeServices, body: Any, hours: float, message_id: str = "1", key: str = ""
) -> bytes:
    return push(body, message_id, published=at(services.now() - hours * HOUR), key=key)


class TestRule4StaleStarts:
    @pytest.mark.parametrize(
        ("body", "hours"),
        (
            ({}, 6.1),
            ({}, 700.0),
            ({"limits": {"start_within_hours": 0.5}}, 0.6),
            ({"limits": {"start_within_hours": 48}}, 48.5),
        ),
        ids=repr,
    )
    def test_rule4_a_stale_start_is_refused_and_told_once(self, body: Any, hours: float) -> None:
        services = FakeServices()
        for _ in range(5):
            services.agenda.reach(services.now() + 60)
            answer = requests.handle_push(services, old(services, body, hours))
            assert answer["status"] == "rejected"
            assert answer["field"] == "limits.start_within_hours"
        assert services.memory.run_ids() == [] and services.executions.executions == []
        (told,) = services.outbox.notifications
        assert told["kind"] == "request.rejected" and "published at" in told["reason"]
        assert len(services.outbox.dead_letters) == 1

    @pytest.mark.parametrize(
        ("body", "hours"),
        (
            ({}, 5.9),
            ({}, -0.2),
            ({"limits": {"start_within_hours": 48}}, 47.0),
        ),
        ids=repr,
    )
    def test_rule4_a_start_within_its_limit_starts(self, body: Any, hours: float) -> None:
        services = FakeServices()
        assert requests.handle_push(services, old(services, body, hours))["status"] == "started"

    def test_rule4_a_late_redelivery_of_a_start_that_was_taken_is_a_duplicate(self) -> None:
        services = FakeServices()
        body = push({}, published=at(services.now()))
        assert requests.handle_push(services, body)["status"] == "started"
        services.agenda.reach(services.now() + 30 * HOUR)
        assert requests.handle_push(services, body)["status"] == "duplicate"
        assert services.outbox.kinds("request.rejected") == []

    def test_rule4_a_tick_of_a_schedule_that_was_stuck_for_a_day_starts_nothing(self) -> None:
        services = FakeServices()
        attributes = {"schedule": "nightly", "cron": "0 3 * * *", "tz": "Europe/Paris"}
        body = push({}, "9", attributes, at(services.now() - 24 * HOUR))
        assert requests.handle_push(services, body)["status"] == "rejected"
        assert services.memory.run_ids() == []

    def test_rule4_by_raw_http_it_is_acknowledged(self, monkeypatch: pytest.MonkeyPatch) -> None:
        services = FakeServices()
        app = client("start_run", services, monkeypatch)
        for _ in range(3):
            found = post(app, old(services, {}, 7))
            assert found.status_code == 200
            assert json.loads(found.data)["status"] == "rejected"
        assert len(services.outbox.notifications) == 1

    def test_rule4_a_stale_cancel_is_honoured(self) -> None:
        def cancel(life: Life, run_id: str) -> None:
            body = {"action": "cancel", "run_id": run_id}
            answer = requests.handle_push(life.services, old(life.services, body, 200, "c"))
            assert answer["status"] == "cancelling"

        life = Life()
        run = life.run(in_state("TRAINING", cancel))
        check_nothing_is_left(life, run)
        assert run.outcome == "CANCELLED"

    def test_rule4_a_stale_completion_is_honoured(self) -> None:
        """It comes late and ends the wait; what is real then is asked of Ray."""

        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            await life.until(lambda: any(one["type"] == "job.completed" for one in told))
            event = next(one for one in told if one["type"] == "job.completed")
            key = life.event_key(run_id)
            body = old(life.services, event, 200, "late", key)
            assert reactions.handle_push(life.services, body) == {
                "run_id": run_id,
                "status": "kept",
                "rung": True,
            }
            return await life.until_closed(run_id)

        told: list[dict[str, Any]] = []
        life = Life(deliver_events=False)
        publish = Life._published

        def listen(event: dict[str, Any]) -> None:
            told.append(event)
            publish(life, event)

        life._published = listen  # type: ignore[method-assign]
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert run.outcome == "SUCCEEDED"
        assert any(rung for rung in life.rings)
