"""The fields of the filter of ``builds.list``, as far as they are used. Pure."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from workflows_engine.filter_language import read_filter

Build = Mapping[str, Any]
_FIELDS = {
    "status": "status",
    "build_id": "id",
    "id": "id",
    "trigger_id": "buildTriggerId",
    "build_trigger_id": "buildTriggerId",
    "create_time": "createTime",
    "finish_time": "finishTime",
}
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    ":": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


def matches(build: Build, text: str) -> bool:
    """Say whether a build passes a filter. Raises ValueError for one that cannot be read."""
    return read_filter(text, _comparison)(build)


def _comparison(name: str, sign: str, wanted: str) -> Callable[[Build], bool]:
    if name == "tags":
        return lambda build: (wanted in build.get("tags", [])) == (sign in ("=", ":"))
    compare = _OPERATORS[sign]
    if name.startswith("substitutions."):
        key = name.partition(".")[2]
        return lambda build: compare(build.get("substitutions", {}).get(key, ""), wanted)
    if name not in _FIELDS:
        raise ValueError(f"filter field {name!r}; known are tags, {', '.join(_FIELDS)}")
    return lambda build: compare(build.get(_FIELDS[name], ""), wanted)
