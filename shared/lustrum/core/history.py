"""What a record remembers of its way: since when it is in a state, what went wrong in its end."""

from __future__ import annotations

from collections.abc import Iterable

from lustrum.core.record import Run, State
from lustrum.core.record_parts import Teardown

PROBLEMS = 50  # kept of those before


def entered_at(run: Run, state: State, default: float) -> float:
    """Return when the run last entered a state, epoch seconds; ``default`` when it never did."""
    return next((moment.at for moment in reversed(run.history) if moment.state == state), default)


def note_problems(teardown: Teardown, problems: Iterable[str]) -> None:
    """Keep what is new of the problems of an end, in place."""
    new = [problem for problem in problems if problem not in teardown.problems]
    if new:
        teardown.problems = [*teardown.problems[-PROBLEMS:], *new]


def phases(run: Run, now: float) -> list[tuple[State, float, float]]:
    """Return (state, since, until) of every phase in order; equal neighbours are one."""
    ends = [*(one.at for one in run.history[1:]), max(now, run.created_at)]
    found: list[tuple[State, float, float]] = []
    for one, until in zip(run.history, ends, strict=False):
        if one.state in (State.CLOSED, State.REJECTED):
            continue
        if found and found[-1][0] == one.state:
            found[-1] = (one.state, found[-1][1], until)
        else:
            found.append((one.state, one.at, until))
    return found
