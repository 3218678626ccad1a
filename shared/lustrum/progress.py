"""What job events and log lines say, brought into the record. Pure.

Events are hints: they arrive late, twice, out of order, or not at all. Only what is newer counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pydantic import ValidationError

from lustrum.events import JobEvent
from lustrum.run import Checkpoint, Progress, Run

PREFIX = "LUSTRUM "
SERIES = 1000  # points kept for the report


def log_events(text: str) -> Iterator[JobEvent]:
    """Return the events that the supervisor printed into a job's log, oldest first."""
    for line in text.splitlines():
        _, found, body = line.partition(PREFIX)
        if found and body.startswith("{"):
            try:
                yield JobEvent.model_validate(json.loads(body))
            except (ValueError, ValidationError):
                continue  # the training may print such a line too


def absorb(run: Run, event: JobEvent, now: float) -> bool:
    """Bring an event into the record, in place; say whether it told anything new."""
    if event.run_id != run.run_id or event.attempt > run.attempt:
        return False
    at = event.moment(now)
    new = _absorb_step(run, event, at)
    for step, reward in event.points():
        new = (
            _add_point(run, Progress(step=step, reward=reward, at=at, attempt=event.attempt))
            or new
        )
    saved = event.checkpoint
    if event.type == "checkpoint.saved" and saved is not None:
        checkpoint = Checkpoint(
            step=saved.step, bytes=saved.bytes, files=saved.files, seconds=saved.seconds, at=at
        )
        if all(known.step != saved.step for known in run.saves):
            run.saves = [*run.saves[-SERIES:], checkpoint]
            new = True
        if run.checkpoint is None or saved.step > run.checkpoint.step:
            run.checkpoint = checkpoint
            new = True
    return new


def _absorb_step(run: Run, event: JobEvent, at: float) -> bool:
    if event.type not in ("job.progress", "checkpoint.saved") or event.step is None:
        return False
    known = run.progress
    if (event.attempt, event.step) <= (known.attempt, known.step):
        return False
    run.progress = Progress(
        step=event.step,
        max_steps=event.max_steps or known.max_steps,
        reward=event.reward if event.reward is not None else known.reward,
        at=at,
        attempt=event.attempt,
    )
    return True


def _add_point(run: Run, point: Progress) -> bool:
    if any((one.attempt, one.step) == (point.attempt, point.step) for one in run.series):
        return False
    series = sorted([*run.series, point], key=lambda one: (one.attempt, one.step))
    run.series = series if len(series) <= SERIES else series[::2]
    return True
