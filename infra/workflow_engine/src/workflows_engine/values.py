"""Values of the language: null, bool, int, double, string, bytes, list, map, function.

A value is never changed in place once it is in a variable; an assignment to ``m.a[0]`` makes new
containers along the path. So a copy is free, branches cannot disturb one another, and sizes can
be kept incrementally.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Sequence
from typing import Any, Final

from workflows_engine import limits
from workflows_engine.errors import (
    WorkflowError,
    error,
    resource_limit,
    type_error,
    value_error,
)

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1


class Function:
    """A function as a value: a retry predicate, by name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<function {self.name}>"


def type_name(value: Any) -> str:
    """The name of a value's type, as error messages give it."""
    if value is None:
        return "null"
    names = {
        bool: "bool",
        int: "int",
        float: "double",
        str: "string",
        bytes: "bytes",
        list: "list",
        dict: "map",
        Function: "function",
    }
    return names.get(type(value), type(value).__name__)


def text_size(text: str) -> int:
    """Bytes of a string's UTF-8 form; refuses one longer than a string may be."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size > limits.STRING_BYTES:
        raise resource_limit(
            f"a string of {size} bytes is longer than the {limits.STRING_BYTES} bytes allowed"
        )
    return size


def measure(value: Any, depth: int = 0) -> int:
    """Memory of a value in bytes: 8 for a scalar, 8 + contents for the others (documented)."""
    kind = type(value)
    if kind is str:
        return 8 + text_size(value)
    if kind is dict:
        _check_depth(depth)
        size = 8
        for key, item in value.items():
            size += 8 + text_size(key) + measure(item, depth + 1)
        return size
    if kind is list:
        _check_depth(depth)
        size = 8
        for item in value:
            size += measure(item, depth + 1)
        return size
    if kind is bytes:
        return 8 + len(value)
    return 8


def _check_depth(depth: int) -> None:
    if depth > limits.VALUE_NESTING:
        raise resource_limit(
            f"lists and maps nest more than {limits.VALUE_NESTING} deep (a limit of this engine)"
        )


def equal(left: Any, right: Any) -> bool:
    """Deep equality; ``true`` is not 1, and values of different types are not equal."""
    kind = type(left)
    other = type(right)
    if kind is not other:
        return {kind, other} == {int, float} and left == right
    if kind is list:
        return len(left) == len(right) and all(
            equal(a, b) for a, b in zip(left, right, strict=True)
        )
    if kind is dict:
        return left.keys() == right.keys() and all(equal(left[k], right[k]) for k in left)
    return bool(left == right)


def checked_int(number: int) -> int:
    """Refuse an integer that does not fit 64 bits."""
    if INT_MIN <= number <= INT_MAX:
        return number
    raise value_error(f"{number} does not fit a 64 bit integer")


def widened(number: int) -> float:
    """An integer beyond 64 bits as a double. Raises WorkflowError (ValueError) beyond those."""
    try:
        return float(number)
    except OverflowError:
        raise value_error("an integer of more than 308 digits does not fit a double") from None


def imported(value: Any, depth: int = 0) -> Any:
    """Copy a value that comes from outside (JSON, a handler's answer) into the language's types.

    Raises WorkflowError tagged TypeError for a Python object the language has no type for.
    """
    kind = type(value)
    if kind is str or value is None or kind is bool or kind is float or kind is bytes:
        return value
    if kind is int:
        return value if INT_MIN <= value <= INT_MAX else widened(value)
    _check_depth(depth)
    if isinstance(value, dict):
        return {str(key): imported(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [imported(item, depth + 1) for item in value]
    if isinstance(value, Function):
        return value
    raise type_error(f"a value of type {type(value).__name__} cannot enter a workflow")


def get_item(container: Any, key: Any) -> Any:
    """``container[key]`` and ``container.key`` of an expression."""
    if type(container) is dict:
        if type(key) is not str:
            raise type_error(f"a map key must be a string, not {type_name(key)}")
        try:
            return container[key]
        except KeyError:
            raise error("KeyError", f"key not found: {key}") from None
    if type(container) is list:
        if type(key) is not int:
            raise type_error(f"a list index must be an int, not {type_name(key)}")
        if 0 <= key < len(container):
            return container[key]
        raise error("IndexError", f"index {key} is outside a list of {len(container)} elements")
    raise type_error(f"cannot take {key!r} of a value of type {type_name(container)}")


def set_item(container: Any, keys: Sequence[Any], new: Any, size: int) -> tuple[Any, int]:
    """A copy of ``container`` with ``new`` at the path ``keys``, and the change in its size.

    ``size`` is the measured size of ``new``. Maps that are missing on the way are created.
    """
    key, rest = keys[0], keys[1:]
    if type(container) is dict:
        if type(key) is not str:
            raise type_error(f"a map key must be a string, not {type_name(key)}")
        present = key in container
        if rest:
            old = container[key] if present else None
            start = {} if old is None else old
            item, delta = set_item(start, rest, new, size)
            if old is None:
                delta += 0 if present else 8
        else:
            item, delta = new, size - (measure(container[key]) if present else 0)
        if not present:
            delta += 8 + text_size(key)
        copy = dict(container)
        copy[key] = item
        return copy, delta
    if type(container) is list:
        old = get_item(container, key)
        if rest:
            item, delta = set_item({} if old is None else old, rest, new, size)
        else:
            item, delta = new, size - measure(old)
        copied = list(container)
        copied[key] = item
        return copied, delta
    raise type_error(f"cannot assign to {key!r} of a value of type {type_name(container)}")


def to_json(value: Any, **options: Any) -> str:
    """JSON text of a value. Raises TypeError for bytes and functions, ValueError for NaN."""
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, default=_refuse, **options)
    except ValueError as exc:
        raise value_error(f"cannot encode to JSON: {exc}") from None


def _refuse(value: Any) -> Any:
    raise type_error(f"a value of type {type_name(value)} cannot be encoded to JSON")


def from_json(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError tagged as such."""
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_double)
        if _SURROGATE.search(text if isinstance(text, str) else text.decode()):
            value = json.loads(_paired(json.dumps(value, ensure_ascii=False)))
        return imported(value)
    except (ValueError, RecursionError) as exc:
        raise value_error(f"not valid JSON: {exc}") from None


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def _paired(text: str) -> str:
    """The text with half characters, which UTF-8 cannot encode, replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _double(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} does not fit a double")
    return number


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def printable(value: Any) -> Any:
    """A form of any value that can be encoded: for logs and error payloads only."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: printable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [printable(item) for item in value]
    return repr(value) if isinstance(value, Function) else value


__all__ = [
    "Function",
    "WorkflowError",
    "checked_int",
    "equal",
    "from_json",
    "get_item",
    "imported",
    "measure",
    "printable",
    "set_item",
    "to_json",
    "type_name",
    "widened",
]
