"""`lustrum list`, `watch`, `report` and `dashboard`: what there is to see of runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import typer
from rich.table import Table

from lustrum.cli.session import FAILED, Session, console, run_argument, session_of, translated
from lustrum.core import names, queue
from lustrum.core.errors import NotFound
from lustrum.core.record import Outcome, Run, State
from lustrum.core.request import BadRequest
from lustrum.show.as_json import line_of, report_of
from lustrum.show.formatting import dollars, duration, moment
from lustrum.show.terminal_view import LiveView, View, follow, last_line
from lustrum.show.timeline import spent

LIST_WIDTH = 140  # characters at least
POLL = 2.0  # seconds between looks at the ledger


def list_runs(
    context: typer.Context,
    limit: int = typer.Option(20, "--limit", "-n", min=1, max=1000, help="How many."),
    live: bool = typer.Option(False, "--live", help="Only runs that are not over."),
    as_json: bool = typer.Option(False, "--json", help="One record a line, for machines."),
    html: str | None = typer.Option(
        None, "--html", metavar="FILE", help="Write a page of them to FILE; - for standard output."
    ),
) -> None:
    """List runs, newest first."""
    session = session_of(context)
    ledger = session.services.ledger
    found = translated(lambda: ledger.unfinished() if live else ledger.recent(limit))
    runs = sorted(found.runs, key=lambda run: -run.created_at)[:limit]
    for run_id, why in found.unreadable.items():
        typer.echo(f"{run_id}: {why}", err=True)
    if as_json:
        for run in runs:
            typer.echo(run.public_json())
        return
    out, now = console(), time.time()
    if html is not None:
        _write_list(session, runs, found.unreadable, html)
        return
    # A run id that is cut off is no use: rather a line that wraps.
    out.width = max(out.width, LIST_WIDTH)
    if not runs:
        out.print("no run is alive" if live else "no run yet: lustrum start FILE")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("RUN", "NAME", "STATE", "STEP", "ZONE", "AGE", "LASTED", "COST"):
        table.add_column(name, no_wrap=True)
    places = _places(session, found.runs, now)
    for run in runs:
        state = run.outcome or run.state
        step = run.checkpoint.step if run.checkpoint else 0
        table.add_row(
            run.run_id,
            run.plan.name,
            state,
            f"{step}/{run.plan.max_num_steps}",
            places.get(run.run_id) or (run.zones_tried[-1] if run.zones_tried else "-"),
            duration(now - run.created_at),
            duration((run.closed_at or now) - run.created_at),
            dollars(spent(run, now)),
        )
    out.print(table)


def _places(session: Session, runs: list[Run], now: float) -> dict[str, str]:
    """Return run id -> its place in the queue and by when it starts, of the runs that wait."""
    waiting = [run for run in runs if run.state is State.QUEUED]
    if not waiting:
        return {}
    ledger = session.services.ledger
    everyone = translated(ledger.unfinished).runs
    holders = translated(ledger.slot_holders)
    told = {}
    for run in waiting:
        found = queue.place_of(run, everyone, holders, session.settings, now)
        if found is not None:
            by = f", by {moment(found.start_by)}" if found.start_by else ""
            told[run.run_id] = f"{found.place}. for {found.region}{by}"
    return told


def watch(
    context: typer.Context,
    run: str = typer.Argument(..., metavar="RUN", help="The run's id."),
    as_json: bool = typer.Option(False, "--json", help="One object a line at each change."),
) -> None:
    """Follow a run to its end.

    Exits 0 only if it SUCCEEDED. Ctrl-C stops the watching, not the run.
    """
    follow_run(session_of(context), run_argument(run), as_json=as_json)


class JsonView:
    """Prints one JSON object at each change of a run."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last: dict[str, object] = {}

    def show(self, run: Run) -> None:
        """Print the run unless only time and money went on."""
        line = line_of(run, self._now())
        seen = {name: value for name, value in line.items() if name not in ("at", "spent_usd")}
        if seen != self._last:
            typer.echo(json.dumps(line))
        self._last = seen

    def note(self, text: str) -> None:
        """Say on standard error what is not of the run."""
        typer.echo(text, err=True)


def follow_run(session: Session, run_id: str, *, as_json: bool = False) -> None:
    """Follow a run, print its last line, and end with its outcome as exit code."""
    out = console()
    now = session.services.now

    def until_it_is_over(view: View) -> Run:
        return follow(lambda: session.load(run_id), view, now=now, sleep=session.sleep, poll=POLL)

    try:
        if as_json:
            run = until_it_is_over(JsonView(now))
        else:
            with LiveView(out, now) as view:
                run = until_it_is_over(view)
    except NotFound:
        raise BadRequest("run_id", run_id, "is not a run known here; see `lustrum list`") from None
    except KeyboardInterrupt:
        typer.echo(f"stopped watching; the run goes on: lustrum cancel {run_id} ends it", err=True)
        raise
    if not as_json:
        out.print(last_line(run, now()), markup=False)
    if run.outcome is not Outcome.SUCCEEDED:
        raise typer.Exit(FAILED)


def report(
    context: typer.Context,
    run: str = typer.Argument(..., metavar="RUN", help="The run's id."),
    output: str | None = typer.Option(
        None, "--output", "-o", metavar="FILE", help="File to write; - for standard output."
    ),
    open_: bool = typer.Option(False, "--open", help="Show the page in a browser."),
    as_json: bool = typer.Option(
        False, "--json", help="Print what the page is drawn from, and write none."
    ),
) -> None:
    """Write the report of a run as one HTML page.

    Of a run that is not over: the report so far. Its live page, which loads itself again, is in
    the report bucket.
    """
    if open_ and output == "-":
        raise BadRequest("--open", "-", "needs a file: leave out -o -")
    session = session_of(context)
    if as_json:
        typer.echo(json.dumps(report_of(session.known(run_argument(run)), session.services.now())))
        return
    page = _page(session, run_argument(run))
    _write_page(page, output or f"lustrum-{run}.html", "--output")
    if open_:
        path = Path(output or f"lustrum-{run}.html").resolve()
        if not session.open_page(path.as_uri()):
            typer.echo(f"no browser was found; open {path}", err=True)


def _write_page(page: str, output: str, option: str) -> None:
    if output == "-":
        typer.echo(page)
        return
    try:
        Path(output).write_text(page, encoding="utf-8")
    except OSError as error:
        raise BadRequest(option, output, str(error.strerror)) from None
    typer.echo(output)


def _write_list(
    session: Session, runs: Sequence[Run], unreadable: Mapping[str, str], output: str
) -> None:
    from lustrum.show.index import page_links, render_index

    links = page_links(runs, session.settings)
    _write_page(render_index(runs, session.services.now(), links, unreadable), output, "--html")


def _page(session: Session, run_id: str) -> str:
    services = session.services
    try:
        record = session.load(run_id)
    except NotFound:
        return _kept_page(session, run_id)
    from lustrum.show.report import render

    return render(record, translated(lambda: services.ledger.events(run_id)), services.now())


def _kept_page(session: Session, run_id: str) -> str:
    """The record is kept 31 days, the page in the bucket for longer."""
    unknown = BadRequest("run_id", run_id, "is not a run known here, and no report is kept")
    bucket = session.settings.report_bucket
    if not bucket:
        raise unknown
    try:
        return session.services.storage.read(
            names.report_folder(bucket, run_id) + "report.html"
        ).decode()
    except NotFound:
        raise unknown from None


def dashboard(
    context: typer.Context,
    run: str = typer.Argument(..., metavar="RUN", help="The run's id."),
    port: int = typer.Option(8265, "--port", min=0, max=65535, help="Local port; 0: a free one."),
) -> None:
    """Show the Ray dashboard of a run on this machine.

    It goes through the cluster's API server; nothing is opened in the cluster.
    """
    session = session_of(context)
    record = session.known(run_argument(run))
    if record.is_over:
        raise BadRequest(
            "run_id",
            run,
            f"is over ({record.outcome or record.state}): its cluster "
            "is gone; see `lustrum report`",
        )
    services = session.services
    try:
        cluster = translated(lambda: services.gke.find(run))
    except NotFound:
        raise BadRequest("run_id", run, f"has no cluster yet ({record.state})") from None
    if not cluster.endpoint:
        raise BadRequest("run_id", run, f"its cluster is {cluster.status}: no endpoint yet")
    from lustrum.adapters.dashboard import serve

    code = serve(cluster.endpoint, names.head_service(run), services.tokens, port, console())
    raise typer.Exit(code)
