"""The filter and order of executions.list (executions.proto names the fields)."""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable
from typing import Any, TypeVar

from workflows_engine.errors import ApiError
from workflows_engine.filter_language import read_filter
from workflows_engine.ports import RunningExecution

E = TypeVar("E", bound=RunningExecution)
Predicate = Callable[[RunningExecution], bool]

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compile_filter(text: str) -> Predicate:
    """Return the predicate of a filter such as ``state="ACTIVE" AND labels.run="a"``.

    Raises:
        ApiError: 400 for an unknown field or a filter that cannot be read.
    """
    try:
        return read_filter(text or "", _comparison)
    except ValueError as error:
        raise ApiError(400, "INVALID_ARGUMENT", f"filter: {error}") from None


def _comparison(field: str, op: str, value: str) -> Predicate:
    if field.startswith(("labels.", "label.")):
        key = field.partition(".")[2].strip('"')
        if op not in ("=", "!=", ":"):
            raise ValueError(f"labels compare with = and !=, not {op}")
        wanted = op != "!="
        if op == ":" and value == "*":
            return lambda execution: key in execution.labels
        return lambda execution: (execution.labels.get(key) == value) is wanted
    read, parse = _field(field)
    try:
        expected = parse(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a value of {field}") from None
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
        raise ValueError(
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
