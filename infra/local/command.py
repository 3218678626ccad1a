"""`lustrum-local`: the local stack that stays, and misfortunes for its runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import typer
from lustrum.core import names
from lustrum.core.errors import ServiceError
from lustrum.core.request import BadRequest, parse_request
from lustrum.show.formatting import duration

from infra.local import kept
from infra.local.kept import NotUp
from infra.local.strikes import NoTarget, Strikes

app = typer.Typer(
    name="lustrum-local",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=__doc__,
)
FAILED, BAD_INPUT = 1, 2
_RUN = typer.Argument(..., metavar="RUN", help="The run's id.")


@app.command()
def up() -> None:
    """Start the stack in the background; tell how to use it."""
    found, is_new = _told(lambda: kept.up(typer.echo))
    if not is_new:
        typer.echo(
            f"a stack is up already, since {_clock(found.began)} (process {found.pid}); "
            "end it: make down"
        )
    _say_use(found)


@app.command()
def down() -> None:
    """End the stack and everything it started."""
    found = _told(kept.down)
    if found is None:
        typer.echo("no local stack was up")
    else:
        typer.echo(f"down; what it wrote is in {found.root} until ten newer stacks were up")


@app.command()
def status(as_json: bool = typer.Option(False, "--json", help="For machines.")) -> None:
    """Show whether a stack is up, its runs, and what exists in its cloud.

    Exits 1 when none is up.
    """
    found = kept.current()
    if found is None:
        typer.echo("null" if as_json else "no local stack is up; start one: make up")
        raise typer.Exit(FAILED)
    strikes = Strikes(found)
    runs = _told(lambda: strikes.services.ledger.recent(20)).runs
    exists = strikes.inventory()
    slots = {slot.name: None for slot in strikes.services.settings.slots}
    slots |= strikes.services.ledger.slot_holders()  # type: ignore[arg-type]
    if as_json:
        about = {
            "pid": found.pid,
            "up_since": found.began,
            "root": found.root,
            "runs": {run.run_id: run.outcome or run.state for run in runs},
            "exists": exists,
            "slots": slots,
        }
        typer.echo(json.dumps(about))
        return
    typer.echo(
        f"up since {_clock(found.began)} ({duration(time.time() - found.began)}), process "
        f"{found.pid}, files in {found.root}"
    )
    for run in sorted(runs, key=lambda one: -one.created_at):
        typer.echo(f"  {run.run_id}  {run.outcome or run.state:17}  {run.plan.name}")
    held = [f"{name} {holder or 'free'}" for name, holder in sorted(slots.items())]
    typer.echo(f"slots:     {', '.join(held)}")
    left = [f"{kind} {', '.join(names)}" for kind, names in exists.items() if names]
    typer.echo(f"exists:    {'; '.join(left) or 'nothing'}")
    _say_use(found)


@app.command()
def env() -> None:
    """Print the environment for `eval "$(lustrum-local env)"`."""
    typer.echo(kept.exports(_told(kept.needed).env), nl=False)


@app.command()
def preempt(run: str = _RUN) -> None:
    """Take one of a run's GPU machines away, as Spot does."""
    _strike(lambda strikes: strikes.preempt(_run(run)))


@app.command()
def stockout(zone: str = typer.Argument(..., metavar="ZONE", help="Such as us-east1-b.")) -> None:
    """Let a zone have no GPU machine any more, until `lustrum-local heal`."""
    _strike(lambda strikes: strikes.stockout(zone))


@app.command()
def fill(
    run: str = _RUN,
    percent: str = typer.Argument(..., metavar="PERCENT", help="Such as 85%."),
) -> None:
    """Let a run's Lustre be so full; above 80 % and 95 % the alert comes as from Monitoring."""
    _strike(lambda strikes: strikes.fill(_run(run), _percent(percent)))


@app.command("kill-head")
def kill_head(run: str = _RUN) -> None:
    """Take the pod of a run's Ray head away."""
    _strike(lambda strikes: strikes.kill_head(_run(run)))


@app.command()
def stall(run: str = _RUN) -> None:
    """Stop a run's training process where it is: it is there, and makes no step."""
    _strike(lambda strikes: strikes.stall(_run(run)))


@app.command()
def heal() -> None:
    """Take back every stock-out."""
    _strike(lambda strikes: strikes.heal())


@app.command()
def reap() -> None:
    """Call reap_runs now, which else comes every 10 minutes."""
    _strike(lambda strikes: strikes.reap())


@app.command()
def tick(
    file: str = typer.Argument(..., metavar="FILE", help="The schedule's request."),
    schedule: str = typer.Option("local", help="Name of the schedule."),
    cron: str = typer.Option("* * * * *", help="Its times: a second tick of one is the same run."),
) -> None:
    """Send a cron tick, as Cloud Scheduler does."""

    def send(strikes: Strikes) -> str:
        try:
            data = Path(file).read_bytes()
        except OSError as error:
            raise BadRequest("FILE", file, str(error.strerror)) from None
        parse_request(data)
        attributes = {"schedule": schedule, "cron": cron}
        try:
            key = names.message_key(attributes, "", datetime.now().astimezone())
        except ValueError as error:
            raise BadRequest("--cron", cron, str(error)) from None
        message = strikes.tick(data, schedule, cron)
        return f"sent tick {key} as message {message}: lustrum watch {names.run_id(key)}"

    _strike(send)


@app.command()
def notifications() -> None:
    """Print what people were told, one JSON object a line."""
    _told(kept.needed)
    for one in kept.notifications():
        typer.echo(json.dumps(one))


def _strike(what: Callable[[Strikes], str]) -> None:
    typer.echo(_told(lambda: what(Strikes(kept.needed()))))


def _run(text: str) -> str:
    if not names.is_run_id(text):
        raise BadRequest("RUN", text, "must be a run id such as rl-4f0c2a9d31; see `lustrum list`")
    return text


def _percent(text: str) -> float:
    try:
        found = float(text.removesuffix("%").strip())
    except ValueError:
        found = -1.0
    if not 0 <= found <= 100:  # nan too
        raise BadRequest("PERCENT", text, "must be 0 to 100, such as 85%")
    return found


def _told(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except BadRequest as error:
        _fail(str(error), BAD_INPUT)
    except (NotUp, NoTarget, ServiceError) as error:
        _fail(str(error), FAILED)
    except httpx.HTTPError as error:
        _fail(f"the stack does not answer ({type(error).__name__}); see: make status", FAILED)


def _fail(text: str, code: int) -> None:
    typer.echo("error: " + " ".join(text.split()), err=True)
    raise typer.Exit(code)


def _say_use(found: kept.Kept) -> None:
    typer.echo(
        f"environment: source {kept.HOME / 'env'}\n"
        "then: lustrum start examples/requests/tiny.json --watch; lustrum list; "
        "lustrum-local --help"
    )


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%H:%M:%S")


if __name__ == "__main__":
    app()
