"""The live view: one line per change, the end of the watching, the line scripts read."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable

import pytest
from lustrum.core.cost import prices
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.failures import Failure
from lustrum.core.history import phases
from lustrum.core.record import Moment, Outcome, Run, State
from lustrum.core.record_parts import Checkpoint, Progress
from lustrum.show.terminal_view import LiveView, follow, last_line, panel, sparkline
from lustrum.show.timeline import spent
from rich.console import Console

from testing import records


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self, at: float = records.BEGAN) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


def plain_view(clock: Clock) -> tuple[LiveView, Callable[[], list[str]]]:
    out = io.StringIO()
    view = LiveView(Console(file=out, width=40), clock.now)
    return view, lambda: out.getvalue().splitlines()


class TestLines:
    def test_show_says_each_change_once_on_one_line(self) -> None:
        clock = Clock()
        view, lines = plain_view(clock)
        run = records.eventful_run()
        with view:
            view.show(run)
            first = lines()
            view.show(run.model_copy(deep=True))
        assert lines() == first
        assert sum("saved step_" in line for line in first) == len(run.saves)
        assert any("TRAINING" in line for line in first)
        assert any("STOCKOUT 0 of 8 nodes" in line for line in first)
        assert any("exported step_20 to gs://" in line for line in first)
        assert any("teardown: DESTROYING" in line for line in first)
        assert first[-1].endswith(str(run.report_uri))

    def test_show_says_what_is_new_since_the_last_time(self) -> None:
        view, lines = plain_view(Clock())
        run = records.new_run()
        with view:
            view.show(run)
            before = len(lines())
            run.state = State.TRAINING
            run.history = [*run.history, Moment(state=State.TRAINING, at=records.BEGAN + 5)]
            run.progress = Progress(step=3, reward=0.5, at=records.BEGAN + 9, attempt=1)
            run.saves = [Checkpoint(step=2, bytes=3 << 30, seconds=41, at=records.BEGAN + 8)]
            view.show(run)
        new = lines()[before:]
        assert [line[10:] for line in new] == [
            "TRAINING",
            "saved step_2  3.0 GiB  41 s",
            "step 3/20  reward 0.500",
        ]

    def test_show_says_states_of_the_same_second(self) -> None:
        view, lines = plain_view(Clock())
        run = records.new_run()
        with view:
            view.show(run)
            run.history = [*run.history, Moment(state=State.PROVISIONING, at=records.BEGAN)]
            view.show(run)
            run.history = [*run.history, Moment(state=State.CLOSED, at=records.BEGAN)]
            view.show(run)
        assert [line[10:] for line in lines()] == ["REQUESTED", "PROVISIONING", "CLOSED"]

    def test_show_of_a_history_that_was_cut_repeats_nothing(self) -> None:
        view, lines = plain_view(Clock())
        run = records.eventful_run()
        with view:
            view.show(run)
            before = len(lines())
            run.history = run.history[5:]
            view.show(run)
        assert len(lines()) == before

    def test_show_prints_markup_of_a_message_as_text(self) -> None:
        view, lines = plain_view(Clock())
        run = records.new_run()
        run.history[0].note = "[red]not red[/red] [/]"
        with view:
            view.show(run)
        assert "[red]not red[/red] [/]" in lines()[0]


class TestPanel:
    def test_panel_draws_what_people_look_for(self) -> None:
        out = io.StringIO()
        run = records.eventful_run()
        Console(file=out, width=100).print(panel(run, records.BEGAN + 9e4))
        text = out.getvalue()
        for expected in (
            run.run_id,
            "SUCCEEDED",
            "us-central1-b",
            "20/20",
            "947.0 GiB",
            "exported",
            f"{records.cost(run)} of at most ${run.plan.worst_cost:,.2f}",
            "5 h 25 min",
            "PREEMPTED",
        ):
            assert expected in text

    def test_panel_of_a_new_run_draws(self) -> None:
        out = io.StringIO()
        run = records.new_run()
        run.plan.name = "[/bad]"
        Console(file=out, width=100).print(panel(run, records.BEGAN + 60))
        assert "deadline in 5 h 59 min" in out.getvalue() and "[/bad]" in out.getvalue()

    def test_view_on_a_terminal_leaves_the_last_panel(self) -> None:
        out = io.StringIO()
        clock = Clock(records.BEGAN + 9e4)
        with LiveView(Console(file=out, force_terminal=True, width=100), clock.now) as view:
            view.show(records.eventful_run())
        assert "SUCCEEDED" in out.getvalue()


class TestFollow:
    def test_follow_waits_for_the_report_of_a_closed_run(self) -> None:
        clock = Clock()
        view, _ = plain_view(clock)
        closed = records.eventful_run()
        clock.at = closed.closed_at or 0
        without = closed.model_copy(update={"report_uri": None})
        answers = [without, without, closed]
        with view:
            run = follow(lambda: answers.pop(0), view, now=clock.now, sleep=clock.sleep)
        assert run.report_uri is not None and not answers

    def test_follow_gives_up_on_a_report_that_never_comes(self) -> None:
        clock = Clock()
        view, _ = plain_view(clock)
        run = records.eventful_run().model_copy(update={"report_uri": None})
        clock.at = run.closed_at or 0
        with view:
            follow(lambda: run, view, now=clock.now, sleep=clock.sleep)
        assert 15 <= clock.at - (run.closed_at or 0) < 30

    def test_follow_waits_for_a_record_but_not_for_ever(self) -> None:
        clock = Clock()
        view, _ = plain_view(clock)

        def load() -> Run:
            raise NotFound("no run")

        with view, pytest.raises(NotFound):
            follow(load, view, now=clock.now, sleep=clock.sleep, patience=60)
        assert 60 <= clock.at - records.BEGAN < 70

    def test_follow_outlasts_a_ledger_that_does_not_answer(self) -> None:
        clock = Clock()
        view, lines = plain_view(clock)
        calls = iter(range(100))

        def load() -> Run:
            if next(calls) < 40:
                raise ServiceError(Failure.INFRA_TRANSIENT, "503", retryable=True)
            return records.eventful_run()

        with view:
            follow(load, view, now=clock.now, sleep=clock.sleep)
        assert sum("does not answer" in line for line in lines()) == 1

    def test_follow_ends_on_an_error_that_does_not_pass(self) -> None:
        clock = Clock()
        view, _ = plain_view(clock)

        def load() -> Run:
            raise ServiceError(Failure.ACCESS, "403")

        with view, pytest.raises(ServiceError):
            follow(load, view, now=clock.now, sleep=clock.sleep)


class TestFigures:
    def test_last_line_is_the_contract(self) -> None:
        run = records.eventful_run()
        assert last_line(run, records.BEGAN + 9e9) == (
            f"run {run.run_id} CLOSED SUCCEEDED step 20/20 cost {records.cost(run)} "
            f"report gs://reports/runs/{run.run_id}/report.html"
        )

    def test_last_line_of_a_run_that_is_not_over(self) -> None:
        line = last_line(records.new_run(), records.BEGAN)
        assert line.endswith("REQUESTED UNFINISHED step 0/20 cost $0.00 report -")

    def test_phases_cover_the_whole_life_without_gap(self) -> None:
        run = records.eventful_run()
        found = phases(run, records.BEGAN + 9e9)
        assert found[0][1] == run.created_at and found[-1][2] == run.closed_at
        assert all(one[2] == after[1] for one, after in itertools.pairwise(found))

    def test_spent_counts_what_still_runs_until_now(self) -> None:
        run = records.eventful_run()
        run.usage = [run.usage[-1].model_copy(update={"until": None})]
        run.plan, run.closed_at = run.plan.model_copy(update={"extras": None}), None
        since, hour = run.usage[0].since, prices().node("a4-highgpu-8g", "spot")
        assert spent(run, since + 3600) == pytest.approx(8 * hour, abs=0.005)  # whole cents

    @pytest.mark.parametrize("values", [[], [1.0], [1.0, 1.0], [0.0, float(1)], list(range(99))])
    def test_sparkline_is_as_wide_as_its_values(self, values: list[float]) -> None:
        assert len(sparkline(values, 40)) == min(len(values), 40)


class TestOutcomes:
    @pytest.mark.parametrize("outcome", Outcome)
    def test_every_outcome_has_a_colour(self, outcome: Outcome) -> None:
        run = records.eventful_run()
        run.outcome = outcome
        out = io.StringIO()
        Console(file=out, width=100).print(panel(run, records.BEGAN))
        assert outcome.value in out.getvalue()
