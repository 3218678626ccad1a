"""`react_to_event`: job events, build notices and alerts. Append to the ledger, act on alerts, and
call the callback of the waiting execution.

It is called only for what the present state waits for; whoever wakes re-reads the real state.
"""

from __future__ import annotations

from lustrum.core import names
from lustrum.core.alerts import AlertAction, Incident
from lustrum.core.errors import MalformedEvent, NotFound
from lustrum.core.events import (
    BuildNotice,
    Event,
    JobEvent,
    Message,
    decode_event,
    decode_push,
)
from lustrum.core.progress import absorb
from lustrum.core.record import Run, State
from lustrum.handlers.once import once
from lustrum.handlers.telling import publish
from lustrum.head.signature import ATTRIBUTE, is_signed
from lustrum.wiring.http import Answer
from lustrum.wiring.services import Services

_JOB_RINGS = frozenset({"job.completed", "job.stalled"})
_STAGE_RINGS = frozenset({"stage.done", "stage.failed"})


def handle_push(services: Services, body: bytes) -> Answer:
    """Handle one push body; what cannot be read is kept and acknowledged.

    Raises:
        ServiceError: try again later.
    """
    try:
        message = decode_push(body)
        event = decode_event(message)
        return {"run_id": event.run, **react(services, event, message)}
    except MalformedEvent as error:
        return _bury(services, error, body)


def react(services: Services, event: Event, message: Message | None = None) -> Answer:
    """Keep one event and do what it asks for.

    Args:
        services: the services.
        event: what it says.
        message: as it came; its signature is checked. None: it did not come from outside.

    Raises:
        MalformedEvent: a job event that its run did not sign.
    """
    run_id = event.run
    if run_id is None:
        if isinstance(event, Incident):
            return _incident_of_nobody(services, event)
        return {"status": "ignored", "why": "it names no run"}
    try:
        run = services.ledger.load(run_id)
    except NotFound:
        return {"status": "ignored", "why": f"there is no run {run_id}"}
    if isinstance(event, JobEvent) and message is not None:
        _check_signature(run, message)
    new = services.ledger.append_event(run_id, event.event_id, event.model_dump(mode="json"))
    if isinstance(event, Incident):
        _act(services, run, event)
    if not new and run.is_over:
        return {"status": "duplicate"}
    if run.is_over:
        return {"status": "late", "why": f"{run_id} is {run.state}"}
    if isinstance(event, JobEvent):
        now = services.now()
        services.ledger.change(run_id, lambda one: absorb(one, event, now))
        if event.type == "job.gpus_idle":
            once(services, f"{run_id}-{event.event_id}", lambda: _tell_idle(services, run, event))
    rung = rings(run, event)
    if rung and run.callback_url is not None:
        services.workflows.ring(run.callback_url, {"run_id": run_id, "event": event.event_id})
    return {"status": "kept", "rung": rung}


def _check_signature(run: Run, message: Message) -> None:
    """Every run's jobs publish as accounts that look alike; the key is one run's alone."""
    signature = message.attributes.get(ATTRIBUTE, "")
    if run.event_key and not is_signed(run.event_key, message.data, signature):
        raise MalformedEvent(
            f"attributes.{ATTRIBUTE}", f"{run.run_id} did not sign this event", message.data
        )


def rings(run: Run, event: Event) -> bool:
    """Say whether the run's present state waits for such an event."""
    if run.teardown is not None:
        return False
    if isinstance(event, JobEvent):
        if run.state is State.TRAINING:
            return event.type in _JOB_RINGS and event.attempt == run.attempt
        return run.state is State.STAGING and event.type in _STAGE_RINGS
    if isinstance(event, BuildNotice):
        return run.state is State.PROVISIONING and event.is_over and event.action == "deploy"
    if isinstance(event, Incident):
        return (
            run.state is State.TRAINING
            and event.state == "open"
            and event.action
            in (
                AlertAction.STOP,
                AlertAction.PRUNE,
                AlertAction.CHECK,
            )
        )
    return False


def _tell_idle(services: Services, run: Run, event: JobEvent) -> None:
    """Tell people that paid GPUs do nothing; whether it ends the run is the request's choice."""
    publish(
        services,
        {
            "kind": "run.gpus_idle",
            "run_id": run.run_id,
            "attempt": event.attempt,
            "step": event.step,
            "idle_seconds": event.idle_seconds,
            "ends_the_run": run.plan.gpus_idle_minutes is not None,
        },
        run,
    )


def _act(services: Services, run: Run, incident: Incident) -> None:
    if run.is_over or incident.state not in ("open", "closed"):
        return
    now = services.now()
    if incident.action in (AlertAction.STOP, AlertAction.PRUNE):
        # An open that is older than a close that already came is late: it clears nothing,
        # starts nothing.
        is_over = any(
            one.get("incident_id") == incident.incident_id and one.get("state") == "closed"
            for one in services.ledger.events(run.run_id)
        )
        open_ = incident.state == "open" and not is_over
        services.ledger.change(run.run_id, lambda one: _note(one, incident, open_, now))
    if incident.state != "open":
        return
    # What was told is marked apart from what was kept: a delivery that failed in between is
    # repeated, and tells then.
    once(services, f"{run.run_id}-{incident.event_id}", lambda: _tell(services, run, incident))


def _note(run: Run, incident: Incident, is_open: bool, now: float) -> None:
    """Note what an alert says of the disk; check_ray_job asks the disk itself before it acts."""
    if incident.action is AlertAction.PRUNE:
        if is_open and incident.incident_id != run.filling_by:
            run.filling_since, run.filling_by = now, incident.incident_id
    elif is_open:
        run.full_since, run.full_by = run.full_since or now, incident.incident_id
    elif run.full_by in (None, incident.incident_id):
        run.full_since = run.full_by = None


def _tell(services: Services, run: Run, incident: Incident) -> None:
    publish(
        services,
        {
            "kind": "run.alert",
            "run_id": run.run_id,
            "action": incident.action,
            "policy": incident.policy,
            "summary": incident.summary,
            "observed": incident.observed,
        },
        run,
    )


def _incident_of_nobody(services: Services, incident: Incident) -> Answer:
    if incident.state == "test":
        return {"status": "test", "why": "the console's test notification: received"}
    if incident.state == "open":
        told = {
            "kind": "alert",
            "run_id": None,
            "policy": incident.policy,
            "summary": incident.summary,
        }
        once(
            services,
            incident.event_id,
            lambda: publish(services, told),
            shelf="alerts",
            record=incident.model_dump(mode="json"),
        )
    return {"status": "kept", "rung": False}


def _bury(services: Services, error: MalformedEvent, body: bytes) -> Answer:
    identity = names.fingerprint(body)
    answer = {
        "kind": "event.rejected",
        "run_id": None,
        "field": error.field,
        "reason": error.reason,
    }

    def tell() -> None:
        services.publisher.bury(error.raw or body, {"field": error.field, "reason": error.reason})
        publish(services, answer)

    once(services, "event-" + identity, tell, shelf="rejected", record=answer)
    return {"status": "rejected", "field": error.field, "reason": error.reason}
