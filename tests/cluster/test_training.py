"""A whole training on real Kubernetes, KubeRay and Ray, by the product's own functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from lustrum.core.errors import ServiceError
from lustrum.core.failures import NODE_LOSS
from lustrum.core.record import State
from lustrum.handlers import ray_cluster, teardown, training

from testing.cluster.api import Api
from testing.cluster.functions import (
    EXECUTION,
    TEARDOWN,
    Functions,
    PubSub,
    install_roles,
    served,
)
from testing.cluster.harness import ControlPlane
from testing.cluster.nodes import Nodes
from testing.cluster.plans import fresh_plan
from testing.cluster.processes import Child
from tests.cluster.conftest import Cluster, Until

TOKENS = ("hf-secret-value", "wandb-secret-value")
STEPS = 12


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
    nodes.resize("a4", 2, gpus=1)
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
        check = functions.services("check-ray-job")

        def applied() -> bool:
            answer = ray_cluster.apply_ray_cluster(
                functions.services("apply-ray-cluster"), run_id, EXECUTION, TOKENS
            )
            assert answer["failure"] is None, answer
            return bool(answer["ready"])

        def submitted() -> dict[str, Any]:
            return training.submit_ray_job(functions.services("submit-ray-job"), run_id, EXECUTION)

        def resubmitted() -> dict[str, Any] | None:
            try:
                return submitted()
            except ServiceError as error:  # the attempt before is being stopped
                assert error.retryable
                return None

        def looked(wanted: str) -> bool:
            return bool(training.check_ray_job(check, run_id, EXECUTION)["next"] == wanted)

        def saved(step: int) -> bool:
            assert looked("wait")
            checkpoint = functions.run.checkpoint
            return checkpoint is not None and checkpoint.step >= step

        until(applied, "the head alone", 300, 0.5)
        assert shape.pods("worker") == []
        functions.advance(State.STAGING, State.WAITING_FOR_GPUS)
        until(applied, "two workers and their GPUs", 300, 0.5)
        functions.advance(State.TRAINING)

        assert submitted() == {"submission_id": f"{run_id}-a1", "attempt": 1, "from_step": 0}
        assert submitted()["attempt"] == 1, "a repeated call adopts the job"
        until(lambda: saved(2), "a checkpoint", 240, 1.0)
        self.tokens_are_files_alone(functions, shape, until)

        nodes.preempt(nodes.names("a4")[0])
        until(lambda: looked("resume"), "the preemption is seen", 240, 1.0)
        assert functions.run.mishaps[-1].failure in NODE_LOSS
        functions.advance(State.RECOVERING)
        until(applied, "a new worker in its place", 300, 0.5)
        functions.advance(State.TRAINING)
        second = until(resubmitted, "attempt 1 has ended, attempt 2 begins", 120, 1.0)
        assert second["attempt"] == 2
        assert second["from_step"] >= 2
        until(lambda: looked("stop"), "the end of attempt 2", 240, 1.0)
        assert functions.run.failure is None
        assert functions.run.checkpoint is not None
        assert functions.run.checkpoint.step == STEPS

        completed = [one for one in pubsub.events if one["type"] == "job.completed"]
        assert [one["attempt"] for one in completed] == [1, 2]
        self.all_is_torn_down(functions, shape, until)

    def tokens_are_files_alone(self, functions: Functions, shape: Cluster, until: Until) -> None:
        """No token in what the Jobs API and the pods show; all in the files of the pods."""
        services = functions.services("submit-ray-job")
        kubernetes = services.kubernetes(functions.run_id)
        ray = services.ray(kubernetes, functions.run_id)
        count = ray.submit(f"{functions.run_id}-list-x", "cat $HF_TOKEN_PATH | wc -c", {}, {})
        until(lambda: ray.get(count.submission_id).is_over, "the counting job", 60, 0.5)
        ended, log = ray.get(count.submission_id), ray.logs(count.submission_id)
        assert ended.status == "SUCCEEDED", f"{ended}: {log}"
        assert log.split()[-1] == str(len(TOKENS[0]))
        shown = kubernetes.request(
            "GET", kubernetes.proxy(f"{functions.run_id}-head-svc", 8265, "api/jobs/")
        ).body.decode()
        assert f"{functions.run_id}-a1" in shown
        for secret in TOKENS:
            assert secret not in shown
            assert secret not in str(shape.pods())

    def all_is_torn_down(self, functions: Functions, shape: Cluster, until: Until) -> None:
        """Stop a job that still runs, release the GPU nodes, delete the RayCluster."""
        run_id = functions.run_id
        services = functions.services("submit-ray-job")
        ray = services.ray(services.kubernetes(run_id), run_id)
        ray.submit(f"{run_id}-stage-z1", "echo began; sleep 600", {}, {"run_id": run_id})
        until(lambda: "began" in ray.logs(f"{run_id}-stage-z1"), "a job runs", 60, 0.5)
        functions.claim_teardown()
        stop = functions.services("stop-ray-job")
        until(
            lambda: teardown.stop_ray_job(stop, run_id, TEARDOWN)["stopped"], "all is quiet", 60, 1
        )
        assert ray.get(f"{run_id}-stage-z1").status == "STOPPED"
        release = functions.services("release-accelerators")
        until(
            lambda: teardown.release_accelerators(release, run_id, TEARDOWN)["released"],
            "no GPU node is left",
        )
        delete = functions.services("delete-ray-cluster")
        until(lambda: ray_cluster.delete_ray_cluster(delete, run_id)["gone"], "all pods are gone")
        assert shape.pods() == []
