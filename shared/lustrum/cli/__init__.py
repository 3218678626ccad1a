"""The `lustrum` command."""

from __future__ import annotations

import typer

from lustrum import __version__
from lustrum.cli import doctor, logs, messages, plan, setup, show, uninstall, watch
from lustrum.cli.session import Commands, read_environment

app = typer.Typer(
    cls=Commands,
    name="lustrum",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="RL training runs on Google Cloud that leave nothing behind.",
    epilog="Example: lustrum plan examples/requests/original.json",
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"lustrum {__version__}")
        raise typer.Exit(0)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: bool = typer.Option(
        False,
        "--version",
        callback=_print_version,
        is_eager=True,
        help="Print the version and exit.",
    ),
    env: str | None = typer.Option(
        None,
        "--env",
        metavar="FILE",
        help="JSON object of LUSTRUM_* variables, as `terraform output -json environment` "
        "prints it; what is in the environment wins.",
    ),
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(0)
    read_environment(context, env)


def _add(name: str, command: object, example: str) -> None:
    app.command(name, epilog=f"Example: {example}")(command)  # type: ignore[type-var]


_add("plan", plan.plan, "lustrum plan examples/requests/original.json")
_add("start", messages.start, "lustrum start request.json --code . --watch")
_add("list", watch.list_runs, "lustrum list --limit 5")
_add("watch", watch.watch, "lustrum watch rl-4f0c2a9d31")
_add("show", show.show, "lustrum show rl-4f0c2a9d31")
_add("logs", logs.logs, "lustrum logs rl-4f0c2a9d31 --follow")
_add("cancel", messages.cancel, "lustrum cancel rl-4f0c2a9d31")
_add("extend", messages.extend, "lustrum extend rl-4f0c2a9d31 2")
_add("report", watch.report, "lustrum report rl-4f0c2a9d31 -o report.html")
_add("doctor", doctor.doctor, "lustrum doctor --project my-project --region us-east1")
_add("init", setup.init, "lustrum init --project my-project")
_add("upgrade", setup.upgrade, "lustrum upgrade")
_add("uninstall", uninstall.uninstall, "lustrum uninstall --data")
_add("dashboard", watch.dashboard, "lustrum dashboard rl-4f0c2a9d31")


def main() -> None:
    """Run the command line."""
    app()
