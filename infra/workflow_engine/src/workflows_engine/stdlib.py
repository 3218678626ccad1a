"""The standard library's functions that do not block: all that an expression may call.

The text module is in stdlib_text.py; json, base64 and hash are in stdlib_encodings.py; retry
policies and blocking functions in builtins.py.
"""

from __future__ import annotations

import datetime as _datetime
import math as _math
import re
import zoneinfo
from collections.abc import Callable
from typing import Any

from workflows_engine.errors import type_error, value_error
from workflows_engine.registry import need, register
from workflows_engine.scope import Scope
from workflows_engine.values import checked_int

# Expression helpers. `default` and `if` evaluate all their arguments, as every function does.


@register("default", "val", "defaultVal")
def default(val: Any, other: Any) -> Any:
    """``val``, or ``defaultVal`` when it is null."""
    return other if val is None else val


@register("if", "condition", "ifTrue", "ifFalse")
def conditional(condition: Any, if_true: Any, if_false: Any) -> Any:
    """One of two values; null counts as false. Raises TypeError for another condition."""
    if condition is None:
        return if_false
    return if_true if need("if", "condition", condition, bool) else if_false


@register("int", "value")
def to_int(value: Any) -> int:
    """Convert to an integer, a double towards zero. Raises TypeError, ValueError (64 bits)."""
    need("int", "value", value, str, float, int)
    if isinstance(value, str) and not re.fullmatch(r"[+-]?[0-9]+", value):
        raise value_error(f"int: cannot convert {value!r}")
    try:
        return checked_int(int(value))
    except (ValueError, OverflowError):
        raise value_error(f"int: cannot convert {value!r}") from None


_DOUBLE = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"


@register("double", "value")
def to_double(value: Any) -> float:
    """Convert to a double. Raises TypeError, ValueError (text that is no number)."""
    need("double", "value", value, str, float, int)
    if isinstance(value, str) and not re.fullmatch(_DOUBLE, value):
        raise value_error(f"double: cannot convert {value!r}")
    number = float(value)
    if not _math.isfinite(number):
        raise value_error(f"double: {value!r} does not fit a double")
    return number


@register("string", "value")
def to_string(value: Any) -> str:
    """Convert a number, a boolean or a string to text. Raises TypeError for the rest."""
    need("string", "value", value, str, float, int, bool)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


@register("bool", "value")
def to_bool(value: Any) -> bool:
    """Convert the three spellings of ``true`` and ``false``. Raises TypeError, ValueError."""
    need("bool", "value", value, str, bool)
    if isinstance(value, bool):
        return value
    if value in ("true", "True", "TRUE"):
        return True
    if value in ("false", "False", "FALSE"):
        return False
    raise value_error(f"bool: cannot convert {value!r}")


@register("len", "value")
def length(value: Any) -> int:
    """Characters, elements or keys. Raises TypeError for the rest, bytes among them."""
    return len(need("len", "value", value, str, list, dict))


@register("keys", "map")
def keys(value: Any) -> list[str]:
    """The keys of a map, in its order. Raises TypeError."""
    return list(need("keys", "map", value, dict))


_TYPES: dict[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    dict: "map",
}


@register("get_type", "value")
def get_type(value: Any) -> str:
    """The name of a value's type, as the expression helpers' page spells it.

    Raises WorkflowError (TypeError) for a function: the page names no type for it.
    """
    name = _TYPES.get(type(value))
    if name is None:
        raise type_error("get_type: a function is no value")
    return name


# list and map


@register("list.concat", "objs", "val")
def list_concat(items: Any, element: Any) -> list[Any]:
    """A new list with ``element`` at its end. Raises TypeError."""
    return [*need("list.concat", "objs", items, list), element]


@register("list.prepend", "objs", "val")
def list_prepend(items: Any, element: Any) -> list[Any]:
    """A new list with ``element`` at its beginning. Raises TypeError."""
    return [element, *need("list.prepend", "objs", items, list)]


@register("map.get", "map", "keys", "default", default=None)
def map_get(value: Any, path: Any, other: Any) -> Any:
    """Look up one key, or a list of keys one inside the other.

    Null (or ``default``) when a key is not there or what is looked into is no map; TypeError for
    a key that is not a string (Google's page of the function).
    """
    names = path if isinstance(path, list) else [path]
    for key in names:
        need("map.get", "keys", key, str)
    for key in names:
        if not isinstance(value, dict) or key not in value:
            return other
        value = value[key]
    return value


@register("map.delete", "map", "key")
def map_delete(value: Any, key: Any) -> dict[str, Any]:
    """A new map without ``key``, which need not be there. Raises TypeError."""
    need("map.delete", "map", value, dict)
    need("map.delete", "key", key, str)
    return {k: v for k, v in value.items() if k != key}


@register("map.merge", "first", "second")
def map_merge(first: Any, second: Any) -> dict[str, Any]:
    """A new map of both; the second one's values count. Raises TypeError."""
    need("map.merge", "first", first, dict)
    need("map.merge", "second", second, dict)
    return {**first, **second}


@register("map.merge_nested", "first", "second")
def map_merge_nested(first: Any, second: Any) -> dict[str, Any]:
    """As map.merge, and maps under the same key are merged too. Raises TypeError."""
    need("map.merge_nested", "first", first, dict)
    merged = dict(first)
    for key, value in need("map.merge_nested", "second", second, dict).items():
        old = merged.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        merged[key] = map_merge_nested(old, value) if both else value
    return merged


# math


@register("math.abs", "x")
def math_abs(x: Any) -> Any:
    """The absolute value. Raises TypeError, ValueError (the least integer has none)."""
    return checked_int(abs(x)) if type(x) is int else abs(need("math.abs", "x", x, int, float))


@register("math.floor", "x")
def math_floor(x: Any) -> int:
    """The largest integer not above ``x``. Raises TypeError, ValueError (over 64 bits)."""
    try:
        return checked_int(_math.floor(need("math.floor", "x", x, int, float)))
    except (OverflowError, ValueError) as exc:
        raise value_error(f"math.floor: {exc}") from None


@register("math.max", "x", "y")
def math_max(x: Any, y: Any) -> Any:
    """The larger of two numbers. Raises TypeError."""
    return _chosen("math.max", max, x, y)


@register("math.min", "x", "y")
def math_min(x: Any, y: Any) -> Any:
    """The smaller of two numbers. Raises TypeError."""
    return _chosen("math.min", min, x, y)


def _chosen(function: str, choose: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    """One of two numbers: an integer when both are, else a double (Google's pages)."""
    need(function, "x", x, int, float)
    need(function, "y", y, int, float)
    number = choose(x, y)
    return number if type(x) is int and type(y) is int else float(number)


# uuid, time and sys


@register("uuid.generate", scoped=True)
def uuid_generate(scope: Scope) -> str:
    """A random UUID of version 4; the engine's seed decides it."""
    return scope.frame.execution.uuid()


@register("time.format", "seconds", "timezone", timezone="UTC")
def time_format(seconds: Any, timezone: Any) -> str:
    """ISO 8601 text of a Unix time, with microseconds, in a time zone of the tz database.

    An empty ``timezone`` is UTC; an offset of zero is written ``Z``.
    """
    need("time.format", "seconds", seconds, int, float)
    name: str = need("time.format", "timezone", timezone, str)
    try:
        zone = zoneinfo.ZoneInfo(name or "UTC")
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise value_error(f"time.format: no time zone {name!r}: {exc}") from None
    try:
        moment = _datetime.datetime.fromtimestamp(seconds, zone)
    except (ValueError, OverflowError, OSError) as exc:
        raise value_error(f"time.format: {exc}") from None
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


_RFC_3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


@register("time.parse", "value")
def time_parse(value: Any) -> float:
    """Unix time in seconds of an RFC 3339 text; digits beyond microseconds are dropped."""
    return parse_time("time.parse", "value", value)


def parse_time(function: str, param: str, value: Any) -> float:
    """Unix time in seconds of an argument of type RFC 3339 text (section 5.6)."""
    text: str = need(function, param, value, str)
    match = _RFC_3339.fullmatch(text)
    if match is None:
        raise value_error(f"{function}: {text!r} is no RFC 3339 time such as 2024-05-08T12:01:00Z")
    day, clock, fraction, zone = match.groups(default="")
    try:
        moment = _datetime.datetime.fromisoformat(f"{day}T{clock}{fraction[:7]}{zone.upper()}")
        return moment.timestamp()
    except (ValueError, OverflowError) as exc:
        raise value_error(f"{function}: {exc}") from None


@register("sys.get_env", "name", "default", default=None, scoped=True)
def get_env(scope: Scope, name: Any, other: Any) -> Any:
    """An environment variable, or ``default``; null when neither is there.

    Raises WorkflowError (TypeError) for a name or a default that is no string.
    """
    need("sys.get_env", "name", name, str)
    if other is not None:
        need("sys.get_env", "default", other, str)
    return scope.frame.execution.environment.get(name, other)


@register("sys.now", scoped=True)
def now(scope: Scope) -> float:
    """Unix time in seconds, by the engine's clock."""
    return scope.frame.execution.engine.now()
