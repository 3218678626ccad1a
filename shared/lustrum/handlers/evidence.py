"""What check_ray_job asks the disk before it decides: events and logs are hints.

Two decisions rest on what lies on Lustre: that the training is done, and that the file system is
nearly full. Each is confirmed by a listing on the head before anything follows from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lustrum.core import supervisor_jobs
from lustrum.core.checkpoints import Listing
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.events import JobEvent
from lustrum.core.failures import named
from lustrum.core.plain_text import shorten
from lustrum.core.record import Run
from lustrum.core.record_parts import Checkpoint, Job
from lustrum.core.verdict import OVER, UNTOLD, Seen
from lustrum.handlers.disk import list_disk
from lustrum.head.checkpoint_rule import newest_complete
from lustrum.head.last_error import last_error
from lustrum.head.names import EVENT_PREFIX
from lustrum.wiring.services import Services

if TYPE_CHECKING:  # a function that needs no Ray does not load it
    from lustrum.adapters.ray_jobs import RayJob

# Seconds after which the supervisor's word on its end stands in for Ray's; it prints a heartbeat
# every 30 at least, so a forged end is followed by one before.
RAY_LAG = 40.0
PATIENCE = 120.0  # seconds the listing that proves the end may take
FULL = (
    0.9  # used share from which a stop alert (at 95 %) is believed: a save changes it in between
)
FILLING = 0.7  # the same of a prune alert (at 80 %)


@dataclass(frozen=True)
class Evidence:
    """What the disk says.

    Attributes:
        listing: None: it was not asked, or nobody could say.
        is_awaited: it was asked and has not answered yet.
        until_step: the newest step that was told of when it was asked while the training went on:
            the listing knows nothing of what was saved since. None: nothing is saved any more.
    """

    listing: Listing | None = None
    is_awaited: bool = False
    until_step: int | None = None

    def used(self) -> float | None:
        """Return the used share of the file system, None when nobody could say."""
        if self.listing is None or self.listing.capacity_bytes <= 0:
            return None
        return 1 - self.listing.free_bytes / self.listing.capacity_bytes


def ask_what_decides(
    services: Services, run: Run, seen: Seen, events: Iterable[JobEvent], now: float
) -> Evidence:
    """Ask the disk if the next decision rests on it."""
    assert run.job is not None
    zone = f"z{run.zone_attempts}-a{run.attempt}"
    claimed, until = _claimed(run, events), None
    ended = seen.status in OVER and seen.ended in ("goal", "data")
    if ended or (seen.status in OVER and claimed >= run.plan.max_num_steps):
        name, since = f"end-{zone}", run.job.over_since or now
    elif run.full_since is not None or run.filling_since is not None:
        name, since, until = f"full-{zone}-{int(now // 60)}-{claimed}", now, claimed
    else:
        return Evidence()
    try:
        return Evidence(list_disk(services, run, name), until_step=until)
    except NotFound:
        return Evidence()
    except ServiceError as error:
        return Evidence(is_awaited=error.retryable and now - since < PATIENCE)


def _claimed(run: Run, events: Iterable[JobEvent]) -> int:
    """Return the highest step that anybody said is saved."""
    told = [one.checkpoint.step for one in events if one.checkpoint is not None]
    return max([*told, run.checkpoint.step if run.checkpoint is not None else 0])


def believe_the_disk(run: Run, seen: Evidence, now: float) -> None:
    """Correct the record's newest checkpoint by what was seen, in place."""
    assert seen.listing is not None
    newest, known = newest_complete(seen.listing.checkpoints), run.checkpoint
    if known is not None and seen.until_step is not None and known.step > seen.until_step:
        return
    if newest is None:
        safe = run.safe_export
        run.checkpoint = (
            None
            if safe is None
            else Checkpoint(step=safe.step, bytes=safe.bytes, files=safe.files, at=safe.started_at)
        )
    elif known is None or known.step != newest.step:
        run.checkpoint = Checkpoint(
            step=newest.step, bytes=newest.bytes, files=newest.files, at=now
        )


def follow_alerts(run: Run, evidence: Evidence) -> float | None:
    """Return since when the file system is nearly full, once the disk has confirmed it; an alert
    that the disk contradicts is forgotten, in place.
    """
    used = evidence.used()
    if used is None or run.full_since is None:
        return None
    if used < FULL:
        run.full_since = run.full_by = None
    return run.full_since


def prune_if_filling(services: Services, run: Run, evidence: Evidence) -> None:
    """Keep the newest complete checkpoint alone when the disk confirms what an alert said; best
    effort, the stop at the next threshold is certain.
    """
    used, since = evidence.used(), run.filling_since
    if used is None or since is None:
        return
    if used >= FILLING:
        try:
            ray = services.ray(services.kubernetes(run.run_id), run.run_id)
            spec = supervisor_jobs.prune_spec(run)
            identity = f"{run.run_id}-prune-{int(since)}"
            ray.submit(identity, *supervisor_jobs.submission(run, "prune", spec))
        except ServiceError:
            return  # the next look tries again

    def edit(one: Run) -> None:
        if one.filling_since == since:
            one.filling_since = None

    services.ledger.change(run.run_id, edit)


def seen_of(known: Job, job: RayJob, events: Sequence[JobEvent], now: float) -> Seen:
    """Return what Ray says of a job, and its supervisor in the job's log.

    Ray decides whether a job is over. It may notice later than the supervisor tells it, and never
    when the head is ill: so the log's word stands in for it when nothing was printed after it, for
    as long as `RAY_LAG`. A running supervisor prints its heartbeats.
    """
    completed = next((one for one in reversed(events) if one.type == "job.completed"), None)
    status, told = job.status, known.completed_at
    if completed is not None and not job.is_over:
        if completed is not events[-1] or told is None or now - told < RAY_LAG:
            return Seen(status)
        status = "SUCCEEDED" if completed.exit_code == 0 else "FAILED"
    code = job.exit_code
    if code is None and completed is not None:
        code = completed.exit_code
    message = completed.message if completed is not None else last_words(job.message)
    return Seen(
        status=status,
        exit_code=code,
        message=shorten(message, 400),
        error_type=job.error_type,
        failure=named(completed.failure) if completed is not None else None,
        ended=completed.ended if completed is not None else UNTOLD,
    )


def last_words(message: str) -> str:
    """Return what Ray's message says of the end. It ends with the last lines of the job's log,
    and those are mostly the supervisor's own events.
    """
    lines = [line for line in message.splitlines() if EVENT_PREFIX not in line]
    return last_error(lines).message if len(lines) > 1 else "\n".join(lines)
