"""`make demo` strikes once, between steps of a training that has saved, and judges the end."""

from __future__ import annotations

from typing import Any

import pytest
from lustrum.core.record import Outcome, State
from lustrum.core.request import StartRequest

from infra.local import demo
from infra.local.strikes import NoTarget
from testing import records


class Struck:
    """Notes what was struck; refuses the first time."""

    def __init__(self) -> None:
        self.tries: list[str] = []

    def preempt(self, run_id: str) -> str:
        self.tries.append(run_id)
        if len(self.tries) == 1:
            raise NoTarget("it moved on")
        return "preempted a node"

    def fill(self, run_id: str, percent: float) -> str:
        return f"{run_id} {percent}"


def test_the_requests_are_requests() -> None:
    for part in demo.parts():
        assert StartRequest.model_validate(part.request).name == part.name


def test_a_strike_waits_for_a_save_and_is_repeated_until_it_met() -> None:
    strikes: Any = Struck()
    part = demo.parts()[0]
    part.run_id = records.RUN_ID
    run = records.eventful_run()
    saved = run.checkpoint
    for state, checkpoint in ((State.STAGING, saved), (State.TRAINING, None)):
        run.state, run.checkpoint = state, checkpoint
        demo._strike(strikes, part, run)
    assert not strikes.tries
    run.state, run.checkpoint = State.TRAINING, saved
    for _ in range(3):
        demo._strike(strikes, part, run)
    assert len(strikes.tries) == 2 and part.struck


@pytest.mark.parametrize(
    ("struck", "outcome", "left", "code"),
    [
        (True, Outcome.SUCCEEDED, [], 0),
        (False, Outcome.SUCCEEDED, [], 1),  # nothing was shown
        (True, Outcome.FAILED, [], 1),
        (True, Outcome.SUCCEEDED, ["rl-a"], 1),
    ],
)
def test_it_is_good_only_when_met_survived_and_empty(
    struck: bool, outcome: Outcome, left: list[str], code: int
) -> None:
    part = demo.parts()[0]
    part.record, part.struck = records.eventful_run(), struck
    part.record.outcome = outcome
    assert demo._end([part], left, 1.0) == code
