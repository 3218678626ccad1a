"""What a run can cost at most, and what it did cost. US dollars, estimates from dated list
prices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from pydantic import BaseModel


@dataclass(frozen=True)
class Prices:
    """Dated list prices: dollars per node-hour, GiB-month of Lustre by tier, cluster-hour,
    build-minute.
    """

    dated: str
    node_hour: Mapping[str, float]
    lustre_gib_month: Mapping[int, float]
    cluster_hour: float
    build_minute: float
    hours_per_month: float

    def node(self, machine: str, capacity: str) -> float:
        """Return dollars per hour of one node; ``capacity`` is spot, on-demand or a
        reservation's name.
        """
        kind = capacity if capacity in ("spot", "on-demand") else "reservation"
        try:
            return self.node_hour[f"{machine}/{kind}"]
        except KeyError:
            raise ValueError(
                f"prices.yaml has no price of {machine}/{kind}; add it: "
                "a run without a price is not bounded"
            ) from None

    def lustre(self, gib: int, tier: int) -> float:
        """Return dollars per hour of an instance of ``gib`` GiB at ``tier`` MB/s per TiB."""
        return gib * self.lustre_gib_month[tier] / self.hours_per_month


@cache
def prices() -> Prices:
    """Return the price list shipped with Lustrum."""
    raw: dict[str, Any] = yaml.safe_load((files("lustrum.core") / "prices.yaml").read_text())
    return Prices(**{**raw, "dated": str(raw["dated"])})


class Usage(BaseModel):
    """One billed thing over time: ``rate`` in dollars per hour per piece, times in epoch
    seconds.
    """

    resource: str
    pieces: float
    rate: float
    since: float
    until: float | None = None

    def dollars(self, now: float) -> float:
        """Return what it cost until ``now``, or until it ended."""
        end = now if self.until is None else self.until
        return max(0.0, end - self.since) / 3600 * self.rate * self.pieces


def bill(usage: Iterable[Usage], now: float) -> dict[str, float]:
    """Return dollars by resource, sum of resource-seconds times price."""
    total: dict[str, float] = {}
    for item in usage:
        total[item.resource] = total.get(item.resource, 0.0) + item.dollars(now)
    return total
