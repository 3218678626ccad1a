"""Which variables steps assign."""

from __future__ import annotations

from collections.abc import Iterator

from workflows_engine.model import (
    Assign,
    Body,
    Call,
    For,
    Nested,
    Parallel,
    Step,
    Switch,
    Try,
)


def assigned(steps: list[Step]) -> Iterator[str]:
    """Every variable that steps assign, at any depth."""
    for step in steps:
        yield from _assigned_by(step.body)


def _assigned_by(body: Body | None) -> Iterator[str]:
    match body:
        case Assign(items):
            yield from (target.name for target, _ in items if not target.path)
        case Call(_, _, result) if result is not None:
            yield result.name
        case Switch(cases):
            for case in cases:
                yield from _assigned_by(case.body)
        case For(value, index, _, _, steps):
            yield from (name for name in (value, index) if name)
            yield from assigned(steps)
        case Parallel(_, _, branches, loop):
            for _, steps in branches:
                yield from assigned(steps)
            yield from _assigned_by(loop)
        case Try(steps, inline, _, name, handler):
            yield from assigned(steps)
            yield from _assigned_by(inline)
            yield from (each for each in (name,) if each)
            yield from assigned(handler or [])
        case Nested(steps):
            yield from assigned(steps)
        case _:
            return
