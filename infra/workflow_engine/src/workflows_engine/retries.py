"""try, retry and except: when a block runs again, after what delay, and who handles its error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from workflows_engine.blocks import Block, Signal, run_block
from workflows_engine.builtins import ALWAYS, BACKOFF, CONSTANTS, retryable
from workflows_engine.errors import WorkflowError, type_error, value_error
from workflows_engine.evaluate import Compiled
from workflows_engine.routines import CompiledRoutine, call
from workflows_engine.scope import Scope
from workflows_engine.values import Function, type_name


def attempt(
    block: Block,
    policy: Compiled | None,
    routines: Mapping[str, CompiledRoutine],
    name: str | None,
    handler: Block | None,
    on_retry: Callable[[], None] | None = None,
    on_except: Callable[[], None] | None = None,
) -> Callable[[Scope], Awaitable[Signal]]:
    """try, retry, except: in this order, the whole block again at each retry."""

    async def run(scope: Scope) -> Signal:
        retries = _Retries(policy, routines)
        while True:
            try:
                return await run_block(block, scope)
            except WorkflowError as exc:
                caught = exc
            try:
                again = policy is not None and await retries.again(scope, caught.value)
            except WorkflowError as exc:
                # A predicate that fails replaces the error it could not judge.
                again, caught = False, exc
            if not again:
                break
            if on_retry is not None:
                on_retry()
        if handler is None:
            raise caught
        if on_except is not None:
            on_except()
        inner = Scope(scope.frame, scope)
        scope.frame.execution.steps += 1  # except is a step of its own
        try:
            if name is not None:
                inner.variables[name], inner.sizes[name] = None, 0
                inner.assign(name, caught.value)
            return await run_block(handler, inner)
        finally:
            inner.close()

    return run


class _Retries:
    """The retries of one run of a try block: how many are left and how long to wait."""

    __slots__ = (
        "_delay",
        "_done",
        "_max",
        "_max_delay",
        "_multiplier",
        "_policy",
        "_predicate",
        "_routines",
    )

    def __init__(self, policy: Compiled | None, routines: Mapping[str, CompiledRoutine]) -> None:
        self._policy = policy
        self._routines = routines
        self._done = -1  # the policy is read at the first error
        self._predicate = ALWAYS
        self._max = 0
        self._delay = self._max_delay = self._multiplier = 0.0

    async def again(self, scope: Scope, value: Any) -> bool:
        """Wait and tell True when the block is to run again."""
        if self._done < 0:
            await self._read(scope)
            self._done = 0
        if self._done >= self._max or not await self._wanted(scope, value):
            return False
        self._done += 1
        execution = scope.frame.execution
        execution.steps += 1  # a retry is a step of its own
        await execution.engine.sleep(self._delay)
        self._delay = min(self._delay * self._multiplier, self._max_delay)
        return True

    async def _wanted(self, scope: Scope, value: Any) -> bool:
        predicate = self._predicate
        if predicate.name not in self._routines:
            return retryable(predicate.name, value)
        routine = self._routines[predicate.name]
        if len(routine.params) != 1:
            raise type_error(f"the predicate {routine.name} must have one parameter, the error")
        answer = await call(scope, routine, {routine.params[0][0]: value})
        if answer is None or isinstance(answer, bool):
            return bool(answer)
        raise type_error(f"the predicate {routine.name} must return bool, not {type_name(answer)}")

    async def _read(self, scope: Scope) -> None:
        assert self._policy is not None
        policy = self._policy.run(scope)
        policy = await policy if self._policy.waits else policy
        if type(policy) is not dict:
            raise type_error(f"retry must be a policy, not {type_name(policy)}")
        # No part of a policy is required (the published JSON schema); null is like absent.
        given = {**CONSTANTS["http.default_retry"], **_set(policy)}
        predicate = given["predicate"]
        if not isinstance(predicate, Function):
            raise type_error("the predicate of a retry must be the name of a predicate")
        self._predicate = predicate
        self._max = _number("max_retries", given["max_retries"], int)
        backoff = given["backoff"]
        if type(backoff) is not dict:
            raise type_error(f"backoff must be a map, not {type_name(backoff)}")
        merged = {**BACKOFF, **_set(backoff)}
        self._max_delay = _number("max_delay", merged["max_delay"], int, float)
        initial = _number("initial_delay", merged["initial_delay"], int, float)
        self._multiplier = _number("multiplier", merged["multiplier"], int, float)
        self._delay = min(initial, self._max_delay)


def _number(name: str, value: Any, *kinds: type) -> Any:
    if type(value) not in kinds:
        raise type_error(f"{name} must be a number, not {type_name(value)}")
    if not 0 <= value < 10**9:
        raise value_error(f"{name} must be between 0 and 1e9, not {value}")
    return value


def _set(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
