"""What compiled steps do that hold other steps: nested steps, switch, loops, parallel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from workflows_engine import limits
from workflows_engine.blocks import BREAK, Block, LoopSignal, Signal, run_block, too_many_steps
from workflows_engine.errors import WorkflowError, error, type_error, value_error
from workflows_engine.evaluate import Compiled
from workflows_engine.scope import Frame, Scope
from workflows_engine.values import printable, to_json, type_name

Step = Callable[[Scope], Awaitable[Signal]]


def nested(block: Block) -> Step:
    """Steps inside a step; they share its scope."""

    async def run(scope: Scope) -> Signal:
        return await run_block(block, scope)

    return run


Case = tuple[Compiled, Block | None, Signal]


def switch(cases: list[Case]) -> tuple[Callable[[Scope], Any], bool]:
    """The first case whose condition is true, and no other."""
    if not any(condition.waits or block is not None for condition, block, _ in cases):
        plain = [(condition.run, signal) for condition, _, signal in cases]

        def choose(scope: Scope) -> Signal:
            for run, signal in plain:
                if _true(run(scope)):
                    return signal
            return None

        return choose, False

    async def waiting(scope: Scope) -> Signal:
        for condition, block, signal in cases:
            value = condition.run(scope)
            if not _true(await value if condition.waits else value):
                continue
            inner = None if block is None else await run_block(block, scope)
            return signal if inner is None else inner
        return None

    return waiting, True


def _true(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise type_error(f"a condition must be bool, not {type_name(value)}")


def _elements(value: Any, ranged: bool) -> Iterable[Any]:
    if not ranged:
        if type(value) is not list:
            hint = "; use keys(map)" if type(value) is dict else ""
            raise type_error(f"for goes over a list, not a value of type {type_name(value)}{hint}")
        return value
    if type(value) is not list or len(value) != 2:
        raise type_error("range must be a list of its first and last number")
    first, last = value
    if type(first) not in (int, float) or type(last) not in (int, float):
        raise type_error(f"range needs numbers, not {type_name(first)} and {type_name(last)}")
    return _counting(first, last)


def _counting(first: Any, last: Any) -> Iterable[Any]:
    if type(first) is int and type(last) is int:
        return range(first, last + 1)
    return _steps_of_one(first, last)


def _steps_of_one(first: Any, last: Any) -> Iterable[Any]:
    while first <= last:
        yield first
        if first + 1 == first:  # a double this large has no next integer
            raise value_error(f"range cannot count on from {first}")
        first += 1


def _iteration(scope: Scope, inner: Scope, name: str | None, index: str | None, at: Any) -> None:
    """Open an iteration: it is a step of its own, and has its own variables."""
    execution = scope.frame.execution
    execution.steps += 1
    if execution.steps > limits.STEPS:
        raise too_many_steps()
    position, item = at
    if name is not None:
        inner.variables[name], inner.sizes[name] = None, 0  # local, whatever is above
        inner.assign(name, item)
    if index is not None:
        inner.variables[index], inner.sizes[index] = None, 0
        inner.assign(index, position)


def loop(
    source: Compiled, ranged: bool, name: str | None, index: str | None, block: Block
) -> Step:
    """A sequential for."""

    async def run(scope: Scope) -> Signal:
        value = source.run(scope)
        value = await value if source.waits else value
        frame = scope.frame
        step = frame.step
        for at in enumerate(_elements(value, ranged)):
            inner = Scope(frame, scope)
            inner.origin = (step, at[0])
            try:
                _iteration(scope, inner, name, index, at)
                signal = await run_block(block, inner)
            finally:
                inner.close()
            if signal is BREAK:
                return None
            if signal is not None and not isinstance(signal, LoopSignal):
                return signal
        return None

    return run


Branch = tuple[str, Callable[[Scope], None], Block]


def parallel_branches(
    branches: list[tuple[str, Block]], shared: frozenset[str], limit: Compiled | None
) -> Step:
    """Named branches that run at once."""
    all_branches: list[Branch] = [(name, lambda _inner: None, block) for name, block in branches]

    async def run(scope: Scope) -> Signal:
        await _parallel(scope, all_branches, shared, limit)
        return None

    return run


def parallel_loop(
    source: Compiled,
    ranged: bool,
    name: str | None,
    index: str | None,
    block: Block,
    shared: frozenset[str],
    limit: Compiled | None,
) -> Step:
    """A for whose iterations run at once."""

    async def run(scope: Scope) -> Signal:
        value = source.run(scope)
        value = await value if source.waits else value
        branches: list[Branch] = []
        budget = limits.STEPS - scope.frame.execution.steps
        for at in enumerate(_elements(value, ranged)):
            if len(branches) > budget:
                raise too_many_steps()

            def enter(inner: Scope, at: tuple[int, Any] = at) -> None:
                _iteration(scope, inner, name, index, at)

            branches.append((str(at[0]), enter, block))
        await _parallel(scope, branches, shared, limit)
        return None

    return run


async def _parallel(
    scope: Scope, branches: list[Branch], shared: frozenset[str], limit: Compiled | None
) -> None:
    frame = scope.frame
    step = frame.step
    execution = frame.execution
    if frame.parallel_depth >= limits.PARALLEL_NESTING:
        raise error(
            "ParallelNestingError", f"parallel steps nest more than {limits.PARALLEL_NESTING} deep"
        )
    width = limits.PARALLEL_CONCURRENCY
    if limit is not None:
        value = limit.run(scope)
        value = await value if limit.waits else value
        if type(value) is not int or value < 1:
            raise value_error(f"concurrency_limit must be a positive integer, not {value!r}")
        width = min(width, value)
    # Branches may run in any order; the seed decides which.
    waiting = list(enumerate(branches))
    execution.random.shuffle(waiting)
    waiting.reverse()
    errors: list[tuple[int, str, WorkflowError]] = []

    async def worker() -> None:
        while waiting:
            position, (name, enter, block) = waiting.pop()
            strand = Frame(execution, frame.routine, frame, frame.depth, frame.parallel_depth + 1)
            inner = Scope(strand, scope, shared)
            inner.origin = (step, name)
            try:
                enter(inner)
                await run_block(block, inner)
            except WorkflowError as exc:
                errors.append((position, name, exc))
            finally:
                inner.close()

    workers = [asyncio.ensure_future(worker()) for _ in range(min(width, len(branches)))]
    try:
        await asyncio.gather(*workers)
    finally:
        # A fatal error or a cancellation ends every branch, not only the one it met.
        for one in workers:
            one.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    if errors:
        raise _unhandled(sorted(errors, key=lambda item: item[0]))


def _unhandled(errors: list[tuple[int, str, WorkflowError]]) -> WorkflowError:
    kept = errors[: limits.BRANCH_ERRORS_KEPT]
    return error(
        "UnhandledBranchError",
        "One or more branches or iterations encountered an unhandled runtime error",
        branches=[
            {
                "id": name,
                "error": {
                    "context": context(exc),
                    "payload": to_json(printable(exc.value)),
                },
            }
            for _, name, exc in kept
        ],
        truncated=len(kept) < len(errors),
    )


def context(exc: Any) -> str:
    """Where an error came from, innermost step first."""
    value = exc.value
    message = value.get("message") if isinstance(value, dict) else None
    lines = [str(message) if message is not None else f"RuntimeError: {to_json(printable(value))}"]
    lines += [
        f'in step "{step}", routine "{routine}", line: {line}' for routine, step, line in exc.trace
    ]
    return "\n".join(lines)
