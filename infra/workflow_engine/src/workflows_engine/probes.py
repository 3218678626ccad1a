"""Counters in the compiled steps of a routine, when its coverage is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workflows_engine import model
from workflows_engine.blocks import Op
from workflows_engine.control import Case
from workflows_engine.coverage import STEP, Coverage
from workflows_engine.evaluate import Compiled, combine
from workflows_engine.scope import Scope

Mark = Callable[[], None]


class Probes:
    """Adds the targets of a routine to a coverage, and what counts them to its steps."""

    def __init__(self, coverage: Coverage, routine: str) -> None:
        self._coverage = coverage
        self._routine = routine

    def mark(self, kind: str, step: str, line: int, number: int = 0) -> Mark:
        """What counts that a step or branch is reached."""
        target = self._coverage.target(kind, self._routine, step, line, number)

        def reached() -> None:
            target.hits += 1

        return reached

    def step(self, op: Op) -> None:
        """Count the beginnings of a step."""
        reached, run = self.mark(STEP, op.name, op.line), op.run

        def counting(scope: Scope) -> Any:
            reached()
            return run(scope)

        op.run = counting

    def conditions(self, step: str, body: model.Switch, cases: list[Case]) -> list[Case]:
        """Count each condition that holds, and each time that none does."""
        last = len(cases)
        counted: list[Case] = []
        for number, (condition, block, jump) in enumerate(cases, 1):
            source = body.cases[number - 1]
            always = isinstance(source.condition, model.Const) and source.condition.value is True
            held = self.mark("condition", step, source.line, number)
            past: Mark | None = None
            if number == last and not always:
                past = self.mark("no condition", step, body.cases[0].line)
            counted.append((_counted(condition, held, past), block, jump))
        return counted


def _counted(condition: Compiled, held: Mark, past: Mark | None) -> Compiled:
    def count(value: Any) -> Any:
        if value is True:
            held()
        elif value is False and past is not None:
            past()
        return value

    return combine([condition], count)
