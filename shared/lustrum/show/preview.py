"""What a request would do, before anything is created. Pure: `lustrum plan` prints it.

Everything comes from the functions that the control plane itself uses, so that what is shown is
what would be done.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from lustrum.core import kubernetes_objects, names, supervisor_jobs
from lustrum.core.build_substitutions import (
    blueprint_variables,
    next_zone,
    rdma_network,
    slot_variables,
)
from lustrum.core.plan import make_plan, worst_costs
from lustrum.core.record import Run
from lustrum.core.record_parts import Placement
from lustrum.core.request import StartRequest
from lustrum.core.reserve import EXPORT_GRACE_HOURS
from lustrum.core.run_plan import RunPlan
from lustrum.core.settings import Settings
from lustrum.core.training_command import entrypoint

# Stands where only the control plane knows the value.
UNKNOWN = Settings(project="PROJECT", region="REGION", export_bucket="EXPORT_BUCKET")


class Zone(BaseModel):
    """A zone in the order of trying, and the network slots of its region, when known."""

    zone: str
    slots: list[str]
    rdma_network: str = ""  # empty: the GPU nodes talk over TCP there


class Cost(BaseModel):
    """One resource at its worst: pieces, dollars per hour each, hours, dollars."""

    resource: str
    pieces: float
    rate: float
    hours: float
    worst: float


class Preview(BaseModel):
    """All that a request would do."""

    run_id: str
    plan: RunPlan
    names: dict[str, str]
    labels: dict[str, str]
    zones: list[Zone]
    blueprint: dict[str, str]
    ray_cluster: dict[str, Any]
    workdir: str | None
    command: list[str]
    environment: dict[str, str]
    stage_entrypoint: str
    train_entrypoint: str
    limits: dict[str, float | None]
    costs: list[Cost]
    hourly_cost: float
    worst_cost: float
    cost_limit: float
    prices_dated: str


def preview(
    request: StartRequest, run_id: str, settings: Settings = UNKNOWN, now: float = 0
) -> Preview:
    """Return what a request would do.

    Args:
        request: what was asked.
        run_id: the run's id, or a stand-in (`planned_id`).
        settings: of the control plane, when known.
        now: epoch seconds, when the run would begin; its labels follow from it.

    Raises:
        BadRequest: the request cannot become a run.
    """
    plan = make_plan(request, run_id, settings.export_bucket or UNKNOWN.export_bucket)
    expires = now + plan.hard_hours * 3600
    run = Run(
        run_id=run_id,
        key="plan",
        request=request,
        plan=plan,
        created_at=now,
        deadline_at=now + plan.hours * 3600,
        hard_deadline_at=expires,
    )
    zone = next_zone(run, settings) or plan.zones[0]  # no network may be known here
    rdma = rdma_network(plan, zone, settings)
    run.placement = Placement(zone_attempt=1, zone=zone, slot="", since=now, rdma_network=rdma)
    train_spec = supervisor_jobs.train_spec(run, settings, 1, now)
    return Preview(
        run_id=run_id,
        plan=plan,
        names=_names(plan),
        labels=names.labels(run_id, expires),
        zones=[_zone(plan, zone, settings) for zone in plan.zones],
        blueprint=_blueprint(plan, settings, expires, zone),
        ray_cluster=kubernetes_objects.ray_cluster(plan, expires, plan.nodes, bool(rdma)),
        workdir=supervisor_jobs.workdir(plan),
        command=train_spec["command"],
        environment=supervisor_jobs.submission(run, "train", train_spec)[1],
        stage_entrypoint=entrypoint("stage", supervisor_jobs.stage_spec(run, settings, None)),
        train_entrypoint=entrypoint("train", train_spec),
        limits={
            "hours": plan.hours,
            "hard_hours": plan.hard_hours,
            "attempts": plan.attempts,
            "capacity_wait_minutes": plan.capacity_wait_minutes,
            "gpus_idle_minutes": plan.gpus_idle_minutes,
            "cost_usd": plan.cost_limit,
            "stall_seconds": plan.timing.stall,
        },
        costs=_costs(plan),
        hourly_cost=plan.hourly_cost,
        worst_cost=plan.worst_cost,
        cost_limit=plan.cost_limit,
        prices_dated=plan.prices_dated,
    )


def planned_id(request: StartRequest) -> str:
    """Return a stand-in for the run id, which only a message gives: the same for the same
    request.
    """
    text = json.dumps(request.model_dump(mode="json", exclude_unset=True), sort_keys=True)
    return names.run_id("plan:" + text)


def readable(command: list[str]) -> str:
    """Write a command as a shell would take it, one argument a line after the program."""
    parts = [shlex.quote(part) for part in command]
    first = next(
        (index for index, part in enumerate(command) if part.startswith("--") or "=" in part),
        len(parts),
    )
    lines = [" ".join(parts[:first])]
    rest = iter(parts[first:])
    for part in rest:
        lines.append(f"  {part} {next(rest, '')}".rstrip() if part == "--config" else f"  {part}")
    return " \\\n".join(lines)


def _names(plan: RunPlan) -> Mapping[str, str]:
    run = plan.run_id
    return {
        "deployment, cluster, Lustre instance, RayCluster": run,
        "head service": names.head_service(run),
        "namespace": names.NAMESPACE,
        "volume claim": names.CLAIM,
        "Kubernetes account": names.JOB_ACCOUNT,
        "tokens (Secret, as files)": names.TOKENS_SECRET,
        "job files (ConfigMap)": names.JOB_CONFIG,
        "GPU node pool": names.GPU_POOL,
        "staging job": names.stage_id(run, 1),
        "first training job": names.submission_id(run, 1),
        "deploy build tag": names.build_tag(run, "deploy", 1),
        "checkpoints": plan.checkpoint_dir,
        "logs": plan.log_dir,
        "export": plan.export_to,
    }


def _zone(plan: RunPlan, zone: str, settings: Settings) -> Zone:
    region = names.region_of(zone)
    return Zone(
        zone=zone,
        slots=[one.name for one in settings.slots if one.region == region],
        rdma_network=rdma_network(plan, zone, settings),
    )


def _blueprint(plan: RunPlan, settings: Settings, expires: float, zone: str) -> dict[str, str]:
    """The substitutions of the first deploy build; a slot's only when slots are known."""
    slots = {one.region: one for one in reversed(settings.slots)}
    slot = slots.get(names.region_of(zone))
    rdma = rdma_network(plan, zone, settings)
    return {
        "_ACTION": "deploy",
        "_ZONE_ATTEMPT": "1",
        "_PROJECT": settings.project,
        "_EXPIRES": str(int(expires)),
        **blueprint_variables(plan, zone),
        **({} if slot is None else slot_variables(slot)),
        **({"_RDMA_NETWORK": rdma} if rdma else {}),
    }


def _costs(plan: RunPlan) -> list[Cost]:
    rates = plan.rates()
    found = []
    for name, worst in worst_costs(plan, plan.hours).items():
        pieces, rate = rates.get(name, (1, 0.0))
        hours = plan.hours + (0 if name == "accelerators" else EXPORT_GRACE_HOURS)
        found.append(
            Cost(
                resource=name,
                pieces=pieces,
                rate=rate,
                hours=hours if name in rates else 0,
                worst=round(worst, 2),
            )
        )
    return found
