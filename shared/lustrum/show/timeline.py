"""What a record tells of the course of its run: phases, rewards, money. Pure."""

from __future__ import annotations

from lustrum.core.cost import bill
from lustrum.core.record import Run, State


def spent(run: Run, now: float) -> float:
    """Return what a run has cost so far, dollars, an estimate."""
    return sum(bill(run.usage, now).values())


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


def rewards(run: Run) -> list[tuple[int, float]]:
    """Return (step, reward) of the newest attempt that reached a step, ascending."""
    newest = {
        one.step: one.reward
        for one in sorted(run.series, key=lambda one: (one.attempt, one.step))
        if one.reward is not None
    }
    return sorted(newest.items())
