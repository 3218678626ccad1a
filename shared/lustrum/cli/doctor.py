"""`lustrum doctor`: would a first run get through?"""

from __future__ import annotations

import dataclasses

import typer
from rich.console import Console

from lustrum.cli.session import console, read_start, session_of
from lustrum.core.plan import make_plan
from lustrum.core.request import BadRequest, StartRequest
from lustrum.show.preview import UNKNOWN, planned_id


def doctor(
    context: typer.Context,
    file: str | None = typer.Argument(
        None, metavar="[FILE]", help="The request to examine for; default: the original recipe."
    ),
    project: str | None = typer.Option(None, "--project", help="Default: LUSTRUM_PROJECT."),
    region: str | None = typer.Option(
        None, "--region", help="Of the control plane. Default: LUSTRUM_REGION."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print every finding as JSON."),
) -> None:
    """Examine a project: services, control plane, quotas, roles.

    Nothing is created or changed. Exits 1 if a first run would fail; each finding says how to
    fix it.
    """
    session = session_of(context)
    project = project or session.env.get("LUSTRUM_PROJECT")
    region = region or session.env.get("LUSTRUM_REGION")
    for name, value in (("project", project), ("region", region)):
        if not value:
            raise BadRequest(
                f"--{name}", value, f"must be given, or LUSTRUM_{name.upper()} be set"
            )
    assert project is not None and region is not None
    request = StartRequest() if file is None else read_start(file)
    settings = dataclasses.replace(session.settings_if_any, project=project, region=region)
    bucket = settings.export_bucket or UNKNOWN.export_bucket
    plan = make_plan(request, planned_id(request), bucket)

    from lustrum.doctor import checks as examination
    from lustrum.doctor.findings import Options

    services = session.make_services(settings)
    options = Options(project, region, plan, services.project, as_json)
    raise typer.Exit(examination.run(options, console() if as_json else Console(highlight=False)))
