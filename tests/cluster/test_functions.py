"""`apply_ray_cluster` and `delete_ray_cluster` as functions, on real Kubernetes and KubeRay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lustrum.core.record import State
from lustrum.core.run_plan import RunPlan
from lustrum.handlers import ray_cluster as steps

from testing.cluster.api import Api
from testing.cluster.functions import EXECUTION, Functions, install_roles
from testing.cluster.harness import ControlPlane
from testing.cluster.nodes import Nodes
from testing.cluster.plans import fresh_plan
from testing.cluster.processes import Child
from tests.cluster.conftest import Cluster, Until

RAY_ANSWERS_NOTHING = "Ray answered"  # played pods have no dashboard behind them
Make = Callable[..., Functions]


@pytest.fixture
def make(plane: ControlPlane, api: Api, nodes: Nodes, operator: Child) -> Make:
    """Make the functions of a run with two workers."""

    def made(plan: RunPlan | None = None) -> Functions:
        chosen = plan or fresh_plan(nodes=2)
        install_roles(api, chosen.run_id)
        functions = Functions(plane, nodes, chosen)
        functions.advance(State.STAGING, State.WAITING_FOR_GPUS)
        return functions

    return made


def apply(functions: Functions) -> dict[str, Any]:
    answer: dict[str, Any] = steps.apply_ray_cluster(
        functions.services("apply-ray-cluster"), functions.run_id, EXECUTION, ("hf", "wandb")
    )
    return answer


def delete(functions: Functions) -> dict[str, Any]:
    answer: dict[str, Any] = steps.delete_ray_cluster(
        functions.services("delete-ray-cluster"), functions.run_id
    )
    return answer


def all_pods_ready(functions: Functions) -> bool:
    """Every pod is, so that only Ray itself is still asked (and does not answer)."""
    return RAY_ANSWERS_NOTHING in apply(functions)["why"]


class TestApplyRayCluster:
    def test_apply_ray_cluster_counts_ready_workers(
        self, make: Make, nodes: Nodes, until: Until
    ) -> None:
        nodes.behaviour.never_ready = lambda pod: "-worker-" in pod["metadata"]["name"]
        functions = make()
        until(lambda: "0 of 2 workers" in apply(functions)["why"], "no worker is ready")
        nodes.reset()
        until(lambda: all_pods_ready(functions), "both workers are ready")
        answer = apply(functions)
        assert not answer["ready"], "Kubernetes says ready, but no Ray answers"
        assert answer["failure"] is None

    def test_apply_ray_cluster_twice_changes_nothing(
        self, make: Make, api: Api, until: Until
    ) -> None:
        functions = make()
        until(lambda: all_pods_ready(functions), "both workers are ready")
        shape = Cluster(api, functions.run_id)
        before = _fingerprint(shape)
        for _ in range(3):
            apply(functions)
        assert _fingerprint(shape) == before

    def test_apply_ray_cluster_with_a_changed_spec_makes_it_anew(
        self, make: Make, api: Api, until: Until
    ) -> None:
        functions = make()
        until(lambda: all_pods_ready(functions), "both workers are ready")
        shape = Cluster(api, functions.run_id)
        before = {pod["metadata"]["uid"] for pod in shape.pods()}
        changed = functions.plan.model_copy(
            update={"worker": functions.plan.worker.model_copy(update={"cpu": "90"})}
        )
        functions.ledger.change(functions.run_id, lambda one: setattr(one, "plan", changed))

        assert "created again" in apply(functions)["why"]
        until(
            lambda: (
                all_pods_ready(functions)
                and not before & {pod["metadata"]["uid"] for pod in shape.pods()}
            ),
            "new pods",
        )
        limits = shape.pods("worker")[0]["spec"]["containers"][0]["resources"]["limits"]
        assert limits["cpu"] == "90"

    def test_apply_ray_cluster_tells_of_an_image_that_cannot_be_pulled(
        self, make: Make, nodes: Nodes, until: Until
    ) -> None:
        nodes.behaviour.image_missing = lambda pod: True
        functions = make()
        until(lambda: apply(functions)["failure"] == "IMAGE_ERROR", "the image is missing", 20)

    def test_apply_ray_cluster_waits_while_no_gpu_node_comes(
        self, make: Make, nodes: Nodes, api: Api, until: Until
    ) -> None:
        nodes.resize("a4", 1)
        functions = make()
        until(lambda: "1 of 2 workers" in apply(functions)["why"], "one worker has a node")
        nodes.resize("a4", 2)
        until(lambda: all_pods_ready(functions), "both workers are ready")


class TestDeleteRayCluster:
    def test_delete_ray_cluster_waits_for_its_pods(
        self, make: Make, nodes: Nodes, api: Api, until: Until
    ) -> None:
        functions = make()
        until(lambda: all_pods_ready(functions), "both workers are ready")
        nodes.behaviour.never_terminates = lambda pod: "-worker-" in pod["metadata"]["name"]
        answer = until(
            lambda: (found := delete(functions))["left"] and len(found["left"]) == 3 and found,
            "only the two workers and the RayCluster are left",
        )
        assert not answer["gone"]
        assert f"RayCluster {functions.run_id}" in answer["left"]
        nodes.reset()
        until(lambda: delete(functions)["gone"], "all gone")
        assert delete(functions) == {"gone": True, "left": []}


def _fingerprint(shape: Cluster) -> tuple[int, str, list[str]]:
    cluster = shape.get()
    pods = sorted(pod["metadata"]["uid"] for pod in shape.pods())
    return cluster["metadata"]["generation"], cluster["metadata"]["uid"], pods
