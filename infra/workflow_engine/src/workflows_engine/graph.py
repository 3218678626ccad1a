"""A workflow as a mermaid flowchart: one box a routine, one node a step, one arrow a way on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from workflows_engine import model
from workflows_engine.expressions import unparse
from workflows_engine.values import to_json

_LABEL = 60  # characters of a label
# An end that is still open: the node and the label that its arrow will bear.
Ends = list[tuple[str, str]]


def mermaid(source: model.Source) -> str:
    """The flowchart of a checked source, with arrows from calls to the subworkflows they call."""
    chart = _Chart(source)
    for routine in source.routines.values():
        chart.routine(routine)
    return "\n".join(["flowchart TD", *chart.lines, *chart.edges]) + "\n"


@dataclass
class _Place:
    """Where steps stand: the nodes they may jump to, and what leaving the loop means."""

    names: dict[str, str]
    outer: _Place | None = None
    loop: str | None = None  # the node of the innermost loop
    breaks: Ends = field(default_factory=list)

    def chain(self) -> Iterator[_Place]:
        """This place and those around it."""
        place: _Place | None = self
        while place is not None:
            yield place
            place = place.outer


class _Chart:
    def __init__(self, source: model.Source) -> None:
        self.lines: list[str] = []
        self.edges: list[str] = []
        self._source = source
        self._starts = {name: f"start{i}" for i, name in enumerate(source.routines, 1)}
        self._depth = 1
        self._count = 0
        self._end = ""

    # Writing

    def _id(self, kind: str = "n") -> str:
        self._count += 1
        return f"{kind}{self._count}"

    def _line(self, text: str) -> None:
        self.lines.append("  " * self._depth + text)

    def _node(self, node: str, text: str, shape: str = "[]") -> str:
        left, right = shape[: len(shape) // 2], shape[len(shape) // 2 :]
        self._line(f'{node}{left}"{_label(text)}"{right}')
        return node

    def _open(self, text: str) -> None:
        self._line(f'subgraph {self._id("g")}["{_label(text)}"]')
        self._depth += 1

    def _close(self) -> None:
        self._depth -= 1
        self._line("end")

    def _edge(self, one: str, other: str, text: str = "", dotted: bool = False) -> None:
        arrow = "-.->" if dotted else "-->"
        self.edges.append(f"  {one} {arrow}{_quoted(text)} {other}")

    def _join(self, ends: Ends, node: str) -> None:
        for one, text in ends:
            self._edge(one, node, text)

    # Routines and steps

    def routine(self, routine: model.Routine) -> None:
        """Draw a routine with its start and its end."""
        self._end = self._starts[routine.name].replace("start", "finish")
        params = ", ".join(name for name, _ in routine.params)
        self._open(f"{routine.name}({params})")
        start = self._node(self._starts[routine.name], "start", "([])")
        ends = self._steps(routine.steps, None, [(start, "")])
        self._join(ends, self._end)
        if any(edge.endswith(f" {self._end}") for edge in self.edges):
            self._node(self._end, "end", "([])")
        self._close()

    def _steps(
        self, steps: list[model.Step], outer: _Place | None, ends: Ends, loop: str | None = None
    ) -> Ends:
        """Draw steps after open ends; gives what is open behind the last one."""
        place = _Place({step.name: self._id() for step in steps}, outer, loop)
        for step in steps:
            node = place.names[step.name]
            self._join(ends, node)
            ends = self._next(self._body(node, step.name, step.body, place), step.next, place)
        return ends + place.breaks

    def _next(self, ends: Ends, name: str | None, at: _Place) -> Ends:
        """Lead open ends where ``next`` says; without one they stay open."""
        if name is None:
            return ends
        if name == "end":
            self._join(ends, self._end)
            return []
        for place in at.chain():
            if name == "break" and place.loop is not None:
                place.breaks += [(one, text or "break") for one, text in ends]
                return []
            if name == "continue" and place.loop is not None:
                self._join(ends, place.loop)
                return []
            if name in place.names:
                self._join(ends, place.names[name])
                return []
        return []

    def _body(self, node: str, name: str, body: model.Body | None, at: _Place) -> Ends:
        match body:
            case None:
                self._node(node, name)
            case model.Assign(items):
                self._node(node, f"{name}: assign {', '.join(t.name for t, _ in items)}")
            case model.Call(function):
                self._node(node, f"{name}: {function}")
                if function in self._starts:
                    self._edge(node, self._starts[function], "calls", dotted=True)
            case model.Raise(value):
                self._node(node, f"{name}: raise {_value(value)}", "{{}}")
                return []
            case model.Return(value):
                self._node(node, f"{name}: return {_value(value)}", "([])")
                return []
            case model.Switch():
                return self._switch(node, name, body, at)
            case model.For():
                return self._for(node, name, body, at)
            case model.Parallel():
                return self._parallel(node, name, body)
            case model.Try():
                return self._try(node, name, body, at)
            case model.Nested(steps):
                self._open(name)
                self._node(node, name, "[//]")
                ends = self._steps(steps, at, [(node, "")])
                self._close()
                return ends
        return [(node, "")]

    def _switch(self, node: str, name: str, body: model.Switch, at: _Place) -> Ends:
        self._node(node, name, "{}")
        ends: Ends = []
        for case in body.cases:
            way: Ends = [(node, _value(case.condition))]
            if case.body is not None:
                inner = self._id()
                self._join(way, inner)
                way = self._body(inner, name, case.body, at)
            ends += self._next(way, case.next, at)
        last = body.cases[-1].condition if body.cases else None
        if not (isinstance(last, model.Const) and last.value is True):
            ends.append((node, "else"))
        return ends

    def _for(
        self, node: str, name: str, body: model.For, at: _Place | None, how: str = "for"
    ) -> Ends:
        over = body.items if body.items is not None else body.bounds
        which = "in" if body.items is not None else "range"
        told = "" if over is None else f" {which} {_value(over)}"
        self._open(f"{name}: {how}")
        self._node(node, f"{how} {body.value or body.index or 'each'}{told}", "[//]")
        # Steps of a loop cannot jump out of it by name.
        place = _Place({}, None, node)
        ends = self._steps(body.steps, place, [(node, "each")])
        if how == "for":
            self._join(ends, node)
            self._close()
            return [(node, "done"), *place.breaks]
        self._close()
        return ends

    def _parallel(self, node: str, name: str, body: model.Parallel) -> Ends:
        if body.loop is not None:
            ends = self._for(node, name, body.loop, None, "parallel for")
        else:
            self._open(f"{name}: parallel")
            self._node(node, name, "[[]]")
            ends = []
            for branch, steps in body.branches:
                self._open(branch)
                ends += self._steps(steps, None, [(node, branch)])
                self._close()
            self._close()
        join = self._node(self._id(), "all done", "(())")
        self._join(ends, join)
        return [(join, "")]

    def _try(self, node: str, name: str, body: model.Try, at: _Place) -> Ends:
        self._open(f"{name}: try")
        self._node(node, f"try {name}", "[//]")
        if body.inline is not None:
            inner = self._id()
            self._edge(node, inner)
            ends = self._body(inner, name, body.inline, at)
        else:
            ends = self._steps(body.steps, at, [(node, "")])
        self._close()
        if body.retry is not None:
            self._edge(node, node, "retry", dotted=True)
        if body.handler is not None:
            self._open(f"{name}: except")
            caught = self._node(self._id(), f"except {body.name or ''}".strip(), "[//]")
            ends = ends + self._steps(body.handler, at, [(caught, "")])
            self._close()
            self._edge(node, caught, "error", dotted=True)
        return ends


def _value(value: model.Value) -> str:
    match value:
        case model.Expr(node):
            return unparse(node)
        case model.Const(literal):
            return literal if isinstance(literal, str) else to_json(literal)
        case model.ListValue(items):
            return "[" + ", ".join(_value(item) for item in items) + "]"
        case model.MapValue(pairs):
            inner = ", ".join(f"{_value(key)}: {_value(item)}" for key, item in pairs)
            return "{" + inner + "}"


def _quoted(text: str) -> str:
    return f'|"{_label(text)}"|' if text else ""


def _label(text: Any) -> str:
    """A text in the quotes of a label: one line, cut, its marks as mermaid's entities."""
    line = " ".join(str(text).split())
    line = line if len(line) <= _LABEL else line[: _LABEL - 3] + "..."
    marks = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;"}
    kept = "".join(marks.get(mark, mark) for mark in line if mark.isprintable())
    return kept or " "
