"""Pods as Kubernetes shows them, made from public reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lustrum.core.failures import Failure
from lustrum.core.readiness import FATAL, lost_nodes, trouble
from lustrum.core.record_parts import Progress
from lustrum.core.verdict import Action, Seen, crashes_after, decide

from testing.samples import NOW, run, saved

PODS = Path(__file__).parent / "k8s"
RUN_ID = "rl-0123456789"
AT_TEN = 1780308000.0  # 2026-06-01T10:00:00Z


def pods(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((PODS / f"{name}.json").read_text())["pods"]
    return found


class TestRestartedInPlace:
    def test_it_is_a_lost_node_and_no_crash(self) -> None:
        lost = lost_nodes(pods("worker-restarted-in-place"), [], RUN_ID, AT_TEN - 600)
        assert lost is Failure.NODE_LOST
        one = run(checkpoint=saved(4), progress=Progress(step=4, at=NOW - 60, attempt=1))
        verdict = decide(one, Seen("FAILED", exit_code=1, lost=lost), NOW)
        assert (verdict.action, verdict.failure) == (Action.RESUME, Failure.NODE_LOST)
        assert crashes_after(one, Failure.NODE_LOST) == one.crashes

    def test_a_restart_before_this_attempt_excuses_nothing(self) -> None:
        assert lost_nodes(pods("worker-restarted-in-place"), [], RUN_ID, AT_TEN + 60) is None

    @pytest.mark.parametrize(
        ("reason", "kind", "failure"),
        [("OOMKilled", "worker", Failure.USER_OOM), ("Error", "head", None)],
    )
    def test_other_restarts(self, reason: str, kind: str, failure: Failure | None) -> None:
        (pod,) = pods("worker-restarted-in-place")
        pod["metadata"]["labels"]["ray.io/node-type"] = kind
        pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["reason"] = reason
        assert lost_nodes([pod], [], RUN_ID, AT_TEN - 600) is failure


class TestBackOffWithoutACause:
    def test_of_a_worker_is_waited_for(self) -> None:
        found = trouble(pods("pull-backoff-bare"), [], RUN_ID, 0)
        assert found is None or found[0] not in FATAL

    @pytest.mark.parametrize(
        ("kind", "more"), [("head", ""), ("worker", ": ErrImagePull: manifest unknown")]
    )
    def test_of_a_head_or_with_a_cause_is_final(self, kind: str, more: str) -> None:
        (pod,) = pods("pull-backoff-bare")
        pod["metadata"]["labels"]["ray.io/node-type"] = kind
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"] += more
        found = trouble([pod], [], RUN_ID, 0)
        assert found is not None and found[0] is Failure.IMAGE_ERROR


def worker(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"{RUN_ID}-gpu-worker-abcde",
            "labels": {"ray.io/node-type": "worker"},
            "creationTimestamp": "2026-06-01T09:00:00Z",
        },
        "status": {"phase": "Pending", **status},
    }


def waiting(reason: str, message: str, restarts: int = 0) -> dict[str, Any]:
    return worker(
        conditions=[
            {
                "type": "PodScheduled",
                "status": "True",
                "lastTransitionTime": "2026-06-01T10:00:00Z",
            }
        ],
        containerStatuses=[
            {
                "name": "ray-worker",
                "restartCount": restarts,
                "state": {"waiting": {"reason": reason, "message": message}},
            }
        ],
    )


class TestWorkerThatCannotStart:
    """Its GPUs are paid for: it ends within minutes, and another zone would not help."""

    @pytest.mark.parametrize(
        ("reason", "message"),
        [
            ("CreateContainerConfigError", 'secret "lustrum-tokens" not found'),
            ("CreateContainerConfigError", "couldn't find key hf_token in Secret default/tokens"),
            ("CreateContainerError", 'failed to create containerd task: exec: "ray": not found'),
            ("RunContainerError", "OCI runtime create failed: permission denied: unknown"),
        ],
    )
    def test_a_container_that_is_never_made(self, reason: str, message: str) -> None:
        pod = waiting(reason, message)
        early = trouble([pod], [], RUN_ID, 0, AT_TEN + 60)
        assert early is not None and early[0] not in FATAL
        late = trouble([pod], [], RUN_ID, 0, AT_TEN + 400)
        assert late is not None and late[0] is Failure.CONFIG
        assert message[:20] in late[1]

    def test_a_command_that_ends_at_once(self) -> None:
        found = trouble([waiting("CrashLoopBackOff", "back-off 40s", 3)], [], RUN_ID, 0, AT_TEN)
        assert found is not None and found[0] is Failure.IMAGE_ERROR

    @pytest.mark.parametrize(
        "message",
        [
            "nvidia-container-cli: initialization error: nvml error: driver not loaded",
            "failed to generate spec: lstat /dev/nvidia7: no such device",
        ],
    )
    def test_a_node_whose_gpus_are_broken_is_none(self, message: str) -> None:
        found = trouble([waiting("RunContainerError", message, 5)], [], RUN_ID, 0, AT_TEN + 9000)
        assert found is not None and found[0] is Failure.INFRA_TRANSIENT

    @pytest.mark.parametrize(("count", "failure"), [(1, None), (5, Failure.CONFIG)])
    def test_a_secret_that_is_missing(self, count: int, failure: Failure | None) -> None:
        event = {
            "type": "Warning",
            "reason": "FailedMount",
            "count": count,
            "message": 'MountVolume.SetUp failed for volume "tokens" : secret "lustrum-tokens" '
            "not found",
            "lastTimestamp": "2026-06-01T10:00:00Z",
            "involvedObject": {"kind": "Pod", "name": f"{RUN_ID}-gpu-worker-abcde"},
        }
        found = trouble([], [event], RUN_ID, AT_TEN - 60)
        assert (found and found[0]) is failure


class TestLeftover:
    """A pod that an earlier loss left behind excuses that one failure."""

    @staticmethod
    def pod(**status: Any) -> dict[str, Any]:
        return worker(phase="Failed", reason="Preempted", message="preempted by Spot", **status)

    def test_with_its_conditions(self) -> None:
        pod = self.pod(
            conditions=[{"type": "Ready", "lastTransitionTime": "2026-06-01T10:00:00Z"}]
        )
        assert lost_nodes([pod], [], RUN_ID, AT_TEN - 60) is Failure.PREEMPTED
        assert lost_nodes([pod], [], RUN_ID, AT_TEN + 60) is None

    def test_without_any_time_but_its_creation(self) -> None:
        assert lost_nodes([self.pod()], [], RUN_ID, AT_TEN) is None
