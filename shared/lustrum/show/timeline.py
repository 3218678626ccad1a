"""What a record tells of the course of its run: phases, rewards, money. Pure."""

from __future__ import annotations

from lustrum.core.money import account
from lustrum.core.record import Run


def spent(run: Run, now: float) -> float:
    """Return what a run has cost so far, dollars, an estimate."""
    return account(run, now).dollars


def rewards(run: Run) -> list[tuple[int, float]]:
    """Return (step, reward) of the newest attempt that reached a step, ascending."""
    newest = {
        one.step: one.reward
        for one in sorted(run.series, key=lambda one: (one.attempt, one.step))
        if one.reward is not None
    }
    return sorted(newest.items())
