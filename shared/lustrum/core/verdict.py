"""Job status + node evidence + newest complete step + deadline -> what to do next. Pure.

A Ray job status alone proves nothing: SUCCEEDED may be an early stop (NeMo-RL exits 0 at its own
time limit), RUNNING may be a hang or a phantom, and 404 may be a head that lost its memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from lustrum.core.failures import CRASH_LOOP, NODE_LOSS, Failure, Reaction, classify_text, reaction
from lustrum.core.record import Run
from lustrum.core.reserve import stop_at
from lustrum.core.time_limit import is_worth_another
from lustrum.head.exits import EXITS

EXIT_HANG = EXITS[
    "HANG"
]  # of the supervisor, when its watchdog ended a training that made no progress
NODE_GRACE = 60.0  # seconds a node may be missing while the job says RUNNING
UNTOLD = "untold"  # the supervisor's last event was not found
SAVE_GRACE = 600.0  # seconds a running save may take once the file system is nearly full


class Action(StrEnum):
    """What rl_run does next."""

    WAIT = "wait"
    RESUME = "resume"
    STOP = "stop"


@dataclass(frozen=True)
class Seen:
    """What one look at Ray and Kubernetes gave.

    ``status`` is Ray's, or MISSING (404) or UNREACHABLE. ``lost`` is the class of node loss for
    which there is evidence since the attempt began, else None. Times in epoch seconds.
    """

    status: str
    exit_code: int | None = None
    message: str = ""
    error_type: str | None = None
    session_changed: bool = False
    nodes: int | None = None
    lost: Failure | None = None
    failure: Failure | None = None  # the supervisor named its own reason
    broken: str | None = None  # the node whose GPU failed
    ended: str | None = None  # said of exit code 0: goal, time_limit, data, None; or UNTOLD


@dataclass(frozen=True)
class Verdict:
    """What to do, why (None: nothing is wrong), and one sentence."""

    action: Action
    failure: Failure | None
    sentence: str


OVER = ("SUCCEEDED", "FAILED", "STOPPED")  # of a Ray job
_OOM = re.compile(r"out ?of ?memory|oom-?kill|OutOfMemoryError|MemoryError", re.IGNORECASE)


def decide(run: Run, seen: Seen, now: float, full_since: float | None = None) -> Verdict:
    """Decide what follows from one look at a training attempt.

    Args:
        run: the record, with progress and newest checkpoint already brought up to date.
        seen: what was seen.
        now: epoch seconds.
        full_since: since when the file system is nearly full, None if it is not.
    """
    step = run.checkpoint.step if run.checkpoint else 0
    goal = run.plan.max_num_steps
    if seen.status in OVER and step >= goal:
        return Verdict(Action.STOP, None, f"step {step} of {goal} is saved")
    if run.cancel is not None:
        return Verdict(Action.STOP, Failure.CANCELLED, f"cancelled at step {step} of {goal}")
    if now >= stop_at(run):
        if now < run.deadline_at:
            why = f"stopped at step {step} of {goal} so that its export fits before the end"
            return Verdict(Action.STOP, Failure.DEADLINE, why)
        return Verdict(Action.STOP, Failure.DEADLINE, f"deadline at step {step} of {goal}")
    if full_since is not None and (
        (run.checkpoint is not None and run.checkpoint.at > full_since)
        or now - full_since > SAVE_GRACE
    ):
        return Verdict(Action.STOP, Failure.LUSTRE_FULL, f"Lustre is nearly full at step {step}")
    if seen.status == "SUCCEEDED" and seen.ended == "data" and step > 0:
        return Verdict(Action.STOP, None, f"the data ended at step {step} of {goal}, it is saved")
    failure, sentence = _what_happened(run, seen, now)
    if failure is None:
        return Verdict(Action.WAIT, None, sentence)
    return _react(run, failure, sentence, step)


def _what_happened(run: Run, seen: Seen, now: float) -> tuple[Failure | None, str]:
    job, timing = run.job, run.plan.timing
    assert job is not None, "judge() needs a submitted job"
    moved_at = max(job.submitted_at, run.progress.at, run.checkpoint.at if run.checkpoint else 0)
    if seen.status == "UNREACHABLE":
        silent = now - (job.silent_since or now)
        if silent < timing.silence or now - moved_at < timing.silence:
            return None, f"the dashboard has not answered for {silent:.0f} s"
        return Failure.HEAD_LOST, f"the Ray head has not answered for {silent:.0f} s"
    if seen.session_changed:
        return Failure.HEAD_LOST, "the Ray head was replaced and has forgotten the job"
    if seen.status == "MISSING":
        return Failure.JOB_LOST, f"Ray no longer knows the job {job.submission_id}"
    if seen.status == "PENDING":
        waited = now - job.submitted_at
        if waited < timing.pending:
            return None, "the job is pending"
        return seen.lost or Failure.JOB_LOST, f"the job was still pending after {waited:.0f} s"
    if seen.status == "RUNNING":
        return _while_running(run, seen, now, moved_at)
    if seen.status == "SUCCEEDED":
        return _after_an_early_end(run, seen, now)
    return _after_failure(seen)


def _after_an_early_end(run: Run, seen: Seen, now: float) -> tuple[Failure, str]:
    """NeMo-RL exits 0 at its own time limit; a program may also exit 0 by mistake."""
    step = run.checkpoint.step if run.checkpoint else 0
    at = f"at step {step} of {run.plan.max_num_steps}"
    if seen.ended in (UNTOLD, "goal"):
        return Failure.JOB_LOST, f"the job ended with exit code 0 {at}, and nothing proves why"
    if seen.ended != "time_limit":
        return Failure.USER_ERROR, f"the training ended by itself with exit code 0 {at}"
    if is_worth_another(run, now):
        return Failure.TIME_LIMIT, f"the training saved and ended at its own time limit {at}"
    left = max(run.deadline_at - now, 0.0) / 60
    return (
        Failure.DEADLINE,
        f"the training saved and ended {left:.0f} min before the deadline {at}",
    )


def _while_running(
    run: Run, seen: Seen, now: float, moved_at: float
) -> tuple[Failure | None, str]:
    job, timing = run.job, run.plan.timing
    assert job is not None
    alone = now - job.alone_since if job.alone_since is not None else 0.0
    if job.alone_since is not None and alone >= NODE_GRACE and moved_at < job.alone_since:
        have = "?" if seen.nodes is None else str(seen.nodes)
        return (
            seen.lost or Failure.NODE_LOST,
            f"{have} of {run.plan.nodes} nodes are left for {alone:.0f} s, without progress",
        )
    still = now - moved_at
    if still >= timing.stall:
        return Failure.HANG, f"no progress for {still:.0f} s while Ray says RUNNING"
    return None, f"step {run.progress.step} of {run.plan.max_num_steps}"


def _after_failure(seen: Seen) -> tuple[Failure, str]:
    text = f"{seen.error_type or ''} {seen.message}"
    tail = seen.message[-400:].strip() or "no message"
    if seen.lost is not None:  # first of all: a lost node is never the program's fault
        if seen.lost is Failure.USER_OOM:
            return seen.lost, f"a worker's container was killed for its memory: {tail}"
        return seen.lost, f"a node was lost and the job ended: {tail}"
    if seen.failure is not None:
        return seen.failure, tail
    if seen.exit_code == EXIT_HANG:
        return Failure.HANG, "the watchdog ended a training that made no progress"
    if seen.status == "STOPPED":
        return Failure.JOB_LOST, "the job was stopped from outside"
    if "JOB_SUPERVISOR" in text or "job supervisor" in text.lower():
        return Failure.JOB_LOST, f"Ray lost its job supervisor: {tail}"
    if "runtime_env setup failed" in text.lower() or "RUNTIME_ENV_SETUP" in text:
        return Failure.CONFIG, f"the runtime environment could not be set up: {tail}"
    if seen.exit_code == 137 or _OOM.search(text):
        return Failure.USER_OOM, f"out of memory (exit code {seen.exit_code}): {tail}"
    if seen.exit_code is None:
        return classify_text(text, Failure.JOB_LOST), tail
    return Failure.USER_ERROR, f"exit code {seen.exit_code}: {tail}"


def _react(run: Run, failure: Failure, sentence: str, step: int) -> Verdict:
    wanted = reaction(failure, run.times(failure))
    if wanted in (Reaction.STOP, Reaction.NEXT_ZONE, Reaction.NEXT_REGION):
        return Verdict(Action.STOP, failure, sentence)
    # An attempt that ended at its time limit, with more saved than before, was no failure.
    if run.attempt - run.times(Failure.TIME_LIMIT) >= run.plan.attempts:
        return Verdict(
            Action.STOP,
            failure,
            f"{sentence}; limits.attempts {run.plan.attempts} reached",
        )
    if crashes_after(run, failure) >= CRASH_LOOP:
        return Verdict(
            Action.STOP,
            failure,
            f"{sentence}; {CRASH_LOOP} attempts in a row without a checkpoint past step {step}",
        )
    return Verdict(Action.RESUME, failure, sentence)


def crashes_after(run: Run, failure: Failure) -> int:
    """Return how many attempts in a row failed without evidence of a lost node and without a newer
    checkpoint.
    """
    step = run.checkpoint.step if run.checkpoint else 0
    began = run.job.began_step if run.job else 0
    if failure in NODE_LOSS:
        return run.crashes
    return 0 if step > began else run.crashes + 1
