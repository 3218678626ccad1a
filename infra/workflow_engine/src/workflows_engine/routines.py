"""Routines ready to run, and how one is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workflows_engine import limits
from workflows_engine.blocks import Block, Returned, run_block
from workflows_engine.errors import error, type_error
from workflows_engine.evaluate import Compiled
from workflows_engine.scope import Frame, Scope


@dataclass
class CompiledRoutine:
    """A routine ready to run; ``params`` with the closure of their default, or None.

    ``names`` are the parameters' names, there before the routine is compiled.
    """

    name: str
    params: list[tuple[str, Compiled | None]]
    block: Block = field(default_factory=Block)
    names: list[str] = field(default_factory=list)


async def call(scope: Scope, routine: CompiledRoutine, args: Mapping[str, Any]) -> Any:
    """Call a routine with named arguments; gives what it returns, or null."""
    caller = scope.frame
    depth = caller.depth + 1
    if depth > limits.CALL_DEPTH:
        raise error("RecursionError", f"more than {limits.CALL_DEPTH} calls inside one another")
    execution = caller.execution
    frame = Frame(execution, routine.name, caller, depth, caller.parallel_depth)
    inner = Scope(frame)
    inner.origin = scope
    try:
        for name, default in routine.params:
            if name in args:
                inner.assign(name, args[name])
            elif default is None:
                raise type_error(f"{routine.name} needs the argument {name!r}")
            else:
                value = default.run(inner)
                inner.assign(name, await value if default.waits else value)
        unknown = args.keys() - {name for name, _ in routine.params}
        if unknown:
            raise type_error(f"{routine.name} has no parameter {min(unknown)!r}")
        execution.current[caller] = frame
        signal = await run_block(routine.block, inner)
        return signal.value if isinstance(signal, Returned) else None
    finally:
        execution.current.pop(caller, None)
        inner.close()
