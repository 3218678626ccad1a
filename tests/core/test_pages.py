"""The page of a living run and the page of all runs: what a user looks for, nothing hostile."""

from __future__ import annotations

from itertools import pairwise

import pytest
from lustrum.core.eta import seconds_left, step_seconds
from lustrum.core.failures import Failure
from lustrum.core.record import Mishap, Run, State
from lustrum.core.record_parts import Progress
from lustrum.show.curve import POINTS, curve, thin
from lustrum.show.index import render_index
from lustrum.show.live import learning_curves, render_live
from lustrum.show.waiting import waiting

from testing import records
from tests.core.test_report import HOSTILE, Page

AT = records.BEGAN + 255 * 60


def training_run() -> Run:
    """The eventful run as it was in its second attempt, at step 15."""
    run = records.eventful_run()
    run.state, run.outcome, run.reason = State.TRAINING, None, ""
    run.closed_at = run.report_uri = run.export = run.teardown = None
    run.history = [one for one in run.history if one.at <= AT]
    run.series = [one for one in run.series if one.at <= AT]
    run.saves = [one for one in run.saves if one.at <= AT]
    run.checkpoint, run.progress = run.saves[-1], run.series[-1]
    run.usage = [one for one in run.usage if one.since < AT]
    for one in run.usage:
        if one.until is not None and one.until > AT:
            one.until = None
    return run


def hostile_run() -> Run:
    """A run whose every text comes from somebody who means harm."""
    run = training_run()
    run.plan.name = run.plan.model = HOSTILE
    run.gpus = run.gpus.model_copy()
    run.mishaps = [
        Mishap(failure=Failure.USER_ERROR, at=AT, state=State.TRAINING, sentence=HOSTILE)
    ]
    run.series = [*run.series, Progress(step=16, reward=float("nan"), at=AT, attempt=2)]
    run.series += [Progress(step=17, reward=float("inf"), at=AT, attempt=2)]
    return run


def long_run(steps: int = 10_000) -> Run:
    """A run of so many steps, as its record would hold them."""
    run = training_run()
    run.plan.max_num_steps = steps
    every = steps // 1000
    run.series = [
        Progress(step=n * every, reward=n / 1000, loss=1 / (n + 1), at=AT - 1000 + n, attempt=2)
        for n in range(1000)
    ]
    save = run.saves[-1]
    run.saves = [save.model_copy(update={"step": n * every}) for n in range(1000)]
    return run


class TestEta:
    def test_it_is_the_pace_of_the_newest_steps_times_what_is_left(self) -> None:
        run = training_run()
        assert step_seconds(run) == 7 * 60
        assert seconds_left(run, run.progress.at) == 5 * 7 * 60
        assert seconds_left(run, run.progress.at + 60) == 5 * 7 * 60 - 60
        assert seconds_left(run, run.progress.at + 1e6) == 0

    def test_nobody_can_say_before_two_steps_of_this_attempt(self) -> None:
        run = training_run()
        run.attempt = 3
        assert seconds_left(run, AT) is None
        run.attempt, run.state = 2, State.RECOVERING
        assert seconds_left(run, AT) is None


class TestCurve:
    def test_thinning_keeps_the_spikes_and_the_order(self) -> None:
        points = [(step, 0.0) for step in range(10_000)]
        points[4321] = (4321, 9.0)
        found = thin(points)
        assert len(found) <= POINTS and (4321, 9.0) in found
        assert all(before[0] <= after[0] for before, after in pairwise(found))

    def test_what_is_not_finite_is_left_out(self) -> None:
        assert curve("reward", [(1, [(1, float("nan"))])], [], 20) is None
        drawn = curve("reward", [(1, [(1, float("inf")), (2, 0.5)])], [], 20)
        assert drawn is not None and "inf" not in drawn.svg and drawn.high == "0.5"

    def test_it_says_in_words_what_it_draws(self) -> None:
        drawn = curve("loss", [(1, [(1, 2.0), (2, 1.0)])], [2], 20)
        assert drawn is not None
        assert 'role="img" aria-label="loss by step: from 1 to 2, newest 1"' in drawn.svg

    def test_a_training_without_rewards_shows_its_loss(self) -> None:
        run = training_run()
        run.series = [Progress(step=n, loss=1 / n, at=AT, attempt=2) for n in range(1, 5)]
        assert [one.name for one in learning_curves(run)] == ["loss"]


class TestLivePage:
    @pytest.mark.parametrize("state", sorted(set(State) - {State.CLOSED, State.REJECTED}))
    def test_each_state_says_what_is_waited_for_and_what_comes_next(self, state: State) -> None:
        run = training_run()
        run.state = state
        text = Page(render_live(run, AT)).text
        waits = waiting(run)
        assert waits is not None
        assert f"Waiting for {waits.what}, for {waits.how_long(AT)}." in text
        assert f"Next: {waits.then}." in text

    def test_it_names_what_a_user_looks_for(self) -> None:
        text = Page(render_live(training_run(), AT, said="step 15 of 20")).text
        for expected in (
            "step 16 of 20, for 6 min 00 s of at most 1 h 00 min",
            "The last poll said: step 15 of 20",
            "29 min 00 s",  # five steps of seven minutes, six minutes into the first
            "at 7 min 00 s a step",
            "limit $2,500.00",
            "/h",
            "step 16",
            "on Lustre alone",
            "PREEMPTED",
            f"lustrum cancel {records.RUN_ID}",
        ):
            assert expected in text, expected

    def test_it_loads_itself_again_only_while_the_run_lives(self) -> None:
        run = training_run()
        assert 'http-equiv="refresh"' not in render_live(run, AT)
        assert "60; url=https://page.test/x" in render_live(run, AT, address="https://page.test/x")
        run.state = State.CLOSED
        assert "refresh" not in render_live(run, AT, address="https://page.test/x")

    def test_hostile_text_stays_text(self) -> None:
        page = Page(render_live(hostile_run(), AT, said=HOSTILE, address='"><script>'))
        assert "script" not in page.tags and "img" not in page.tags
        assert not [name for name, _ in page.attributes if name.startswith("on")]
        assert HOSTILE in page.text

    def test_drawings_of_others_have_their_place(self) -> None:
        page = render_live(training_run(), AT, more=[("Lustre <&>", "<svg id='x'></svg>")])
        assert "Lustre &lt;&amp;&gt;" in page and "<svg id='x'></svg>" in page

    def test_a_run_of_ten_thousand_steps_is_a_small_page(self) -> None:
        assert len(render_live(long_run(), AT)) < 100_000


class TestIndex:
    def test_it_names_outcome_duration_cost_idle_share_and_link(self) -> None:
        run = records.eventful_run()
        page = Page(render_index([run], AT, {run.run_id: "https://page.test/x"}))
        idle = f"{(4 + 12 + 7) / 183:.0%}"  # minutes before, between and after what trained
        for expected in ("SUCCEEDED", "5 h 25 min", records.cost(run), idle, "20/20"):
            assert expected in page.text, expected
        assert ("href", "https://page.test/x") in page.attributes

    def test_hostile_names_and_records_stay_text(self) -> None:
        page = Page(render_index([hostile_run()], AT, {}, {"rl-0000000000": HOSTILE}))
        assert "script" not in page.tags and HOSTILE in page.text

    def test_of_no_run_it_says_how_to_begin(self) -> None:
        assert "lustrum start" in Page(render_index([], AT, {})).text
