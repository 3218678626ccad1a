"""`advance_run`: every transition of a run, for the two workflows. Each is a compare-and-set.

A workflow asks `step`; the answer says ``go`` (carry on) or ``stop`` (why it must end).
Failures come here to be classified, so that the policy is in one table and not in YAML.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from lustrum.core import names
from lustrum.core.build_substitutions import next_zone, substitutions
from lustrum.core.errors import ServiceError
from lustrum.core.failures import TABLE, Failure, Reaction, named, reaction
from lustrum.core.record import (
    TEARDOWN_LEASE,
    Placement,
    Refused,
    Run,
    State,
    Stop,
    Teardown,
    add_mishap,
    advance,
    check_live,
    conclude,
    start_usage,
)
from lustrum.handlers.classification import classify, text_of
from lustrum.handlers.preflight import look_ahead
from lustrum.wiring.services import Services

QUEUE_POLL = 30.0  # seconds between looks for a free network slot
Answer = dict[str, Any]


def advance_run(services: Services, call: Mapping[str, Any]) -> Answer:
    """Do one transition.

    Args:
        call: ``run_id``, ``execution`` (full name), ``step``, and what the step needs.

    Raises:
        ServiceError: CONFIG for an unknown step; otherwise what the services raise.
    """
    step = _STEPS.get(str(call.get("step")))
    if step is None:
        raise ServiceError(
            Failure.CONFIG, f"step: {call.get('step')!r}; must be one of {', '.join(_STEPS)}"
        )
    try:
        return {"go": True, **step(services, call)}
    except Refused as refused:
        return {"go": False, "stop": refused.stop, "why": str(refused)}


def _claim(services: Services, call: Mapping[str, Any]) -> Answer:
    """rl_run takes the run, or learns that it is another's; its callback is stored first."""
    now, execution = services.now(), str(call["execution"])
    callback = call.get("callback_url")
    if callback and not services.settings.is_callback(str(callback)):
        raise ServiceError(
            Failure.CONFIG, "callback_url: must be a callback of Workflows, over https"
        )
    owner = services.ledger.load(str(call["run_id"])).execution
    dead = owner not in (None, execution) and not services.workflows.is_live(str(owner))

    def edit(run: Run) -> Answer:
        if dead and run.execution == owner and run.state == State.REQUESTED:
            run.execution = None  # the first execution died before it did anything
        check_live(run, execution, now)
        run.execution = execution
        run.callback_url = str(callback) if callback else None
        return {
            "timing": run.plan.timing.model_dump(),
            "state": run.state,
            "capacity_wait": run.plan.capacity_wait_minutes * 60,
        }

    return services.ledger.change(call["run_id"], edit)


def _place(services: Services, call: Mapping[str, Any]) -> Answer:
    """Lease a network slot in the next zone; the answer carries the build's substitutions."""
    now, run_id = services.now(), str(call["run_id"])
    run = services.ledger.load(run_id)
    check_live(run, call.get("execution"), now)
    if run.state == State.PROVISIONING and run.placement is not None:  # the last answer was lost
        return {"placed": True, **_deploy(services, run)}
    if run.unfit is None:
        run = _preflight(services, run)
    zone = next_zone(run, services.settings.slots)
    if zone is None:
        _out_of_zones(services, run)
    region = names.region_of(zone)
    slot = services.ledger.lease_slot(
        [one.name for one in services.settings.slots if one.region == region], run_id
    )

    def edit(run: Run) -> Run:
        check_live(run, call.get("execution"), now)
        if run.state == State.PROVISIONING and run.placement is not None:
            return run  # the same call, still running when it was repeated
        if slot is None:
            advance(run, State.QUEUED, now, f"every network slot of {region} is taken")
            return run
        run.zone_attempts += 1
        run.placement = Placement(
            zone_attempt=run.zone_attempts,
            zone=zone,
            slot=slot,
            since=now,
            attempts_before=run.attempt,
        )
        run.zones_tried = [*run.zones_tried, zone]
        run.job = None
        advance(run, State.PROVISIONING, now, f"{zone}, slot {slot}")
        start_usage(run, "lustre", now)
        start_usage(run, "system", now)
        return run

    try:
        run = services.ledger.change(run_id, edit)
    except Refused:
        services.ledger.release_slot(run_id)
        raise
    if slot is None:
        waited = now - next(
            (one.at for one in reversed(run.history) if one.state == State.QUEUED), now
        )
        if waited >= run.plan.capacity_wait_minutes * 60:
            _give_up(services, run, Failure.QUOTA, f"no network slot of {region} came free")
        return {"placed": False, "wait": QUEUE_POLL}
    return {"placed": True, **_deploy(services, run)}


def _preflight(services: Services, run: Run) -> Run:
    """Before anything is billed: reject a run that cannot succeed, drop zones that cannot hold
    it.
    """
    found = look_ahead(services, run.plan)
    if found.failure is not None:
        _give_up(services, run, found.failure, found.why)

    def edit(one: Run) -> Run:
        one.unfit = found.unfit
        return one

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
    why = last.sentence if last else "no zone of the request has a network slot (LUSTRUM_SLOTS)"
    if run.unfit:
        why = "; ".join([*([why] if last else []), *run.unfit.values()])
    tried = ", ".join(run.zones_tried) or "none"
    _give_up(services, run, failure, f"no zone is left (tried: {tried}): {why}")


def _give_up(services: Services, run: Run, failure: Failure, why: str) -> NoReturn:
    services.ledger.change(run.run_id, lambda one: conclude(one, failure, why))
    raise Refused(Stop.STOPPED, why)


def _enter(services: Services, call: Mapping[str, Any]) -> Answer:
    """Go to a state of a living run."""
    now, to = services.now(), _state(call)

    def edit(run: Run) -> Answer:
        check_live(run, call.get("execution"), now)
        advance(run, to, now)
        return {"state": run.state}

    return services.ledger.change(call["run_id"], edit)


def _failed(services: Services, call: Mapping[str, Any]) -> Answer:
    """Classify what went wrong and say what follows: retry, next_zone, resume or stop."""
    now = services.now()
    run = services.ledger.load(str(call["run_id"]))
    failure, sentence = classify(services, run, call)

    def edit(run: Run) -> Answer:
        check_live(run, call.get("execution"), now)
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
        if wanted is Reaction.NEXT_ZONE and next_zone(run, services.settings.slots) is None:
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


def _state(call: Mapping[str, Any]) -> State:
    try:
        return State(str(call["state"]))
    except (KeyError, ValueError):
        raise ServiceError(
            Failure.CONFIG, f"state: {call.get('state')!r}; must be one of {', '.join(State)}"
        ) from None


def _hand_over(services: Services, call: Mapping[str, Any]) -> Answer:
    """Note why the run ends, then ensure its final teardown."""
    now = services.now()

    def edit(run: Run) -> Run:
        if call.get("why") and not run.is_over:
            failure = named(call.get("failure"))
            if failure is None and run.cancel is not None:
                failure = Failure.CANCELLED
            elif failure is None and now >= run.deadline_at:
                failure = Failure.DEADLINE
            conclude(run, failure, str(call["why"]))
        return run

    run = services.ledger.change(call["run_id"], edit)
    if run.is_over:
        return {"execution": None}
    return {
        "execution": services.workflows.ensure(
            services.settings.teardown_workflow, run.run_id, {"run_id": run.run_id, "final": True}
        )
    }


def _leave_zone(services: Services, call: Mapping[str, Any]) -> Answer:
    """Ensure a teardown that is not final, and say whether it has given the run back."""
    run = services.ledger.load(str(call["run_id"]))
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


def _claim_teardown(services: Services, call: Mapping[str, Any]) -> Answer:
    """A teardown takes the run; single-flight by a lease that a dead one loses."""
    now, execution, final = services.now(), str(call["execution"]), bool(call.get("final", True))
    before = services.ledger.load(str(call["run_id"])).teardown
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
        }

    return services.ledger.change(call["run_id"], edit)


def _teardown_step(services: Services, call: Mapping[str, Any]) -> Answer:
    """A teardown enters a state, or notes a problem; either way its lease goes on."""
    now = services.now()

    def edit(run: Run) -> Answer:
        if run.teardown is None or run.teardown.execution != call["execution"]:
            raise Refused(Stop.LOST, f"the teardown of {run.run_id} was taken over")
        run.teardown.lease_until = now + TEARDOWN_LEASE
        if call.get("problem") is not None:
            text = f"{call.get('at', run.state)}: {text_of(call['problem'])}"[:300]
            if text not in run.teardown.problems:
                run.teardown.problems = [*run.teardown.problems[-50:], text]
        if call.get("state"):
            advance(run, _state(call), now)
        return {"state": run.state}

    return services.ledger.change(call["run_id"], edit)


def _build(services: Services, call: Mapping[str, Any]) -> Answer:
    """Say how a build of the present zone attempt is: none, live, done or failed."""
    run = services.ledger.load(str(call["run_id"]))
    action, since = str(call.get("action")), call.get("since") or 0
    if action not in ("deploy", "destroy") or not isinstance(since, (int, float)):
        raise ServiceError(
            Failure.CONFIG, "action: must be deploy or destroy, and since epoch seconds"
        )
    if action == "deploy":
        check_live(run, call.get("execution"), services.now())
    elif run.teardown is None or run.teardown.execution != call["execution"]:
        raise Refused(Stop.LOST, f"the teardown of {run.run_id} was taken over")
    if run.placement is None:
        return {"status": "none"}
    tag = names.build_tag(run.run_id, action, run.placement.zone_attempt)
    builds = [build for build in services.builds.tagged(tag) if not build.is_duplicate]
    builds = [build for build in builds if build.is_live or build.created_at >= since]
    if any(build.is_live for build in builds):
        return {"status": "live"}
    if not builds:
        return {"status": "none"}
    newest = builds[0]
    return {
        "status": "done" if newest.status == "SUCCESS" else "failed",
        "why": str(newest.output.get("message") or newest.detail),
    }


def _destroy(services: Services, call: Mapping[str, Any]) -> Answer:
    """Return the substitutions of the destroy build; nothing to build when no zone was ever
    tried.
    """
    _teardown_step(services, {**call, "state": State.DESTROYING})
    run = services.ledger.load(str(call["run_id"]))
    if run.placement is None:
        return {"build": False}
    return {"build": True, "substitutions": substitutions(run, services.settings, "destroy")}


_STEPS: dict[str, Callable[[Services, Mapping[str, Any]], Answer]] = {
    "claim": _claim,
    "place": _place,
    "enter": _enter,
    "failed": _failed,
    "hand_over": _hand_over,
    "build": _build,
    "leave_zone": _leave_zone,
    "claim_teardown": _claim_teardown,
    "teardown": _teardown_step,
    "destroy": _destroy,
}
