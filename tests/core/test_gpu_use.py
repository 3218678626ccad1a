"""Reports of GPUs in the record, in the live view, in the report; the spec that asks for them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from lustrum.core.cost import Usage
from lustrum.core.events import JobEvent
from lustrum.core.gpu_use import GpuUse, paid_seconds
from lustrum.core.progress import absorb
from lustrum.core.record import Run
from lustrum.core.supervisor_jobs import train_spec
from lustrum.show.gpus import gpu_facts, gpu_line
from lustrum.show.report import render
from lustrum.show.terminal_view import LiveView, panel
from rich.console import Console

from testing.samples import NOW, RUN_ID, plan, run
from testing.services import FakeServices

REPORT = {
    "count": 64,
    "nodes": 8,
    "utilisation": 93.4,
    "lowest": 0,
    "memory_percent": 71.0,
    "watts": 41_234.0,
    "ecc": 0,
    "xid": 0,
    "busy_seconds": 3000.0,
    "seen_seconds": 4000.0,
    "idle_seconds": 0,
    "faults": [],
}


def beat(attempt: int = 1, at: float = NOW, **more: Any) -> JobEvent:
    body = {"type": "job.progress", "run_id": RUN_ID, "attempt": attempt, "event_id": "e"}
    return JobEvent.model_validate({**body, "step": 2, "at": at, "gpus": {**REPORT, **more}})


def after(*events: JobEvent) -> Run:
    one = run(attempt=2)
    for event in events:
        absorb(one, event, NOW)
    return one


class TestAbsorb:
    def test_every_order_gives_the_same(self) -> None:
        events = (
            beat(1, NOW - 40, busy_seconds=10, seen_seconds=20),
            beat(1, NOW - 30, busy_seconds=30, seen_seconds=40, utilisation=50),
            beat(2, NOW - 20, busy_seconds=5, seen_seconds=6, utilisation=60),
            beat(2, NOW - 20, busy_seconds=5, seen_seconds=6, utilisation=60),
        )
        first = after(*events)
        assert first.gpus.busy == {1: 30, 2: 5}
        assert first.gpus.busy_seconds == 35
        assert first.gpus.mean_percent == pytest.approx(100 * 35 / 46)
        assert first.gpus.newest is not None and first.gpus.newest.utilisation == 60
        for order in itertools.permutations(events):
            assert after(*order).gpus == first.gpus

    @pytest.mark.parametrize(
        "odd",
        (
            {"count": 0},
            {"utilisation": 101},
            {"busy_seconds": -1},
            {"watts": float("inf")},
            {"ecc": "many"},
            {"nodes": 10**400},
        ),
        ids=lambda odd: next(iter(odd)),
    )
    def test_a_report_that_cannot_be_believed_does_not_cost_the_event(self, odd: Any) -> None:
        event = beat(**odd)
        assert event.gpus is None and event.step == 2
        assert after(event).gpus == GpuUse()

    def test_faults_are_few_and_short(self) -> None:
        event = beat(faults=["\x1b[31mx" * 1000] * 100)
        assert event.gpus is not None
        assert len(event.gpus.faults) <= 8
        assert all(len(one) <= 100 and "\x1b" not in one for one in event.gpus.faults)

    def test_a_record_from_before_gpus_were_seen_is_read(self) -> None:
        body = run().model_dump(mode="json")
        del body["gpus"]
        assert Run.model_validate(body).gpus == GpuUse()

    def test_it_survives_the_ledger(self) -> None:
        one = after(beat(1), beat(2))
        assert Run.model_validate_json(one.model_dump_json()).gpus == one.gpus


class TestPaid:
    def test_paid_are_all_gpus_of_all_nodes_while_they_were_up(self) -> None:
        usage = [
            Usage(resource="accelerators", pieces=8, rate=1, since=0, until=100),
            Usage(resource="accelerators", pieces=8, rate=1, since=200),
            Usage(resource="lustre", pieces=1, rate=1, since=0, until=1000),
        ]
        assert paid_seconds(usage, 8, 250) == 64 * 150


class TestShown:
    def test_line(self) -> None:
        one = after(beat(idle_seconds=720, ecc=2, faults=["GPU 3 of node 10.0.0.7: Xid 79"]))
        assert gpu_line(one) == (
            "64 on 8 nodes, 93 % busy, 71 % of their memory, 41.2 kW, idle for 12 min 00 s, "
            "2 ECC errors, GPU 3 of node 10.0.0.7: Xid 79"
        )

    def test_nothing_is_shown_where_no_gpu_was_seen(self) -> None:
        one = run()
        assert (gpu_line(one), gpu_facts(one, NOW)) == ("", [])
        assert 'id="gpus"' not in render(one, [])

    def test_report_sets_used_beside_paid(self) -> None:
        one = after(beat())
        one.usage = [Usage(resource="accelerators", pieces=8, rate=1, since=NOW - 1000, until=NOW)]
        page = render(one, [])
        per_node = one.plan.gpus_per_node
        paid = 8 * per_node * 1000
        assert f"3,000 of {paid:,} paid ({100 * 3000 / paid:.0f} %)" in page

    def test_panel_has_a_row_and_the_log_a_line_when_they_fall_idle(self) -> None:
        console = Console(record=True, width=160, force_terminal=False)
        console.print(panel(after(beat(idle_seconds=600)), NOW))
        assert "idle for 10 min" in console.export_text()
        view, seen = LiveView(console), []
        with view:
            for seconds in (0, 10, 70, 80, 0):
                view.show(after(beat(idle_seconds=seconds, seen_seconds=4000)))
                seen.append("GPUs" in console.export_text())
        assert seen == [False, False, True, False, True]


class TestSpec:
    @staticmethod
    def spec(**limits: Any) -> dict[str, Any]:
        return train_spec(run(plan=plan(limits=limits)), FakeServices().settings, 1, NOW)

    def test_gpus_are_read_and_idle_ones_told(self) -> None:
        spec = self.spec()
        assert spec["gpu_seconds"] > 0
        assert "end_idle_gpus" not in spec

    def test_the_request_ends_a_run_whose_gpus_idle(self) -> None:
        spec = self.spec(gpus_idle_minutes=15)
        assert (spec["gpus_idle_seconds"], spec["end_idle_gpus"]) == (900, True)

    def test_the_local_profile_has_no_gpus_to_read(self) -> None:
        local = train_spec(run(plan=plan(profile="tiny-grpo")), FakeServices().settings, 1, NOW)
        assert "gpu_seconds" not in local
