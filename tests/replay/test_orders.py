"""M3 and E13: any order, any repetition, any fate; the promises hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lustrum import __version__
from lustrum.core.record import Run
from lustrum.handlers import reactions as event_steps

from testing.draw import draw
from testing.life import Life
from testing.services import push
from testing.simulation import live
from testing.stories import check_nothing_is_left

EVENTS = (
    "start",
    "cluster_ready",
    "job_succeeded",
    "capacity_alert_open",
    "capacity_alert_closed",
    "cancel",
    "deadline",
    "job_failed",
)


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
        for one in life.cloud.instances:
            one.files.used = 0.96 if event.endswith("open") else 0.75
        incident = {
            "incident_id": "i1",
            "state": event.rsplit("_", 1)[-1],
            "started_at": 1767225600,
            "policy_user_labels": {"lustrum-action": "stop"},
            "resource": {"labels": {"instance_id": run_id}},
        }
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
    assert run.lustrum_version == __version__
    assert life.services.outbox.kinds("run.closed")[0]["lustrum_version"] == __version__
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
            st.tuples(st.sampled_from([0.0, 1.0, 60.0, 400.0, 900.0]), st.sampled_from(EVENTS)),
            min_size=1,
            max_size=8,
        )
    )
    def test_m3_random_sequences(self, steps: list[tuple[float, str]]) -> None:
        life, run = play(steps)
        check(life, run)


class TestFates:
    @pytest.mark.parametrize("seed", range(100_000, 100_040))
    def test_any_fate_ends_clean(self, seed: int) -> None:
        """Nodes, heads, functions and workflows die at random; the seed is in the test's name."""
        assert live(draw(seed)).found == {}
