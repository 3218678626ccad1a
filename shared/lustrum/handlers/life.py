"""The transitions of a living run, which `rl_run` asks for: claim, place, enter, failed, leave,
hand over. Each is a compare-and-set and safe to repeat.
"""

from __future__ import annotations

from typing import NoReturn

from lustrum.core import names, queue
from lustrum.core.build_substitutions import next_zone, rdma_network, substitutions
from lustrum.core.errors import ServiceError
from lustrum.core.failures import TABLE, Failure, Reaction, named, reaction
from lustrum.core.history import entered_at
from lustrum.core.record import (
    Refused,
    Run,
    State,
    Stop,
    add_mishap,
    advance,
    check_live,
    conclude,
)
from lustrum.core.record_parts import Placement
from lustrum.core.revival import is_behind
from lustrum.core.transport import RDMA
from lustrum.core.usage import start_usage
from lustrum.handlers.classification import classify
from lustrum.handlers.preflight import look_ahead
from lustrum.handlers.transition_calls import Claim, Enter, Failed, HandOver, LeaveZone, Place
from lustrum.wiring.http import Answer
from lustrum.wiring.services import Services


def claim(services: Services, call: Claim) -> Answer:
    """rl_run takes the run, or learns that it is another's; its callback is stored first."""
    now, execution = services.now(), call.execution
    callback = call.callback_url or None
    if callback and not services.settings.is_callback(callback):
        raise ServiceError(
            Failure.CONFIG, "callback_url: must be a callback of Workflows, over https"
        )
    owner = services.ledger.load(call.run_id).execution
    dead = owner not in (None, execution) and not services.workflows.is_live(str(owner))

    def edit(run: Run) -> Answer:
        if dead and run.execution == owner and run.state == State.REQUESTED:
            run.execution = None  # the first execution died before it did anything
        check_live(run, execution, now)
        run.execution = execution
        run.callback_url = callback
        return {
            "timing": run.plan.timing.model_dump(),
            "state": run.state,
            "capacity_wait": run.plan.capacity_wait_minutes * 60,
        }

    return services.ledger.change(call.run_id, edit)


def place(services: Services, call: Place) -> Answer:
    """Lease a network slot in the next zone; the answer carries the build's substitutions."""
    now, run_id = services.now(), call.run_id
    run = services.ledger.load(run_id)
    check_live(run, call.execution, now)
    if run.placement is not None and (
        run.state == State.PROVISIONING or run.revived_in is not None
    ):  # the last answer was lost, or the execution that got it is dead
        return {"placed": True, **_deploy(services, run)}
    if run.unfit is None:
        run = _preflight(services, run)
    zone = next_zone(run, services.settings)
    if zone is None:
        _out_of_zones(services, run)
    region = names.region_of(zone)
    slot, why = _lease(services, run, region, now)

    def edit(run: Run) -> Run:
        check_live(run, call.execution, now)
        if run.state == State.PROVISIONING and run.placement is not None:
            return run  # the same call, still running when it was repeated
        if slot is None:
            run.asked_at = now
            advance(run, State.QUEUED, now, why)
            return run
        run.zone_attempts += 1
        run.placement = Placement(
            zone_attempt=run.zone_attempts,
            zone=zone,
            slot=slot,
            since=now,
            rdma_network=rdma_network(run.plan, zone, services.settings),
            attempts_before=run.attempt,
            scripts=services.settings.scripts,
            gcluster_sha256=services.settings.gcluster_sha256,
        )
        run.zones_tried = [*run.zones_tried, zone]
        run.job = None
        by = f", RDMA by {run.placement.rdma_network}" if run.placement.rdma_network else ""
        advance(run, State.PROVISIONING, now, f"{zone}, slot {slot}{by}")
        start_usage(run, "lustre", now)
        start_usage(run, "system", now)
        return run

    try:
        run = services.ledger.change(run_id, edit)
    except Refused:
        services.ledger.release_slot(run_id)
        raise
    if slot is None:
        if now - entered_at(run, State.QUEUED, now) >= run.plan.capacity_wait_minutes * 60:
            _give_up(services, run, Failure.QUOTA, f"no network slot of {region} came free")
        return {"placed": False, "wait": queue.POLL}
    return {"placed": True, **_deploy(services, run)}


def _lease(services: Services, run: Run, region: str, now: float) -> tuple[str | None, str]:
    """Lease a slot of a region if it is the run's turn; None, and why, when it has to wait."""
    settings, ledger = services.settings, services.ledger
    runs, holders = ledger.unfinished().runs, ledger.slot_holders()
    why = queue.waits_for(run, runs, holders, settings, now)
    if why:
        return None, why
    wanted = [one.name for one in settings.slots if one.region == region]
    return ledger.lease_slot(wanted, run.run_id), f"every network slot of {region} is taken"


def _preflight(services: Services, run: Run) -> Run:
    """Before anything is billed: reject a run that cannot succeed, drop zones that cannot hold
    it.
    """
    found = look_ahead(services, run.plan)
    if found.failure is not None:
        _give_up(services, run, found.failure, found.why)

    def edit(run: Run) -> Run:
        run.unfit = found.unfit
        return run

    return services.ledger.change(run.run_id, edit)


def _deploy(services: Services, run: Run) -> Answer:
    assert run.placement is not None
    return {
        "zone": run.placement.zone,
        "substitutions": substitutions(run, services.settings, "deploy"),
    }


def _out_of_zones(services: Services, run: Run) -> NoReturn:
    last = run.mishaps[-1] if run.mishaps else None
    failure = last.failure if last else Failure.CONFIG
    lacks = "has a network slot (LUSTRUM_SLOTS)"
    if run.plan.network == RDMA:
        lacks += " and an RDMA network (LUSTRUM_RDMA); add one, or ask for network: tcp"
    why = last.sentence if last else f"no zone of the request {lacks}"
    if run.unfit:
        why = "; ".join([*([why] if last else []), *run.unfit.values()])
    tried = ", ".join(run.zones_tried) or "none"
    _give_up(services, run, failure, f"no zone is left (tried: {tried}): {why}")


def _give_up(services: Services, run: Run, failure: Failure, why: str) -> NoReturn:
    services.ledger.change(run.run_id, lambda run: conclude(run, failure, why))
    raise Refused(Stop.STOPPED, why)


def enter(services: Services, call: Enter) -> Answer:
    """Go to a state of a living run.

    Raises:
        Refused: the run is over, owned by another, cancelled or late; or not from its state.
    """
    now = services.now()

    def edit(run: Run) -> Answer:
        check_live(run, call.execution, now)
        if is_behind(run, call.state):
            return {"state": run.state}
        run.revived_in = None
        advance(run, call.state, now)
        return {"state": run.state}

    return services.ledger.change(call.run_id, edit)


def failed(services: Services, call: Failed) -> Answer:
    """Classify what went wrong and say what follows: retry, next_zone, resume or stop."""
    now = services.now()
    run = services.ledger.load(call.run_id)
    failure, sentence = classify(services, run, call.failure, call.why or "", build=call.build)

    def edit(run: Run) -> Answer:
        check_live(run, call.execution, now)
        run.revived_in = None
        if _is_told(run, failure):  # the answer was lost: the same failure does not count twice
            before = run.times(failure) - 1
        else:
            before = add_mishap(run, failure, sentence, now)
        wanted = reaction(failure, before)
        if wanted is Reaction.NEXT_REGION and run.placement is not None:
            region = names.region_of(run.placement.zone)
            run.regions_closed = [*run.regions_closed, region]
        if wanted is Reaction.NEXT_REGION:
            wanted = Reaction.NEXT_ZONE
        if wanted is Reaction.RETRY and run.state == State.PROVISIONING and run.placement:
            # A build is repeated as a new zone attempt of the same zone, on destroyed found.
            run.zones_tried = [zone for zone in run.zones_tried if zone != run.placement.zone]
            wanted = Reaction.NEXT_ZONE
        if wanted is Reaction.NEXT_ZONE and next_zone(run, services.settings) is None:
            wanted = Reaction.STOP
        if wanted is Reaction.STOP:
            conclude(run, failure, f"{sentence} ({TABLE[failure].advice})")
        return {"next": wanted, "failure": failure, "why": sentence}

    return services.ledger.change(run.run_id, edit)


def _is_told(run: Run, failure: Failure) -> bool:
    """Say whether the newest mishap is this failure of the present stay in the present state."""
    last = run.mishaps[-1] if run.mishaps else None
    return (
        last is not None
        and last.failure == failure
        and last.state == run.state
        and last.at >= run.history[-1].at
    )


def hand_over(services: Services, call: HandOver) -> Answer:
    """Note why the run ends, then ensure its final teardown."""
    now = services.now()

    def edit(run: Run) -> Run:
        if call.why and not run.is_over:
            failure = named(call.failure)
            if failure is None and run.cancel is not None:
                failure = Failure.CANCELLED
            elif failure is None and now >= run.deadline_at:
                failure = Failure.DEADLINE
            conclude(run, failure, call.why)
        return run

    run = services.ledger.change(call.run_id, edit)
    if run.is_over:
        return {"execution": None}
    return {
        "execution": services.workflows.ensure(
            services.settings.teardown_workflow, run.run_id, {"run_id": run.run_id, "final": True}
        )
    }


def leave_zone(services: Services, call: LeaveZone) -> Answer:
    """Ensure a teardown that is not final, and say whether it has given the run back."""
    run = services.ledger.load(call.run_id)
    if run.is_over or (run.teardown is not None and run.teardown.final):
        raise Refused(Stop.TEARDOWN, f"a final teardown of {run.run_id} has begun")
    if run.cancel is not None:
        raise Refused(Stop.CANCELLED, f"{run.run_id} was cancelled")
    if run.placement is None:
        return {"gone": True}
    services.workflows.ensure(
        services.settings.teardown_workflow, run.run_id, {"run_id": run.run_id, "final": False}
    )
    return {"gone": False}
