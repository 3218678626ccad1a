"""GPUs that do nothing while they are paid for."""

from __future__ import annotations

from typing import Any

from lustrum.core.record import Run

from testing.dashboard import Script
from testing.life import Life
from testing.stories import check_nothing_is_left, check_the_newest_is_safe, to_the_end


def idling(**request: Any) -> tuple[Life, Run]:
    """A training whose GPUs fall idle after step 4 of its first attempt."""
    life = Life()
    life.cloud.scripts = {1: Script(idle_from=4)}
    return life, life.run(to_the_end(request))


class TestIdleGpus:
    def test_a_request_that_asks_for_it_ends_exports_and_leaves_nothing(self) -> None:
        life, run = idling(limits={"gpus_idle_minutes": 15})
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 4)
        assert (run.outcome, run.failure, run.attempt) == ("PARTIAL", "GPUS_IDLE", 1)
        (told,) = life.services.outbox.kinds("run.gpus_idle")
        assert (told["idle_seconds"], told["ends_the_run"]) == (900, True)

    def test_else_it_is_told_once_and_the_watchdog_ends_the_attempt_later(self) -> None:
        life, run = idling()
        check_nothing_is_left(life, run)
        assert run.outcome == "SUCCEEDED"
        assert [one.failure for one in run.mishaps] == ["HANG"]
        (told,) = life.services.outbox.kinds("run.gpus_idle")
        assert (told["step"], told["ends_the_run"]) == (4, False)
