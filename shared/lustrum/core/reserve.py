"""How long the export of a checkpoint takes, and when the training must end for it to fit. Pure.

The rate is what this run's own exports and saves showed; before that a quarter of what the file
system offers: an export is at most as fast as the instance (Managed Lustre, "transfer data").
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from lustrum.core.request import BadRequest

if TYPE_CHECKING:
    from lustrum.core.record import Run
    from lustrum.core.run_plan import RunPlan

SHARE = 0.25  # of the instance's throughput, before anything was measured
MARGIN = 1.5
POLLS = 20  # of stopping the job, releasing the accelerators, listing and verifying
GIB = 2**30
EXPORT_GRACE_HOURS = 1.0  # after the deadline: export only, GPUs are gone


def planned_rate(plan: RunPlan) -> float:
    """Return bytes per second that an export is expected to reach."""
    return plan.lustre_capacity_gib / 1024 * plan.lustre_throughput * 1e6 * SHARE


def planned_export(plan: RunPlan) -> float:
    """Return the seconds that the export of one checkpoint is expected to take, with all that
    surrounds it.
    """
    return _seconds(plan, (plan.checkpoint_gib or 0) * GIB, planned_rate(plan))


def export_faults(plan: RunPlan) -> list[BadRequest]:
    """Say what is wrong with a run whose export needs all of its time, [] if nothing is."""
    needed = planned_export(plan) / 3600
    if needed < plan.hard_hours:
        return []
    return [
        BadRequest(
            "limits.hours",
            plan.hours,
            f"leaves no time to train: the export of about {plan.checkpoint_gib or 0:,.0f} GiB "
            f"takes about {needed:.1f} h at {planned_rate(plan) / 1e9:.1f} GB/s, and all must be "
            f"over {plan.hard_hours:g} h after the start; raise it above "
            f"{needed - EXPORT_GRACE_HOURS:.1f}, or give a faster lustre tier",
        )
    ]


def export_rate(run: Run) -> float:
    """Return bytes per second, as this run's own exports showed; else its saves, at most what is
    expected.
    """
    exports = [
        one.bytes / (one.verified_at - one.started_at)
        for one in (run.export, run.secured)
        if one is not None
        and one.verified_at is not None
        and one.bytes
        and one.verified_at > one.started_at
    ]
    if exports:
        return min(exports)
    writes = [one.bytes / one.seconds for one in run.saves if one.bytes and one.seconds]
    return min([planned_rate(run.plan), *([median(writes)] if writes else [])])


def export_seconds(run: Run) -> float:
    """Return the seconds that the export of this run's next checkpoint will take."""
    known = [one.bytes for one in (*run.saves, run.checkpoint) if one is not None and one.bytes]
    return _seconds(
        run.plan, max(known, default=(run.plan.checkpoint_gib or 0) * GIB), export_rate(run)
    )


def stop_at(run: Run) -> float:
    """Return when the training must end, epoch seconds: at the deadline, or earlier when its
    export would not fit before the hard deadline. Without a checkpoint there is none to fit.
    """
    if run.checkpoint is None or run.checkpoint.step == 0:
        return run.deadline_at
    return min(run.deadline_at, run.hard_deadline_at - export_seconds(run))


def extension_hours(plan: RunPlan) -> float:
    """Return the hours that an export under way at the hard deadline may get, once: what the
    request's cap in hours and its cap in money both allow.
    """
    if plan.at_deadline != "extend_once":
        return 0.0
    price = waiting_price(plan)
    return min(plan.extend_hours, plan.extend_cost / price) if price else plan.extend_hours


def waiting_price(plan: RunPlan) -> float:
    """Return dollars per hour of an export: the file system and the head, without accelerators."""
    return sum(
        pieces * rate for name, (pieces, rate) in plan.rates().items() if name != "accelerators"
    )


def _seconds(plan: RunPlan, size: float, rate: float) -> float:
    return size / rate * MARGIN + POLLS * plan.timing.poll
