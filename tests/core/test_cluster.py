"""Readiness, manifests, deployment: what Kubernetes and the build are told, and what they say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lustrum.core.failures import Failure
from lustrum.core.readiness import (
    FATAL,
    cluster_is_ready,
    lost_nodes,
    trouble,
    worker_was_replaced,
)

from testing.samples import NOW, RUN_ID


def cluster(ready: int | None = 8, desired: int | None = 8, **more: Any) -> dict[str, Any]:
    status: dict[str, Any] = {
        "state": "ready",
        "observedGeneration": 2,
        "conditions": [
            {"type": "HeadPodReady", "status": "True"},
            {"type": "RayClusterProvisioned", "status": "True"},
        ],
    }
    if ready is not None:
        status["readyWorkerReplicas"] = ready
    if desired is not None:
        status["desiredWorkerReplicas"] = desired
    return {"metadata": {"generation": 2}, "status": {**status, **more}}


def event(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    return {
        "type": "Warning",
        "reason": reason,
        "message": message,
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "involvedObject": {"kind": "Pod", "name": f"{RUN_ID}-worker-1"},
        **more,
    }


def waiting_pod(
    reason: str, message: str | None, kind: str = "head", restarts: int = 0
) -> dict[str, Any]:
    waiting = {"reason": reason} | ({"message": message} if message else {})
    container = {"state": {"waiting": waiting}, "restartCount": restarts}
    return {
        "metadata": {"name": "p", "labels": {"ray.io/node-type": kind}},
        "status": {"containerStatuses": [container]},
    }


class TestReady:
    @pytest.mark.parametrize(
        ("body", "workers", "ready"),
        (
            (cluster(), 8, True),
            (cluster(None, None), 0, True),  # zero is left out of the JSON
            (cluster(7), 8, False),
            (cluster(), 4, False),  # of the size before
            (cluster(observedGeneration=1), 8, False),  # the status speaks of an older spec
            (cluster(conditions=[{"type": "HeadPodReady", "status": "False"}]), 8, False),
            (cluster(conditions=[]), 8, False),
            (
                cluster(
                    conditions=[
                        {"type": "HeadPodReady", "status": "True"},
                        {"type": "ReplicaFailure", "status": "True"},
                    ]
                ),
                8,
                False,
            ),
            ({"metadata": {"generation": 1}}, 0, False),
            ({"metadata": {"generation": 1}, "status": {"state": "ready"}}, 0, False),  # sticky
        ),
    )
    def test_cluster_is_ready(self, body: dict[str, Any], workers: int, ready: bool) -> None:
        assert cluster_is_ready(body, workers) is ready


class TestTrouble:
    @pytest.mark.parametrize(
        ("one", "failure"),
        (
            (event("InvalidRayClusterSpec", "rayVersion"), Failure.CONFIG),
            (event("FailedMount", "mount.lustre: Is the MGS running?"), Failure.LUSTRE_NETWORK),
            (
                event("FailedScheduling", 'persistentvolumeclaim "lustre-pvc" not found'),
                Failure.LUSTRE_CONFIG,
            ),
            (event("Failed", "ErrImagePull: manifest unknown"), Failure.IMAGE_ERROR),
            (event("FailedScaleUp", "GCE quota exceeded"), Failure.QUOTA),
            (event("FailedScaleUp", "GCE out of resources"), Failure.STOCKOUT),
        ),
    )
    def test_trouble_of_an_event(self, one: dict[str, Any], failure: Failure) -> None:
        found = trouble([], [one], RUN_ID, NOW - 60)
        assert found is not None and found[0] is failure

    @pytest.mark.parametrize(
        "one",
        (
            event("FailedMount", "Is the MGS running?", type="Normal"),
            event("FailedMount", "Is the MGS running?", lastTimestamp="2025-12-31T00:00:00Z"),
            event("FailedMount", "Is the MGS running?", involvedObject={"name": "another-pod"}),
            event("FailedMount", "Is the MGS running?", involvedObject=None),
            event("Pulled", "all is well"),
        ),
    )
    def test_trouble_of_others_or_of_old_does_not_count(self, one: dict[str, Any]) -> None:
        assert trouble([], [one], RUN_ID, NOW - 60) is None

    def test_trouble_the_fatal_one_wins(self) -> None:
        found = trouble(
            [], [event("x", "connection refused"), event("y", "Is the MGS running?")], RUN_ID, 0
        )
        assert found is not None and found[0] is Failure.LUSTRE_NETWORK

    @pytest.mark.parametrize(
        ("reason", "message", "failure"),
        (
            ("ImagePullBackOff", "no such tag", Failure.IMAGE_ERROR),
            (
                "ImagePullBackOff",
                'Back-off pulling image "x": ErrImagePull: x: not found',
                Failure.IMAGE_ERROR,
            ),
            (
                "ErrImagePull",
                "failed to authorize: unexpected status: 403 Forbidden",
                Failure.IMAGE_ERROR,
            ),
            ("InvalidImageName", None, Failure.IMAGE_ERROR),
            ("ErrImagePull", "dial tcp: lookup nvcr.io: i/o timeout", Failure.INFRA_TRANSIENT),
            (
                "ErrImagePull",
                "unexpected status code 503 Service Unavailable",
                Failure.INFRA_TRANSIENT,
            ),
            (
                "ImagePullBackOff",
                "429 Too Many Requests - toomanyrequests",
                Failure.INFRA_TRANSIENT,
            ),
        ),
    )
    def test_trouble_of_an_image(self, reason: str, message: str | None, failure: Failure) -> None:
        found = trouble([waiting_pod(reason, message)], [], RUN_ID, 0)
        assert found is not None and found[0] is failure and (message or reason) in found[1]

    def test_trouble_a_pull_that_failed_once_and_then_went_well(self) -> None:
        events = [
            event("Failed", 'Failed to pull image "nvcr.io/x": i/o timeout'),
            event("Failed", "Error: ErrImagePull"),
            event("BackOff", 'Back-off pulling image "nvcr.io/x": ImagePullBackOff'),
        ]
        running = {
            "metadata": {"name": "p"},
            "status": {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]},
        }
        found = trouble([running], events, RUN_ID, 0)
        assert found is None or found[0] not in FATAL

    @pytest.mark.parametrize(
        ("kind", "restarts", "fatal"),
        (
            ("head", 0, False),
            ("head", 2, False),
            ("head", 3, True),
            ("worker", 2, False),
            ("worker", 3, True),  # its GPUs are paid for meanwhile
        ),
    )
    def test_trouble_of_a_container_that_does_not_start(
        self, kind: str, restarts: int, fatal: bool
    ) -> None:
        pod = waiting_pod("CrashLoopBackOff", "back-off 40s restarting", kind, restarts)
        ended = {"exitCode": 127, "message": "ray: command not found"}
        pod["status"]["containerStatuses"][0]["lastState"] = {"terminated": ended}
        found = trouble([pod], [], RUN_ID, 0)
        assert found is not None and (found[0] in FATAL) is fatal
        assert (
            f"CrashLoopBackOff after {restarts} restarts: it ended with Error, code 127: ray"
            in (found[1])
        )


class TestLostNodes:
    @pytest.mark.parametrize(
        ("one", "failure"),
        (
            (
                event(
                    "Shutdown",
                    "Node is shutting down",
                    involvedObject={"kind": "Node", "name": "n"},
                ),
                Failure.PREEMPTED,
            ),
            (
                event("NodeNotReady", "", involvedObject={"kind": "Node", "name": "n"}),
                Failure.NODE_LOST,
            ),
            (event("TaintManagerEviction", "node was preempted"), Failure.PREEMPTED),
            (event("Shutdown", "Shutdown manager detected shutdown event"), Failure.PREEMPTED),
            (event("FailedScheduling", "preemption: Preemption is not helpful"), None),
            (event("NotTriggerScaleUp", "No preemption victims found"), None),
            (event("NodeNotReady", "", lastTimestamp="2025-12-31T00:00:00Z"), None),
            (event("Pulled", "fine"), None),
        ),
    )
    def test_lost_nodes_of_an_event(self, one: dict[str, Any], failure: Failure | None) -> None:
        assert lost_nodes([], [one], RUN_ID, NOW - 60) is failure

    def pod(
        self,
        ended: str | None,
        reason: str = "Terminated",
        message: str = "Pod was terminated in response to imminent node shutdown.",
    ) -> dict[str, Any]:
        state = {"terminated": {"finishedAt": ended}} if ended else {"running": {}}
        return {
            "metadata": {
                "name": "p",
                "labels": {"ray.io/node-type": "worker"},
                "creationTimestamp": "2025-12-31T23:00:00Z",
            },
            "status": {
                "reason": reason,
                "message": message,
                "containerStatuses": [{"state": state}],
            },
        }

    def test_lost_nodes_of_a_pod(self) -> None:
        assert lost_nodes([self.pod("2026-01-01T00:00:00Z")], [], RUN_ID, NOW - 60) == "PREEMPTED"

    def test_lost_nodes_a_pod_that_an_earlier_attempt_left_behind(self) -> None:
        """Else every later crash of the program would be excused as a preemption."""
        assert lost_nodes([self.pod("2025-12-31T22:00:00Z")], [], RUN_ID, NOW - 60) is None

    def test_worker_was_replaced(self) -> None:
        old = self.pod(None)
        new = self.pod(None)
        new["metadata"]["creationTimestamp"] = "2026-01-01T00:10:00Z"
        head = json.loads(json.dumps(new))
        head["metadata"]["labels"]["ray.io/node-type"] = "head"
        assert worker_was_replaced([old, new], NOW)
        assert not worker_was_replaced([old, head], NOW)
