"""What a run's GPUs did: the supervisor's reports of them, brought into the record. Pure.

Used GPU-seconds are utilisation times time, added up on the Ray head; paid ones are those of the
nodes, from their creation to their deletion. The distance between the two is what a run wasted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError

from lustrum.core.cost import Usage
from lustrum.core.plain_text import plain

Percent = Annotated[float, Field(ge=0, le=100)]
Seconds = Annotated[float, Field(ge=0, le=1e12)]
Count = Annotated[int, Field(ge=0, le=10**9)]


def _bounded(value: object) -> object:
    if not isinstance(value, list):
        return value
    return [plain(str(one)[:200])[:100] for one in value[:8]]


class GpuReport(BaseModel):
    """What one heartbeat says of all GPUs: percent, watts, errors and seconds.

    ``utilisation`` is the mean since the heartbeat before, ``lowest`` the least busy GPU's last
    reading; ``ecc`` counts uncorrectable errors, ``xid`` NVIDIA's driver errors. ``busy_seconds``
    and ``seen_seconds`` (GPU-seconds) count from the attempt's beginning.
    """

    count: Annotated[int, Field(ge=1, le=100_000)]
    nodes: Count = 1
    utilisation: Percent | None = None
    lowest: Percent | None = None
    memory_percent: Percent | None = None
    watts: Seconds | None = None
    ecc: Count | None = None
    xid: Count = 0
    busy_seconds: Seconds = 0
    seen_seconds: Seconds = 0
    idle_seconds: Seconds = 0
    faults: Annotated[list[str], BeforeValidator(_bounded)] = Field(default_factory=list)


def readable(value: object) -> object:
    """Return a report, None for one that cannot be believed: the rest of its event counts."""
    try:
        return _REPORT.validate_python(value)
    except (ValidationError, RecursionError):
        return None


_REPORT: TypeAdapter[GpuReport | None] = TypeAdapter(GpuReport | None)


class GpuUse(BaseModel):
    """The newest report of a run's GPUs, and the GPU-seconds of each attempt so far."""

    at: float = 0
    attempt: int = 0
    newest: GpuReport | None = None
    busy: dict[int, float] = Field(default_factory=dict)
    seen: dict[int, float] = Field(default_factory=dict)

    @property
    def busy_seconds(self) -> float:
        """GPU-seconds in which a kernel ran, over all attempts."""
        return sum(self.busy.values())

    @property
    def mean_percent(self) -> float | None:
        """Utilisation over all that was seen, None when nothing was."""
        seen = sum(self.seen.values())
        return 100 * self.busy_seconds / seen if seen else None


def with_report(use: GpuUse, report: GpuReport, attempt: int, at: float) -> GpuUse:
    """Bring a report in; the result is the same in whatever order they come, however often."""
    busy = {**use.busy, attempt: max(use.busy.get(attempt, 0.0), report.busy_seconds)}
    seen = {**use.seen, attempt: max(use.seen.get(attempt, 0.0), report.seen_seconds)}
    known = (use.attempt, use.newest.seen_seconds if use.newest else -1.0, use.at)
    if (attempt, report.seen_seconds, at) <= known:
        return use.model_copy(update={"busy": busy, "seen": seen})
    return GpuUse(at=at, attempt=attempt, newest=report, busy=busy, seen=seen)


def paid_seconds(usage: Iterable[Usage], gpus_per_node: int, now: float) -> float:
    """Return the GPU-seconds that were billed until ``now`` (epoch seconds)."""
    return sum(
        max(0.0, (now if item.until is None else item.until) - item.since)
        * item.pieces
        * gpus_per_node
        for item in usage
        if item.resource == "accelerators"
    )
