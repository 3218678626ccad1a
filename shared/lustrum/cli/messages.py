"""`lustrum start`, `cancel` and `extend`: messages on ``lustrum-requests``, and their answer."""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from lustrum.cli import pack
from lustrum.cli.session import (
    FAILED,
    Session,
    console,
    read_start,
    run_argument,
    session_of,
    translated,
)
from lustrum.cli.watch import follow_run
from lustrum.core import names
from lustrum.core.errors import NotFound
from lustrum.core.plan import make_plan
from lustrum.core.record import Run
from lustrum.core.request import BadRequest, StartRequest, read_request
from lustrum.core.run_plan import RunPlan
from lustrum.core.settings import Settings
from lustrum.show.formatting import dollars, moment, size
from lustrum.show.preview import UNKNOWN

PAUSES = (0.5, 0.5, 1, 1, 2, 2, *(3,) * 8)  # seconds between looks for what came of a message
KEY_LIMIT = 1000  # bytes of a message attribute, with room


def start(
    context: typer.Context,
    file: str = typer.Argument(..., metavar="FILE", help="A request, or - for standard input."),
    folder: str | None = typer.Option(
        None,
        "--code",
        metavar="DIR",
        help="Folder to train from: packed without what .gitignore and .rayignore name.",
    ),
    key: str | None = typer.Option(
        None, "--key", help="Idempotency key: the same key never starts a second run."
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Check and pack, send nothing."),
    wait: bool = typer.Option(True, help="Wait until the control plane has accepted the request."),
    then_watch: bool = typer.Option(False, "--watch", help="Follow the run to its end."),
    as_json: bool = typer.Option(False, "--json", help="Print what came of it as JSON."),
) -> None:
    """Start one run, after checking the request here."""
    session, out = session_of(context), _voice(as_json)
    if as_json and (then_watch or dry_run):
        other = "--watch" if then_watch else "--dry-run"
        raise BadRequest("--json", other, "cannot go together; use `lustrum show RUN --json`")
    request = read_start(file)
    settings = session.settings_if_any if dry_run else session.settings
    # Always a key: a publish that the client library repeats must not become a second run.
    key = _checked_key(key) if key is not None else f"cli-{uuid.uuid4().hex}"
    run_id = names.run_id(names.message_key({"idempotency_key": key}, "", None))
    plan = make_plan(request, run_id, settings.export_bucket or UNKNOWN.export_bucket)
    _check_zones(plan, settings)
    if folder is not None:
        request = _with_code(session, settings, request, Path(folder), out, send=not dry_run)
    body = request.model_dump(mode="json", exclude_unset=True)
    if dry_run:
        out.print(
            f"would publish to {settings.requests_topic}, with idempotency_key {key}:",
            markup=False,
        )
        out.print(json.dumps(body, indent=2), markup=False)
        out.print(_promise(run_id, plan), markup=False)
        return
    message_id = _publish(session, body, {"idempotency_key": key})
    out.print(_promise(run_id, plan), markup=False)
    run = None
    if wait or then_watch:
        run = _confirmed(session, run_id, message_id, lambda run: True)
        if run is not None and run.message_id not in ("", message_id):
            out.print(
                f"this key started it before, at {moment(run.created_at)}: {run.state}",
                markup=False,
            )
        elif run is None:
            _not_taken(message_id)
    if as_json:
        _print_answer(run_id, message_id, run, plan.worst_cost)
    elif then_watch:
        follow_run(session, run_id)
    else:
        out.print(f"watch it: lustrum watch {run_id}", markup=False)


def cancel(
    context: typer.Context,
    run: str = typer.Argument(..., metavar="RUN", help="The run's id."),
    export: bool = typer.Option(
        True, "--export/--no-export", help="Export the newest checkpoint first."
    ),
    wait: bool = typer.Option(True, help="Wait until the control plane has accepted the request."),
    as_json: bool = typer.Option(False, "--json", help="Print what came of it as JSON."),
) -> None:
    """End a run early: export, destroy, prove it empty."""
    session, out = session_of(context), _voice(as_json)
    record = session.known(run_argument(run))
    if record.is_over or record.cancel is not None:
        out.print(
            f"run {run} is {'over' if record.is_over else 'being cancelled'} already: "
            f"{record.outcome or record.state}",
            markup=False,
        )
        if as_json:
            _print_answer(run, None, record)
        return
    body = {"action": "cancel", "run_id": run, "export": export}
    read_request(body)
    message_id = _publish(session, body, {})
    after = _confirmed(session, run, message_id, _is_ending) if wait else None
    if wait and after is None:
        _not_taken(message_id)
    if as_json:
        _print_answer(run, message_id, after)
    out.print(
        f"run {run} is being cancelled, {'with' if export else 'without'} export; "
        f"watch it: lustrum watch {run}",
        markup=False,
    )


def extend(
    context: typer.Context,
    run: str = typer.Argument(..., metavar="RUN", help="The run's id."),
    hours: str = typer.Argument(..., metavar="HOURS", help="Hours to add, at most 168 in all."),
    wait: bool = typer.Option(True, help="Wait until the control plane has accepted the request."),
    as_json: bool = typer.Option(False, "--json", help="Print what came of it as JSON."),
) -> None:
    """Give a run more hours, within its limit of cost."""
    session, out = session_of(context), _voice(as_json)
    more = _number("HOURS", hours)
    body = {"action": "extend", "run_id": run_argument(run), "hours": more}
    read_request(body)
    record = session.known(run)
    if record.is_over or record.teardown is not None:
        raise BadRequest("run_id", run, f"is ending or over ({record.state})")
    message_id = _publish(session, body, {})
    if not wait:
        out.print(f"asked for {more:g} more hours of {run}", markup=False)
        if as_json:
            _print_answer(run, message_id, None)
        return
    after = _confirmed(session, run, message_id, lambda one: message_id in one.extended_by)
    if after is None:
        _not_taken(message_id)
    else:
        out.print(
            f"run {run} may last until {moment(after.deadline_at)}; worst case "
            f"{dollars(after.plan.worst_cost)}",
            markup=False,
        )
        if as_json:
            _print_answer(run, message_id, after)


def _voice(as_json: bool) -> Console:
    """Return the console for people; a silent one when a machine listens."""
    return Console(quiet=True) if as_json else console()


def _print_answer(
    run_id: str, message_id: str | None, run: Run | None, worst_cost: float | None = None
) -> None:
    """Print what came of a message; ``run`` is None when nobody waited for it."""
    answer = {
        "run_id": run_id,
        "message_id": message_id,
        "accepted": None if run is None else True,
        "state": None if run is None else run.state,
        "deadline_at": None if run is None else run.deadline_at,
        "worst_cost_usd": worst_cost if run is None else run.plan.worst_cost,
    }
    typer.echo(json.dumps(answer))


def _number(field: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadRequest(field, text, "must be a number, such as 2 or 1.5") from None


def _is_ending(run: Run) -> bool:
    return run.is_over or run.cancel is not None


def _promise(run_id: str, plan: RunPlan) -> str:
    return (
        f"run {run_id}: at most {plan.hours:g} h and {dollars(plan.worst_cost)} "
        f"(estimate, list prices of {plan.prices_dated})"
    )


def _checked_key(key: str) -> str:
    if not key or len(key.encode()) > KEY_LIMIT:
        raise BadRequest("--key", key, f"must be 1 to {KEY_LIMIT} bytes")
    return key


def _check_zones(plan: RunPlan, settings: Settings) -> None:
    """Refuse what the control plane would only find out after it began."""
    regions = sorted({slot.region for slot in settings.slots})
    if regions and not any(names.region_of(zone) in regions for zone in plan.zones):
        raise BadRequest(
            "zones", plan.zones, f"no network slot there; slots are in {', '.join(regions)}"
        )


def _with_code(
    session: Session,
    settings: Settings,
    request: StartRequest,
    folder: Path,
    out: Console,
    *,
    send: bool,
) -> StartRequest:
    """Pack a folder and, unless it is a dry run, upload it; return the request that names it."""
    if request.code is not None:
        raise BadRequest("code", request.code, "is in the request already; leave out --code")
    bucket = settings.export_bucket
    if send and not bucket:
        raise BadRequest("environment", "LUSTRUM_EXPORT_BUCKET", "is not set; the code goes there")
    with tempfile.TemporaryDirectory(prefix="lustrum-") as place:
        bundle = Path(place) / "code.zip"
        packed = pack.pack(folder, bundle)
        uri = f"gs://{bucket or 'export-bucket'}/code/{packed.sha256}.zip"
        note = f"code: {packed.files} file{'s' * (packed.files != 1)}, {size(packed.bytes)}, {uri}"
        if send:
            note += _upload(session, uri, bundle.read_bytes())
    out.print(note, markup=False)
    return StartRequest.model_validate({**request.model_dump(exclude_unset=True), "code": uri})


def _upload(session: Session, uri: str, content: bytes) -> str:
    storage = session.services.storage
    if any(one.uri == uri and one.size == len(content) for one in storage.list(uri)):
        return " (there already)"
    storage.write(uri, content, "application/zip")
    return ""


def _publish(session: Session, body: dict[str, Any], attributes: dict[str, str]) -> str:
    data = json.dumps(body).encode()
    topic = session.services.settings.requests_topic
    return translated(lambda: session.services.publisher.publish(topic, data, attributes))


def _confirmed(
    session: Session, run_id: str, message_id: str, taken: Callable[[Run], bool]
) -> Run | None:
    """Wait until a message shows in the record; None when it does not in time.

    Raises:
        BadRequest: the control plane refused it.
    """
    for pause in (0.0, *PAUSES):
        session.sleep(pause)
        try:
            run = session.load(run_id)
            if taken(run):
                return run
        except NotFound:
            pass
        _raise_refusal(session, message_id)
    return None


def _raise_refusal(session: Session, message_id: str) -> None:
    """What the control plane refused it keeps once, by the id of the message."""
    for event in translated(lambda: session.services.ledger.events("rejected")):
        if event.get("message_id") == message_id:
            raise BadRequest(str(event.get("field")), event.get("value"), str(event.get("reason")))


def _not_taken(message_id: str) -> None:
    typer.echo(
        f"error: message {message_id} was published but not accepted in {sum(PAUSES):g} s: "
        "is start_run deployed, and its subscription? (`lustrum doctor`)",
        err=True,
    )
    raise typer.Exit(FAILED)
