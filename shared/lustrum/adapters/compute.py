"""Compute Engine: the machines of a run's cluster, by the label GKE puts on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lustrum.adapters.google import CloudList, Rest, pages
from lustrum.core.settings import Settings


@dataclass(frozen=True)
class Machine:
    """One VM: name, zone, status, cluster it belongs to, accelerators it holds."""

    name: str
    zone: str
    status: str
    cluster: str
    gpus: int


class Compute:
    """The VMs of one project."""

    def __init__(self, rest: Rest, settings: Settings) -> None:
        self._rest = rest
        self._project = settings.project

    def machines(self, cluster: str | None = None) -> CloudList[Machine]:
        """Return the VMs of a cluster, or of every cluster."""
        label = "labels.goog-k8s-cluster-name"
        found = pages(
            self._rest,
            "compute",
            f"/compute/v1/projects/{self._project}/aggregated/instances",
            {
                "filter": f"{label}={cluster}" if cluster else f"{label}:*",
                "returnPartialSuccess": "true",
            },
        )
        machines, missing = [], []
        for page in found:
            missing += [str(place) for place in page.get("unreachables", [])]
            for place, scoped in (page.get("items") or {}).items():
                if (scoped.get("warning") or {}).get("code") == "UNREACHABLE":
                    missing.append(place)
                machines += [_machine(item) for item in scoped.get("instances", [])]
        return CloudList(machines, missing)


def _machine(item: dict[str, Any]) -> Machine:
    accelerators = item.get("guestAccelerators") or []
    return Machine(
        name=item["name"],
        zone=str(item.get("zone", "")).rsplit("/", 1)[-1],
        status=item.get("status", ""),
        cluster=(item.get("labels") or {}).get("goog-k8s-cluster-name", ""),
        gpus=sum(int(part.get("acceleratorCount", 0)) for part in accelerators),
    )
