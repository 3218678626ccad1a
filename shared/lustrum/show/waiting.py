"""What a run waits for now, since when, how long at most, and what comes next. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from lustrum.core.record import Run, State
from lustrum.show.formatting import duration


@dataclass(frozen=True)
class Waiting:
    """What a run waits for.

    Attributes:
        what: one phrase, no full stop.
        since: epoch seconds.
        at_most: seconds after which Lustrum acts by itself, None: no such limit of its own.
        then: what happens next.
    """

    what: str
    since: float
    at_most: float | None
    then: str

    def sentence(self, now: float) -> str:
        """Return it in one line."""
        return f"{self.what}, for {self.how_long(now)}; then: {self.then}"

    def how_long(self, now: float) -> str:
        """Return for how long, and for how long at most."""
        waited = duration(max(0.0, now - self.since))
        return waited if self.at_most is None else f"{waited} of at most {duration(self.at_most)}"


def waiting(run: Run) -> Waiting | None:
    """Return what a run waits for; None when it is over."""
    found = _by_state(run)
    if found is None:
        return None
    teardown = run.teardown
    if run.cancel is not None and teardown is None:
        return replace(found, then="its teardown begins: it was cancelled")
    if run.state is State.VERIFYING and teardown is not None and not teardown.final:
        return replace(found, then="try the next zone")
    return found


def _by_state(run: Run) -> Waiting | None:
    since = run.history[-1].at if run.history else run.created_at
    timing = run.plan.timing
    nodes = f"{run.plan.nodes} GPU node{'s' * (run.plan.nodes != 1)}"
    zone = run.placement.zone if run.placement is not None else "a zone"
    match run.state:
        case State.REQUESTED:
            return Waiting("its workflow to begin", since, None, "look for a zone")
        case State.QUEUED:
            within = run.plan.capacity_wait_minutes * 60
            return Waiting("a free network slot or a zone to try", since, within, "build there")
        case State.PROVISIONING:
            what = f"the build of cluster and file system in {zone}"
            return Waiting(what, since, timing.build, "start the Ray head")
        case State.STARTING_HEAD:
            return Waiting("the Ray head to answer", since, timing.head, "stage the model")
        case State.STAGING:
            what = "code, model and checkpoint to be on Lustre"
            return Waiting(what, since, timing.stage, f"ask for {nodes}")
        case State.WAITING_FOR_GPUS:
            within = run.plan.capacity_wait_minutes * 60
            return Waiting(f"{nodes} in {zone}", since, within, "train, or try the next zone")
        case State.TRAINING:
            return _training(run, since)
        case State.RECOVERING:
            return Waiting(
                f"a place to resume from step {_safe_step(run)}",
                since,
                run.plan.capacity_wait_minutes * 60,
                f"attempt {run.attempt + 1} of {run.plan.attempts}",
            )
        case State.RELEASING:
            return Waiting("the GPU nodes to go", since, None, "export the newest checkpoint")
        case State.EXPORTING:
            step = run.export.step if run.export is not None else _safe_step(run)
            return Waiting(f"step {step} to be in the bucket", since, None, "destroy the rest")
        case State.DESTROYING:
            return Waiting("cluster and file system to go", since, None, "take the inventory")
        case State.VERIFYING:
            return Waiting("two empty inventories", since, None, "close with a report")
        case State.CLOSED | State.REJECTED:
            return None
        case _:
            assert_never(run.state)


def _training(run: Run, since: float) -> Waiting:
    """Say the step that is waited for; and of an open doubt, what is looked at."""
    job, stall = run.job, run.plan.timing.stall
    if job is not None:
        doubts = (
            (job.over_since, "what the job that ended has saved", "judge its end"),
            (job.failed_since, "evidence why the job failed", "resume or stop"),
            (job.alone_since, "lost nodes to come back", "resume on new ones"),
            (job.silent_since, "the Ray head to answer again", "start it anew"),
        )
        for at, what, then in doubts:
            if at is not None:
                return Waiting(what, at, None, then)
    if run.full_since is not None:
        return Waiting(
            "the present save: Lustre is nearly full", run.full_since, None, "stop and export"
        )
    step = run.progress.step
    at = max(since, run.progress.at)
    if step >= run.goal:
        return Waiting("the last save", at, stall, "export")
    then = f"export at step {run.goal}; without a step in that time, resume from the newest save"
    return Waiting(f"step {step + 1} of {run.goal}", at, stall, then)


def _safe_step(run: Run) -> int:
    return run.checkpoint.step if run.checkpoint is not None else 0
