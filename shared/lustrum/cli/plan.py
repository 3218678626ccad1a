"""`lustrum plan`: what a request would do."""

from __future__ import annotations

import shlex
import time

import typer
import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lustrum.cli.session import console, read_start, session_of
from lustrum.core import names, transport
from lustrum.core.reserve import extension_hours, planned_export, planned_rate
from lustrum.core.run_plan import RunPlan
from lustrum.core.settings import Settings
from lustrum.show.costs import planned_costs
from lustrum.show.formatting import dollars, duration
from lustrum.show.preview import UNKNOWN, Preview, Zone, planned_id, preview, readable


def plan(
    context: typer.Context,
    file: str = typer.Argument(..., metavar="FILE", help="A request, or - for standard input."),
    key: str | None = typer.Option(
        None, "--key", help="Idempotency key the request will be sent with: gives the real run id."
    ),
    as_json: bool = typer.Option(False, "--json", help="Everything, for machines."),
) -> None:
    """Show what a request would do; needs no cloud.

    Names, zones, blueprint variables, RayCluster, job command, limits and the worst-case cost.
    """
    request = read_start(file)
    settings = session_of(context).settings_if_any
    run_id = planned_id(request) if key is None else names.run_id("key:" + key)
    found = preview(request, run_id, settings, time.time())
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
        return
    show(found, settings, console(), "" if key else " (a placeholder: the message gives the id)")


def show(found: Preview, settings: Settings, out: Console, of_id: str) -> None:
    """Print a preview for people."""
    plan = found.plan
    out.print(f"[bold]{found.run_id}[/]{of_id}  {escape(plan.name)}, profile {plan.profile}")
    if plan.trainer is None:
        what = {"recipe": f"{plan.config or plan.script} ({plan.algorithm})"}
        how = {"cut": plan.parallel or "as the training does"}
    else:
        what = {"trainer": shlex.join(plan.trainer.command)}
        how = {"checkpoints": f"{plan.layout.pattern} ({plan.layout.name})"}
    _facts(
        out,
        "What",
        {
            "image": f"{plan.image}, Ray {plan.ray_version}",
            **what,
            "model": f"{plan.model}: {plan.model_gib:g} GiB, a checkpoint {plan.checkpoint_gib:g}"
            if plan.model_gib and plan.checkpoint_gib
            else plan.model or "the trainer's own",
            **how,
            "workers": f"{plan.nodes} x {plan.machine}, {plan.gpus_per_node} x {plan.accelerator} "
            f"each ({plan.gpus} in all), {plan.capacity}",
            "network": transport.told(plan.network, None)
            + (f", gIB {plan.gib}" if plan.network != transport.TCP else ""),
            "worker pod": f"{plan.gpus_per_node} GPU, {plan.worker.cpu} CPU, {plan.worker.memory}",
            "head pod": f"no GPU, {plan.head.cpu} CPU, {plan.head.memory}, on {plan.head.machine} "
            "on demand",
            "Lustre": f"{plan.lustre_capacity_gib} GiB at {plan.lustre_throughput} MB/s per TiB",
            "steps": f"{plan.max_num_steps}, saved every {plan.save_period}, "
            f"the newest {plan.keep} kept",
            "code": plan.code or "the image's own",
            "resumes from": plan.resume_from or "nothing",
            "export": f"{plan.export_to} "
            + (
                "(required: destroy waits for it until the hard deadline)"
                if plan.export_required
                else "(not required: best effort)"
            ),
        },
    )
    _facts(
        out,
        "Names",
        {
            **found.names,
            "labels": ", ".join(
                f"{key}={value}"
                for key, value in found.labels.items()
                if key != names.LABEL_EXPIRES
            ),
        },
    )
    _zones(found, settings, out)
    _facts(out, "Blueprint (build substitutions of the first zone)", found.blueprint)
    _text(out, "RayCluster", manifest_yaml(found))
    where = f", in {found.workdir}" if found.workdir else ""
    _text(out, f"Job command (an argument list{where})", readable(found.command))
    _facts(out, "Job environment (no secret; tokens are files in the pods)", found.environment)
    _text(out, "Supervisor entrypoint of the first attempt", found.train_entrypoint)
    _limits(found, out)
    _costs(found, out)


def manifest_yaml(found: Preview) -> str:
    """Return the RayCluster as YAML that `kubectl` takes, without anchors."""
    return yaml.dump(found.ray_cluster, Dumper=_Plain, sort_keys=False)


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def _limits(found: Preview, out: Console) -> None:
    plan, timing = found.plan, found.plan.timing
    _facts(
        out,
        "Limits",
        {
            "deadline": f"{plan.hours:g} h after the start: the training is stopped and exported",
            "hard deadline": f"{plan.hard_hours:g} h: everything is destroyed, exported or not",
            "export": _export(plan),
            "at the hard deadline": "an export under way gets up to "
            f"{extension_hours(plan):.3g} h more, once"
            if extension_hours(plan)
            else "destroyed, an export under way or not",
            "attempts": str(plan.attempts),
            "wait for accelerators": f"{plan.capacity_wait_minutes:g} min a zone",
            "idle GPUs": "told after 10 min"
            if plan.gpus_idle_minutes is None
            else f"end the run after {plan.gpus_idle_minutes:g} min",
            "cost": f"{dollars(plan.cost_limit)}, checked now: "
            f"worst case {dollars(plan.worst_cost)}",
            "a hang is": f"{duration(timing.stall)} without progress",
            "stages": f"build {duration(timing.build)}, head {duration(timing.head)}, "
            f"staging {duration(timing.stage)}",
        },
    )


def _export(plan: RunPlan) -> str:
    needed, grace = planned_export(plan), (plan.hard_hours - plan.hours) * 3600
    early = f"; the training is stopped {duration(needed - grace)} early" if needed > grace else ""
    if plan.checkpoint_gib is None:
        return f"of a size not known here, at {planned_rate(plan) / 1e9:.1f} GB/s"
    return (
        f"about {plan.checkpoint_gib:,.0f} GiB at {planned_rate(plan) / 1e9:.1f} GB/s: "
        f"{duration(needed)} with stopping and checking{early}"
    )


def _zones(found: Preview, settings: Settings, out: Console) -> None:
    if settings is UNKNOWN or not settings.slots:
        known = {zone.zone: "network slots are not known here" for zone in found.zones}
    else:
        known = {
            zone.zone: _passed_over(found.plan, zone)
            or f"slots {', '.join(zone.slots)}; "
            + transport.told(found.plan.network, zone.rdma_network)
            for zone in found.zones
        }
    _facts(out, "Zones, in the order of trying", known)


def _passed_over(plan: RunPlan, zone: Zone) -> str:
    lacks = "network slot in its region" if not zone.slots else ""
    if not lacks and plan.network == transport.RDMA and not zone.rdma_network:
        lacks = "RDMA network"
    return f"no {lacks}: it will be passed over" if lacks else ""


def _costs(found: Preview, out: Console) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("  resource", "pieces", "each", "hours", "worst case"):
        table.add_column(name, justify="left" if name == "  resource" else "right")
    for one in found.costs:
        priced = one.hours > 0
        table.add_row(
            f"  {one.resource}",
            f"{one.pieces:g}" if priced else "",
            f"{dollars(one.rate)}/h" if priced else "",
            f"{one.hours:g}" if priced else "",
            dollars(one.worst),
        )
    table.add_row(
        "  together",
        "",
        f"{dollars(found.hourly_cost)}/h",
        "",
        dollars(found.worst_cost),
        style="bold",
    )
    out.print(f"\n[bold]Worst-case cost[/] (estimate, list prices of {found.prices_dated})")
    out.print(table)
    for line in planned_costs(found.plan):
        out.print(f"  {line}", highlight=False)


def _facts(out: Console, title: str, facts: dict[str, str]) -> None:
    out.print(f"\n[bold]{escape(title)}[/]")
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        out.print(f"  [dim]{escape(name):{width}}[/]  {escape(value or '(empty)')}")


def _text(out: Console, title: str, body: str) -> None:
    out.print(f"\n[bold]{escape(title)}[/]")
    for line in body.rstrip().splitlines():
        out.print("  " + line, markup=False)
