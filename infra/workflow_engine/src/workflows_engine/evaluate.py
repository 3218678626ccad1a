"""Expressions become closures once; running a workflow never looks at their text again.

A closure takes the scope. It is a plain function unless the expression calls a subworkflow; then
it is a coroutine function, because the subworkflow may wait.
"""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from math import isfinite
from typing import Any

from workflows_engine import limits
from workflows_engine.builtins import CONSTANTS, FUNCTIONS, Spec
from workflows_engine.connector_table import POSITIONAL
from workflows_engine.errors import error, type_error, value_error
from workflows_engine.expressions import (
    Attribute,
    Binary,
    Call,
    Index,
    ListOf,
    Literal,
    Logic,
    Name,
    Node,
    Unary,
    dotted_name,
)
from workflows_engine.registry import REQUIRED
from workflows_engine.scope import Scope
from workflows_engine.stdlib import to_string
from workflows_engine.values import (
    INT_MAX,
    INT_MIN,
    Function,
    checked_int,
    equal,
    get_item,
    text_size,
    type_name,
)

Run = Callable[[Scope], Any]
CallRoutine = Callable[[Scope, str, list[Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A closure over a scope; ``waits`` tells that it must be awaited."""

    run: Run
    waits: bool = False
    constant: bool = False


def constant(value: Any) -> Compiled:
    """A closure that gives the same value every time."""
    return Compiled(lambda _scope: value, constant=True)


def combine(parts: list[Compiled], build: Callable[..., Any]) -> Compiled:
    """A closure that evaluates ``parts`` in order and hands the values to ``build``."""
    runs = [part.run for part in parts]
    if not any(part.waits for part in parts):
        if len(runs) == 1:
            (one,) = runs
            return Compiled(lambda scope: build(one(scope)))
        if len(runs) == 2:
            first, second = runs
            return Compiled(lambda scope: build(first(scope), second(scope)))
        return Compiled(lambda scope: build(*[run(scope) for run in runs]))

    async def waiting(scope: Scope) -> Any:
        values = []
        for part in parts:
            value = part.run(scope)
            values.append(await value if part.waits else value)
        return build(*values)

    return Compiled(waiting, waits=True)


class Compiler:
    """Compiles the expressions of one routine.

    ``variables`` are the names the routine ever assigns: they hide constants and subworkflows.
    """

    def __init__(
        self, variables: Collection[str], routines: Collection[str], call: CallRoutine
    ) -> None:
        self._variables = variables
        self._routines = routines
        self._call = call

    def expression(self, node: Node) -> Compiled:
        """Compile one syntax tree."""
        match node:
            case Literal(value):
                return constant(value)
            case Name(name):
                return self._name(name)
            case Attribute(base, name):
                return self._attribute(node, base, name)
            case Index(base, key):
                return combine([self.expression(base), self.expression(key)], get_item)
            case ListOf(items):
                return combine([self.expression(i) for i in items], lambda *values: [*values])
            case Unary(op, operand):
                return combine([self.expression(operand)], _UNARY[op])
            case Binary(op, left, right):
                return combine([self.expression(left), self.expression(right)], _BINARY[op])
            case Logic(op, left, right):
                return _logic(op, self.expression(left), self.expression(right))
            case Call(name, args):
                return self._function(name, [self.expression(arg) for arg in args])

    def _name(self, name: str) -> Compiled:
        if name in self._routines and name not in self._variables:
            return constant(Function(name))

        def load(scope: Scope) -> Any:
            try:
                return scope.variables[name]
            except KeyError:
                return scope.find(name)

        return Compiled(load)

    def _attribute(self, node: Node, base: Node, name: str) -> Compiled:
        path = dotted_name(node)
        if path in CONSTANTS and path.split(".")[0] not in self._variables:
            return constant(CONSTANTS[path])
        return combine([self.expression(base)], lambda value: get_item(value, name))

    def _function(self, name: str, args: list[Compiled]) -> Compiled:
        if name in self._routines:
            call = self._call
            collected = combine(args, lambda *values: list(values))

            async def routine(scope: Scope) -> Any:
                values = collected.run(scope)
                return await call(scope, name, await values if collected.waits else values)

            return Compiled(routine, waits=True)
        if name in POSITIONAL:
            return _connector(name, args)
        spec = FUNCTIONS[name]
        given = fill(spec, len(args))
        parts = [*args, *(constant(default) for default in given)]
        body = spec.body
        if not spec.scoped:
            return combine(parts, body)
        collected = combine(parts, lambda *values: values)
        if collected.waits:

            async def scoped(scope: Scope) -> Any:
                return body(scope, *await collected.run(scope))

            return Compiled(scoped, waits=True)
        return Compiled(lambda scope: body(scope, *collected.run(scope)))


def _connector(name: str, args: list[Compiled]) -> Compiled:
    params = POSITIONAL[name]
    collected = combine(args, lambda *values: dict(zip(params, values, strict=False)))

    async def call(scope: Scope) -> Any:
        values = collected.run(scope)
        values = await values if collected.waits else values
        return await scope.frame.execution.engine.connect(scope, name, values)

    return Compiled(call, waits=True)


def fill(spec: Spec, count: int) -> list[Any]:
    """The defaults that follow ``count`` positional arguments. Raises TypeError on bad arity."""
    rest = spec.params[count:]
    if count > len(spec.params) or any(default is REQUIRED for _, default in rest):
        names = ", ".join(name for name, _ in spec.params)
        raise type_error(f"{spec.name}({names}) got {count} arguments")
    return [default for _, default in rest]


def _logic(op: str, left: Compiled, right: Compiled) -> Compiled:
    stop = op == "or"
    first, second = left.run, right.run
    if not (left.waits or right.waits):

        def run(scope: Scope) -> bool:
            if _boolean(op, first(scope)) is stop:
                return stop
            return _boolean(op, second(scope))

        return Compiled(run)

    async def waiting(scope: Scope) -> bool:
        value = first(scope)
        if _boolean(op, await value if left.waits else value) is stop:
            return stop
        value = second(scope)
        return _boolean(op, await value if right.waits else value)

    return Compiled(waiting, waits=True)


def _boolean(op: str, value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise type_error(f"operand of {op!r} must be bool, not {type_name(value)}")


_NUMBERS = (int, float)
# What + joins to a string, by the table of the data types page.
_JOINED = (int, float, bool)


def _add(left: Any, right: Any) -> Any:
    a, b = type(left), type(right)
    if a is int and b is int:
        total = left + right
        return total if INT_MIN <= total <= INT_MAX else checked_int(total)
    if a is str and b is str:
        joined: str = left + right
        if len(joined) > limits.STRING_BYTES:
            text_size(joined)
        return joined
    if a in _NUMBERS and b in _NUMBERS:
        return _finite("+", left + right)
    if (a is str and b in _JOINED) or (b is str and a in _JOINED):
        return to_string(left) + to_string(right)
    if a is list and b is list:
        raise type_error("'+' does not join lists; use list.concat for one element")
    raise _operands("+", left, right)


def _operands(op: str, left: Any, right: Any) -> Exception:
    return type_error(
        f"unsupported operand types for {op!r}: {type_name(left)} and {type_name(right)}"
    )


def _arithmetic(op: str, apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def run(left: Any, right: Any) -> Any:
        if type(left) not in _NUMBERS or type(right) not in _NUMBERS:
            raise _operands(op, left, right)
        try:
            result = apply(left, right)
        except ZeroDivisionError:
            raise error("ZeroDivisionError", f"division by zero in {op!r}") from None
        except OverflowError:
            raise value_error(f"the result of {op!r} does not fit a double") from None
        return checked_int(result) if type(result) is int else _finite(op, result)

    return run


def _finite(op: str, result: float) -> float:
    """Refuse what is no number of JSON: it could neither be returned nor sent."""
    if isfinite(result):
        return result
    raise value_error(f"the result of {op!r} does not fit a double")


def _negate(value: Any) -> Any:
    if type(value) is int:
        return checked_int(-value)
    if type(value) is float:
        return -value
    raise type_error(f"operand of '-' must be a number, not {type_name(value)}")


def _plus(value: Any) -> Any:
    if type(value) in _NUMBERS:
        return value
    raise type_error(f"operand of '+' must be a number, not {type_name(value)}")


def _ordering(op: str, apply: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def run(left: Any, right: Any) -> bool:
        a, b = type(left), type(right)
        if (a in _NUMBERS and b in _NUMBERS) or (a is str and b is str):
            return apply(left, right)
        raise _operands(op, left, right)

    return run


def _contains(needle: Any, haystack: Any) -> bool:
    if type(haystack) is dict:
        if type(needle) is not str:
            raise type_error(f"a map key must be a string, not {type_name(needle)}")
        return needle in haystack
    if type(haystack) is list:
        return any(equal(needle, item) for item in haystack)
    raise type_error(f"right operand of 'in' must be a list or a map, not {type_name(haystack)}")


_UNARY: dict[str, Callable[[Any], Any]] = {
    "-": _negate,
    "+": _plus,
    "not": lambda value: not _boolean("not", value),
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": _add,
    "-": _arithmetic("-", operator.sub),
    "*": _arithmetic("*", operator.mul),
    "/": _arithmetic("/", operator.truediv),
    "//": _arithmetic("//", operator.floordiv),
    "%": _arithmetic("%", operator.mod),
    "==": equal,
    "!=": lambda left, right: not equal(left, right),
    "<": _ordering("<", operator.lt),
    "<=": _ordering("<=", operator.le),
    ">": _ordering(">", operator.gt),
    ">=": _ordering(">=", operator.ge),
    "in": _contains,
}
