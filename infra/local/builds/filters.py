"""The filter language of ``builds.list``, as far as it is used: field=value, AND, OR, brackets.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TOKEN = re.compile(r'\s*(\(|\)|AND\b|OR\b|([\w.]+)\s*(>=|<=|!=|=|>|<)\s*("([^"]*)"|[^\s()]+))')


def matches(build: Mapping[str, Any], text: str) -> bool:
    """Say whether a build passes a filter. Raises ValueError for one that cannot be read."""
    tokens: list[Any] = []
    at = 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"filter {text!r} cannot be read at {text[at:]!r}")
        at = found.end()
        if found[2]:
            wanted = found[5] if found[5] is not None else found[4]
            tokens.append(_test(build, found[2], found[3], wanted))
        else:
            tokens.append(found[1])
    return _or(tokens) if tokens else True


def _or(tokens: list[Any]) -> bool:
    value = _and(tokens)
    while tokens and tokens[0] == "OR":
        tokens.pop(0)
        value = _and(tokens) or value
    return value


def _and(tokens: list[Any]) -> bool:
    value = _one(tokens)
    while tokens and tokens[0] not in ("OR", ")"):
        if tokens[0] == "AND":
            tokens.pop(0)
        value = _one(tokens) and value
    return value


def _one(tokens: list[Any]) -> bool:
    if not tokens:
        raise ValueError("the filter ends too early")
    token = tokens.pop(0)
    if token == "(":
        value = _or(tokens)
        if not tokens or tokens.pop(0) != ")":
            raise ValueError("a bracket of the filter is not closed")
        return value
    if not isinstance(token, bool):
        raise ValueError(f"the filter has {token!r} where a comparison belongs")
    return token


def _test(build: Mapping[str, Any], name: str, operator: str, wanted: str) -> bool:
    if name == "tags":
        return (wanted in build.get("tags", [])) == (operator == "=")
    if name.startswith("substitutions."):
        found = build.get("substitutions", {}).get(name.partition(".")[2], "")
    else:
        keys = {
            "status": "status",
            "build_id": "id",
            "id": "id",
            "trigger_id": "buildTriggerId",
            "build_trigger_id": "buildTriggerId",
            "create_time": "createTime",
            "finish_time": "finishTime",
        }
        if name not in keys:
            raise ValueError(f"filter field {name!r}; known are tags, {', '.join(keys)}")
        found = build.get(keys[name], "")
    return bool(
        {
            "=": found == wanted,
            "!=": found != wanted,
            ">": found > wanted,
            "<": found < wanted,
            ">=": found >= wanted,
            "<=": found <= wanted,
        }[operator]
    )
