"""Static checks of jumps: a step may go on at a step of its own or an enclosing block.

It may not leave a loop or a branch that way (since 2024-03), nor enter another block.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from workflows_engine import model

Report = Callable[[int, str, str], None]


@dataclass
class _Place:
    """The blocks around a step: names it may jump to, and what it is inside of."""

    names: set[str]
    outer: _Place | None = None
    border: str | None = None  # "loop", "branch" or "parallel loop" when outer is out of reach

    def reach(self) -> set[str]:
        here = set(self.names)
        if self.border is None and self.outer is not None:
            here |= self.outer.reach()
        return here

    def beyond(self) -> set[str]:
        return self.names | (self.outer.beyond() if self.outer is not None else set())

    def inside(self, *kinds: str) -> bool:
        """Whether the nearest border around here is one of ``kinds``."""
        place: _Place | None = self
        while place is not None:
            if place.border is not None:
                return place.border in kinds
            place = place.outer
        return False

    def within(self, *kinds: str) -> bool:
        """Whether any border around here is one of ``kinds``."""
        place: _Place | None = self
        while place is not None:
            if place.border in kinds:
                return True
            place = place.outer
        return False


class JumpChecker:
    """Checks every ``next`` of a routine."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._all: set[str] = set()

    def routine(self, routine: model.Routine) -> None:
        """Check a routine; each fault goes to the report."""
        self._all = set(_names(routine.steps))
        self._steps(routine.steps, None, None)

    def _steps(self, steps: list[model.Step], outer: _Place | None, border: str | None) -> None:
        place = _Place({step.name for step in steps}, outer, border)
        for step in steps:
            self._next(step.next, step.line, place)
            self._body(step.body, step.line, place)

    def _body(self, body: model.Body | None, line: int, at: _Place) -> None:
        match body:
            case model.Switch(cases):
                for case in cases:
                    self._next(case.next, case.line, at)
                    self._body(case.body, case.line, at)
            case model.For(_, _, _, _, steps):
                self._steps(steps, at, "loop")
            case model.Parallel(_, _, branches, loop):
                for _, steps in branches:
                    self._steps(steps, at, "branch")
                if loop is not None:
                    self._steps(loop.steps, at, "parallel loop")
            case model.Try(steps, inline, _, _, handler):
                self._steps(steps, at, None)
                self._body(inline, line, at)
                self._steps(handler or [], at, None)
            case model.Nested(steps):
                self._steps(steps, at, None)
            case model.Return() if at.within("branch", "parallel loop"):
                self._report(
                    line,
                    "a branch of a parallel step cannot return",
                    "an assign to a shared variable, and the return after the parallel step",
                )

    def _next(self, name: str | None, line: int, at: _Place) -> None:
        if name is None or name.startswith("${"):
            return
        if name in ("break", "continue"):
            loops = ("loop",) if name == "break" else ("loop", "parallel loop")
            if not at.inside(*loops):
                self._report(line, f"next: {name} is not inside a for loop", "the name of a step")
        elif name == "end":
            if at.within("branch", "parallel loop"):
                self._report(
                    line, "a branch of a parallel step cannot end the workflow", "no next"
                )
        elif name in at.reach():
            return
        elif name in at.beyond():
            self._report(
                line,
                f"the step {name!r} is outside this loop or branch",
                "break or continue, and a switch after the loop",
            )
        elif name in self._all:
            self._report(
                line,
                f"the step {name!r} is inside another step",
                "the name of the step that holds it",
            )
        else:
            close = difflib.get_close_matches(name, sorted(self._all), 1, 0.6)
            self._report(
                line,
                f"there is no step {name!r} to go to",
                close[0] if close else "the name of a step, or end",
            )


def _names(steps: list[model.Step]) -> Iterator[str]:
    for step in steps:
        yield step.name
        yield from _names_in(step.body)


def _names_in(body: model.Body | None) -> Iterator[str]:
    match body:
        case model.Switch(cases):
            for case in cases:
                yield from _names_in(case.body)
        case model.For(_, _, _, _, steps) | model.Nested(steps):
            yield from _names(steps)
        case model.Parallel(_, _, branches, loop):
            for _, steps in branches:
                yield from _names(steps)
            yield from _names_in(loop)
        case model.Try(steps, inline, _, _, handler):
            yield from _names(steps)
            yield from _names_in(inline)
            yield from _names(handler or [])
        case _:
            return
