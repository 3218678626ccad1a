"""The promises of a training: nothing is lost, and a preemption is normal."""

from __future__ import annotations

from typing import Any

import pytest
from lustrum.core.record import Run

from testing.cloud import unavailable
from testing.dashboard import Script
from testing.life import Life
from testing.stories import (
    check_nothing_is_left,
    check_the_newest_is_safe,
    in_state,
    to_the_end,
)
from tests.replay.messages import cancel


class TestNothingIsLost:
    @pytest.mark.parametrize("second", (130, 250, 610))
    def test_a_cancel_exports_the_newest_step(self, second: int) -> None:
        life = Life()
        run = life.run(in_state("TRAINING", cancel, seconds=second))
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 2 * (second // 120))

    def test_a_cancel_may_refuse_the_export(self) -> None:
        def act(life: Life, run_id: str) -> Any:
            return life.publish({"action": "cancel", "run_id": run_id, "export": False}, "c")

        life = Life()
        run = life.run(in_state("TRAINING", act, seconds=310))
        check_nothing_is_left(life, run)
        assert run.safe_export is None
        assert ("lustre", "export") not in life.cloud.calls

    def test_export_fails_until_the_hard_deadline_which_then_wins(self) -> None:
        life = Life()
        life.cloud.exports = ["PERMISSION_DENIED on gs://export-bucket"] * 10_000
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert (run.outcome, run.failure) == ("FAILED", "ACCESS")
        assert "PERMISSION_DENIED" in run.reason
        assert run.closed_at is not None and run.closed_at > run.hard_deadline_at
        assert "RELEASING" in [s for _, _, s in life.states]
        gpus = next(item for item in run.usage if item.resource == "accelerators")
        assert gpus.until is not None and gpus.until < run.deadline_at - 3600

    def test_export_that_comes_late_is_enough(self) -> None:
        life = Life()
        life.cloud.exports = ["PERMISSION_DENIED"] * 30
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 20)

    def test_export_that_is_not_required_is_given_up(self) -> None:
        life = Life()
        life.cloud.exports = ["PERMISSION_DENIED"] * 10_000
        run = life.run(to_the_end({"checkpoints": {"required": False}}))
        check_nothing_is_left(life, run)
        assert run.closed_at is not None and run.closed_at < run.created_at + 3 * 3600

    def test_i5_an_export_that_is_refused_at_once_is_given_up_too_when_not_required(self) -> None:
        def hook(service: str, method: str) -> None:
            if (service, method) == ("lustre", "export"):
                raise unavailable("Lustre")

        life = Life()
        life.cloud.hooks.append(hook)
        run = life.run(to_the_end({"checkpoints": {"required": False}}))
        check_nothing_is_left(life, run)
        assert run.closed_at is not None and run.closed_at < run.created_at + 3 * 3600

    def test_every_event_is_lost(self) -> None:
        life = Life(deliver_events=False)
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 20)

    def test_events_and_log_lines_are_lost_and_the_listing_still_finds_the_checkpoint(
        self,
    ) -> None:
        life = Life()
        life.cloud.scripts = {1: Script(mute=True)}
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 20)
        assert (run.outcome, run.failure) == ("SUCCEEDED", None)

    def test_an_older_export_is_not_forgotten_for_a_newer_that_fails(self) -> None:
        """Zone one saves step 4; zone two reaches 8 and cannot export: 4 is still there."""

        async def story(life: Life) -> Run:
            run_id = await life.start({"zones": ["us-east1-b", "us-central1-a"]})
            await life.until_state(run_id, "TRAINING")
            await life.pass_time(310)
            kubernetes = life.cloud.kubernetes(run_id)
            kubernetes.preempt(2)
            kubernetes.room = 0
            await life.until(lambda: life.record(run_id).attempt == 2)
            life.cloud.exports = ["PERMISSION_DENIED"] * 10_000
            await life.pass_time(310)
            await life.publish({"action": "cancel", "run_id": run_id}, "c")
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 4)
        closed = life.services.outbox.kinds("run.closed")[0]
        assert closed["exported"].endswith("/step_4/")


class TestPreemptionIsNormal:
    @pytest.mark.parametrize("told", (True, False))
    @pytest.mark.parametrize("leaves_events", (True, False))
    def test_a_lost_node_costs_one_attempt(self, leaves_events: bool, told: bool) -> None:
        """Even when no event tells, and the node was replaced before anybody looked."""

        def act(life: Life, run_id: str) -> None:
            life.cloud.kubernetes(run_id).preempt(1, leaves_events=leaves_events)

        life = Life(deliver_events=told)
        run = life.run(in_state("TRAINING", act, seconds=330))
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 20)
        assert run.attempt == 2
        assert run.mishaps[0].failure in ("PREEMPTED", "NODE_LOST")
        assert run.crashes == 0

    def test_c5_the_next_attempt_begins_at_the_newest_checkpoint(self) -> None:
        steps: list[int] = []

        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            await life.pass_time(330)
            life.cloud.kubernetes(run_id).preempt(1)
            await life.until(lambda: life.record(run_id).attempt == 2)
            job = life.record(run_id).job
            assert job is not None
            steps.append(job.began_step)
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert steps == [4]

    def test_a_stock_out_after_it_carries_the_checkpoint_to_the_next_zone(self) -> None:
        began: list[int] = []

        async def story(life: Life) -> Run:
            run_id = await life.start({"zones": ["us-east1-b", "us-central1-a"]})
            await life.until_state(run_id, "TRAINING")
            await life.pass_time(330)
            kubernetes = life.cloud.kubernetes(run_id)
            kubernetes.preempt(2)
            kubernetes.room = 6
            await life.until(lambda: life.record(run_id).attempt == 2)
            began.append(life.cloud.instance(run_id).files.newest)
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 20)
        assert began == [4]
        assert run.zones_tried == ["us-east1-b", "us-central1-a"]
        assert [one.failure for one in run.mishaps] == ["PREEMPTED", "STOCKOUT"]

    def test_the_head_is_lost(self) -> None:
        def act(life: Life, run_id: str) -> None:
            life.cloud.kubernetes(run_id).lose_head()

        life = Life()
        run = life.run(in_state("TRAINING", act, seconds=330))
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 20)
        assert [one.failure for one in run.mishaps] == ["HEAD_LOST"]

    def test_nodes_are_lost_again_and_again_until_the_attempts_are_used_up(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start({"limits": {"attempts": 3}})
            for attempt in (1, 2, 3):
                await life.until(lambda n=attempt: life.record(run_id).attempt == n)  # type: ignore[misc]
                await life.pass_time(200)
                life.cloud.kubernetes(run_id).preempt(1)
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert (run.outcome, run.attempt) == ("PARTIAL", 3)
        assert "limits.attempts 3" in run.reason

    def test_what_was_said_of_one_file_system_is_not_held_against_the_next(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start({"zones": ["us-east1-b", "us-central1-a"]})
            await life.until_state(run_id, "TRAINING")
            await life.pass_time(330)
            kubernetes = life.cloud.kubernetes(run_id)
            kubernetes.room = 0
            kubernetes.preempt(2)
            await life.until_state(run_id, "RECOVERING")
            life.services.memory.change(
                run_id, lambda one: setattr(one, "full_since", life.loop.now())
            )
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert (run.outcome, run.zone_attempts) == ("SUCCEEDED", 2)
