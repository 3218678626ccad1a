"""How the standard library's functions are registered: by name, with their parameters.

Parameters have names, so that a function can be called by position in an expression and by name
in a ``call`` step, and so that the checker knows its arity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from workflows_engine.errors import type_error
from workflows_engine.values import type_name

REQUIRED: Final = object()


@dataclass(frozen=True)
class Spec:
    """A function: its parameters with their defaults (REQUIRED: none) and its body.

    ``scoped`` functions get the caller's scope first: they need the execution's clock, seed
    or environment.
    """

    name: str
    params: tuple[tuple[str, Any], ...]
    body: Callable[..., Any]
    scoped: bool = False

    @property
    def required(self) -> int:
        """How many parameters have no default."""
        return sum(1 for _, default in self.params if default is REQUIRED)


FUNCTIONS: dict[str, Spec] = {}


_Body = TypeVar("_Body", bound=Callable[..., Any])


def register(
    name: str, *params: str, scoped: bool = False, **defaults: Any
) -> Callable[[_Body], _Body]:
    """Add a function to the library; parameters without a default are required."""

    def add(body: _Body) -> _Body:
        spec = tuple((p, defaults.get(p, REQUIRED)) for p in params)
        FUNCTIONS[name] = Spec(name, spec, body, scoped)
        return body

    return add


def need(function: str, param: str, value: Any, *kinds: type) -> Any:
    """Refuse an argument of another type than ``kinds``; gives the value back."""
    if type(value) in kinds:
        return value
    names = {int: "int", float: "double", str: "string", bytes: "bytes", list: "list", dict: "map"}
    wanted = " or ".join(names.get(kind, kind.__name__) for kind in kinds)
    raise type_error(f"{function}: {param} must be {wanted}, not {type_name(value)}")
