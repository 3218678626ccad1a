"""`lustrum show`: a run on one screen."""

from __future__ import annotations

import json

import typer

from lustrum.cli.session import console, run_argument, session_of
from lustrum.show.as_json import screen_of
from lustrum.show.next_steps import next_steps
from lustrum.show.terminal_view import last_line, panel


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
    if as_json:
        typer.echo(json.dumps(screen_of(record, now)))
        return
    out = console()
    out.print(panel(record, now))
    for line in next_steps(record):
        out.print(f"  {line}", markup=False)
    if record.is_over:
        out.print(last_line(record, now), markup=False)
