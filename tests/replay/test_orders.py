"""M3 and E13: any order, any repetition, any fate; the promises hold."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lustrum.core.record import Run
from lustrum.handlers import reactions as event_steps

from tests.replay.stories import check_nothing_is_left
from tests.support.cloud import Deploy, unavailable
from tests.support.dashboard import Script
from tests.support.life import Life, lose_answer
from tests.support.services import push

EVENTS = (
    "start", "cluster_ready", "job_succeeded", "capacity_alert_open", "capacity_alert_closed",
    "cancel", "deadline", "job_failed",
)  # fmt: skip


async def happen(life: Life, run_id: str, event: str) -> None:
    """Let one thing happen to a run, or only claim that it did."""
    body: dict[str, Any] = {"run_id": run_id, "attempt": 1, "event_id": event, "at": None}
    if event == "start":
        await life.publish({}, "1")
    elif event == "cancel":
        await life.publish({"action": "cancel", "run_id": run_id}, "c")
    elif event == "deadline":
        life.services.memory.change(
            run_id, lambda run: setattr(run, "deadline_at", life.loop.now())
        )
    elif event.startswith("capacity"):
        incident = {
            "incident_id": "i1", "state": event.rsplit("_", 1)[-1], "started_at": 1767225600,
            "policy_user_labels": {"lustrum-action": "stop"},
            "resource": {"labels": {"instance_id": run_id}},
        }  # fmt: skip
        event_steps.handle_push(life.services, push({"version": "1.2", "incident": incident}))
    else:
        kind = {"cluster_ready": "stage.done"}.get(event, "job.completed")
        code = {"job_succeeded": 0, "job_failed": 1}.get(event)
        event_steps.handle_push(life.services, push({**body, "type": kind, "exit_code": code}))


def play(steps: list[tuple[float, str]], seed: int = 0) -> tuple[Life, Run]:
    """Play one sequence of (seconds to wait, event)."""

    async def story(life: Life) -> Run:
        run_id = await life.start()
        for pause, event in steps:
            await life.pass_time(pause)
            await happen(life, run_id, event)
        return await life.until_closed(run_id)

    life = Life()
    return life, life.run(story)


def check(life: Life, run: Run) -> None:
    check_nothing_is_left(life, run)
    assert life.services.memory.run_ids() == [run.run_id]
    assert life.states[-1][2] == "CLOSED"  # no transition leaves it
    kinds = [one["kind"] for one in life.notifications if one["kind"].startswith("run.")]
    assert kinds.count("run.closed") == 1
    if run.checkpoint is not None and not (run.cancel is not None and not run.cancel.export):
        assert run.safe_export is not None, life.story()
    exports = [one for one in life.cloud.calls if one == ("lustre", "export")]
    assert len(exports) <= max(1, len(run.zones_tried))


class TestOrders:
    @pytest.mark.parametrize("first", EVENTS)
    def test_m3_every_pair(self, first: str) -> None:
        for second in EVENTS:
            life, run = play([(1700.0, first), (40.0, second)])
            check(life, run)

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(
            st.tuples(
                st.sampled_from([0.0, 1.0, 60.0, 400.0, 900.0]), st.sampled_from(EVENTS)
            ),
            min_size=1, max_size=8,
        )
    )  # fmt: skip
    def test_m3_random_sequences(self, steps: list[tuple[float, str]]) -> None:
        life, run = play(steps)
        check(life, run)


FUNCTION_NAMES = (
    "advance_run", "apply_ray_cluster", "check_ray_job", "close_run", "delete_ray_cluster",
    "export_checkpoints", "release_accelerators", "stage_data", "stop_ray_job",
    "submit_ray_job", "take_inventory",
)  # fmt: skip


def misfortune(life: Life, chance: random.Random) -> None:
    """Arrange what goes wrong in one life."""
    for _ in range(chance.randrange(3)):
        life.after.append(lose_answer(chance.choice(FUNCTION_NAMES), chance.randrange(1, 4)))
    life.cloud.deploys = [
        Deploy(chance.choice(["STOCKOUT", "QUOTA", "BUILD_ERROR", "INFRA_TRANSIENT"]), "told",
               makes=chance.random() < 0.7, seconds=chance.choice([30, 400, 900]))
        for _ in range(chance.randrange(3))
    ]  # fmt: skip
    life.cloud.destroys = chance.choices(["ok", "fails", "lies"], k=chance.randrange(4))
    life.cloud.exports = chance.choices(["partial", "ok", "internal error"], k=chance.randrange(3))
    life.cloud.scripts = {
        n: Script(
            fail_at=chance.choice([None, None, None, 3, 9]),
            hang_at=chance.choice([None, None, None, 7]),
            silent=chance.random() < 0.3,
            mute=chance.random() < 0.1,
        )
        for n in range(1, 10)
    }
    life.deliver_events = chance.random() < 0.8
    flaky = chance.choice([None, None, "gke", "lustre", "builds", "compute", "storage"])
    if flaky:
        life.cloud.hooks.append(
            lambda service, method: _raise(service) if service == flaky
            and chance.random() < 0.2 else None
        )  # fmt: skip


def _raise(service: str) -> None:
    raise unavailable(service)


class TestFates:
    @pytest.mark.parametrize("seed", range(60))
    def test_any_fate_ends_clean(self, seed: int) -> None:
        """Nodes, heads and workflows die at random; what fails prints its seed in its name."""
        chance = random.Random(seed)

        async def story(life: Life) -> Run:
            run_id = await life.start({"zones": ["us-east1-b", "us-east1-c", "us-central1-a"]})
            for _ in range(chance.randrange(5)):
                await life.pass_time(chance.choice([20, 300, 900, 1500]))
                if life.record(run_id).is_over:
                    break
                blow(life, run_id, chance)
            return await life.until_closed(run_id)

        life = Life()
        misfortune(life, chance)
        run = life.run(story)
        check_nothing_is_left(life, run)
        if run.safe_export is not None:
            names = {key.removeprefix(run.safe_export.uri) for key in life.cloud.objects}
            assert "training_info.json" in names and "policy/weights/shard_0.bin" in names
        elif run.checkpoint is not None:
            assert run.export is not None and run.export.problem, life.story()
        assert "secret" not in json.dumps(life.replies)


def blow(life: Life, run_id: str, chance: random.Random) -> None:
    """Let one thing break now."""
    what = chance.choice(["preempt", "preempt", "head", "kill rl_run", "kill teardown", "room"])
    clusters = [one for one in life.cloud.clusters if one.name == run_id]
    if what == "kill rl_run":
        life.kill("rl-run")
    elif what == "kill teardown":
        life.kill("teardown")
    elif clusters and what == "preempt":
        clusters[0].kubernetes.preempt(chance.randrange(1, 4), leaves_events=chance.random() < 0.5)
    elif clusters and what == "head" and clusters[0].kubernetes.head is not None:
        clusters[0].kubernetes.lose_head(chance.choice([30, 600]))
    elif clusters and what == "room":
        clusters[0].kubernetes.room = chance.choice([0, 4, 8])
