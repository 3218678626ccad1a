"""A run's GPUs in words and figures. Pure."""

from __future__ import annotations

from lustrum.core.gpu_use import paid_seconds
from lustrum.core.record import Run
from lustrum.show.formatting import duration


def gpu_line(run: Run) -> str:
    """Return the newest report on one line, "" while there is none."""
    newest = run.gpus.newest
    if newest is None:
        return ""
    parts = [f"{newest.count} on {newest.nodes} node{'' if newest.nodes == 1 else 's'}"]
    if newest.utilisation is not None:
        parts.append(f"{newest.utilisation:.0f} % busy")
    if newest.memory_percent is not None:
        parts.append(f"{newest.memory_percent:.0f} % of their memory")
    if newest.watts is not None:
        parts.append(f"{newest.watts / 1000:.1f} kW")
    if newest.idle_seconds >= 1:
        parts.append(f"idle for {duration(newest.idle_seconds)}")
    if newest.ecc:
        parts.append(f"{newest.ecc} ECC errors")
    return ", ".join([*parts, *newest.faults[:2]])


def gpu_facts(run: Run, at: float) -> list[tuple[str, str]]:
    """Return (name, value) rows for the report, none when no GPU was ever seen."""
    use = run.gpus
    newest, mean = use.newest, use.mean_percent
    if newest is None:
        return []
    paid = paid_seconds(run.usage, run.plan.gpus_per_node, at)
    share = f" ({100 * use.busy_seconds / paid:.0f} %)" if paid else ""
    rows = [
        ("GPU-seconds used", f"{use.busy_seconds:,.0f} of {paid:,.0f} paid{share}"),
        ("busy while training", "not measured" if mean is None else f"{mean:.0f} %"),
        ("last seen", gpu_line(run)),
        ("uncorrectable ECC errors", "not told" if newest.ecc is None else f"{newest.ecc}"),
        ("Xid errors", f"{newest.xid}"),
    ]
    return rows + [("reported", fault) for fault in newest.faults]
