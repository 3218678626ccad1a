"""`lustrum logs`: a log of a run's training, from the Ray head or from where teardown kept it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import typer

from lustrum.adapters.ray_jobs import RayJobs
from lustrum.cli.session import Session, run_argument, session_of, translated
from lustrum.core import names
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.record import Run
from lustrum.core.request import BadRequest
from lustrum.head.names import EVENT_PREFIX
from lustrum.show.plain_log import unseen

POLL = 2.0  # seconds between looks while following
EVENT = EVENT_PREFIX + "{"  # begins a line that the supervisor writes for Lustrum
TAIL = 2000  # lines asked of a living head at once


def logs(
    context: typer.Context,
    run: str = typer.Argument(..., metavar="RUN", help="The run's id."),
    follow: bool = typer.Option(
        False, "--follow", "-f", help="Go on until the run is over, over new attempts too."
    ),
    attempt: int | None = typer.Option(
        None, "--attempt", "-a", min=1, help="Default: the newest, or all while following."
    ),
    lines: int = typer.Option(200, "--lines", "-n", min=1, max=TAIL, help="The last so many."),
    events: bool = typer.Option(
        False, "--events", help="Also what the supervisor tells Lustrum (lines `LUSTRUM {...}`)."
    ),
    as_json: bool = typer.Option(False, "--json", help="One object a line: attempt, line."),
) -> None:
    """Print the log of a run's training, also when all is gone.

    While the run's cluster lives the Ray head is asked; afterwards the report bucket, where
    teardown kept the last 20,000 lines of each attempt.
    """
    session = session_of(context)
    record = session.known(run_argument(run))
    _check_attempt(record, attempt)
    printer = _Printer(events, as_json)
    said: dict[int, list[str]] = {}
    newest = attempt or record.attempt
    found = _lines(session, record, newest) if newest else None
    if found is None and not follow:
        raise _nothing(session, record, newest)
    if found is not None:
        said[newest] = found
        printer(newest, printer.shown(found)[-lines:])
    while follow and not record.is_over:
        session.sleep(POLL)
        before = record
        record = session.load(run)
        first = attempt or max(1, before.attempt)
        for number in range(first, (attempt or record.attempt) + 1):
            found = _lines(session, record, number)
            if found is not None:
                printer(number, printer.shown(unseen(said.get(number, []), found)))
                said[number] = found


@dataclass(frozen=True)
class _Printer:
    """How lines are printed: with the supervisor's events or without, as JSON or as they are."""

    events: bool
    as_json: bool

    def shown(self, lines: Sequence[str]) -> list[str]:
        return [line for line in lines if self.events or not line.startswith(EVENT)]

    def __call__(self, attempt: int, lines: Sequence[str]) -> None:
        for line in lines:
            typer.echo(json.dumps({"attempt": attempt, "line": line}) if self.as_json else line)


def _check_attempt(record: Run, attempt: int | None) -> None:
    if attempt is not None and attempt > record.attempt:
        had = f"had attempts 1 to {record.attempt}" if record.attempt else "has had no attempt yet"
        raise BadRequest("--attempt", attempt, f"{record.run_id} {had}")


def _lines(session: Session, record: Run, attempt: int) -> list[str] | None:
    """Return the lines of an attempt's log, None while there is none anywhere.

    Raises:
        ServiceError: one that does not pass by waiting.
    """
    for source in (_living, _kept):
        text = source(session, record, attempt)
        if text:
            return text.splitlines()
    return None


def _living(session: Session, record: Run, attempt: int) -> str:
    """Ask the Ray head; empty when it is not there, or knows no such job."""
    if record.is_over or record.placement is None:
        return ""
    identity = names.submission_id(record.run_id, attempt)
    try:
        ray = translated(lambda: _head(session, record.run_id))
        job = ray.get(identity)
        return ray.tail(job, TAIL) or ray.logs(identity)
    except NotFound:
        return ""
    except ServiceError as error:
        if not error.retryable:
            raise
        return ""  # a head that is starting, or being taken down


def _head(session: Session, run_id: str) -> RayJobs:
    services = session.services
    return services.ray(services.kubernetes(run_id), run_id)


def _kept(session: Session, record: Run, attempt: int) -> str:
    """Read what teardown saved; empty when it saved nothing."""
    bucket = session.settings.report_bucket
    if not bucket:
        return ""
    uri = f"{names.report_folder(bucket, record.run_id)}"
    uri += f"{names.submission_id(record.run_id, attempt)}.log"
    try:
        return translated(lambda: session.services.storage.read(uri)).decode(errors="replace")
    except NotFound:
        return ""


def _nothing(session: Session, record: Run, attempt: int) -> BadRequest:
    if record.attempt == 0:
        ends = "and ended before" if record.is_over else f"({record.state}): wait with --follow"
        return BadRequest("RUN", record.run_id, f"has had no training yet {ends}")
    if record.is_over:
        return BadRequest(
            "RUN",
            record.run_id,
            f"no log of attempt {attempt} was kept: its head was gone before teardown; "
            f"see `lustrum report {record.run_id}`",
        )
    return BadRequest(
        "RUN", record.run_id, f"no log of attempt {attempt} yet ({record.state}): use --follow"
    )
