"""How compiled steps run: blocks of steps, and the signals that change their order.

Only a block is a coroutine; a step that does not wait is a plain call. So a step costs a
function call, and nothing is awaited where nothing waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from workflows_engine import limits
from workflows_engine.errors import FatalError, WorkflowError, resource_limit
from workflows_engine.scope import Scope

_FAIR_SHARE = 4096  # steps after which an execution that never waits lets the others run


class Jump:
    """Go on at a step of an enclosing block."""

    __slots__ = ("block", "index")

    def __init__(self, block: Block, index: int) -> None:
        self.block = block
        self.index = index


class Returned:
    """The routine ends with a value."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class LoopSignal:
    """``break`` or ``continue`` of the innermost loop."""

    __slots__ = ()


BREAK = LoopSignal()
CONTINUE = LoopSignal()
END = Returned(None)

# None: the next step; an int: that step of the same block.
Signal = int | Jump | Returned | LoopSignal | None


class Op:
    """One compiled step. ``silent``: a body inside a step that is no step of its own.

    ``result`` is the variable that a call writes, if it writes a whole one.
    """

    __slots__ = ("kind", "line", "name", "next", "result", "routine", "run", "silent", "waits")

    def __init__(
        self,
        name: str,
        kind: str,
        routine: str,
        line: int,
        run: Callable[[Scope], Any],
        waits: bool,
        next_: Signal = None,
        silent: bool = False,
    ) -> None:
        self.name = name
        self.kind = kind
        self.routine = routine
        self.line = line
        self.run = run
        self.waits = waits
        self.next = next_
        self.silent = silent
        self.result: str | None = None


class Block:
    """Steps that follow one another."""

    __slots__ = ("ops",)

    def __init__(self) -> None:
        self.ops: list[Op] = []


def too_many_steps() -> FatalError:
    """The end of an execution of over 100,000 steps (Google's page of quotas)."""
    return resource_limit(f"more than {limits.STEPS} steps in one execution")


async def run_block(block: Block, scope: Scope) -> Signal:
    """Run a block's steps; gives a signal that concerns an enclosing block, or None at its end.

    Raises WorkflowError with the place of the failing step, FatalError likewise.
    """
    frame = scope.frame
    execution = frame.execution
    history = execution.history
    ops = block.ops
    count = len(ops)
    index = 0
    while index < count:
        op = ops[index]
        if not op.silent:
            execution.steps = steps = execution.steps + 1
            if steps > limits.STEPS:
                raise too_many_steps()
            if steps >= execution.pause_at:
                execution.pause_at = steps + _FAIR_SHARE
                await asyncio.sleep(0)
            frame.step = op.name
        try:
            if history is None or op.silent:
                signal = op.run(scope)
                if op.waits:
                    signal = await signal
            else:
                entry = history.begin(op, scope)
                signal = op.run(scope)
                if op.waits:
                    signal = await signal
                history.end(entry, scope, signal)
        except (WorkflowError, FatalError) as exc:
            exc.trace.append((op.routine, op.name, op.line))
            if history is not None and not op.silent:
                history.fail(entry, exc.value)
            raise
        if signal is None:
            signal = op.next
            if signal is None:
                index += 1
                continue
        if type(signal) is int:
            index = signal
        elif type(signal) is Jump and signal.block is block:
            index = signal.index
        else:
            out: Signal = signal
            return out
    return None
