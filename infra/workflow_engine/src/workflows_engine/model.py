"""A workflow as data: routines of steps, each with its line in the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from workflows_engine.expressions import Node


@dataclass(slots=True)
class Const:
    """A literal; ``mixed`` are expressions inside a text that is not wholly an expression."""

    value: Any
    line: int
    mixed: tuple[Node, ...] = ()


@dataclass(slots=True)
class Expr:
    """An expression, ``${...}``."""

    node: Node
    line: int


@dataclass(slots=True)
class ListValue:
    """A list whose items may be expressions."""

    items: list[Value]
    line: int


@dataclass(slots=True)
class MapValue:
    """A map whose keys and values may be expressions."""

    items: list[tuple[Const | Expr, Value]]
    line: int

    def get(self, name: str) -> Value | None:
        """The value of a literal key, or None."""
        for key, value in self.items:
            if isinstance(key, Const) and key.value == name:
                return value
        return None


Value = Const | Expr | ListValue | MapValue


@dataclass(slots=True)
class Target:
    """What an assignment writes: a variable, or a path into it."""

    name: str
    path: list[Node]
    line: int


@dataclass(slots=True)
class Assign:
    """Assignments in their order."""

    items: list[tuple[Target, Value]]


@dataclass(slots=True)
class Call:
    """A call step; ``args`` by name, or by position when they are a list."""

    function: str
    args: MapValue | ListValue | None
    result: Target | None
    line: int


@dataclass(slots=True)
class Case:
    """A condition of a switch with what it does."""

    condition: Value
    body: Body | None
    next: str | None
    line: int


@dataclass(slots=True)
class Switch:
    """Cases; the first whose condition is true runs."""

    cases: list[Case]


@dataclass(slots=True)
class For:
    """A loop over a list, or over a range with both ends in it."""

    value: str | None
    index: str | None
    items: Value | None
    bounds: Value | None
    steps: list[Step]
    line: int


@dataclass(slots=True)
class Parallel:
    """Branches, or a loop, that run at once."""

    shared: list[str]
    limit: Value | None
    branches: list[tuple[str, list[Step]]]
    loop: For | None
    line: int


@dataclass(slots=True)
class Retry:
    """A policy: one expression, or its parts."""

    policy: Value | None = None
    predicate: Value | None = None
    max_retries: Value | None = None
    backoff: Value | None = None
    line: int = 0


@dataclass(slots=True)
class Try:
    """What is tried, how it is retried, and who handles its error."""

    steps: list[Step]
    inline: Body | None
    retry: Retry | None
    name: str | None
    handler: list[Step] | None
    line: int


@dataclass(slots=True)
class Raise:
    """An error to raise: a string or a map."""

    value: Value


@dataclass(slots=True)
class Return:
    """The end of a routine, with its value."""

    value: Value


@dataclass(slots=True)
class Nested:
    """Steps inside a step."""

    steps: list[Step]


Body = Assign | Call | Switch | For | Parallel | Try | Raise | Return | Nested


@dataclass(slots=True)
class Step:
    """A named step; without a body it only jumps."""

    name: str
    body: Body | None
    next: str | None
    line: int


@dataclass(slots=True)
class Routine:
    """main or a subworkflow; ``params`` with their defaults (None: required)."""

    name: str
    params: list[tuple[str, Value | None]]
    steps: list[Step]
    line: int


@dataclass(slots=True)
class Source:
    """A whole source: its routines by name."""

    routines: dict[str, Routine] = field(default_factory=dict)


def by_name(args: MapValue | ListValue | None, names: Sequence[str]) -> MapValue | None:
    """The arguments of a call step by name; a list is in the order of ``names``."""
    if not isinstance(args, ListValue):
        return args
    pairs: list[tuple[Const | Expr, Value]] = [
        (Const(name, args.line), value) for name, value in zip(names, args.items, strict=False)
    ]
    return MapValue(pairs, args.line)


STEP_TYPES: dict[type, str] = {
    Assign: "STEP_ASSIGN",
    Call: "STEP_STD_LIB_CALL",
    Switch: "STEP_CONDITION",
    For: "STEP_FOR",
    Parallel: "STEP_PARALLEL_BRANCH_ENTRY",
    Try: "STEP_TRY_EXCEPT",
    Raise: "STEP_RAISE",
    Return: "STEP_RETURN",
    Nested: "STEP_TYPE_UNSPECIFIED",
}
