"""A whole training on real Kubernetes, KubeRay and Ray, by the product's own functions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lustrum.run import State
from lustrum.steps import cluster, events, teardown, training

from tests.cluster.api import Api
from tests.cluster.conftest import Cluster, Until
from tests.cluster.functions import (
    EXECUTION,
    TEARDOWN,
    Functions,
    PubSub,
    install_roles,
    served,
)
from tests.cluster.harness import ControlPlane
from tests.cluster.nodes import Nodes
from tests.cluster.plans import fresh_plan
from tests.cluster.processes import Child

TOKENS = ("hf-secret-value", "wandb-secret-value")
STEPS = 20


@pytest.fixture
def pubsub() -> Iterator[PubSub]:
    """Where the supervisor's events arrive."""
    with served(PubSub()) as pubsub:
        yield pubsub


@pytest.fixture
def functions(
    plane: ControlPlane, api: Api, nodes: Nodes, operator: Child, pubsub: PubSub
) -> Functions:
    """The functions of a small run whose pods hold real Ray."""
    plan = fresh_plan(
        profile="tiny-grpo",
        nodes=2,
        overrides={"grpo.max_num_steps": STEPS, "local.step_seconds": 0.5},
        checkpoints={"save_period": 2, "keep": 2},
    )
    nodes.resize("a4", 2)
    nodes.behaviour.real = lambda pod: True
    install_roles(api, plan.run_id)
    made = Functions(plane, nodes, plan, pubsub=pubsub.url, storage=pubsub.url)
    return made


@pytest.mark.timeout(900)
class TestTraining:
    def test_run_with_a_preemption_finishes_in_a_second_attempt(
        self, api: Api, nodes: Nodes, until: Until, functions: Functions, pubsub: PubSub
    ) -> None:
        run_id = functions.run_id
        shape = Cluster(api, run_id)

        def applied() -> bool:
            answer = cluster.apply_ray_cluster(
                functions.services("apply-ray-cluster"), run_id, EXECUTION, TOKENS
            )
            assert answer["failure"] is None, answer
            return bool(answer["ready"])

        until(applied, "the head alone", 180)
        assert shape.pods("worker") == []
        functions.advance(State.STAGING, State.WAITING_FOR_GPUS)
        until(applied, "two workers and their GPUs", 180)
        functions.advance(State.TRAINING)

        submit = functions.services("submit-ray-job")
        first = training.submit_ray_job(submit, run_id, EXECUTION)
        assert first == {"submission_id": f"{run_id}-a1", "attempt": 1, "from_step": 0}
        check = functions.services("check-ray-job")

        def looked(wanted: str) -> bool:
            answer = training.check_ray_job(check, run_id, EXECUTION)
            return bool(answer["next"] == wanted)

        def saved() -> bool:
            assert looked("wait")
            checkpoint = functions.run.checkpoint
            return checkpoint is not None and checkpoint.step >= 4

        until(saved, "two checkpoints", 120)
        seen = submit.ray(submit.kubernetes(run_id), run_id)
        job = seen._json("GET", f"api/jobs/{run_id}-a1")
        for secret in TOKENS:
            assert secret not in str(job)

        nodes.preempt(nodes.names("a4")[0])
        until(lambda: looked("resume"), "the preemption is seen", 120)
        assert functions.run.mishaps[-1].failure == "PREEMPTED"
        functions.advance(State.RECOVERING)
        until(applied, "a new worker in its place", 180)
        functions.advance(State.TRAINING)
        second = training.submit_ray_job(submit, run_id, EXECUTION)
        assert second["attempt"] == 2
        assert second["from_step"] >= 4
        until(lambda: looked("stop"), "the end of attempt 2", 120)
        assert functions.run.failure is None
        assert functions.run.checkpoint is not None
        assert functions.run.checkpoint.step == STEPS

        completed = next(one for one in pubsub.events if one["type"] == "job.completed"
                         and one["attempt"] == 2)  # fmt: skip
        react = functions.services("react-to-event")
        assert events.react(react, _event(completed))["rung"]
        functions.claim_teardown()
        stopped = teardown.stop_ray_job(functions.services("stop-ray-job"), run_id, TEARDOWN)
        assert stopped == {"stopped": True, "building": [], "problems": []}
        release = functions.services("release-accelerators")
        until(
            lambda: teardown.release_accelerators(release, run_id, TEARDOWN)["released"],
            "no GPU node is left",
        )
        delete = functions.services("delete-ray-cluster")
        until(
            lambda: cluster.delete_ray_cluster(delete, run_id)["gone"],
            "RayCluster and pods are gone",
        )
        assert shape.pods() == []


def _event(body: dict[str, object]) -> events.Event:
    from lustrum.events import JobEvent

    return JobEvent.model_validate(body)
