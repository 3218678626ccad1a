"""Pods as Kubernetes shows them, made from public reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lustrum.core.failures import Failure
from lustrum.core.readiness import FATAL, lost_nodes, trouble
from lustrum.core.record import Progress
from lustrum.core.verdict import Action, Seen, crashes_after, judge

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
        verdict = judge(one, Seen("FAILED", exit_code=1, lost=lost), NOW)
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
