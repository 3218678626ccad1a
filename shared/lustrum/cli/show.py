"""`lustrum show`: a run on one screen."""

from __future__ import annotations

import json

import typer

from lustrum.cli.session import console, run_argument, session_of
from lustrum.show.next_steps import next_steps
from lustrum.show.terminal_view import last_line, panel
from lustrum.show.timeline import spent
from lustrum.show.waiting import waiting


def show(
    context: typer.Context,
    run: str = typer.Argument(..., metavar="RUN", help="The run's id."),
    as_json: bool = typer.Option(False, "--json", help="The record and what is reckoned of it."),
) -> None:
    """Show a run on one screen.

    State, what it waits for, steps, saves, cost, and the commands that make sense now.
    """
    session = session_of(context)
    record = session.known(run_argument(run))
    now = session.services.now()
    waits = waiting(record)
    if as_json:
        found = json.loads(record.public_json())
        found["spent_usd"] = round(spent(record, now), 2)
        found["waits_for"] = None if waits is None else waits.sentence(now)
        found["next_steps"] = next_steps(record)
        typer.echo(json.dumps(found))
        return
    out = console()
    out.print(panel(record, now))
    for line in next_steps(record):
        out.print(f"  {line}", markup=False)
    if record.is_over:
        out.print(last_line(record, now), markup=False)
