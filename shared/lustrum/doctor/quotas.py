"""Whether a project's quotas hold what a plan needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lustrum.doctor.expected_setup import (
    NETWORK,
    NODE_QUOTAS,
    NODE_QUOTAS_TO_LOOK_AT,
    REGION_QUOTAS,
)
from lustrum.doctor.findings import Finding, Level, Options, finding, regions
from lustrum.doctor.project_questions import Quota


def accelerators(o: Options) -> Iterator[Finding]:
    """Check the quotas of the plan's GPUs and of its nodes' disks, region by region."""
    gpus = o.plan.nodes * o.plan.gpus_per_node
    spot = "PREEMPTIBLE_" if o.plan.capacity == "spot" else ""
    metric = f"{spot}{o.plan.accelerator.upper().replace('-', '_')}_GPUS"
    for region in regions(o.plan):
        quotas = o.probes.region_quotas(region)
        yield _quota(o, region, metric, gpus, quotas.get(metric), f"for {o.plan.nodes} nodes")
        for name, (wanted, why) in REGION_QUOTAS.items():
            yield _quota(o, region, name, wanted, quotas.get(name), why)
        for name, (each, why) in NODE_QUOTAS.items():
            yield _quota(o, region, name, each * o.plan.nodes, quotas.get(name), why)
        for name, (each, why) in NODE_QUOTAS_TO_LOOK_AT.items():
            if name in quotas:
                found = _quota(o, region, name, each * o.plan.nodes, quotas[name], why)
                yield replace(found, level=min(found.level, Level.NOTE, key=list(Level).index))


def lustre_capacity(o: Options) -> Iterator[Finding]:
    """Check the quota of Managed Lustre at the plan's throughput tier."""
    tier, wanted = o.plan.lustre_throughput, o.plan.lustre_capacity_gib
    values = [
        q for q in o.probes.service_quotas("lustre.googleapis.com") if q.is_lustre_tier(tier)
    ]
    for zone in o.plan.zones:
        check = f"Lustre quota {zone}"
        here = [q for q in values if q.applies(zone, NETWORK)]
        if not here:
            yield Finding(
                check,
                Level.NOTE,
                f"no quota of the {tier} MB/s per TiB tier is listed for it",
                f"look at {_quota_page(o.project)}",
            )
            continue
        # the value with most dimensions is the one that binds: it may be per network
        best = max(here, key=lambda q: len(q.dimensions))
        yield finding(
            check,
            best.limit < 0 or best.limit >= wanted,
            f"{_amount(best.limit)} GiB at {tier} MB/s per TiB, {wanted} needed",
            f"{_amount(best.limit)} GiB at {tier} MB/s per TiB, {wanted} needed",
            f"ask for {best.name} >= {wanted} ({zone}, network {NETWORK}):"
            f" {_quota_page(o.project)}",
        )


def _quota(
    o: Options, region: str, metric: str, wanted: float, quota: Quota | None, why: str
) -> Finding:
    check = f"{metric} {region}"
    page = _quota_page(o.project)
    if quota is None:
        return Finding(
            check,
            Level.FAIL,
            f"no such quota here, {wanted:g} needed {why}",
            f"ask for {metric} = {wanted:g} in {region}: {page}",
        )
    line = f"{quota.usage:g} of {quota.limit:g} used, {wanted:g} needed {why}"
    if quota.limit < wanted:
        return Finding(
            check, Level.FAIL, line, f"ask for {metric} = {wanted:g} in {region}: {page}"
        )
    if quota.limit - quota.usage < wanted:
        return Finding(
            check, Level.NOTE, line, "other machines use it now: a run waits, or ask for more"
        )
    return Finding(check, Level.OK, line)


def _quota_page(project: str) -> str:
    return f"https://console.cloud.google.com/iam-admin/quotas?project={project}"


def _amount(limit: float) -> str:
    return "no limit of" if limit < 0 else f"{limit:g}"
