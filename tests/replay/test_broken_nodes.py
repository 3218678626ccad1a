"""A node whose GPU broke is left, and no later attempt of the run uses it."""

from __future__ import annotations

from typing import Any

from lustrum.core.record import Run
from lustrum.show.report import render

from testing.dashboard import Script
from testing.fake_cluster import FakeKubernetes, address_of
from testing.life import Life
from testing.stories import check_nothing_is_left, in_state

BROKEN = "gpu-node-2"
FAILED = Script(
    fail_at=6,
    failure="NODE_LOST",
    message=f"a GPU failed on node {address_of(BROKEN)}: uncorrectable ECC error encountered",
)


def live(scripts: dict[int, Script]) -> tuple[Life, Run, FakeKubernetes]:
    """A whole life, and the cluster it had."""
    kept: list[FakeKubernetes] = []

    def keep(life: Life, run_id: str) -> Any:
        kept.append(life.cloud.kubernetes(run_id))

    life = Life()
    life.cloud.scripts = scripts
    run = life.run(in_state("TRAINING", keep))
    return life, run, kept[0]


class TestBrokenNode:
    def test_is_left_for_another_and_the_others_stay(self) -> None:
        life, run, kubernetes = live({1: FAILED})
        check_nothing_is_left(life, run)
        assert (run.outcome, run.attempt, run.crashes) == ("SUCCEEDED", 2, 0)
        assert run.broken_nodes == [BROKEN]
        assert BROKEN in kubernetes.empty  # the pool still had it: nothing was placed there
        used = set(kubernetes.born) - {BROKEN}
        assert used == {f"gpu-node-{n}" for n in range(1, run.plan.nodes + 2)} - {BROKEN}
        made = [one for one in kubernetes.applied if one["kind"] == "RayCluster"]
        hashes = {next(iter(one["metadata"]["annotations"].values())) for one in made}
        assert len(hashes) == 1  # one RayCluster from beginning to end

    def test_is_named_in_record_report_and_timeline(self) -> None:
        _, run, _ = live({1: FAILED})
        (mishap,) = run.mishaps
        assert mishap.failure == "NODE_LOST"
        assert mishap.sentence.endswith(f"node {BROKEN} is not used again")
        assert f"node {BROKEN} is not used again" in render(run, [])

    def test_two_in_a_row_are_both_avoided(self) -> None:
        again = Script(
            fail_at=12,
            failure="NODE_LOST",
            message="a GPU failed: GPU 3 of node 10.0.0.4: Xid 79; RuntimeError: CUDA error",
        )
        life, run, kubernetes = live({1: FAILED, 2: again})
        check_nothing_is_left(life, run)
        assert (run.outcome, run.attempt) == ("SUCCEEDED", 3)
        assert run.broken_nodes == [BROKEN, "gpu-node-4"]
        assert set(kubernetes.empty) == {BROKEN, "gpu-node-4"}

    def test_a_plain_failure_leaves_no_node(self) -> None:
        _, run, kubernetes = live({1: Script(fail_at=6, message="ValueError: boom")})
        assert (run.outcome, run.broken_nodes, kubernetes.empty) == ("SUCCEEDED", [], [])
