"""Who gets the next free network slot: by priority, then in the order of the requests. Pure.

A run that waits asks every half minute. One that has not asked for a while (its execution is dead)
holds nobody up; nor does one whose submitter has as many runs as one may have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from lustrum.core import names
from lustrum.core.build_substitutions import next_zone
from lustrum.core.record import Run, State
from lustrum.core.settings import Settings

POLL = 30.0  # seconds between two questions of a waiting run
SILENT = 4 * POLL  # a run that has not asked for so long is not waiting


@dataclass(frozen=True)
class Place:
    """A waiting run's place: 1 is next. ``start_by``: epoch seconds by which a slot is free for it
    at the latest, if the runs before it end at their deadlines; None: nobody can say.
    """

    place: int
    region: str
    start_by: float | None


def rank(run: Run) -> tuple[float, float, str]:
    """Return what runs that wait are sorted by."""
    return -run.request.priority, run.created_at, run.run_id


def region_wanted(run: Run, settings: Settings) -> str | None:
    """Return the region whose slot a run needs next, None if no zone is left."""
    zone = next_zone(run, settings)
    return None if zone is None else names.region_of(zone)


def is_waiting(run: Run, now: float) -> bool:
    """Say whether a run waits for a slot and still asks for it."""
    return run.state is State.QUEUED and now - run.asked_at <= SILENT


def over_limit(run: Run, runs: Iterable[Run], holders: Collection[str], limit: int) -> bool:
    """Say whether a run's submitter already has as many runs as one may have (0: no limit)."""
    if limit <= 0 or not run.request.submitter:
        return False
    mine = [
        one
        for one in runs
        if one.run_id in holders
        and one.run_id != run.run_id
        and one.request.submitter == run.request.submitter
    ]
    return len(mine) >= limit


def ahead(
    run: Run, runs: Collection[Run], holders: Mapping[str, str], settings: Settings, now: float
) -> list[Run]:
    """Return the waiting runs that get a slot of the run's region before it does.

    Args:
        run: the run.
        runs: all that are not over.
        holders: slot -> run id.
        settings: the slots, and how many runs a submitter may have.
        now: epoch seconds.
    """
    region, held = region_wanted(run, settings), set(holders.values())
    return sorted(
        (
            one
            for one in runs
            if one.run_id != run.run_id
            and one.run_id not in held
            and is_waiting(one, now)
            and rank(one) < rank(run)
            and region_wanted(one, settings) == region
            and not over_limit(one, runs, held, settings.runs_per_submitter)
        ),
        key=rank,
    )


def waits_for(
    run: Run, runs: Collection[Run], holders: Mapping[str, str], settings: Settings, now: float
) -> str:
    """Return why it is not a run's turn; empty: a slot is left after all that come before it."""
    held = set(holders.values())
    if run.run_id in held:
        return ""
    if over_limit(run, runs, held, settings.runs_per_submitter):
        return f"{run.request.submitter} has {settings.runs_per_submitter} runs already"
    region = region_wanted(run, settings)
    free = [one for one in settings.slots if one.region == region and one.name not in holders]
    before = len(ahead(run, runs, holders, settings, now))
    if before < len(free):
        return ""
    first = f"; {before} before it" if before else ""
    return f"every network slot of {region} is taken{first}"


def place_of(
    run: Run, runs: Collection[Run], holders: Mapping[str, str], settings: Settings, now: float
) -> Place | None:
    """Return a waiting run's place; None for a run that does not wait."""
    region = region_wanted(run, settings)
    if run.state is not State.QUEUED or region is None:
        return None
    place = 1 + len(ahead(run, runs, holders, settings, now))
    if over_limit(run, runs, set(holders.values()), settings.runs_per_submitter):
        return Place(place, region, None)
    ends = {one.run_id: one.hard_deadline_at for one in runs}
    of_region = [one.name for one in settings.slots if one.region == region]
    free = sorted(ends.get(holders[one], now) if one in holders else now for one in of_region)
    start_by = max(free[place - 1], now) if place <= len(free) else None
    return Place(place, region, start_by)
