"""The truth table of what follows from one look at a training attempt."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lustrum.core.failures import NODE_LOSS, Failure
from lustrum.core.record import Mishap, Run, State
from lustrum.core.record_parts import Cancel, Job, Progress
from lustrum.core.verdict import SAVE_GRACE, UNTOLD, Action, Seen, crashes_after, decide

from testing.samples import NOW, RUN_ID, run, saved

STATUSES = (
    "PENDING",
    "RUNNING",
    "SUCCEEDED",
    "FAILED",
    "STOPPED",
    "MISSING",
    "UNREACHABLE",
)
CANCEL = Cancel(at=NOW, export=True, event_id="c")


def trained(step: int = 4, **fields: Any) -> Run:
    """A run that saved a step a minute ago."""
    progress = Progress(step=step, max_steps=20, at=NOW - 60, attempt=1)
    return run(**{"checkpoint": saved(step), "progress": progress, **fields})


def job(**fields: Any) -> Job:
    base = {"submission_id": f"{RUN_ID}-a1", "attempt": 1, "submitted_at": NOW - 900}
    return Job(**{**base, **fields})


def mishaps(failure: Failure, times: int) -> list[Mishap]:
    return [
        Mishap(failure=failure, at=NOW, state=State.TRAINING, sentence="x", attempt=0)
        for _ in range(times)
    ]


class TestJudge:
    @pytest.mark.parametrize(
        ("seen", "action", "failure"),
        (
            (Seen("RUNNING", nodes=8), Action.WAIT, None),
            (Seen("SUCCEEDED", exit_code=0), Action.RESUME, Failure.USER_ERROR),  # C12: early
            (
                Seen("SUCCEEDED", exit_code=0, ended="time_limit"),
                Action.RESUME,
                Failure.TIME_LIMIT,
            ),
            (Seen("SUCCEEDED", exit_code=0, ended="data"), Action.STOP, None),
            (Seen("SUCCEEDED", exit_code=0, ended="goal"), Action.RESUME, Failure.JOB_LOST),
            (Seen("SUCCEEDED", exit_code=0, ended=UNTOLD), Action.RESUME, Failure.JOB_LOST),
            (Seen("FAILED", exit_code=1), Action.RESUME, Failure.USER_ERROR),
            (
                Seen("FAILED", exit_code=1, lost=Failure.PREEMPTED),
                Action.RESUME,
                Failure.PREEMPTED,
            ),
            (Seen("FAILED", exit_code=137), Action.RESUME, Failure.USER_OOM),
            (
                Seen("FAILED", exit_code=1, message="torch.OutOfMemoryError: CUDA out of memory"),
                Action.RESUME,
                Failure.USER_OOM,
            ),
            (Seen("FAILED", exit_code=85), Action.RESUME, Failure.HANG),
            (
                Seen("FAILED", exit_code=28, failure=Failure.LUSTRE_FULL),
                Action.STOP,
                Failure.LUSTRE_FULL,
            ),
            (Seen("FAILED", exit_code=78, failure=Failure.CONFIG), Action.STOP, Failure.CONFIG),
            (Seen("FAILED", message="JOB_SUPERVISOR_ACTOR_DIED"), Action.RESUME, Failure.JOB_LOST),
            (Seen("FAILED", message="runtime_env setup failed: pip"), Action.STOP, Failure.CONFIG),
            (Seen("FAILED", message="whatever"), Action.RESUME, Failure.JOB_LOST),
            (Seen("STOPPED"), Action.RESUME, Failure.JOB_LOST),
            (Seen("MISSING"), Action.RESUME, Failure.JOB_LOST),  # G13: an empty list is no success
            (Seen("MISSING", session_changed=True), Action.RESUME, Failure.HEAD_LOST),
            (Seen("RUNNING", session_changed=True, nodes=8), Action.RESUME, Failure.HEAD_LOST),
            (Seen("UNREACHABLE"), Action.WAIT, None),
            (Seen("PENDING"), Action.RESUME, Failure.JOB_LOST),  # for 900 s
        ),
    )
    def test_judge(self, seen: Seen, action: Action, failure: Failure | None) -> None:
        verdict = decide(trained(), seen, NOW)
        assert (verdict.action, verdict.failure) == (action, failure)
        assert verdict.sentence

    @pytest.mark.parametrize("status", ("SUCCEEDED", "FAILED", "STOPPED"))
    def test_judge_the_last_step_is_saved_whatever_the_status_says(self, status: str) -> None:
        for cancel in (None, CANCEL):
            verdict = decide(trained(20, cancel=cancel), Seen(status, exit_code=1), NOW)
            assert (verdict.action, verdict.failure) == (Action.STOP, None)

    def test_judge_the_last_step_while_it_still_runs_is_waited_for(self) -> None:
        assert decide(trained(20), Seen("RUNNING", nodes=8), NOW).action is Action.WAIT

    @pytest.mark.parametrize("status", STATUSES)
    def test_judge_cancel_and_deadline_end_it_from_every_status(self, status: str) -> None:
        seen = Seen(status)
        assert decide(trained(cancel=CANCEL), seen, NOW).failure is Failure.CANCELLED
        late = decide(trained(deadline_at=NOW), seen, NOW)
        assert (late.action, late.failure) == (Action.STOP, Failure.DEADLINE)

    @pytest.mark.parametrize(
        ("silent", "moved", "failure"),
        (
            (590, 700, None),
            (610, 700, Failure.HEAD_LOST),
            (610, 60, None),  # G9: checkpoints still come, so somebody lives
        ),
    )
    def test_c7_a_dashboard_that_is_silent(
        self, silent: float, moved: float, failure: Failure | None
    ) -> None:
        one = trained(
            job=job(silent_since=NOW - silent),
            progress=Progress(step=4, at=NOW - moved, attempt=1),
            checkpoint=saved(4, NOW - moved),
        )
        assert decide(one, Seen("UNREACHABLE"), NOW).failure is failure

    @pytest.mark.parametrize(
        ("alone", "moved", "failure"),
        (
            (30, 200, None),
            (90, 200, Failure.NODE_LOST),
            (90, 60, None),
        ),
    )
    def test_c1_a_node_is_missing_while_ray_says_running(
        self, alone: float, moved: float, failure: Failure | None
    ) -> None:
        one = trained(
            job=job(alone_since=NOW - alone),
            progress=Progress(step=4, at=NOW - moved, attempt=1),
            checkpoint=saved(4, NOW - moved),
        )
        assert decide(one, Seen("RUNNING", nodes=7), NOW).failure is failure

    def test_judge_no_progress_for_an_hour_is_a_hang(self) -> None:
        still = trained(
            job=job(submitted_at=NOW - 9000),
            progress=Progress(step=4, at=NOW - 3700, attempt=1),
            checkpoint=saved(4, NOW - 3700),
        )
        assert decide(still, Seen("RUNNING", nodes=8), NOW).failure is Failure.HANG

    @pytest.mark.parametrize(
        ("since", "saved_at", "stops"),
        (
            (NOW - 100, NOW - 200, False),
            (NOW - 100, NOW - 50, True),
            (NOW - SAVE_GRACE - 1, NOW - 5000, True),
        ),
    )
    def test_i9_a_full_file_system_stops_after_the_save(
        self, since: float, saved_at: float, stops: bool
    ) -> None:
        one = trained(checkpoint=saved(4, saved_at))
        verdict = decide(one, Seen("RUNNING", nodes=8), NOW, since)
        assert (verdict.failure is Failure.LUSTRE_FULL) is stops

    def test_judge_attempts_are_a_limit(self) -> None:
        verdict = decide(trained(attempt=5), Seen("FAILED", lost=Failure.PREEMPTED), NOW)
        assert verdict.action is Action.STOP
        assert "limits.attempts 5" in verdict.sentence

    @pytest.mark.parametrize(
        ("failure", "times", "action"),
        (
            (Failure.HANG, 2, Action.RESUME),
            (Failure.HANG, 3, Action.STOP),
            (Failure.USER_OOM, 0, Action.RESUME),
            (Failure.USER_OOM, 1, Action.STOP),
            (Failure.PREEMPTED, 3, Action.RESUME),
        ),
    )
    def test_judge_a_class_has_its_own_limit(
        self, failure: Failure, times: int, action: Action
    ) -> None:
        one = trained(mishaps=mishaps(failure, times))
        assert decide(one, Seen("FAILED", exit_code=1, failure=failure), NOW).action is action

    @given(
        st.sampled_from(STATUSES),
        st.none() | st.integers(-15, 255),
        st.text(max_size=60),
        st.booleans(),
        st.none() | st.integers(0, 9),
        st.none() | st.sampled_from(Failure),
        st.integers(0, 25),
        st.integers(1, 6),
        st.integers(0, 3),
    )
    def test_judge_says_something_of_everything(
        self,
        status: str,
        code: int | None,
        message: str,
        changed: bool,
        nodes: int | None,
        lost: Failure | None,
        step: int,
        attempt: int,
        crashes: int,
    ) -> None:
        one = run(attempt=attempt, crashes=crashes, checkpoint=saved(step) if step else None)
        seen = Seen(status, code, message, None, changed, nodes, lost)
        verdict = decide(one, seen, NOW)
        assert verdict.sentence
        assert (verdict.action is Action.WAIT) <= (verdict.failure is None)
        if attempt >= one.plan.attempts:
            assert verdict.action is not Action.RESUME


class TestCrashLoop:
    def test_two_in_a_row_without_a_newer_checkpoint(self) -> None:
        seen = Seen("FAILED", exit_code=1)
        first = trained(4, job=job(began_step=4))
        assert decide(first, seen, NOW).action is Action.RESUME
        second = trained(4, job=job(began_step=4), crashes=1)
        assert decide(second, seen, NOW).action is Action.STOP

    def test_a_newer_checkpoint_forgives(self) -> None:
        one = trained(6, job=job(began_step=4), crashes=1)
        assert crashes_after(one, Failure.USER_ERROR) == 0

    @pytest.mark.parametrize("failure", sorted(NODE_LOSS))
    def test_a_lost_node_neither_counts_nor_forgives(self, failure: Failure) -> None:
        assert crashes_after(trained(4, job=job(began_step=4), crashes=1), failure) == 1
