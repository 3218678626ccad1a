"""What of a run is up and paid for: counted in its record, in place."""

from __future__ import annotations

from lustrum.core.cost import Usage
from lustrum.core.record import Run


def start_usage(run: Run, resource: str, now: float) -> None:
    """Begin to count what a resource costs, in place; no-op while it is counted."""
    if any(item.resource == resource and item.until is None for item in run.usage):
        return
    pieces, rate = run.plan.rates()[resource]
    run.usage = [*run.usage, Usage(resource=resource, pieces=pieces, rate=rate, since=now)]


def end_usage(run: Run, now: float, *resources: str) -> None:
    """End the counting of resources, in place; of all when none is named."""
    for item in run.usage:
        if item.until is None and (not resources or item.resource in resources):
            item.until = now
