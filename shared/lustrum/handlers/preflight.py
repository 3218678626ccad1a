"""What can be checked before anything is billed: zones, earlier checkpoint, export bucket.

It only reads. What cannot be read, or could change, does not end a run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from lustrum.core import names, supervisor_jobs
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.failures import Failure
from lustrum.core.run_plan import RunPlan
from lustrum.doctor.expected_setup import LUSTRE_WRITERS, lustre_agent, lustre_grant, zone_lacks
from lustrum.wiring.services import Services

T = TypeVar("T")


@dataclass
class Ground:
    """What was found.

    Attributes:
        unfit: zone -> why no run can be held there.
        failure: class of what makes the run pointless wherever it is held, None if nothing does.
        why: that, as a sentence for the user.
    """

    unfit: dict[str, str] = field(default_factory=dict)
    failure: Failure | None = None
    why: str = ""


def look_ahead(services: Services, plan: RunPlan) -> Ground:
    """Check everything that a plan depends on."""
    problem = _resume_problem(services, plan) or _export_problem(services, plan)
    if problem is not None:
        return Ground(failure=problem[0], why=problem[1])
    return Ground(unfit=_unfit_zones(services, plan))


def _unfit_zones(services: Services, plan: RunPlan) -> dict[str, str]:
    """Lustre is not offered wherever the machines are."""
    machines = _zones(lambda: services.project.machine_zones(plan.machine))
    lustre = _zones(services.project.lustre_zones)
    offers = {plan.machine: machines, "Managed Lustre": lustre}
    known = {what: zones for what, zones in offers.items() if zones}
    return {zone: f"{zone} {lacks}" for zone in plan.zones if (lacks := zone_lacks(zone, known))}


def _zones(look: Callable[[], set[str]]) -> set[str]:
    """Return the zones among what is listed (regions may be, too), empty when unknown."""
    return {one for one in _known(look) or () if one.count("-") == 2}


def _resume_problem(services: Services, plan: RunPlan) -> tuple[Failure, str] | None:
    folder = plan.resume_from
    if folder is None or names.is_run_id(folder):  # start_run looked a run id up
        return None
    try:
        supervisor_jobs.newest_step_folder(
            plan.layout, (one.uri for one in services.storage.list(folder)), folder
        )
    except NotFound:
        return Failure.CONFIG, f"checkpoints.resume_from: there is no bucket of {folder}"
    except ServiceError as error:
        if error.failure is Failure.CONFIG and not error.retryable:
            return Failure.CONFIG, str(error)
    return None


def _export_problem(services: Services, plan: RunPlan) -> tuple[Failure, str] | None:
    """Managed Lustre writes the bucket as its own agent.

    If we found out only at export that it may not, hours of training would be lost.
    """
    if not plan.export_required:
        return None
    bucket = plan.export_bucket
    number = _known(services.project.number)
    if number is None:
        return None
    agent = lustre_agent(number)
    try:
        if _may_write(services.project.bucket_bindings(bucket), agent):
            return None
        if services.project.bucket_owner(bucket) != number:
            return None  # that project's policy may grant it
        if _may_write(services.project.project_bindings(), agent):
            return None
    except NotFound:
        return Failure.CONFIG, f"checkpoints.export_to: there is no bucket gs://{bucket}"
    except ServiceError:
        return None
    return Failure.ACCESS, (
        f"checkpoints.export_to: Managed Lustre may not write gs://{bucket}; run: "
        + lustre_grant(bucket, agent)
    )


def _may_write(bindings: set[tuple[str, str]], agent: str) -> bool:
    """Say whether the agent may hold the right; what a custom role holds is not known here."""
    roles = {role for role, member in bindings if member == agent}
    return any(role in LUSTRE_WRITERS or not role.startswith("roles/") for role in roles)


def _known(look: Callable[[], T]) -> T | None:
    try:
        return look()
    except ServiceError:
        return None
