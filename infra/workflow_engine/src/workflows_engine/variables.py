"""Which variables steps assign."""

from __future__ import annotations

from collections.abc import Iterator

from workflows_engine import model


def assigned(steps: list[model.Step]) -> Iterator[str]:
    """Every variable that steps assign, at any depth."""
    for step in steps:
        yield from _assigned_by(step.body)


def _assigned_by(body: model.Body | None) -> Iterator[str]:
    match body:
        case model.Assign(items):
            yield from (target.name for target, _ in items if not target.path)
        case model.Call(_, _, result) if result is not None:
            yield result.name
        case model.Switch(cases):
            for case in cases:
                yield from _assigned_by(case.body)
        case model.For(value, index, _, _, steps):
            yield from (name for name in (value, index) if name)
            yield from assigned(steps)
        case model.Parallel(_, _, branches, loop):
            for _, steps in branches:
                yield from assigned(steps)
            yield from _assigned_by(loop)
        case model.Try(steps, inline, _, name, handler):
            yield from assigned(steps)
            yield from _assigned_by(inline)
            yield from (each for each in (name,) if each)
            yield from assigned(handler or [])
        case model.Nested(steps):
            yield from assigned(steps)
        case _:
            return
