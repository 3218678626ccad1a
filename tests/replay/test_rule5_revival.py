"""Rule 5: a run whose rl_run was killed goes on, once per state; only then it is ended."""

from __future__ import annotations

import pytest
from lustrum.core.record import Run

from testing.dashboard import Script
from testing.life import Life
from testing.stories import (
    LIVE_STATES,
    check_nothing_is_left,
    check_the_newest_is_safe,
    in_state,
    to_the_end,
)


def kill(life: Life, run_id: str) -> None:
    life.kill("rl-run")


class TestRule5AKilledRunIsRevived:
    @pytest.mark.parametrize("state", LIVE_STATES[1:])
    def test_rule5_it_goes_on_in_the_same_zone_and_attempt(self, state: str) -> None:
        life = Life()
        life.cloud.scripts = {n: Script(step_seconds=90) for n in range(1, 9)}
        run = life.run(in_state(state, kill, seconds=1))
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 20)
        assert (run.outcome, run.attempt, run.zone_attempts) == ("SUCCEEDED", 1, 1)
        assert run.revivals == [state] and life.cloud.deployments == 1
        assert len(life.services.outbox.kinds("run.revived")) == 1
        states = [one for _, _, one in life.states]
        assert len(states) == len(set(states)), states  # none was entered twice

    def test_rule5_in_recovery_the_next_attempt_follows(self) -> None:
        def preempt(life: Life, run_id: str) -> None:
            life.cloud.cluster(run_id).kubernetes.preempt()

        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            await life.pass_time(300)
            preempt(life, run_id)
            await life.until_state(run_id, "RECOVERING")
            life.kill("rl-run")
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert (run.outcome, run.attempt, run.zone_attempts) == ("SUCCEEDED", 2, 1)
        assert run.revivals == ["RECOVERING"]

    def test_rule5_the_gpus_are_not_taken_away_meanwhile(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            life.kill("rl-run")
            kubernetes = life.cloud.cluster(run_id).kubernetes
            nodes = list(kubernetes.nodes)
            await life.until(lambda: bool(life.record(run_id).revivals))
            await life.pass_time(300)
            assert kubernetes.nodes == nodes and len(nodes) == 8
            return await life.until_closed(run_id)

        life = Life()
        life.cloud.scripts = {n: Script(step_seconds=90) for n in range(1, 9)}
        assert life.run(story).outcome == "SUCCEEDED"

    def test_rule5_killed_again_in_the_same_state_it_is_ended_and_exported(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            for _ in range(2):
                await life.pass_time(400)
                life.kill("rl-run")
                await life.pass_time(700)
            return await life.until_closed(run_id)

        life = Life()
        life.cloud.scripts = {n: Script(step_seconds=300) for n in range(1, 9)}
        run = life.run(story)
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 2)
        assert (run.outcome, run.failure) == ("PARTIAL", "INFRA_TRANSIENT")
        assert run.revivals == ["TRAINING"] and "ended unexpectedly" in run.reason

    def test_rule5_without_time_left_it_is_ended(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start({"limits": {"hours": 1}})
            await life.until_state(run_id, "TRAINING")
            await life.pass_time(life.record(run_id).deadline_at - life.loop.now() - 5)
            life.kill("rl-run")
            return await life.until_closed(run_id)

        life = Life()
        life.cloud.scripts = {n: Script(step_seconds=300) for n in range(1, 9)}
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert run.revivals == [] and run.failure == "DEADLINE"

    def test_rule5_a_run_that_is_given_up_is_not_revived(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            life.kill("rl-run")
            await life.publish({"action": "cancel", "run_id": run_id}, "c")
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert (run.outcome, run.revivals) == ("CANCELLED", [])

    def test_rule5_nothing_is_revived_that_lives(self) -> None:
        assert Life().run(to_the_end()).revivals == []
