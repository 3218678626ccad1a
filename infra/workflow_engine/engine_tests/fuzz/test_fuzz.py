"""Made workflows end as workflows end: no internal error, no hang, no error without a tag."""

from __future__ import annotations

import pytest

from engine_tests.fuzz.grammar import Grammar
from engine_tests.fuzz.run import fuzz
from engine_tests.fuzz.values import text


def test_a_thousand_workflows() -> None:
    tally, _ = fuzz(0, 1000)
    assert tally.findings == []
    # The grammar is worth its time only when most of what it makes runs, and ends in many ways.
    assert tally.ends["refused"] < 350
    assert tally.ends["SUCCEEDED"] > 150
    assert tally.ends["FAILED with a documented tag"] > 150
    assert tally.ends["FAILED with its own error"] > 10


@pytest.mark.slow
def test_a_hundred_thousand_workflows() -> None:
    tally, _ = fuzz(0, 100_000)
    assert tally.findings == []


def test_one_seed_makes_one_workflow() -> None:
    assert text(Grammar(7).source()) == text(Grammar(7).source()) != text(Grammar(8).source())
