"""Rule 6: no decision rests on an event alone; who may say what is bound to where it came from."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lustrum.core.record import Run
from lustrum.handlers import reactions
from lustrum.handlers import start as requests

from testing.dashboard import Dashboard, Script
from testing.life import Life
from testing.services import FakeServices, push
from testing.stories import check_nothing_is_left, check_the_newest_is_safe
from tests.functions.support import client, post

EVENTS = "projects/p/subscriptions/lustrum-events-push"
ALERTS = "projects/p/subscriptions/lustrum-alerts-push"
BUILDS = "projects/p/subscriptions/cloud-builds-push"


def incident(run_id: str, action: str, state: str = "open") -> dict[str, Any]:
    return {
        "version": "1.2",
        "incident": {
            "incident_id": "i1",
            "state": state,
            "started_at": 1767226000,
            "policy_user_labels": {"lustrum-action": action},
            "resource": {"labels": {"instance_id": run_id}},
        },
    }


def notice(run_id: str) -> dict[str, Any]:
    subs = {"_RUN_ID": run_id, "_ACTION": "deploy"}
    return {"id": "b1", "status": "FAILURE", "steps": [], "substitutions": subs}


def event(run_id: str, kind: str = "job.completed", **more: Any) -> dict[str, Any]:
    return {"type": kind, "run_id": run_id, "attempt": 1, "event_id": "forged", **more}


def saved(run_id: str, step: int) -> dict[str, Any]:
    return event(run_id, "checkpoint.saved", step=step, checkpoint={"step": step})


def head(life: Life, run_id: str) -> Dashboard:
    found = life.cloud.cluster(run_id).kubernetes.head
    assert isinstance(found, Dashboard)
    return found


def started(services: FakeServices) -> str:
    return str(requests.handle_push(services, push({}))["run_id"])


class TestRule6KindsAndSubscriptions:
    @pytest.mark.parametrize(
        ("what", "subscription"),
        (
            ("stop", EVENTS),
            ("prune", EVENTS),
            ("stop", BUILDS),
            ("build", EVENTS),
            ("build", ALERTS),
            ("job", ALERTS),
            ("job", BUILDS),
            ("stop", ""),
            ("job", ""),
            ("job", "projects/p/subscriptions/lustrum-requests-push"),
            ("stop", "projects/p/subscriptions/x-lustrum-alerts-push"),
        ),
        ids=str,
    )
    def test_rule6_by_raw_http_a_message_of_another_topic_is_kept_and_not_believed(
        self, what: str, subscription: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = FakeServices()
        run_id = started(services)
        before = services.memory.peek(run_id)
        bodies = {"build": notice(run_id), "job": event(run_id)}
        body = bodies.get(what) or incident(run_id, what)
        app = client("react_to_event", services, monkeypatch)
        for _ in range(3):
            answer = post(app, push(body, subscription=subscription or " ", key=before.event_key))
            assert answer.status_code == 200
            assert answer.get_json()["field"] == "subscription"
        assert services.memory.peek(run_id) == before
        assert services.memory.events(run_id) == []
        assert len(services.outbox.dead_letters) == 1
        assert len(services.outbox.kinds("event.rejected")) == 1

    @pytest.mark.parametrize("action", ("stop", "prune"))
    def test_rule6_an_alert_forged_by_a_job_ends_and_prunes_nothing(self, action: str) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            await life.pass_time(400)
            body = push(incident(run_id, action), subscription=EVENTS)
            assert reactions.handle_push(life.services, body)["status"] == "rejected"
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert run.outcome == "SUCCEEDED"
        assert not any("-prune-" in one["submission_id"] for one in life.cloud.submissions)


class TestRule6Signatures:
    @pytest.mark.parametrize("key", ("", "0" * 64), ids=("none", "another run's"))
    def test_rule6_by_raw_http_an_event_its_run_did_not_sign_is_no_event(
        self, key: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = FakeServices()
        run_id = started(services)
        before = services.memory.peek(run_id)
        app = client("react_to_event", services, monkeypatch)
        for _ in range(3):
            answer = post(app, push(event(run_id, exit_code=0), key=key))
            assert answer.get_json()["field"] == "attributes.signature"
        assert services.memory.peek(run_id) == before
        assert services.memory.events(run_id) == []
        assert len(services.outbox.dead_letters) == 1
        right = push(event(run_id, exit_code=0), key=before.event_key)
        assert post(app, right).get_json()["status"] == "kept"

    def test_rule6_each_run_has_a_key_of_its_own_that_is_shown_nowhere(self) -> None:
        async def story(life: Life) -> list[Run]:
            ids = [await life.start({}, f"m{n}") for n in range(2)]
            for one in ids:
                await life.until_state(one, "TRAINING")
                keys.append(life.event_key(one))
            return [await life.until_closed(one) for one in ids]

        keys: list[str] = []
        life = Life()
        runs = life.run(story)
        assert len({*keys}) == 2 and all(len(key) == 64 for key in keys)
        assert [one.event_key for one in runs] == keys
        shown = json.dumps([life.services.outbox.notifications, life.cloud.submissions])
        shown += life.log.getvalue()
        for uri, content in life.cloud.objects.items():
            shown += uri + (content.decode() if isinstance(content, bytes) else "")
        assert '"state": "CLOSED"' in shown
        assert not any(key in shown for key in keys)

    def test_rule6_a_record_from_before_keys_is_still_told_of_its_job(self) -> None:
        services = FakeServices()
        run_id = started(services)
        services.memory.change(run_id, lambda one: setattr(one, "event_key", ""))
        assert reactions.handle_push(services, push(event(run_id)))["status"] == "kept"


class TestRule6Logs:
    @pytest.mark.parametrize(
        "more",
        (
            {"run_id": "rl-ffffffffff", "exit_code": 0},
            {"attempt": 7, "exit_code": 0},
            {"attempt": 1, "exit_code": 0, "ended": "data"},
            {"attempt": 1, "exit_code": 1, "class": "CONFIG", "message": "forged"},
            {
                "run_id": "rl-ffffffffff",
                "exit_code": 1,
                "class": "CONFIG",
                "message": "an old one",
            },
        ),
        ids=lambda more: json.dumps(more)[:30],
    )
    def test_rule6_another_runs_line_in_the_log_ends_nothing(self, more: Any) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            await life.pass_time(400)
            job = head(life, run_id).jobs[f"{run_id}-a1"]
            job.log.append("LUSTRUM " + json.dumps({**event(run_id), **more}))
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert (run.outcome, run.attempt) == ("SUCCEEDED", 1)


def script_of(life: Life, run_id: str, step: int) -> None:
    """The training itself prints that a step is saved; its supervisor signs what it prints."""
    job = head(life, run_id).jobs[f"{run_id}-a1"]
    job.log.append("LUSTRUM " + json.dumps(saved(run_id, step)))


def told_by(how: str, life: Life, run_id: str, step: int) -> None:
    if how == "log":
        script_of(life, run_id, step)
    else:
        body = push(saved(run_id, step), key=life.event_key(run_id))
        assert reactions.handle_push(life.services, body)["status"] == "kept"


class TestRule6TheDiskDecides:
    @pytest.mark.parametrize("how", ("log", "event"))
    def test_rule6_a_step_that_is_not_on_the_disk_ends_nothing(self, how: str) -> None:
        """It says that step 20 of 20 is saved; then a node is lost."""

        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            await life.pass_time(250)
            told_by(how, life, run_id, 20)
            await life.pass_time(20)
            life.cloud.cluster(run_id).kubernetes.preempt()
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 20)
        assert (run.outcome, run.attempt) == ("SUCCEEDED", 2)

    def test_rule6_a_training_that_ends_early_and_says_that_it_is_done_is_not_done(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            await life.pass_time(250)
            told_by("event", life, run_id, 20)
            return await life.until_closed(run_id)

        life = Life()
        life.cloud.scripts = {1: Script(leave_at=6)}
        run = life.run(story)
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 20)
        assert run.mishaps[0].failure == "TIME_LIMIT"
        assert "step 6 of 20" in run.mishaps[0].sentence
        assert (run.outcome, run.attempt) == ("SUCCEEDED", 2)  # trained on, not believed

    @pytest.mark.parametrize(
        ("action", "used", "acts"),
        (
            ("stop", 0.5, False),
            ("stop", 0.89, False),
            ("stop", 0.97, True),
            ("prune", 0.5, False),
            ("prune", 0.81, True),
        ),
    )
    def test_rule6_an_alert_is_followed_only_if_the_disk_says_so_too(
        self, action: str, used: float, acts: bool
    ) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            life.cloud.instance(run_id).files.used = used
            await life.pass_time(400)
            body = push(incident(run_id, action), subscription=ALERTS)
            assert reactions.handle_push(life.services, body)["status"] == "kept"
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        pruned = any("-prune-" in one["submission_id"] for one in life.cloud.submissions)
        assert pruned == (acts and action == "prune")
        stopped = (run.outcome, run.failure) == ("PARTIAL", "LUSTRE_FULL")
        assert stopped == (acts and action == "stop")
        assert run.full_since is None or stopped

    def test_rule6_another_incidents_end_does_not_end_this_one(self) -> None:
        services = FakeServices()
        run_id = started(services)
        for body, is_full in (
            (incident(run_id, "stop"), True),
            (_of(incident(run_id, "stop", "closed"), "i2"), True),
            (incident(run_id, "stop", "closed"), False),
        ):
            reactions.handle_push(services, push(body))
            assert (services.memory.peek(run_id).full_since is not None) == is_full

    def test_rule6_a_proof_that_does_not_come_is_waited_for_two_minutes(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            head(life, run_id).list_seconds = 10**9
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 20)
        assert run.outcome == "SUCCEEDED"
        ended = next(one.at for one in run.history if one.state == "RELEASING")
        last = max(one.at for one in run.saves)
        assert 100 < ended - last < 300


def _of(body: dict[str, Any], identity: str) -> dict[str, Any]:
    return {**body, "incident": {**body["incident"], "incident_id": identity}}
