from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lustrum.core.events import JobEvent
from lustrum.core.progress import SERIES, absorb, log_events
from lustrum.core.record import Run

from testing.samples import NOW, RUN_ID, run


def event(kind: str, attempt: int = 1, **more: Any) -> JobEvent:
    body = {"type": kind, "run_id": RUN_ID, "attempt": attempt, "event_id": "e", "at": NOW}
    return JobEvent.model_validate({**body, **more})


def save(step: int, attempt: int = 1, at: float = NOW, size: int = 10) -> JobEvent:
    return event(
        "checkpoint.saved",
        attempt,
        step=step,
        max_steps=20,
        at=at,
        checkpoint={"step": step, "bytes": size, "files": 4, "seconds": 9.0},
    )


def after(events: tuple[JobEvent, ...] | list[JobEvent]) -> Run:
    one = run(attempt=2, progress={}, saves=[], series=[])
    for item in events:
        absorb(one, item, NOW)
    return one


FEW = (
    event(
        "job.progress",
        step=2,
        max_steps=20,
        reward=0.2,
        at=NOW - 50,
        steps=[{"step": 1, "reward": 0.1}, {"step": 2, "reward": 0.2}],
    ),
    save(2, at=NOW - 40),
    event("job.progress", step=3, at=NOW - 30, steps=[{"step": 3, "reward": None}]),
    save(4, at=NOW - 20),
    save(4, attempt=2, at=NOW - 10, size=11),
    event("job.completed", step=4, exit_code=1),
)
EVENTS = st.builds(
    lambda kind, attempt, step, reward, at, size: (
        save(step, attempt, at, size)
        if kind == "checkpoint.saved"
        else event(kind, attempt, step=step, reward=reward, at=at, max_steps=20)
    ),
    st.sampled_from(["job.progress", "checkpoint.saved", "job.stalled"]),
    st.integers(1, 3),
    st.integers(0, 6),
    st.none() | st.just(0.5),
    st.integers(0, 50).map(lambda n: NOW - n),
    st.integers(1, 3),
)


class TestAbsorb:
    def test_e13_every_order_of_the_same_events_gives_the_same_record(self) -> None:
        first = after(FEW)
        assert first.checkpoint is not None
        assert (first.checkpoint.step, first.checkpoint.bytes) == (4, 11)
        assert (first.progress.step, first.progress.attempt) == (4, 2)
        for order in itertools.permutations(FEW):
            assert after(order) == first

    @given(st.lists(EVENTS, max_size=8), st.randoms(use_true_random=False))
    def test_e13_any_events_in_any_order_with_any_repetition(
        self, events: list[JobEvent], chance: Any
    ) -> None:
        again = [*events, *chance.choices(events, k=3)] if events else []
        chance.shuffle(again)
        assert after(again) == after(events)

    def test_absorb_says_whether_it_was_new(self) -> None:
        one = run()
        assert absorb(one, save(2), NOW)
        assert not absorb(one, save(2), NOW)
        assert not absorb(one, event("job.completed", exit_code=0), NOW)

    def test_absorb_ignores_another_run_and_an_attempt_that_is_not_yet(self) -> None:
        one = run()
        other = JobEvent.model_validate({**save(2).model_dump(), "run_id": "rl-ffffffffff"})
        assert not absorb(one, other, NOW)
        assert not absorb(one, save(2, attempt=9), NOW)
        assert one.checkpoint is None

    def test_absorb_a_late_event_of_an_earlier_zone_is_no_checkpoint_here(self) -> None:
        """Its file system is gone; training would be thought to begin where nothing is."""
        one = run(attempt=2)
        assert one.placement is not None
        one.placement.attempts_before = 1
        absorb(one, save(8, attempt=1), NOW)
        assert one.checkpoint is None
        absorb(one, save(2, attempt=2), NOW)
        assert one.checkpoint is not None and one.checkpoint.step == 2
        nowhere = run(placement=None)
        absorb(nowhere, save(8), NOW)
        assert nowhere.checkpoint is None

    def test_absorb_never_goes_back(self) -> None:
        one = run()
        absorb(one, save(8), NOW)
        absorb(one, save(4, at=NOW + 5), NOW)
        assert one.checkpoint is not None and one.checkpoint.step == 8

    def test_absorb_a_clock_nobody_can_believe(self) -> None:
        one = run()
        for at in (NOW + 1e9, 0, -5, float("nan"), "yesterday", "9999-01-01T00:00:00Z"):
            absorb(one, event("job.progress", step=1, at=at), NOW)
            assert one.progress.at == NOW

    def test_absorb_a_long_training_stays_small(self) -> None:
        one = run()
        for first in range(0, 20_000, 500):
            steps = [{"step": first + n, "reward": 0.5} for n in range(500)]
            absorb(one, event("job.progress", step=first + 499, steps=steps), NOW)
        assert len(one.series) <= SERIES + 500
        assert one.series[-1].step > 19_000
        assert len(one.model_dump_json()) < 900_000


class TestLogEvents:
    def test_log_events_are_found_between_other_lines(self) -> None:
        line = json.dumps({"type": "job.progress", "run_id": RUN_ID, "event_id": "e", "step": 3})
        text = f"noise\n(driver pid=7) LUSTRUM {line}\nLUSTRUM {{\nLUSTRUM []\nLUSTRUM {{}}\n"
        assert [one.step for one in log_events(text, RUN_ID, 0)] == [3]

    @pytest.mark.parametrize("more", ({"run_id": "rl-ffffffffff"}, {"attempt": 2}), ids=repr)
    def test_log_events_of_another_run_or_attempt_are_none(self, more: dict[str, Any]) -> None:
        event = {"type": "job.completed", "run_id": RUN_ID, "attempt": 1, "event_id": "e"}
        log = f"LUSTRUM {json.dumps({**event, **more})}\nLUSTRUM {json.dumps(event)}"
        assert len(list(log_events(log, RUN_ID, 1))) == 1

    @given(st.text())
    def test_log_events_any_log(self, text: str) -> None:
        list(log_events("LUSTRUM {" + text, RUN_ID, 0))
        list(log_events(text, RUN_ID, 0))

    def test_log_events_a_deep_line_is_skipped(self) -> None:
        assert list(log_events('LUSTRUM {"a": ' + "[" * 100_000, RUN_ID, 0)) == []
