"""By when an attempt must save for the last time, so that it does before the run's deadline. Pure.

A training that meets its limit saves and ends by itself with exit 0: nothing is lost, and it is
resumed while there is time for another step. It is counted from the start of the train loop in
NeMo-RL, which begins minutes after the job; so the start is estimated, rather too long than short:
a limit that comes early costs a restart, one that comes late costs the steps since the last save.
"""

from __future__ import annotations

from lustrum.core.record import Run

FIRST_START = 1800.0  # seconds until the first step of an attempt, before any was seen
SAVE = 600.0  # seconds of a save, before any was seen
LEAST = 60.0  # seconds an attempt may train at least


def start_seconds(run: Run) -> float:
    """Return how long an attempt takes until its first step is done: as in the last attempt of
    which it is known, else a cautious guess.
    """
    job = run.job
    seen = [
        one.at - job.submitted_at
        for one in run.series
        if job is not None and one.attempt == job.attempt and one.at > job.submitted_at
    ]
    return min(seen) if seen else FIRST_START * _scale(run)


def save_seconds(run: Run) -> float:
    """Return how long a save may take: twice the longest seen, else a cautious guess."""
    seen = [one.seconds for one in run.saves if one.seconds is not None]
    return 2 * max(seen) + LEAST * _scale(run) if seen else SAVE * _scale(run)


def must_save_by(run: Run) -> float:
    """Return when the last save of an attempt must begin, epoch seconds."""
    return run.deadline_at - save_seconds(run)


def train_loop_seconds(run: Run, now: float) -> float:
    """Return what the train loop of an attempt that is submitted now may take, seconds."""
    return max(must_save_by(run) - now - start_seconds(run), LEAST)


def is_worth_another(run: Run, now: float) -> bool:
    """Say whether another attempt would come as far as a step and its save."""
    return now + start_seconds(run) + save_seconds(run) < run.deadline_at


def _scale(run: Run) -> float:
    """The guesses are those of big models: one whose head must be up sooner is quicker."""
    return min(run.plan.timing.head / 1800.0, 1.0)
