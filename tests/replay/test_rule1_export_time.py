"""Rule 1: a checkpoint is not destroyed while it is being exported, and its export fits."""

from __future__ import annotations

from typing import Any

import pytest
from lustrum.core import plan as plans
from lustrum.core.record import Run
from lustrum.core.record_parts import Export
from lustrum.core.request import BadRequest
from lustrum.core.reserve import export_rate, export_seconds, extension_hours, stop_at

from testing.dashboard import Script
from testing.life import Life
from testing.samples import NOW, plan, run, saved
from testing.stories import check_nothing_is_left, check_the_newest_is_safe, to_the_end

HOURS = 1.0  # of the runs below; their hard deadline is an hour later


def slow_export(seconds: float, **checkpoints: Any) -> tuple[Life, dict[str, Any]]:
    """A run whose training goes on until its deadline, and whose export is slow."""
    life = Life()
    life.cloud.export_seconds = seconds
    life.cloud.scripts = {n: Script(step_seconds=200) for n in range(1, 9)}
    return life, {"limits": {"hours": HOURS}, "checkpoints": checkpoints}


class TestRule1AtTheHardDeadline:
    def test_rule1_an_export_under_way_gets_one_extension(self) -> None:
        life, request = slow_export(5400)
        run = life.run(to_the_end(request))
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 2)
        assert run.outcome == "PARTIAL" and run.extended_at_deadline
        first = run.created_at + (HOURS + 1) * 3600
        assert run.hard_deadline_at == first + 2 * 3600
        assert run.safe_export is not None and run.safe_export.verified_at is not None
        assert first < run.safe_export.verified_at < run.hard_deadline_at

    @pytest.mark.parametrize(
        ("seconds", "more"),
        (
            (5400, {"at_deadline": "destroy_anyway"}),
            (5400, {"extend_hours": 0.2}),
            (5400, {"extend_cost_usd": 5}),
            (30_000, {}),
        ),
        ids=str,
    )
    def test_rule1_beyond_what_the_request_allows_it_is_destroyed(
        self, seconds: float, more: Any
    ) -> None:
        life, request = slow_export(seconds, **more)
        run = life.run(to_the_end(request))
        check_nothing_is_left(life, run)
        assert run.safe_export is None and run.outcome == "FAILED"
        allowed = run.created_at + (HOURS + 1 + extension_hours(run.plan)) * 3600
        assert run.hard_deadline_at <= allowed + 1
        assert run.closed_at is not None and run.closed_at < allowed + 1200

    def test_rule1_the_bill_of_an_extension_stays_in_the_worst_case(self) -> None:
        life, request = slow_export(9000)
        run = life.run(to_the_end(request))
        spent = sum(one.dollars(run.closed_at or 0) for one in run.usage)
        assert run.extended_at_deadline and 0 < spent <= run.plan.worst_cost

    def test_rule1_extend_is_accepted_while_it_exports(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start(request)
            await life.until_state(run_id, "EXPORTING")
            await life.pass_time(600)
            for _ in range(3):
                body = {"action": "extend", "run_id": run_id, "hours": 1}
                answers.append((await life.publish(body, "x1"))["status"])
            return await life.until_closed(run_id)

        answers: list[str] = []
        life, request = slow_export(5400, at_deadline="destroy_anyway")
        run = life.run(story)
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 2)
        assert answers == ["extended", "duplicate", "duplicate"]
        assert run.hard_deadline_at == run.created_at + (HOURS + 2) * 3600
        assert run.plan.worst_cost <= run.plan.cost_limit

    def test_rule1_extend_beyond_the_cost_limit_is_refused_while_it_exports(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start(request)
            await life.until_state(run_id, "EXPORTING")
            body = {"action": "extend", "run_id": run_id, "hours": 150}
            assert (await life.publish(body, "x1"))["status"] == "rejected"
            return await life.until_closed(run_id)

        life, request = slow_export(600)
        request["limits"]["cost_usd"] = 500
        check_nothing_is_left(life, life.run(story))


class TestRule1TheTrainingEndsInTime:
    def test_rule1_a_slow_disk_ends_the_training_early(self) -> None:
        """Saves of 10 MB take 6,000 s, so an export is expected to take 2.5 hours and more."""
        life = Life()
        life.cloud.export_seconds = 8000
        life.cloud.scripts = {n: Script(step_seconds=300, save_seconds=6000) for n in range(1, 9)}
        request = {"limits": {"hours": 3.2}, "checkpoints": {"at_deadline": "destroy_anyway"}}
        run = life.run(to_the_end(request))
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 2)
        assert run.outcome == "PARTIAL" and "so that its export fits" in run.reason
        stopped = next(one.at for one in run.history if one.state == "RELEASING")
        assert stopped < run.deadline_at - 3600
        assert run.closed_at is not None and run.closed_at < run.hard_deadline_at

    def test_rule1_the_rate_is_what_this_run_showed(self) -> None:
        one = run(checkpoint=saved(4))
        planned = export_rate(one)
        one.saves = [saved(2).model_copy(update={"bytes": 10**9, "seconds": 100.0})]
        assert export_rate(one) == 10**7 < planned
        one.secured = Export(step=2, uri="gs://b/", started_at=0, verified_at=500, bytes=10**9)
        assert export_rate(one) == 2 * 10**6
        assert export_seconds(one) == 10**9 / (2 * 10**6) * 1.5 + 20 * one.plan.timing.poll

    def test_rule1_without_a_checkpoint_the_deadline_stands(self) -> None:
        assert stop_at(run()) == run().deadline_at
        slow = run(checkpoint=saved(2).model_copy(update={"bytes": 10**12, "seconds": 8000.0}))
        slow.saves = [slow.checkpoint] if slow.checkpoint else []
        assert NOW < stop_at(slow) < slow.deadline_at

    def test_rule1_an_export_that_cannot_fit_is_said_at_plan(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        profile = plans.profiles()["qwen2.5-72b-grpo"]
        for gib, fits in ((950, True), (40_000, False)):
            large = profile.model_copy(update={"checkpoint_gib": gib})
            monkeypatch.setattr(plans, "profiles", lambda large=large: {"qwen2.5-72b-grpo": large})
            monkeypatch.setattr(plans, "_lustre_faults", lambda plan: [])
            if fits:
                assert plan(limits={"hours": 1.5}).checkpoint_gib == gib
                continue
            with pytest.raises(BadRequest, match="leaves no time to train") as bad:
                plan(limits={"hours": 1.5})
            assert bad.value.field == "limits.hours" and "GB/s" in bad.value.reason
