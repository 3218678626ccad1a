"""The filter and order of executions.list (executions.proto names the fields)."""

from __future__ import annotations

import datetime
import operator
import re
from collections.abc import Callable
from typing import Any, TypeVar

from workflows_engine.errors import ApiError
from workflows_engine.ports import RunningExecution

E = TypeVar("E", bound=RunningExecution)
Predicate = Callable[[RunningExecution], bool]

_TOKEN = re.compile(
    r"""\s*(?:(?P<op><=|>=|!=|=|<|>|:)|(?P<bracket>[()])|"(?P<quoted>(?:\\.|[^"\\])*)"|
    (?P<word>[^\s()"<>=!:]+(?::[^\s()"<>=!]+)*))""",
    re.VERBOSE,
)
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _bad(message: str) -> ApiError:
    return ApiError(400, "INVALID_ARGUMENT", f"filter: {message}")


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position = 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            raise _bad(f"cannot read {text[position:]!r}")
        kind = match.lastgroup or ""
        tokens.append((kind, match[kind]))
        position = match.end()
    return tokens


def compile_filter(text: str) -> Predicate:
    """A predicate for a filter such as ``state="ACTIVE" AND labels.run="a"``.

    Raises ApiError 400 for an unknown field or a filter that cannot be read.
    """
    tokens = _tokens(text or "")
    if not tokens:
        return lambda _execution: True
    predicate, rest = _any_of(tokens)
    if rest:
        raise _bad(f"unexpected {rest[0][1]!r}")
    return predicate


def _any_of(tokens: list[tuple[str, str]]) -> tuple[Predicate, list[tuple[str, str]]]:
    first, tokens = _all_of(tokens)
    parts = [first]
    while tokens and tokens[0] == ("word", "OR"):
        part, tokens = _all_of(tokens[1:])
        parts.append(part)
    return (lambda execution: any(part(execution) for part in parts)), tokens


def _all_of(tokens: list[tuple[str, str]]) -> tuple[Predicate, list[tuple[str, str]]]:
    first, tokens = _term(tokens)
    parts = [first]
    while tokens and tokens[0] not in (("word", "OR"), ("bracket", ")")):
        if tokens[0] == ("word", "AND"):
            tokens = tokens[1:]
        part, tokens = _term(tokens)
        parts.append(part)
    return (lambda execution: all(part(execution) for part in parts)), tokens


def _term(tokens: list[tuple[str, str]]) -> tuple[Predicate, list[tuple[str, str]]]:
    if not tokens:
        raise _bad("it ends too early")
    if tokens[0] == ("word", "NOT"):
        inner, rest = _term(tokens[1:])
        return (lambda execution: not inner(execution)), rest
    if tokens[0] == ("bracket", "("):
        inner, rest = _any_of(tokens[1:])
        if not rest or rest[0] != ("bracket", ")"):
            raise _bad("a bracket is not closed")
        return inner, rest[1:]
    if tokens[0][0] == "word" and ":" in tokens[0][1] and tokens[1:2] != [("op", ":")]:
        field, _, value = tokens[0][1].partition(":")
        return _comparison(field, ":", value), tokens[1:]
    if len(tokens) < 3 or tokens[1][0] != "op" or tokens[2][0] not in ("word", "quoted"):
        raise _bad(f"expected field, operator and value at {tokens[0][1]!r}")
    return _comparison(tokens[0][1], tokens[1][1], tokens[2][1]), tokens[3:]


def _comparison(field: str, op: str, value: str) -> Predicate:
    if field.startswith(("labels.", "label.")):
        key = field.partition(".")[2].strip('"')
        if op not in ("=", "!=", ":"):
            raise _bad(f"labels compare with = and !=, not {op}")
        wanted = op != "!="
        if op == ":" and value == "*":
            return lambda execution: key in execution.labels
        return lambda execution: (execution.labels.get(key) == value) is wanted
    read, parse = _field(field)
    try:
        expected = parse(value)
    except ValueError:
        raise _bad(f"{value!r} is not a value of {field}") from None
    compare = _OPERATORS["=" if op == ":" else op]

    def check(execution: RunningExecution) -> bool:
        actual = read(execution)
        return actual is not None and compare(actual, expected)

    return check


def _time(text: str) -> float:
    moment = datetime.datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


def _seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def _step(execution: RunningExecution) -> str:
    return execution.current_steps[-1]["step"]


def duration(execution: RunningExecution) -> float | None:
    """Seconds an execution ran or has run."""
    if execution.start_time is None:
        return None
    end = execution.end_time
    return (execution.engine.now() if end is None else end) - execution.start_time


_FIELDS: dict[str, tuple[Callable[[RunningExecution], Any], Callable[[str], Any]]] = {
    "executionid": (lambda e: e.id, str),
    "state": (lambda e: e.state, str),
    "createtime": (lambda e: e.created_time, _time),
    "starttime": (lambda e: e.start_time, _time),
    "endtime": (lambda e: e.end_time, _time),
    "duration": (duration, _seconds),
    "workflowrevisionid": (lambda e: e.revision_id, str),
    "stepname": (_step, str),
}


def _field(name: str) -> tuple[Callable[[RunningExecution], Any], Callable[[str], Any]]:
    found = _FIELDS.get(name.replace("_", "").lower())
    if found is None:
        raise _bad(
            f"unknown field {name!r}: one of executionID, state, startTime, endTime, duration, "
            "workflowRevisionID, stepName, labels.KEY"
        )
    return found


def ordered(executions: list[E], order_by: str) -> list[E]:
    """Sort by ``field [asc|desc], ...``; without an order the given one stays."""
    for part in reversed([p for p in (order_by or "").split(",") if p.strip()]):
        name, *direction = part.split()
        read, _ = _field(name)

        def key(
            execution: RunningExecution, read: Callable[[RunningExecution], Any] = read
        ) -> Any:
            value = read(execution)
            return (value is not None, value)

        executions = sorted(executions, key=key, reverse=direction == ["desc"])
    return executions
