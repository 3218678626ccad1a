"""`lustrum uninstall`: back to nothing, or to the data alone."""

from __future__ import annotations

import typer
from rich.markup import escape

from lustrum import __version__
from lustrum.cli.session import session_of, translated
from lustrum.cli.setup import DRY, YES, Setup, project_argument, show_commands
from lustrum.core import setup_steps as steps
from lustrum.core.errors import ServiceError
from lustrum.core.failures import Failure
from lustrum.core.request import BadRequest
from lustrum.core.setup_steps import Command, Step


def uninstall(
    context: typer.Context,
    data: bool = typer.Option(
        False, "--data", help="Also exported checkpoints, reports and Terraform's state."
    ),
    yes: bool = YES,
    dry_run: bool = DRY,
) -> None:
    """Take the control plane away, unless a run lives."""
    session = session_of(context)
    project = project_argument(session, None)
    region = session.env.get("LUSTRUM_REGION", steps.BUILD_REGIONS[0])
    todo, looks = steps.uninstall_steps(project, region, data), steps.leftovers(project)
    if dry_run:
        return show_commands((*looks[:2], *todo, *looks))
    work = Setup(session, project, f"{__version__} data={data}", "uninstall")
    work.begin(todo)
    if "begun" not in work.done.steps:
        _refuse_live(work)
        what = "the control plane AND ALL DATA" if data else "the control plane"
        if not yes and typer.prompt(f"Destroys {what}. Type the project's name") != project:
            raise BadRequest("project", project, "was not what you typed; nothing was destroyed")
        work.done.add("begun")
    for step in todo:
        if work.is_done(step):
            continue
        if step.name == "destroy" and not data:
            _destroy_all_but_data(work, step)
        else:
            work.ran(step)
    remains = _inventory(work)
    expected = set() if data else {"buckets", "secrets"}
    if set(remains) - expected:
        raise ServiceError(
            Failure.CONFIG,
            f"left: {', '.join(sorted(set(remains) - expected))}; see docs/deploy.md",
        )
    work.environment_file.unlink(missing_ok=True)
    work.done.forget()
    work.out.print("[green]nothing is left[/]" if data else "[green]only your data is left[/]")


def _refuse_live(work: Setup) -> None:
    step = Step("no run lives", "")
    found = translated(lambda: work.session.services.ledger.unfinished())
    alive = [f"{run.run_id} is {run.state}" for run in found.runs] + sorted(found.unreadable)
    if alive:
        fix = "lustrum cancel RUN, wait until `lustrum list --live` is empty, then the same again"
        work.refuse(step, "; ".join(alive), fix)
    for look in steps.leftovers(work.project):
        if look.name in steps.LIVE:
            names = work.command(step, look.commands[0]).out.split()
            if names:
                work.refuse(
                    step, f"{look.name}: {', '.join(names)}", "delete them, or await the reaper"
                )


def _destroy_all_but_data(work: Setup, step: Step) -> None:
    """Destroy; Terraform stops at buckets that hold data, which is what was asked for."""
    ran = work.programs.run(step.commands[0])
    if ran.code:
        listed = Command(("terraform", f"-chdir={steps.TERRAFORM}", "state", "list"))
        if not steps.is_data_alone(work.command(step, listed).out):
            work.refuse(
                step, ran.reason, "docs/deploy.md, what may fail to delete; then the same again"
            )
    work.finish(step)


def _inventory(work: Setup) -> dict[str, list[str]]:
    """Print what is there of each kind and return what is not empty."""
    remains = {}
    for look in steps.leftovers(work.project):
        names = work.command(look, look.commands[0]).out.split()
        work.out.print(f"      {look.name:17} {escape(', '.join(names)) or 'none'}")
        if names:
            remains[look.name] = names
    return remains
