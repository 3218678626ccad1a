"""What a failed deploy build was about."""

from __future__ import annotations

from lustrum.core import names
from lustrum.core.failures import Failure, classify_text, named
from lustrum.core.plain_text import shorten
from lustrum.core.record import Run
from lustrum.wiring.services import Services


def build_failure(services: Services, run: Run, error: str) -> tuple[Failure, str]:
    """Return the class and sentence of the newest deploy build of the present zone attempt.

    The build's own machine-readable result decides; else its status; else the text of the
    workflow's error.
    """
    assert run.placement is not None, "a build belongs to a zone attempt"
    tag = names.build_tag(run.run_id, "deploy", run.placement.zone_attempt)
    builds = [one for one in services.builds.tagged(tag) if not one.is_duplicate]
    if not builds:
        return classify_text(error, Failure.BUILD_ERROR), error or "the build was never started"
    build = next((one for one in builds if one.output), builds[0])
    failure = named(build.output.get("class"))
    if failure is not None:
        return failure, shorten(str(build.output.get("message") or failure))
    if build.is_live or build.status in ("TIMEOUT", "EXPIRED"):
        # What a zone has is made in minutes; what takes hours is not coming.
        return Failure.STOCKOUT, f"the build reached its time limit ({build.status})"
    text = build.detail or error
    return classify_text(text, Failure.BUILD_ERROR), shorten(
        f"build {build.build_id} ended {build.status}: {text}"
    )
