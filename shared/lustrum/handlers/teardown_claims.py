"""The transitions of a teardown: it claims the run, enters its states, notes problems, destroys.
Single-flight by a lease that a dead one loses.
"""

from __future__ import annotations

from lustrum.core.build_substitutions import substitutions
from lustrum.core.history import note_problems
from lustrum.core.record import TEARDOWN_LEASE, Refused, Run, State, Stop, advance, check_owned
from lustrum.core.record_parts import Teardown
from lustrum.core.reserve import extension_hours
from lustrum.handlers.classification import text_of
from lustrum.handlers.transition_calls import ClaimTeardown, Destroy, Note
from lustrum.wiring.http import Answer
from lustrum.wiring.services import Services


def claim_teardown(services: Services, call: ClaimTeardown) -> Answer:
    """A teardown takes the run; single-flight by a lease that a dead one loses."""
    now, execution, final = services.now(), call.execution, call.final
    before = services.ledger.load(call.run_id).teardown
    dead = set()
    if (
        before is not None
        and before.execution != execution
        and before.lease_until > now
        and not services.workflows.is_live(before.execution)
    ):
        dead.add(before.execution)

    def edit(run: Run) -> Answer:
        if run.is_over:
            raise Refused(Stop.OVER, f"{run.run_id} is {run.state}")
        held = run.teardown
        if not final and run.placement is None and held is None:
            # Asked for while the one before it was closing: the zone is left already.
            raise Refused(Stop.OVER, f"{run.run_id} holds no zone")
        if (
            held is not None
            and held.execution != execution
            and held.lease_until > now
            and held.execution not in dead
        ):
            raise Refused(Stop.BUSY, f"another teardown of {run.run_id} is at work")
        problems = held.problems if held is not None else []
        run.teardown = Teardown(
            execution=execution,
            final=final or (held is not None and held.final),
            claimed_at=now,
            lease_until=now + TEARDOWN_LEASE,
            problems=problems,
        )
        return {
            "final": run.teardown.final,
            "placed": run.placement is not None,
            "timing": run.plan.timing.model_dump(),
            "hard_deadline_at": run.hard_deadline_at,
            "extension": 0 if run.extended_at_deadline else extension_hours(run.plan) * 3600,
        }

    return services.ledger.change(call.run_id, edit)


def note(services: Services, call: Note) -> Answer:
    """A teardown enters a state, or notes a problem; either way its lease goes on."""
    now = services.now()

    def edit(run: Run) -> Answer:
        mine = check_owned(run, call.execution)
        mine.lease_until = now + TEARDOWN_LEASE
        if call.problem is not None:
            note_problems(mine, [f"{call.at or run.state}: {text_of(call.problem)}"[:300]])
        if call.state is not None:
            advance(run, call.state, now)
        return {"state": run.state, "hard_deadline_at": run.hard_deadline_at}

    return services.ledger.change(call.run_id, edit)


def destroy(services: Services, call: Destroy) -> Answer:
    """Return the substitutions of the destroy build; nothing to build when no zone was ever
    tried.
    """
    entered = {"run_id": call.run_id, "execution": call.execution, "state": State.DESTROYING}
    note(services, Note(step="teardown", **entered))
    run = services.ledger.load(call.run_id)
    if run.placement is None:
        return {"build": False}
    return {"build": True, "substitutions": substitutions(run, services.settings, "destroy")}
