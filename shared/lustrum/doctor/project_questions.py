"""What `lustrum doctor` asks of a project, and the values it gets.

The answers come from `lustrum.adapters.project`, or in tests from a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from lustrum.core.names import region_of

Bindings = set[tuple[str, str]]  # (role, member)


@dataclass(frozen=True)
class Quota:
    """A quota: how much is allowed and used, in its own unit."""

    limit: float
    usage: float = 0.0


@dataclass(frozen=True)
class ServiceQuota:
    """One value of a service's quota: name, its dimensions (``zone``, ``network``...), where it
    applies (empty: everywhere), the limit (-1: none).
    """

    name: str
    dimensions: Mapping[str, str]
    locations: frozenset[str]
    limit: float

    def is_lustre_tier(self, tier: int) -> bool:
        """Say whether it is the capacity of a Lustre tier (MB/s per TiB): its name holds
        ``storage_for_500MBps_throughput_per_TiB`` in one spelling or another.
        """
        flat = "".join(c for c in self.name.lower() if c.isalnum())
        return f"for{tier}mbps" in flat

    def applies(self, zone: str, network: str) -> bool:
        """Say whether the value binds in a zone and a network."""
        own = self.dimensions.get("network") or self.dimensions.get("network_name")
        if own and own.rsplit("/", 1)[-1] != network:
            return False
        places = {zone, region_of(zone)}
        place = self.dimensions.get("zone") or self.dimensions.get("location")
        if place:
            return place in places
        return not self.locations or bool(self.locations & (places | {"global"}))


class Probes(Protocol):
    """What is asked of a project. Each raises ServiceError, or NotFound."""

    def number(self) -> str:
        """The number of the project."""

    def enabled_services(self) -> set[str]:
        """Names of its enabled APIs, as ``compute.googleapis.com``."""

    def functions(self, region: str) -> dict[str, str]:
        """Function -> state, of a region."""

    def workflows(self, region: str) -> dict[str, str]:
        """Workflow -> state, of a region."""

    def triggers(self, region: str) -> set[str]:
        """Names of the build triggers of a region."""

    def machine_zones(self, machine: str) -> set[str]:
        """Zones that offer a machine type."""

    def lustre_zones(self) -> set[str]:
        """Zones that offer Managed Lustre."""

    def region_quotas(self, region: str) -> dict[str, Quota]:
        """Compute quotas of a region by metric."""

    def service_quotas(self, service: str) -> list[ServiceQuota]:
        """Quotas of a service."""

    def peerings(self, network: str) -> dict[str, str]:
        """Peering -> state, of a network."""

    def project_bindings(self) -> Bindings:
        """IAM bindings of the project."""

    def account_bindings(self, email: str) -> Bindings:
        """IAM bindings of a service account."""

    def bucket_bindings(self, bucket: str) -> Bindings:
        """IAM bindings of a bucket."""

    def topic_bindings(self, topic: str) -> Bindings:
        """IAM bindings of a topic."""

    def invoker_bindings(self, region: str, function: str) -> Bindings:
        """IAM bindings of a function."""

    def secret_state(self, secret: str) -> str:
        """State of the newest version of a secret."""

    def may_publish(self, topic: str) -> bool:
        """Say whether the caller may publish to a topic."""
