"""`start_run`: a message of ``lustrum-requests`` becomes a run, a cancel or an extension. Once."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import Any

from lustrum import __version__
from lustrum.core import names
from lustrum.core.errors import MalformedEvent, NotFound, ServiceError
from lustrum.core.events import Message, decode_push
from lustrum.core.plain_text import shorten
from lustrum.core.plan import make_plan, worst_cost
from lustrum.core.record import Moment, Refused, Run, State, Stop
from lustrum.core.record_parts import Cancel
from lustrum.core.request import (
    MAX_HOURS,
    BadRequest,
    CancelRequest,
    ExtendRequest,
    StartRequest,
    parse_request,
)
from lustrum.core.reserve import EXPORT_GRACE_HOURS, waiting_price
from lustrum.core.run_plan import RunPlan
from lustrum.handlers.once import once
from lustrum.handlers.telling import publish
from lustrum.wiring.http import Answer
from lustrum.wiring.services import Services


def handle_push(services: Services, body: bytes) -> Answer:
    """Handle one push body. What cannot become a run is answered once, kept, and acknowledged."""
    try:
        message = decode_push(body)
    except MalformedEvent as error:
        return reject(
            services,
            "body-" + names.fingerprint(body),
            body,
            error.field,
            "",
            error.reason,
        )
    try:
        return handle(services, message)
    except BadRequest as error:
        identity = message.message_id or names.fingerprint(message.data)
        return reject(services, identity, message.data, error.field, error.value, error.reason)


def handle(services: Services, message: Message) -> Answer:
    """Handle one message.

    Raises:
        BadRequest: it cannot become a run.
        ServiceError: try again later.
    """
    request = parse_request(message.data)
    if isinstance(request, CancelRequest):
        return cancel(services, request, message.message_id)
    if isinstance(request, ExtendRequest):
        return extend(services, request, message.message_id)
    return start(services, request, message)


def start(services: Services, request: StartRequest, message: Message) -> Answer:
    """Start a run, or find that it was started before."""
    if not (message.message_id or message.attributes.get("idempotency_key")):
        raise BadRequest("message.messageId", "", "must be given, a run is named after it")
    try:
        key = names.message_key(message.attributes, message.message_id, message.published)
    except ValueError as error:
        raise BadRequest("attributes", ", ".join(message.attributes), str(error)) from None
    run_id = names.run_id(key)
    try:
        known, status = services.ledger.load(run_id), "duplicate"
    except NotFound:
        _check_age(services, request, message)
        known = _new_run(services, request, message, run_id, key)
        status = "started" if services.ledger.create(known) else "duplicate"
        known = services.ledger.load(run_id)
    if known.state is State.REJECTED:
        once(services, f"{run_id}-skipped", lambda: _tell_skipped(services, known))
        return {"run_id": run_id, "status": "skipped"}
    if not known.is_over and known.execution is None and known.teardown is None:
        # Of deliveries at once only one starts it; if that one fails, the next delivery does.
        once(services, f"{run_id}-life", lambda: _ensure_life(services, known))
        once(services, f"{run_id}-requested", lambda: _tell_requested(services, known))
    return {"run_id": run_id, "status": status, "state": known.state}


def cancel(services: Services, request: CancelRequest, event_id: str) -> Answer:
    """Write the wish to end a run, then ensure its teardown."""
    now = services.now()

    def edit(run: Run) -> bool:
        if run.is_over or run.cancel is not None:
            return False
        run.cancel = Cancel(at=now, export=request.export, event_id=event_id)
        return True

    _known(services, request.run_id, edit)
    run = services.ledger.load(request.run_id)
    if run.is_over:
        return {"run_id": run.run_id, "status": "over", "state": run.state}
    execution = services.workflows.ensure(
        services.settings.teardown_workflow, run.run_id, {"run_id": run.run_id, "final": True}
    )
    once(
        services,
        f"{run.run_id}-cancelling",
        lambda: publish(services, {"kind": "run.cancelling", "run_id": run.run_id}, run),
    )
    return {"run_id": run.run_id, "status": "cancelling", "execution": execution}


def extend(services: Services, request: ExtendRequest, event_id: str) -> Answer:
    """Give a run more hours, once per message; the labels in the cloud follow."""
    if not event_id:
        raise BadRequest(
            "message.messageId", "", "must be given, hours are added once per message"
        )
    now = services.now()

    def edit(run: Run) -> bool:
        if event_id in run.extended_by:
            return False
        exports = run.state in (State.RELEASING, State.EXPORTING)
        if run.is_over or (run.teardown is not None and not exports):
            raise Refused(Stop.OVER, f"{run.run_id} is ending or over ({run.state})")
        if run.teardown is not None:
            _extend_export(run, request.hours)
            run.extended_by = [*run.extended_by, event_id]
            note = f"its export was extended by {request.hours:g} h"
            run.history = [*run.history, Moment(state=run.state, at=now, note=note)]
            return True
        hours = run.plan.hours + request.hours
        if hours > MAX_HOURS:
            raise Refused(
                Stop.HOURS, f"a run may last at most {MAX_HOURS:g} h, this would be {hours:g} h"
            )
        cost = worst_cost(run.plan, hours)
        if cost > run.plan.cost_limit:
            raise Refused(
                Stop.COST,
                f"{hours:g} h can cost ${cost:,.0f}, more than limits.cost_usd "
                f"${run.plan.cost_limit:,.0f}",
            )
        run.plan.hours = hours
        run.plan.hard_hours += request.hours
        run.plan.worst_cost = round(cost, 2)
        run.deadline_at += request.hours * 3600
        run.hard_deadline_at += request.hours * 3600
        run.extended_by = [*run.extended_by, event_id]
        run.history = [
            *run.history,
            Moment(state=run.state, at=now, note=f"extended by {request.hours:g} h"),
        ]
        return True

    new = _known(services, request.run_id, edit, "hours", request.hours)
    run = services.ledger.load(request.run_id)
    once(
        services,
        f"{run.run_id}-extended-{event_id}",
        lambda: publish(
            services,
            {
                "kind": "run.extended",
                "run_id": run.run_id,
                "deadline_at": run.deadline_at,
                "hard_deadline_at": run.hard_deadline_at,
            },
            run,
        ),
    )
    if new:
        with suppress(ServiceError):  # the reaper repeats what fails here
            relabel(services, run)
    return {
        "run_id": run.run_id,
        "status": "extended" if new else "duplicate",
        "deadline_at": run.deadline_at,
    }


def _extend_export(run: Run, hours: float) -> None:
    """Give an export more time, in place: the accelerators are gone, the training is over.

    Raises:
        Refused: longer, or dearer, than a run may be.
    """
    longest = MAX_HOURS + EXPORT_GRACE_HOURS
    if run.plan.hard_hours + hours > longest:
        raise Refused(Stop.HOURS, f"all of a run may last at most {longest:g} h")
    cost = run.plan.worst_cost + hours * waiting_price(run.plan)
    if cost > run.plan.cost_limit:
        raise Refused(
            Stop.COST,
            f"that can cost ${cost:,.0f}, more than limits.cost_usd ${run.plan.cost_limit:,.0f}",
        )
    run.plan.hard_hours += hours
    run.plan.worst_cost = round(cost, 2)
    run.hard_deadline_at += hours * 3600


def relabel(services: Services, run: Run) -> None:
    """Bring a run's expiry onto its cluster and instance; the reaper repeats what fails here."""
    store_expiry(services, run.run_id, run.hard_deadline_at)


def store_expiry(services: Services, run_id: str, expires: float) -> None:
    """Label a run's cluster and instance with an expiry in epoch seconds."""
    for cluster in services.gke.list().items:
        if cluster.name == run_id:
            services.gke.relabel(cluster, expires)
    for instance in services.lustre.list().items:
        if instance.name == run_id:
            services.lustre.relabel(instance.zone, instance.name, expires)


def reject(
    services: Services, identity: str, data: bytes, field: str, value: str, reason: str
) -> Answer:
    """Answer what cannot be used: one notification, one dead letter, however often it is
    delivered.
    """
    answer = {
        "kind": "request.rejected",
        "run_id": None,
        "field": field,
        "value": value,
        "reason": shorten(reason),
        "message_id": identity,
    }

    def tell() -> None:
        services.publisher.bury(data, {"field": field, "reason": reason, "message_id": identity})
        publish(services, answer)

    once(services, identity, tell, shelf="rejected", record=answer)
    return {"status": "rejected", "field": field, "reason": answer["reason"]}


def _new_run(
    services: Services, request: StartRequest, message: Message, run_id: str, key: str
) -> Run:
    """Return the record of a new run; REJECTED when the one before it still lives.

    A skipped tick has a record too: delivered again when its predecessor is over, it stays
    skipped.
    """
    plan = make_plan(request, run_id, services.settings.export_bucket)
    _check_resume(services, plan)
    now = services.now()
    run = Run(
        run_id=run_id,
        lustrum_version=__version__,
        key=key,
        message_id=message.message_id,
        schedule=message.attributes.get("schedule"),
        request=request,
        plan=plan,
        event_key=secrets.token_hex(32),
        created_at=now,
        deadline_at=now + plan.hours * 3600,
        hard_deadline_at=now + plan.hard_hours * 3600,
        history=[Moment(state=State.REQUESTED, at=now)],
    )
    if run.schedule and request.overlap == "skip":
        alive = [one for one in services.ledger.unfinished().runs if one.schedule == run.schedule]
        if alive:
            run.state, run.closed_at = State.REJECTED, now
            run.reason = f"{alive[0].run_id} of this schedule is still {alive[0].state}"
    return run


def _check_age(services: Services, request: StartRequest, message: Message) -> None:
    """Refuse a start that waited too long: who asked has gone, or has asked again since.

    Cancels and extensions are never too old, and a run that is known is never refused.
    """
    limit = request.limits.start_within_hours
    if message.published is None:
        return
    age = (services.now() - message.published.timestamp()) / 3600
    if age > limit:
        raise BadRequest(
            "limits.start_within_hours",
            limit,
            f"the request was published at {message.published:%Y-%m-%dT%H:%M:%SZ} and arrived "
            f"{age:.1f} h later; nothing was started: send it again, or accept older ones",
        )


def _check_resume(services: Services, plan: RunPlan) -> None:
    """Refuse a run that would find nothing to resume from only when it is already paid for."""
    wanted = plan.resume_from
    if wanted is None or not names.is_run_id(wanted):
        return
    field = "checkpoints.resume_from"
    try:
        earlier = services.ledger.load(wanted)
    except NotFound:
        raise BadRequest(field, wanted, "is not a run known here; see `lustrum list`") from None
    if earlier.safe_export is None:
        raise BadRequest(field, wanted, "has no verified export; give a gs:// folder instead")
    if earlier.plan.model != plan.model:
        raise BadRequest(field, wanted, f"trained {earlier.plan.model}, this is {plan.model}")
    if earlier.plan.layout != plan.layout:
        left, read = earlier.plan.layout.name, plan.layout.name
        raise BadRequest(field, wanted, f"left {left} checkpoints, this trainer reads {read} ones")


def _tell_requested(services: Services, run: Run) -> None:
    publish(
        services,
        {
            "kind": "run.requested",
            "run_id": run.run_id,
            "name": run.request.name,
            "worst_cost_usd": run.plan.worst_cost,
            "deadline_at": run.deadline_at,
        },
        run,
    )


def _tell_skipped(services: Services, run: Run) -> None:
    publish(
        services,
        {
            "kind": "run.skipped",
            "run_id": run.run_id,
            "schedule": run.schedule,
            "reason": run.reason,
        },
        run,
    )


def _ensure_life(services: Services, run: Run) -> str:
    return services.workflows.ensure(
        services.settings.life_workflow, run.run_id, {"run_id": run.run_id}
    )


def _known(
    services: Services, run_id: str, edit: Any, field: str = "run_id", value: object = None
) -> bool:
    try:
        return bool(services.ledger.change(run_id, edit))
    except NotFound:
        raise BadRequest("run_id", run_id, "is not a run known here; see `lustrum list`") from None
    except Refused as refused:
        raise BadRequest(field, run_id if value is None else value, str(refused)) from None
