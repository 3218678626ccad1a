"""`take_inventory`: what of a run is still in the cloud. The only proof that nothing is left.

Judged by what the cloud lists, never by an exit code; a partial answer means unknown, never empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lustrum.adapters.gke import ClusterInfo
from lustrum.adapters.google import CloudList
from lustrum.adapters.lustre import Instance
from lustrum.core.errors import ServiceError
from lustrum.core.history import note_problems
from lustrum.core.names import LABEL_RUN
from lustrum.core.plain_text import shorten
from lustrum.core.record import TEARDOWN_LEASE, Run, check_owned
from lustrum.core.usage import end_usage
from lustrum.wiring.http import Answer
from lustrum.wiring.services import Services

T = TypeVar("T")


@dataclass
class Inventory:
    """What exists of one run, and what could not be seen."""

    clusters: list[ClusterInfo] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    builds: list[str] = field(default_factory=list)
    deploys: list[str] = field(default_factory=list)  # those of the builds that create
    machines: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    @property
    def left(self) -> list[str]:
        """Everything that exists, as text."""
        return [
            *(f"cluster {one.name} in {one.location} ({one.status})" for one in self.clusters),
            *(f"Lustre {one.name} in {one.zone} ({one.state})" for one in self.instances),
            *(f"build {one}" for one in self.builds),
            *(f"VM {one}" for one in self.machines),
        ]

    @property
    def is_empty(self) -> bool:
        """Say whether nothing exists, and everything was seen."""
        return not self.left and not self.unknown


def look_around(services: Services, run_id: str) -> Inventory:
    """List what exists of a run in all locations: clusters, instances, live builds, machines."""
    found = Inventory()
    clusters = seen("clusters", services.gke.list, found.unknown)
    found.clusters = [one for one in clusters if _is_of(one.name, one.labels, run_id)]
    instances = seen("Lustre", services.lustre.list, found.unknown)
    found.instances = [one for one in instances if _is_of(one.name, one.labels, run_id)]
    try:
        for build in services.builds.tagged(run_id):
            if build.is_live:
                found.builds.append(build.build_id)
                if build.creates:
                    found.deploys.append(build.build_id)
    except Exception as error:
        found.unknown.append(f"builds: {_said(error)}")
    machines = seen("machines", lambda: services.compute.machines(run_id), found.unknown)
    found.machines = [f"{one.name} in {one.zone}" for one in machines]
    return found


def seen(kind: str, look: Callable[[], CloudList[T]], unknown: list[str]) -> list[T]:
    """Return what a listing holds; what could not be seen is added to ``unknown``.

    Whatever the reason: an answer that no adapter expects must not end a whole sweep.
    """
    try:
        listing = look()
        items, missing = listing.items, listing.missing
    except Exception as error:
        unknown.append(f"{kind}: {_said(error)}")
        return []
    unknown += [f"{kind} in {place}" for place in missing]
    return items


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, ServiceError) else f"{type(error).__name__}: {error}"


def take_inventory(services: Services, run_id: str, execution: str, sweep: bool) -> Answer:
    """Look around for a teardown; with ``sweep`` also delete by name what is still there.

    Returns:
        ``empty``, ``left``, ``unknown``, ``problems`` of the sweep.
    """
    now = services.now()
    run = services.ledger.load(run_id)
    check_owned(run, execution)
    found = look_around(services, run_id)
    problems = delete_left(services, found) if sweep else []

    def edit(current: Run) -> int:
        if current.teardown is None:
            return 0
        current.teardown.inventories = current.teardown.inventories + 1 if found.is_empty else 0
        current.teardown.lease_until = now + TEARDOWN_LEASE
        note_problems(current.teardown, problems)
        if found.is_empty:
            end_usage(current, now)
        elif not found.instances and not found.unknown:
            end_usage(current, now, "lustre")
        return current.teardown.inventories

    times = services.ledger.change(run_id, edit)
    return {
        "empty": found.is_empty,
        "times": times,
        "left": found.left,
        "unknown": [shorten(one, 200) for one in found.unknown],
        "problems": problems,
    }


def delete_left(services: Services, found: Inventory) -> list[str]:
    """Begin to delete clusters and instances by name; a thing being created is deleted by a
    later round. A deploy build that began late is cancelled: it would go on creating.
    """
    problems = []
    for build in found.deploys:
        try:
            services.builds.cancel(build)
        except ServiceError as error:
            problems.append(f"build {build}: {shorten(str(error), 200)}")
    for cluster in found.clusters:
        try:
            services.gke.delete(cluster)
        except ServiceError as error:
            problems.append(f"cluster {cluster.name}: {shorten(str(error), 200)}")
    for instance in found.instances:
        try:
            services.lustre.delete(instance.zone, instance.name)
        except ServiceError as error:
            problems.append(f"Lustre {instance.name}: {shorten(str(error), 200)}")
    return problems


def _is_of(name: str, labels: Any, run_id: str) -> bool:
    return name == run_id or labels.get(LABEL_RUN) == run_id
