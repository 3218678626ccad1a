"""What is evidence of an end: the loss of a node before the last step is none, nor is a listing of
the disk from before the last save.
"""

from __future__ import annotations

import pytest
from lustrum.core.record import Run

from testing.dashboard import Script
from testing.life import Life
from testing.stories import check_nothing_is_left, check_the_newest_is_safe
from tests.replay.messages import alert, tell


class TestLostNodes:
    def stalls_after_a_preemption(self, second: float) -> Run:
        """Attempt 1 is preempted; an event of that node comes again so many seconds after the
        next attempt began, which hangs after two more steps.
        """

        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            await life.pass_time(250)
            life.cloud.kubernetes(run_id).preempt()
            await life.until(lambda: life.record(run_id).attempt == 2)
            await life.pass_time(second)
            life.cloud.kubernetes(run_id).event(
                "Warning", "Preempted", "node gke-x was preempted", kind="Node"
            )
            return await life.until_closed(run_id)

        life = Life()
        life.cloud.scripts = {2: Script(hang_at=6, watched=True)}
        run: Run = life.run(story)
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 20)
        return run

    def test_a_stall_minutes_after_a_preemption_is_a_stall(self) -> None:
        run = self.stalls_after_a_preemption(5)
        assert [one.failure for one in run.mishaps] == ["PREEMPTED", "HANG"]

    def test_a_node_that_is_lost_after_the_last_step_explains_the_stall(self) -> None:
        run = self.stalls_after_a_preemption(300)
        assert [one.failure for one in run.mishaps] == ["PREEMPTED", "PREEMPTED"]


class TestListings:
    @pytest.mark.parametrize("step_seconds", (7, 13, 20, 29))
    def test_the_step_of_a_full_disk_is_the_newest_saved_one(self, step_seconds: float) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            await life.until(lambda: life.cloud.instance(run_id).files.newest == 4)
            life.cloud.instance(run_id).files.used = 0.96
            tell(life, alert(run_id, "stop"))
            return await life.until_closed(run_id)

        life = Life()
        life.cloud.scripts = {1: Script(step_seconds=step_seconds)}
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert run.failure == "LUSTRE_FULL"
        saved = max(one.step for one in run.saves if one.at < run.mishaps[-1].at)
        assert run.reason.endswith(f"nearly full at step {saved}")
        assert saved > 4  # it waited for the save after the alert
