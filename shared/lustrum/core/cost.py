"""What a run can cost at most, and what it did cost. US dollars, estimates from dated list
prices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from pydantic import BaseModel


class Extras(BaseModel):
    """What a run costs beside its machines and its file system: dollars per build-minute, hour of
    a machine behind the NAT gateway, GiB through it, GiB-month in the bucket.
    """

    build_minute: float = 0.0
    nat_vm_hour: float = 0.0
    nat_gib: float = 0.0
    storage_gib_month: float = 0.0
    hours_per_month: float = 730.0


@dataclass(frozen=True)
class Prices:
    """Dated list prices: dollars per node-hour, GiB-month of Lustre by tier, cluster-hour,
    build-minute, NAT hour and GiB, GiB-month in the bucket.
    """

    dated: str
    node_hour: Mapping[str, float]
    lustre_gib_month: Mapping[int, float]
    cluster_hour: float
    build_minute: float
    nat_vm_hour: float
    nat_gib: float
    storage_gib_month: float
    hours_per_month: float

    @property
    def extras(self) -> Extras:
        """What a plan keeps of them: a bill is made with the prices of its run's beginning."""
        return Extras(
            build_minute=self.build_minute,
            nat_vm_hour=self.nat_vm_hour,
            nat_gib=self.nat_gib,
            storage_gib_month=self.storage_gib_month,
            hours_per_month=self.hours_per_month,
        )

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


def prices() -> Prices:
    """Return the price list: the one given to `use_prices`, else the one shipped with Lustrum."""
    return _given[-1] if _given else shipped_prices()


@cache
def shipped_prices() -> Prices:
    """Return the price list shipped with Lustrum."""
    return read_prices((files("lustrum.core") / "prices.yaml").read_text(), {})


def use_prices(text: str | None) -> None:
    """Price everything from now on with a list of one's own, laid over the shipped one; None:
    with the shipped one again.

    Raises:
        ValueError: naming what is wrong with it.
    """
    _given[:] = [] if text is None else [read_prices(text, _shipped())]


def read_prices(text: str, base: Mapping[str, Any]) -> Prices:
    """Read a price list (YAML) over another one; it must say its own date.

    Raises:
        ValueError: naming the entry, the value and what is accepted.
    """
    try:
        raw = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"prices: is not YAML: {error}") from None
    if not isinstance(raw, dict) or not _DATE.fullmatch(str(raw.get("dated", ""))):
        raise ValueError("prices: dated: must be the day they were read, such as 2026-09-17")
    merged: dict[str, Any] = {**base, "dated": str(raw["dated"])}
    for name, value in raw.items():
        if name == "dated":
            continue
        if name not in Prices.__dataclass_fields__:
            known = ", ".join(Prices.__dataclass_fields__)
            raise ValueError(f"prices: {name}: is not a price; known are {known}")
        merged[name] = _checked(str(name), value, base.get(name))
    return Prices(**merged)


def _checked(name: str, value: object, base: object) -> object:
    if name in ("node_hour", "lustre_gib_month"):
        if not isinstance(value, dict):
            raise ValueError(f"prices: {name}: must be a table of prices")
        shipped = base if isinstance(base, Mapping) else {}
        return {**shipped, **{key: _price(f"{name}.{key}", one) for key, one in value.items()}}
    found = _price(name, value)
    if name == "hours_per_month" and found <= 0:
        raise ValueError(f"prices: {name}: {found:g}: must be above 0")
    return found


def _price(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e6:
        raise ValueError(f"prices: {name}: {value!r}: must be dollars, 0 or more")
    return float(value)


def _shipped() -> Mapping[str, Any]:
    return {name: getattr(shipped_prices(), name) for name in Prices.__dataclass_fields__}


_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_given: list[Prices] = []


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
