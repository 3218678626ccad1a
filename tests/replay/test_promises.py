"""Promises 1 to 6 of docs/architecture.md, from every state, whatever dies."""

from __future__ import annotations

from typing import Any

import pytest
from lustrum.core.record import Run

from testing.cloud import unavailable
from testing.dashboard import Script
from testing.deployed import FUNCTIONS
from testing.fake_cluster import unreachable
from testing.gates import lose_answer
from testing.life import Life
from testing.stories import (
    LIVE_STATES,
    TEARDOWN_STATES,
    TWO_REGIONS,
    check_nothing_is_left,
    check_the_newest_is_safe,
    in_state,
    to_the_end,
)
from tests.replay.messages import cancel


class TestNothingIsLeft:
    def test_a_run_of_the_original_recipe(self) -> None:
        life = Life()
        run = life.run(to_the_end({}))
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 20)
        assert run.outcome == "SUCCEEDED"
        assert [state for _, _, state in life.states] == [
            "REQUESTED",
            "PROVISIONING",
            "STARTING_HEAD",
            "STAGING",
            "WAITING_FOR_GPUS",
            "TRAINING",
            "RELEASING",
            "EXPORTING",
            "DESTROYING",
            "VERIFYING",
            "CLOSED",
        ]
        assert all(status == 200 for status, _ in life.reaped)
        assert life.cloud.deployments == 1

    @pytest.mark.parametrize("state", LIVE_STATES)
    def test_a_cancel_in_any_state(self, state: str) -> None:
        life = Life(reaps=False)
        run = life.run(in_state(state, cancel))
        check_nothing_is_left(life, run)
        assert (run.outcome, run.failure) == ("CANCELLED", "CANCELLED")
        assert len(life.services.outbox.kinds("run.cancelling")) == 1

    @pytest.mark.parametrize("state", TEARDOWN_STATES)
    def test_a_cancel_while_it_ends_changes_nothing(self, state: str) -> None:
        life = Life(reaps=False)
        run = life.run(in_state(state, cancel, seconds=1))
        check_nothing_is_left(life, run)
        assert run.outcome == "SUCCEEDED"

    @pytest.mark.parametrize("state", (*LIVE_STATES, *TEARDOWN_STATES))
    def test_a4_every_workflow_killed_in_any_state_leaves_the_reaper(self, state: str) -> None:
        def kill(life: Life, run_id: str) -> None:
            life.kill("rl-run")
            life.kill("teardown")

        life = Life()
        run = life.run(in_state(state, kill))
        check_nothing_is_left(life, run)
        assert run.outcome in ("FAILED", "PARTIAL", "SUCCEEDED")

    @pytest.mark.parametrize("state", ("PROVISIONING", "TRAINING", "EXPORTING"))
    def test_a27_no_workflow_ever_runs_again(self, state: str) -> None:
        """Only the reaper is left: past the hard deadline it deletes by name, and pages."""

        def kill(life: Life, run_id: str) -> None:
            life.services.workflows.broken = True
            life.kill("rl-run")
            life.kill("teardown")

        life = Life()
        run = life.run(in_state(state, kill))
        check_nothing_is_left(life, run)
        assert run.closed_at is not None
        assert run.closed_at < run.hard_deadline_at + 1800 + 1800
        assert any(status == 500 for status, _ in life.reaped)

    @pytest.mark.parametrize("function", FUNCTIONS)
    def test_the_answers_of_a_function_are_lost(self, function: str) -> None:
        life = Life()
        life.after.append(lose_answer(function, times=3))
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert (run.outcome, run.attempt, run.zone_attempts) == ("SUCCEEDED", 1, 1)

    @pytest.mark.parametrize(
        "step",
        (
            "claim",
            "place",
            "enter",
            "failed",
            "hand_over",
            "build",
            "leave_zone",
            "claim_teardown",
            "teardown",
            "destroy",
        ),
    )
    def test_the_answers_of_a_transition_are_lost(self, step: str) -> None:
        from testing.cloud import Deploy

        life = Life()
        life.cloud.deploys = [Deploy("STOCKOUT", "GCE_STOCKOUT")]
        life.after.append(lose_answer("advance_run", times=2, step=step))
        run = life.run(to_the_end(TWO_REGIONS))
        check_nothing_is_left(life, run)
        assert (run.outcome, run.attempt, run.zone_attempts) == ("SUCCEEDED", 1, 2)
        assert len(run.mishaps) == 1

    @pytest.mark.parametrize("lost", (1, 3))
    def test_a_verdict_whose_answer_is_lost_counts_once(self, lost: int) -> None:
        """Judged twice, one crash would be a crash loop and end the run."""
        from workflows_engine.errors import HttpConnectionBroken

        left = [lost]

        def gate(name: str, call: dict[str, Any]) -> None:
            if name == "check_ray_job" and life.replies[-1][2].get("next") != "wait" and left[0]:
                left[0] -= 1
                raise HttpConnectionBroken("the answer was lost")

        life = Life()
        life.cloud.scripts = {1: Script(fail_at=1)}
        life.after.append(gate)
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert (run.outcome, run.attempt, len(run.mishaps)) == ("SUCCEEDED", 2, 1)
        assert left == [0]

    @pytest.mark.parametrize("service", ("gke", "lustre", "builds", "compute", "storage"))
    @pytest.mark.parametrize("state", ("PROVISIONING", "TRAINING", "RELEASING", "VERIFYING"))
    def test_a7_a_service_is_away_for_40_minutes(self, service: str, state: str) -> None:
        def outage(life: Life, run_id: str) -> None:
            end = life.loop.now() + 2400

            def hook(name: str, method: str) -> None:
                if name == service and life.loop.now() < end:
                    raise unavailable(service)

            life.cloud.hooks.append(hook)

        life = Life()
        run = life.run(in_state(state, outage))
        check_nothing_is_left(life, run)

    def test_the_kubernetes_api_is_away_while_gpus_are_awaited(self) -> None:
        """A zonal control plane is replaced as the cluster grows: minutes without an API."""

        def outage(life: Life, run_id: str) -> None:
            kubernetes = life.cloud.kubernetes(run_id)
            kubernetes.broken = unreachable()
            life.agenda.after(1200, lambda: setattr(kubernetes, "broken", None))

        life = Life()
        run = life.run(in_state("WAITING_FOR_GPUS", outage))
        check_nothing_is_left(life, run)
        assert run.outcome == "SUCCEEDED"

    def test_the_kubernetes_api_is_away_while_data_is_staged(self) -> None:
        def outage(life: Life, run_id: str) -> None:
            kubernetes = life.cloud.kubernetes(run_id)
            kubernetes.broken = unreachable()
            life.agenda.after(1200, lambda: setattr(kubernetes, "broken", None))

        life = Life()
        run = life.run(in_state("STAGING", outage))
        check_nothing_is_left(life, run)
        assert run.outcome == "SUCCEEDED"

    def test_the_ledger_is_away_for_an_hour_while_it_trains(self) -> None:
        def outage(life: Life, run_id: str) -> None:
            life.services.memory.broken = ConnectionError("firestore is away")
            life.agenda.after(3600, lambda: setattr(life.services.memory, "broken", None))

        life = Life()
        run = life.run(in_state("TRAINING", outage, seconds=330))
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 4)

    def test_the_publisher_is_away_for_the_whole_run(self) -> None:
        """K3: people cannot be told; that never keeps a run from ending."""

        async def story(life: Life) -> Run:
            run_id = await life.start()
            life.services.outbox.broken = ConnectionError("pubsub is away")
            await life.until(lambda: life.record(run_id).is_over)
            life.services.outbox.broken = None
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        assert run.outcome == "SUCCEEDED"
        check_nothing_is_left(life, run)  # and told once, when it came back

    def test_the_report_cannot_be_written(self) -> None:
        def hook(service: str, method: str) -> None:
            if (service, method) == ("storage", "write"):
                raise unavailable("storage")

        life = Life()
        life.cloud.hooks.append(hook)
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert run.outcome == "SUCCEEDED"
        assert "storage" in life.services.outbox.kinds("run.closed")[0]["report_problem"]


class TestNeverIdle:
    def test_gpus_come_last_and_go_first(self) -> None:
        life = Life()
        run = life.run(to_the_end())
        at = {state: when for when, _, state in life.states}
        usage = {item.resource: item for item in run.usage}
        gpus, lustre = usage["accelerators"], usage["lustre"]
        assert gpus.since >= at["WAITING_FOR_GPUS"] - 60
        assert gpus.until is not None and lustre.until is not None
        assert gpus.until < at["EXPORTING"] + 60
        assert gpus.until < lustre.until

    def test_a_finished_job_begins_its_teardown_within_seconds_of_its_event(self) -> None:
        life = Life(event_delay=0.2)
        life.run(to_the_end())
        at = {state: when for when, _, state in life.states}
        log = [when for when, name, _ in life.calls if name == "check_ray_job"]
        assert at["RELEASING"] - log[-1] < 5

    def test_a_lost_event_costs_one_poll(self) -> None:
        told, silent = Life(), Life(deliver_events=False)
        one, two = told.run(to_the_end()), silent.run(to_the_end())
        assert one.closed_at is not None and two.closed_at is not None
        assert (two.closed_at - two.created_at) - (one.closed_at - one.created_at) < 600

    def test_an_end_that_ray_has_not_noticed_yet_is_believed(self) -> None:
        """The supervisor says its last word before it exits; Ray is asked first, but not for ever:
        a wait of 300 s would follow.
        """
        life = Life()
        life.cloud.scripts = {1: Script(lag=600.0)}
        told: list[float] = []

        async def story(life: Life) -> Run:
            published = life.cloud.published

            def listen(event: dict[str, Any]) -> None:
                if event["type"] == "job.completed":
                    told.append(life.loop.now())
                published(event)

            life.cloud.published = listen
            return await life.until_closed(await life.start())

        run = life.run(story)
        check_nothing_is_left(life, run)
        assert run.outcome == "SUCCEEDED"
        began = next(when for when, _, state in life.states if state == "RELEASING")
        assert began - told[0] < 50, life.story()


class TestBounded:
    def test_the_deadline_ends_a_training_and_saves_it(self) -> None:
        life = Life()
        life.cloud.scripts = {1: Script(step_seconds=3000)}
        run = life.run(to_the_end({"limits": {"hours": 3}}))
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 2)
        assert (run.outcome, run.failure) == ("PARTIAL", "DEADLINE")
        assert run.closed_at is not None and run.closed_at < run.hard_deadline_at

    def test_a12_ray_says_running_for_ever(self) -> None:
        life = Life()
        life.cloud.scripts = {n: Script(hang_at=2 * n) for n in range(1, 10)}
        run = life.run(to_the_end({"limits": {"hours": 6, "attempts": 100}}))
        check_nothing_is_left(life, run)
        assert run.outcome == "PARTIAL"

    def test_what_was_spent_stays_below_the_worst_case(self) -> None:
        life = Life()
        life.cloud.scripts = {1: Script(step_seconds=2000)}
        life.cloud.exports = ["PERMISSION_DENIED"] * 10_000
        run = life.run(to_the_end())
        spent = sum(item.dollars(0) for item in run.usage)
        assert 0 < spent <= run.plan.worst_cost

    def test_a_crash_loop_ends_after_two(self) -> None:
        life = Life()
        life.cloud.scripts = {n: Script(fail_at=3) for n in range(1, 10)}
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert (run.outcome, run.failure, run.attempt) == ("PARTIAL", "USER_ERROR", 3)

    def test_more_hours_move_the_deadline_and_the_labels(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start({"limits": {"hours": 2, "cost_usd": 5000}})
            await life.until_state(run_id, "TRAINING")
            answer = await life.publish(
                {"action": "extend", "run_id": run_id, "hours": 3}, "more-1"
            )
            assert answer["status"] == "extended"
            await life.publish({"action": "extend", "run_id": run_id, "hours": 3}, "more-1")
            label = life.cloud.cluster(run_id).labels["lustrum-expires"]
            assert int(label) == int(life.record(run_id).hard_deadline_at)
            return await life.until_closed(run_id)

        life = Life()
        life.cloud.scripts = {1: Script(step_seconds=600)}
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert (run.outcome, run.plan.hours) == ("SUCCEEDED", 5)


class TestSlots:
    def test_a_run_waits_for_a_network_slot_and_then_goes_on(self) -> None:
        async def story(life: Life) -> list[Run]:
            ids = [await life.start({}, f"m{n}") for n in range(3)]
            await life.until(lambda: "QUEUED" in [s for _, _, s in life.states])
            return [await life.until_closed(one) for one in ids]

        life = Life()
        for run in life.run(story):
            assert run.outcome == "SUCCEEDED"
            check_nothing_is_left(life, run)

    def test_a_run_that_waits_too_long_for_a_slot_ends(self) -> None:
        async def story(life: Life) -> Run:
            life.services.memory.lease_slot(["a"], "rl-aaaaaaaaaa")
            life.services.memory.lease_slot(["b"], "rl-bbbbbbbbbb")
            run = await life.until_closed(await life.start())
            life.services.memory.release_slot("rl-aaaaaaaaaa")
            life.services.memory.release_slot("rl-bbbbbbbbbb")
            return run

        life = Life(reaps=False)
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert (run.outcome, run.failure) == ("FAILED", "QUOTA")
        assert life.cloud.deployments == 0

    def test_the_reaper_frees_the_slot_of_a_run_that_is_no_more(self) -> None:
        async def story(life: Life) -> Run:
            life.services.memory.lease_slot(["a"], "rl-aaaaaaaaaa")
            life.services.memory.lease_slot(["b"], "rl-bbbbbbbbbb")
            return await life.until_closed(await life.start())

        life = Life()
        run = life.run(story)
        assert run.outcome == "SUCCEEDED"
