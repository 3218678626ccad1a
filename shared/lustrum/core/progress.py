"""What job events and log lines say, brought into the record. Pure.

Events are hints: they arrive late, twice, out of order, or not at all. Only what is newer counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from pydantic import ValidationError

from lustrum.core.events import JobEvent, SavedCheckpoint
from lustrum.core.gpu_use import with_report
from lustrum.core.record import Run
from lustrum.core.record_parts import Checkpoint, Progress, Worked
from lustrum.head.names import EVENT_PREFIX

SERIES = 1000  # points kept for the report


def log_events(text: str, run_id: str, attempt: int) -> Iterator[JobEvent]:
    """Return the events that the supervisor of this run and attempt (0: staging) printed into a
    job's log, oldest first. What is said of others counts for nothing: a training may show any
    text, an older run's log too.
    """
    for line in text.splitlines():
        _, found, body = line.partition(EVENT_PREFIX)
        if found and body.startswith("{"):
            try:
                event = JobEvent.model_validate(json.loads(body))
            except (ValueError, ValidationError, RecursionError):
                continue  # the training may print such a line too
            if (event.run_id, event.attempt) == (run_id, attempt):
                yield event


def absorb(run: Run, event: JobEvent, now: float) -> bool:
    """Bring an event into the record, in place; say whether it told anything new.

    The record is the same in whatever order, and however often, events arrive.
    """
    if event.run_id != run.run_id or event.attempt > run.attempt:
        return False
    at = event.moment(now)
    job = run.job
    if event.type == "job.completed" and job is not None and event.attempt == job.attempt:
        job.completed_at = job.completed_at or now
    points = [
        Progress(step=step, reward=reward, at=at, attempt=event.attempt)
        for step, reward in event.points()
    ]
    tells_step = event.type in ("job.progress", "checkpoint.saved") and event.step is not None
    if tells_step and (event.reward is not None or event.loss is not None):
        points.append(
            Progress(
                step=event.step or 0,
                reward=event.reward,
                loss=event.loss,
                at=at,
                attempt=event.attempt,
            )
        )
    new = _add_points(run, points) if points else False
    if tells_step:
        point = Progress(
            step=event.step or 0,
            reward=event.reward,
            loss=event.loss,
            at=at,
            attempt=event.attempt,
            max_steps=event.max_steps or 0,
        )
        new = _absorb_step(run, point) or new
    if event.network is not None:
        run.nccl_network = event.network
    _note_work(run, event, at)
    if event.gpus is not None:
        run.gpus = with_report(run.gpus, event.gpus, event.attempt, at)
    here = run.placement is not None and event.attempt > run.placement.attempts_before
    if here and event.type == "checkpoint.saved" and event.checkpoint is not None:
        new = _absorb_checkpoint(run, event.checkpoint, at) or new
    return new


def _note_work(run: Run, event: JobEvent, at: float) -> None:
    """Widen what is known of an attempt's work by finished steps and saves."""
    saved = event.checkpoint if event.type == "checkpoint.saved" else None
    if not event.steps and saved is None:
        return
    took = sum(max(0.0, one.seconds or 0.0) for one in event.steps)
    took += max(0.0, saved.seconds or 0.0) if saved is not None else 0.0
    found = Worked(since=min(at, max(at - took, run.created_at)), until=at)
    known = run.worked.get(event.attempt, found)
    since, until = min(known.since, found.since), max(known.until, found.until)
    run.worked = {**run.worked, event.attempt: Worked(since=since, until=until)}


def _absorb_step(run: Run, point: Progress) -> bool:
    known = run.progress
    here, there = (known.attempt, known.step), (point.attempt, point.step)
    attempt, step = max(here, there)
    points = {(one.attempt, one.step): one.reward for one in run.series}
    losses = [one.loss for one in (known, point) if (one.attempt, one.step) == (attempt, step)]
    run.progress = Progress(
        attempt=attempt,
        step=step,
        max_steps=max(known.max_steps, point.max_steps),
        reward=points.get((attempt, step)),  # of this step, or none is known yet
        loss=next((loss for loss in losses if loss is not None), None),
        at=point.at if there > here else max(known.at, point.at) if there == here else known.at,
    )
    return there > here


def _absorb_checkpoint(run: Run, saved: SavedCheckpoint, at: float) -> bool:
    found = Checkpoint(
        step=saved.step, bytes=saved.bytes, files=saved.files, seconds=saved.seconds, at=at
    )
    known = next((one for one in run.saves if one.step == saved.step), None)
    if known is not None and _age(known) >= _age(found):
        return False
    others = [one for one in run.saves if one.step != saved.step]
    run.saves = sorted([*others, found], key=lambda one: one.step)[-SERIES:]
    if run.checkpoint is None or run.checkpoint.step <= saved.step:
        run.checkpoint = found
    return True


def _age(save: Checkpoint) -> tuple[float, int, int]:
    """A step that is saved again (by a later attempt) replaces what was told of it before."""
    return save.at, save.bytes, save.files


def _add_points(run: Run, points: Iterable[Progress]) -> bool:
    known = {(one.attempt, one.step): one for one in run.series}
    before = len(known)
    for point in points:
        one = known.setdefault((point.attempt, point.step), point)
        if one.reward is None:
            one.reward = point.reward
        if one.loss is None:
            one.loss = point.loss
        one.at = min(one.at, point.at)
    series = [known[key] for key in sorted(known)]
    run.series = series if len(series) <= SERIES else series[::2]
    return len(known) > before
