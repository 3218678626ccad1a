"""The standard library's functions that do not block: all that an expression may call.

The text module is in stdlib_text.py, retry policies and blocking functions in builtins.py.
"""

from __future__ import annotations

import base64 as _base64
import binascii
import datetime as _datetime
import hashlib
import hmac
import math as _math
import re
import zoneinfo
from typing import Any

from workflows_engine.errors import value_error
from workflows_engine.registry import need, register
from workflows_engine.scope import Scope
from workflows_engine.values import checked_int, from_json, to_json

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
    return float(value)


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
    """Characters, elements, keys or bytes. Raises TypeError for the rest."""
    return len(need("len", "value", value, str, list, dict, bytes))


@register("keys", "map")
def keys(value: Any) -> list[str]:
    """The keys of a map, in its order. Raises TypeError."""
    return list(need("keys", "map", value, dict))


# list and map


@register("list.concat", "list", "element")
def list_concat(items: Any, element: Any) -> list[Any]:
    """A new list with ``element`` at its end. Raises TypeError."""
    return [*need("list.concat", "list", items, list), element]


@register("list.prepend", "list", "element")
def list_prepend(items: Any, element: Any) -> list[Any]:
    """A new list with ``element`` at its beginning. Raises TypeError."""
    return [element, *need("list.prepend", "list", items, list)]


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
    return max(need("math.max", "x", x, int, float), need("math.max", "y", y, int, float))


@register("math.min", "x", "y")
def math_min(x: Any, y: Any) -> Any:
    """The smaller of two numbers. Raises TypeError."""
    return min(need("math.min", "x", x, int, float), need("math.min", "y", y, int, float))


# json, base64, hash, uuid


@register("json.decode", "data")
def json_decode(data: Any) -> Any:
    """The value of a JSON text or its bytes. Raises TypeError, ValueError."""
    return from_json(need("json.decode", "data", data, str, bytes))


@register("json.encode_to_string", "data", "indent", indent=None)
def json_encode_to_string(data: Any, indent: Any) -> str:
    """JSON text, in one line without spaces unless ``indent``. Raises TypeError."""
    if indent is not None:
        need("json.encode_to_string", "indent", indent, int, str)
    return to_json(data, indent=indent, separators=None if indent is not None else (",", ":"))


@register("json.encode", "data", "indent", indent=None)
def json_encode(data: Any, indent: Any) -> bytes:
    """The bytes of json.encode_to_string. Raises TypeError."""
    return json_encode_to_string(data, indent).encode("utf-8", "replace")


@register("base64.encode", "data", "padding", padding=True)
def base64_encode(data: Any, padding: Any) -> str:
    """Base64 text of bytes. Raises TypeError."""
    need("base64.encode", "padding", padding, bool)
    raw = need("base64.encode", "data", data, bytes, str)
    raw = raw.encode("utf-8", "replace") if isinstance(raw, str) else raw
    text = _base64.b64encode(raw).decode()
    return text if padding else text.rstrip("=")


@register("base64.decode", "data", "padding", padding=True)
def base64_decode(data: Any, padding: Any) -> bytes:
    """Bytes of Base64 text, also of the URL-safe alphabet. Raises TypeError, ValueError."""
    need("base64.decode", "padding", padding, bool)
    raw = need("base64.decode", "data", data, str, bytes)
    text = raw if isinstance(raw, str) else raw.decode("ascii", "replace")
    text = text.replace("-", "+").replace("_", "/")
    if not padding:
        text += "=" * (-len(text) % 4)
    try:
        return bytes(_base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError) as exc:
        raise value_error(f"base64.decode: {exc}") from None


_HASHES = {
    "MD5": "md5",
    "SHA1": "sha1",
    "SHA256": "sha256",
    "SHA384": "sha384",
    "SHA512": "sha512",
}


def _hash_name(function: str, algorithm: Any) -> str:
    name = need(function, "algorithm", algorithm, str).upper().replace("-", "")
    if name not in _HASHES:
        raise value_error(f"{function}: unknown algorithm {algorithm!r}, not one of {[*_HASHES]}")
    return _HASHES[name]


def _bytes(function: str, param: str, value: Any) -> bytes:
    need(function, param, value, bytes, str)
    return value.encode("utf-8", "replace") if isinstance(value, str) else bytes(value)


@register("hash.compute_checksum", "data", "algorithm")
def compute_checksum(data: Any, algorithm: Any) -> bytes:
    """A digest as bytes. Raises TypeError, ValueError (unknown algorithm)."""
    name = _hash_name("hash.compute_checksum", algorithm)
    raw = _bytes("hash.compute_checksum", "data", data)
    return hashlib.new(name, raw, usedforsecurity=False).digest()


@register("hash.compute_hmac", "key", "data", "algorithm")
def compute_hmac(key: Any, data: Any, algorithm: Any) -> bytes:
    """A keyed digest as bytes. Raises TypeError, ValueError (unknown algorithm)."""
    name = _hash_name("hash.compute_hmac", algorithm)
    secret = _bytes("hash.compute_hmac", "key", key)
    return hmac.new(secret, _bytes("hash.compute_hmac", "data", data), name).digest()


@register("uuid.generate", scoped=True)
def uuid_generate(scope: Scope) -> str:
    """A random UUID of version 4; the engine's seed decides it."""
    return scope.frame.execution.uuid()


# time and sys


@register("time.format", "seconds", "timezone", timezone="UTC")
def time_format(seconds: Any, timezone: Any) -> str:
    """ISO 8601 text of a Unix time in an IANA time zone."""
    need("time.format", "seconds", seconds, int, float)
    try:
        zone = zoneinfo.ZoneInfo(need("time.format", "timezone", timezone, str))
        moment = _datetime.datetime.fromtimestamp(seconds, zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OverflowError, OSError) as exc:
        raise value_error(f"time.format: {exc}") from None
    text = moment.isoformat()
    return text.removesuffix("+00:00") + "Z" if timezone == "UTC" else text


@register("time.parse", "value")
def time_parse(value: Any) -> float:
    """Unix time in seconds of an RFC 3339 text."""
    text = need("time.parse", "value", value, str)
    try:
        moment = _datetime.datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError("the time has no zone; end it with Z or +00:00")
        return moment.timestamp()
    except (ValueError, OverflowError) as exc:
        raise value_error(f"time.parse: {exc}") from None


@register("sys.get_env", "name", "default", default=None, scoped=True)
def get_env(scope: Scope, name: Any, other: Any) -> Any:
    """An environment variable; null when it is not set (only TypeError is documented)."""
    return scope.frame.execution.environment.get(need("sys.get_env", "name", name, str), other)


@register("sys.now", scoped=True)
def now(scope: Scope) -> float:
    """Unix time in seconds, by the engine's clock."""
    return scope.frame.execution.engine.now()
