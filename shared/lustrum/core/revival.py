"""A run whose rl_run execution died: may a new one go on, and how it finds its place. Pure.

The new execution begins at the start and asks for each state again; what is past is found there
and not entered, so that nothing is taken away.
"""

from __future__ import annotations

from lustrum.core.money import account
from lustrum.core.record import Run, State
from lustrum.core.reserve import stop_at

# The states of a zone's life, in the order in which rl_run asks for them.
ZONE_LIFE = (
    State.PROVISIONING,
    State.STARTING_HEAD,
    State.STAGING,
    State.WAITING_FOR_GPUS,
    State.RECOVERING,
    State.TRAINING,
)


def revive(run: Run, dead: str | None, now: float) -> bool:
    """Take a run from an execution that is dead, in place, for a new one to go on with: same
    zone, same attempt. Once per state, and only while the run has time and money left.
    """
    if run.execution != dead or run.is_over or run.teardown is not None or run.cancel is not None:
        return False
    if run.reason or run.state in run.revivals or now >= stop_at(run):
        return False
    if account(run, now).dollars >= run.plan.cost_limit:
        return False
    run.revivals = [*run.revivals, run.state]
    run.revived_in = run.state if run.placement is not None else None
    run.execution = run.callback_url = None
    return True


def is_behind(run: Run, to: State) -> bool:
    """Say whether a revived run has already gone past a state."""
    if run.revived_in is None or to not in ZONE_LIFE or run.state not in ZONE_LIFE:
        return False
    return ZONE_LIFE.index(to) < ZONE_LIFE.index(run.state)
