"""`lustrum init` and `lustrum upgrade`: a control plane made, and changed."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from lustrum import __version__
from lustrum.cli.doctor import doctor
from lustrum.cli.programs import Programs, Ran
from lustrum.cli.session import Session, console, session_of, translated
from lustrum.cli.setup_files import Done, config_folder, repository, write_private
from lustrum.core import setup_steps as steps
from lustrum.core.errors import ServiceError
from lustrum.core.failures import Failure
from lustrum.core.request import BadRequest
from lustrum.core.settings import Settings
from lustrum.core.setup_steps import Choices, Command, Step

WAIT = 60  # seconds between tries on a project in its first minutes
RELEASE = "https://api.github.com/repos/GoogleCloudPlatform/cluster-toolkit/releases/tags/"
BUNDLE = "gcluster_bundle_linux_amd64.zip"
YES = typer.Option(False, "--yes", "-y", help="Ask nothing; fail where an answer is needed.")
DRY = typer.Option(False, "--dry-run", help="Print the commands and run none.")


class Setup:
    """One set-up at work: runs steps, remembers them, shows how far it is."""

    def __init__(self, session: Session, project: str, fingerprint: str, what: str) -> None:
        folder = config_folder(session.env)
        if folder is None:
            raise BadRequest("HOME", None, "or XDG_CONFIG_HOME must be set: settings live there")
        self.session, self.project, self.out = session, project, console()
        self.environment_file = folder / "env.json"
        self.done = Done.read(folder / project / f"{what}.json", fingerprint)
        log = folder / project / f"{what}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        self.programs = Programs(repository(), session.env, log)
        self.number, self.of = 0, 0

    def begin(self, all_steps: Iterable[Step]) -> None:
        """Count the steps that are to come."""
        self.of += len(list(all_steps))

    def is_done(self, step: Step) -> bool:
        """Count a step, and say whether it was done before an interruption."""
        self.number += 1
        known = step.once and step.name in self.done.steps
        if known:
            self._line(step, "[dim]done before[/]")
        return known

    def ran(self, step: Step) -> list[str]:
        """Run the commands of a step. Raises ServiceError with what to do."""
        began = time.monotonic()
        with Console(stderr=True).status(f"{step.name}: {step.about}") as status:
            self.programs.on_line = lambda line: status.update(escape(f"{step.name}: {line[:70]}"))
            outputs = [self.command(step, one).out for one in step.commands]
        wrong = steps.complaint(step, outputs)
        if wrong:
            self.refuse(step, wrong, step.fix)
        self.finish(step, f"{time.monotonic() - began:.0f} s" if step.once else "")
        return outputs

    def command(self, step: Step, one: Command, stdin: str = "") -> Ran:
        """Run one command, again when a fresh project refuses it. Raises ServiceError."""
        for left in range(one.tries - 1, -1, -1):
            ran = self.programs.run(one, stdin)
            if ran.code == 0:
                return ran
            if not left or not steps.is_fresh_project(ran.err + ran.out):
                break
            self.out.print(f"      the project is not ready yet; again in {WAIT} s")
            self.session.sleep(WAIT)
        self.refuse(step, ran.reason, step.fix or f"see {self.programs.log}, then the same again")

    def finish(self, step: Step, note: str = "") -> None:
        """Tell of a step that is done, and remember it."""
        if step.once:
            self.done.add(step.name)
        self._line(step, note)

    def _line(self, step: Step, note: str) -> None:
        where = f"[dim]{self.number:2}/{self.of}[/]"
        about = escape(step.about)
        self.out.print(
            f"{where} [green]ok[/] {step.name:15} {about}" + (f"  {note}" if note else "")
        )

    def refuse(self, step: Step, why: str, fix: str) -> NoReturn:
        """Stop at a step. Raises ServiceError."""
        where = f"[dim]{self.number:2}/{self.of}[/]"
        self.out.print(f"{where} [red]no[/] {step.name:15} {escape(why)}")
        self.out.print(f"      [bold]fix:[/] {escape(fix)}")
        raise ServiceError(Failure.CONFIG, f"{step.name}: {why.rstrip('.')}")

    def write_environment(self, printed: str) -> None:
        """Write the file that every later command finds, and use it from here on."""
        found = {str(key): str(value) for key, value in json.loads(printed).items()}
        write_private(self.environment_file, json.dumps(found, indent=2) + "\n")
        self.session.env = {**self.session.env, **found}


def init(
    context: typer.Context,
    project: str | None = typer.Option(None, "--project", help="Default: LUSTRUM_PROJECT."),
    region: str | None = typer.Option(
        None, "--region", help="Of functions and builds; default: as before, else us-central1."
    ),
    alert_email: str = typer.Option(
        "", "--alert-email", help="Who is told when it needs a person."
    ),
    gcluster_sha256: str = typer.Option(
        "", "--gcluster-sha256", help="Digest of the pinned toolkit; default: its release page's."
    ),
    yes: bool = YES,
    dry_run: bool = DRY,
) -> None:
    """Make the control plane in a project, from checks to `doctor`.

    Interrupted, it goes on where it stopped. Tokens come from LUSTRUM_HF_TOKEN and
    LUSTRUM_WANDB_API_KEY, or are asked for; they are never printed and never given to Terraform.
    """
    session = session_of(context)
    project = project_argument(session, project)
    region = region or str(_before(repository(), project).get("region", steps.BUILD_REGIONS[0]))
    choices = Choices(project, region, alert_email=alert_email, gcluster_sha256=gcluster_sha256)
    all_steps = steps.init_steps(choices)
    if dry_run:
        return show_commands(all_steps)
    work = Setup(session, project, choices.fingerprint(__version__), "init")
    work.begin(all_steps)
    work.out.print(f"[bold]lustrum {__version__}[/] into project [bold]{escape(project)}[/]")
    if region not in steps.BUILD_REGIONS:
        work.out.print(
            f"note: many new projects may not build in {escape(region)}; see docs/deploy.md"
        )
    for step in all_steps:
        if work.is_done(step):
            continue
        if step.name == "permissions":
            _permissions(work, step, choices)
        elif step.name == "settings":
            choices = _settings(work, step, choices, yes)
        elif step.name == "tokens":
            choices = _tokens(work, step, choices, yes)
        elif step.name == "environment":
            work.write_environment(work.ran(step)[-1])
        elif step.name == "doctor":
            break
        else:
            outputs = work.ran(step)
            if step.name == "account":
                choices = dataclasses.replace(choices, submitter=_member(outputs[-1].strip()))
    work.done.forget()
    work.out.print(f"environment: {work.environment_file}")
    doctor(context, None, None, None, False)


def upgrade(context: typer.Context, yes: bool = YES, dry_run: bool = DRY) -> None:
    """Bring this release into the project, once you have seen it.

    A run under way keeps the scripts and the toolkit it was placed with.
    """
    session = session_of(context)
    project = project_argument(session, None)
    plan, apply = steps.upgrade_steps(project), steps.apply_plan()
    todo = (*plan, apply, steps.environment_step())
    if dry_run:
        return show_commands(todo)
    work = Setup(session, project, __version__, "upgrade")
    work.begin(todo)
    for step in plan:
        work.is_done(step)
        if step.name == "settings":
            region = session.env.get("LUSTRUM_REGION", steps.BUILD_REGIONS[0])
            _settings(work, step, Choices(project, region), yes)
        else:
            outputs = work.ran(step)
    changes = steps.summary(json.loads(outputs[-1]))
    counts: dict[tuple[str, str], int] = {}
    for what, kind, _ in changes:
        counts[what, kind] = counts.get((what, kind), 0) + 1
    for (what, kind), count in counts.items():
        work.out.print(f"      {what:8} {count:3} x {kind}")
    if not changes:
        work.out.print("      nothing changes")
    lost = steps.losses(changes)
    if lost:
        work.refuse(
            apply, f"would destroy {', '.join(lost)}", "take back what changed their names"
        )
    alive = translated(lambda: session.services.ledger.unfinished()).runs
    for run in alive:
        work.out.print(f"      {run.run_id} is {run.state} and stays on what made it")
    if changes and not yes and not typer.confirm("Apply this?"):
        raise typer.Exit(1)
    if changes:
        work.is_done(apply)
        work.ran(apply)
    last = steps.environment_step()
    work.is_done(last)
    work.write_environment(work.ran(last)[-1])
    doctor(context, None, None, None, False)


def project_argument(session: Session, given: str | None) -> str:
    """Return the project that is meant. Raises BadRequest."""
    project = given or session.env.get("LUSTRUM_PROJECT") or ""
    if not re.fullmatch(r"[a-z][a-z0-9-]{4,28}[a-z0-9]", project):
        reason = "must be a project id: 6 to 30 lower-case letters, digits and hyphens"
        raise BadRequest("--project" if given else "LUSTRUM_PROJECT", project or None, reason)
    return project


def show_commands(all_steps: Iterable[Step]) -> None:
    """Print what a dry run would have run."""
    for step in all_steps:
        typer.echo(f"# {step.name}: {step.about}".rstrip(": "))
        for one in step.commands:
            typer.echo(shlex.join(one.argv))


def _member(account: str) -> str:
    kind = "serviceAccount" if account.endswith(".gserviceaccount.com") else "user"
    return f"{kind}:{account}"


def _permissions(work: Setup, step: Step, choices: Choices) -> None:
    """Ask the project itself, for a role may be held through a group or a folder."""
    services = work.session.make_services(Settings(choices.project, choices.region))
    held = translated(lambda: services.project.held_permissions(sorted(steps.RIGHTS)))
    roles = steps.missing_rights(held)
    if roles:
        fix = "; ".join(
            f"gcloud projects add-iam-policy-binding {choices.project}"
            f" --member={choices.submitter} --role={role}"
            for role in roles
        )
        work.refuse(step, f"{choices.submitter} lacks {', '.join(roles)}", fix)
    work.finish(step)


def _settings(work: Setup, step: Step, choices: Choices, yes: bool) -> Choices:
    """Write the variables, unless the person keeps a file of their own."""
    folder = work.programs.root / steps.TERRAFORM
    own, ours = folder / "terraform.tfvars", folder / "terraform.tfvars.json"
    if own.exists():
        named = re.search(r'^\s*project\s*=\s*"([^"]*)"', own.read_text(), re.MULTILINE)
        if named is None or named[1] != choices.project:
            work.refuse(step, f"{own.name} is of another project", f"move {own} away")
        work.finish(step, "yours, kept")
        return choices
    before = _before(work.programs.root, choices.project)
    if ours.exists() and not before:
        work.refuse(step, f"{ours.name} is of another project", f"move {ours} away")
    # A digest belongs to a version: another one refuses every build, destroys among them.
    version, seen = _toolkit(work.programs.root), work.done.path.with_name("toolkit.json")
    known: dict[str, str] = json.loads(seen.read_text()) if seen.exists() else {}
    digest = choices.gcluster_sha256 or known.get(version) or _digest(work, step, version, yes)
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        work.refuse(step, "the toolkit's digest is not 64 hex digits", "--gcluster-sha256 DIGEST")
    write_private(seen, json.dumps({**known, version: digest}) + "\n")
    kept = tuple(before.get("secrets", ()))
    choices = dataclasses.replace(choices, gcluster_sha256=digest, secrets=kept)
    write_private(ours, json.dumps(choices.settings(before), indent=2) + "\n")
    work.finish(step)
    return choices


def _before(root: Path, project: str) -> dict[str, Any]:
    """Return the variables an earlier init wrote for the project."""
    path = root / steps.TERRAFORM / "terraform.tfvars.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found if found.get("project") == project else {}


def _toolkit(root: Path) -> str:
    """Return the toolkit's version that this release pins."""
    pins = (root / "infra/blueprint/steps/versions.sh").read_text()
    version = re.search(r"^GCLUSTER_VERSION=(\S+)", pins, re.MULTILINE)
    assert version is not None
    return version[1]


def _digest(work: Setup, step: Step, version: str, yes: bool) -> str:
    """Find the digest that the toolkit's release page shows, or ask for it."""
    ran = work.programs.run(Command(("curl", "-fsSL", "--max-time", "20", RELEASE + version)))
    try:
        for asset in json.loads(ran.out).get("assets", []):
            if asset.get("name") == BUNDLE and str(asset.get("digest")).startswith("sha256:"):
                return str(asset["digest"])[7:]
    except ValueError:
        pass
    if yes:
        work.refuse(
            step, f"the digest of {BUNDLE} {version} was not found", "--gcluster-sha256 DIGEST"
        )
    return str(typer.prompt(f"SHA-256 of {BUNDLE} {version} (its release page shows it)"))


def _tokens(work: Setup, step: Step, choices: Choices, yes: bool) -> Choices:
    """Put the tokens that are given into Secret Manager; those that are there stay."""
    given = set(choices.secrets)
    for variable, secret in steps.TOKENS.items():
        look, add = steps.token_commands(choices.project, secret, variable)
        value = work.session.env.get(variable, "")
        if not value and work.command(step, look).out.strip():
            given.add(variable)
            continue
        if not value and not yes:
            value = typer.prompt(
                f"{variable} (empty: none)", default="", hide_input=True, show_default=False
            )
        if value:
            work.command(step, add, value)
            given.add(variable)
    path = work.programs.root / steps.TERRAFORM / "terraform.tfvars.json"
    if path.exists():
        told = {**json.loads(path.read_text()), "secrets": sorted(given)}
        write_private(path, json.dumps(told, indent=2) + "\n")
    work.finish(step, f"{len(given)} with a value")
    return dataclasses.replace(choices, secrets=tuple(sorted(given)))
