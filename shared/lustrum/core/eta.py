"""How long a training still needs, from the pace of its newest steps. Pure."""

from __future__ import annotations

from lustrum.core.record import Run, State

WINDOW = 20  # newest points of the present attempt that tell the pace


def step_seconds(run: Run) -> float | None:
    """Return the seconds of one step of the present attempt, None before two steps were seen."""
    points = [one for one in run.series if one.attempt == run.attempt][-WINDOW:]
    if len(points) < 2:
        return None
    first, last = points[0], points[-1]
    if last.step <= first.step or last.at <= first.at:
        return None
    return (last.at - first.at) / (last.step - first.step)


def seconds_left(run: Run, now: float) -> float | None:
    """Return the seconds until the training's last step at its present pace, None while nobody
    can say: it does not train, or two steps of this attempt were not seen yet.
    """
    pace = step_seconds(run)
    if run.state is not State.TRAINING or pace is None:
        return None
    left = max(run.goal - run.progress.step, 0) * pace
    return max(left - max(now - run.progress.at, 0.0), 0.0)
