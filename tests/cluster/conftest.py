"""Fixtures of the cluster tier: one control plane per session, one operator after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testing.cluster import harness
from testing.cluster.api import Api
from testing.cluster.functions import accounts
from testing.cluster.network import NoNamespaceError
from testing.cluster.nodes import SYSTEM_POOL, NodePool, Nodes, a4_pool
from testing.cluster.processes import Child
from testing.cluster.ray_pods import RayPods

KUBERAY = ("v1.5", "v1.6")  # before and from 1.6, where probes depend on spec.rayVersion
WORKERS = 2  # played; the sizes of profiles are tested where they matter

Until = Callable[..., Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs the built programs."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.cluster)


def wait_for(
    condition: Callable[[], Any], what: str, seconds: float = 60.0, every: float = 0.1
) -> Any:
    """Poll a condition until it is true (returned), or fail the test after some seconds."""
    started = time.monotonic()
    deadline = started + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not in {seconds:.0f} s")
        time.sleep(every)
    print(f"{what}: {time.monotonic() - started:.1f} s")
    return found


@pytest.fixture(scope="session")
def plane() -> Iterator[harness.ControlPlane]:
    """A running API server with its controllers, ``default`` holding the Lustre claim."""
    with harness.working_folder() as folder:
        try:
            started = harness.ControlPlane(folder, accounts()).__enter__()
        except NoNamespaceError as error:
            pytest.skip(str(error))
        except harness.ToolsMissingError as error:
            pytest.fail(str(error), pytrace=False)
        try:
            admin = started.api()
            for manifest in harness.lustre_volume():
                admin.apply(manifest)
            wait_for(
                lambda: (
                    admin.get("PersistentVolumeClaim", "lustre-pvc")["status"]["phase"] == "Bound"
                ),
                "the Lustre claim is bound",
            )
            yield started
        finally:
            started.stop()


@pytest.fixture(scope="session")
def api(plane: harness.ControlPlane) -> Api:
    """The administrator's view."""
    return plane.api()


@pytest.fixture(scope="session")
def all_nodes(plane: harness.ControlPlane) -> Iterator[Nodes]:
    """Played nodes; a test takes ``nodes``, which cleans up after it."""
    system = NodePool("system", 4, SYSTEM_POOL.labels, SYSTEM_POOL.allocatable)
    played = Nodes(plane.api(), [system, a4_pool(8)], ray=RayPods(plane.api(), plane.folder))
    played.start()
    yield played
    played.stop()


@pytest.fixture(scope="session", params=KUBERAY)
def operator(plane: harness.ControlPlane, request: pytest.FixtureRequest) -> Iterator[Child]:
    """The operator of each KubeRay version in turn, its CRDs upgraded in place."""
    started = harness.start_operator(plane, request.param)
    yield started
    plane.children.remove(started)
    started.stop()


@pytest.fixture
def nodes(all_nodes: Nodes, api: Api, until: Until) -> Iterator[Nodes]:
    """Nodes with default behaviour; afterwards nothing of the test is left in ``default``."""
    all_nodes.errors.clear()
    yield all_nodes
    all_nodes.reset()
    all_nodes.resize("a4", 8, gpus=8)
    for kind in ("RayJob", "RayCluster", "Secret", "ConfigMap"):
        for found in api.list(kind):
            if not found["metadata"]["name"].startswith("kube-"):
                api.delete(kind, found["metadata"]["name"])
    for pod in api.list("Pod"):
        api.delete("Pod", pod["metadata"]["name"])
    until(lambda: not api.list("Pod") and not api.list("RayCluster"), "cleaning up")
    for name in all_nodes.names("a4"):
        api.delete("Node", name)
    assert all_nodes.errors == []


@pytest.fixture(scope="session")
def until() -> Until:
    """`wait_for`, as a fixture."""
    return wait_for


@dataclass(frozen=True)
class Cluster:
    """What the operator made of one RayCluster."""

    api: Api
    name: str

    def get(self) -> dict[str, Any]:
        """The RayCluster object."""
        return self.api.get("RayCluster", self.name)

    def status(self) -> dict[str, Any]:
        """Its status, {} before the operator looked at it."""
        status: dict[str, Any] = self.get().get("status", {})
        return status

    def pods(self, node_type: str | None = None) -> list[dict[str, Any]]:
        """Its pods, or its head or workers."""
        selector = f"ray.io/cluster={self.name}"
        if node_type:
            selector += f",ray.io/node-type={node_type}"
        return self.api.list("Pod", labelSelector=selector)

    def events(self) -> list[dict[str, Any]]:
        """What was said about it."""
        return self.api.list("Event", fieldSelector=f"involvedObject.name={self.name}")
