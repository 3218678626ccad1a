"""Compute Engine v1 (REST): zones, and the VMs that stand for the nodes of clusters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workflows_engine.filter_language import read_filter

from infra.local.cloud.state import Problem, State

ZONES = (
    "us-east1-b",
    "us-east1-c",
    "us-east1-d",
    "us-central1-a",
    "us-central1-b",
    "us-west2-c",
    "europe-west4-b",
)


class Compute:
    """The machines of one project."""

    def __init__(self, state: State) -> None:
        self._state = state

    def zones(self) -> dict[str, Any]:
        """Return the zones there are."""
        return {
            "kind": "compute#zoneList",
            "items": [
                {
                    "kind": "compute#zone",
                    "name": zone,
                    "status": "UP",
                    "region": zone.rsplit("-", 1)[0],
                }
                for zone in ZONES
            ],
        }

    def machine_types(self, expression: str) -> dict[str, Any]:
        """Return the zones that offer a machine type: all, unless a fault names them."""
        name = expression.removeprefix("name=")
        offered = self._state.faults.value("compute.machine_zones")
        items = {
            f"zones/{zone}": {"machineTypes": [{"name": name}]}
            if offered is None or zone in offered
            else {"warning": {"code": "NO_RESULTS_ON_PAGE"}}
            for zone in ZONES
        }
        return {"kind": "compute#machineTypeAggregatedList", "items": items}

    def aggregated(self, expression: str) -> dict[str, Any]:
        """Return VMs by zone; `filter` knows `labels.KEY=VALUE` and `labels.KEY:*`.

        Raises:
            Problem: an injected fault, or a filter that is not understood here.
        """
        refused = self._state.faults.refusal("compute.list")
        if refused is not None:
            raise Problem("UNAVAILABLE", refused[1], refused[0])
        try:
            fits = read_filter(expression, _label)
        except ValueError as error:
            raise Problem(
                "INVALID_ARGUMENT", f"Invalid value for field 'filter': {expression!r}; {error}"
            ) from None
        missing = self._state.faults.value("compute.unreachable") or []
        items: dict[str, Any] = {}
        for vm in self.instances():
            zone = vm["zone"].rsplit("/", 1)[-1]
            if zone in missing or not fits(vm["labels"]):
                continue
            items.setdefault(f"zones/{zone}", {"instances": []})["instances"].append(vm)
        for zone in ZONES:
            if zone in missing:
                items[f"zones/{zone}"] = {
                    "warning": {
                        "code": "UNREACHABLE",
                        "message": f"zones/{zone} is not reachable.",
                    }
                }
            else:
                items.setdefault(
                    f"zones/{zone}",
                    {
                        "warning": {
                            "code": "NO_RESULTS_ON_PAGE",
                            "message": f"No results for scope 'zones/{zone}'.",
                        }
                    },
                )
        answer: dict[str, Any] = {"kind": "compute#instanceAggregatedList", "items": items}
        if missing:
            answer["unreachables"] = [f"zones/{zone}" for zone in missing]
        return answer

    def instances(self) -> list[dict[str, Any]]:
        """Return every VM."""
        with self._state.lock:
            found = list(self._state.vms.values())
            for cluster in self._state.clusters.values():
                found += [
                    _vm(self._state.project, cluster, node) for node in cluster.kubernetes.nodes()
                ]
        return found


def _label(field: str, sign: str, value: str) -> Callable[[Mapping[str, str]], bool]:
    kind, _, key = field.partition(".")
    if kind != "labels" or sign not in ("=", ":", "!="):
        raise ValueError("this stand-in knows labels.KEY=VALUE, != and labels.KEY:*")
    if sign == ":" and value == "*":
        return lambda labels: key in labels
    return lambda labels: (labels.get(key) == value) is (sign != "!=")


def _vm(project: str, cluster: Any, node: dict[str, Any]) -> dict[str, Any]:
    labels = node["metadata"]["labels"]
    zone = labels["topology.kubernetes.io/zone"]
    gpus = int(node["status"]["capacity"].get("nvidia.com/gpu", 0))
    base = f"https://www.googleapis.com/compute/v1/projects/{project}/zones/{zone}"
    return {
        "kind": "compute#instance",
        "name": node["metadata"]["name"],
        "status": "RUNNING",
        "zone": base,
        "machineType": f"{base}/machineTypes/{labels['node.kubernetes.io/instance-type']}",
        "creationTimestamp": node["metadata"]["creationTimestamp"],
        "labels": {
            **dict(cluster.message.resource_labels),
            "goog-k8s-cluster-name": cluster.name,
            "goog-k8s-node-pool-name": labels["cloud.google.com/gke-nodepool"],
        },
        "guestAccelerators": [
            {
                "acceleratorType": f"{base}/acceleratorTypes/"
                f"{labels.get('cloud.google.com/gke-accelerator', 'none')}",
                "acceleratorCount": gpus,
            }
        ]
        if gpus
        else [],
        "scheduling": {
            "provisioningModel": "SPOT"
            if labels.get("cloud.google.com/gke-spot") == "true"
            else "STANDARD"
        },
    }
