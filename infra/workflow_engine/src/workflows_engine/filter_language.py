"""The language of list filters, for any resource: what a field is, the caller says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedInput, VisitError

R = TypeVar("R")
Predicate = Callable[[R], bool]
Comparison = Callable[[str, str, str], Predicate[R]]
_GRAMMAR = Lark(Path(__file__).with_name("filter.lark").read_text(encoding="utf-8"), parser="lalr")
_MAX = 10_000  # characters


class _Predicates(Transformer[Token, Predicate[R]], Generic[R]):
    def __init__(self, comparison: Comparison[R]) -> None:
        super().__init__()
        self._comparison = comparison

    def start(self, parts: list[Predicate[R]]) -> Predicate[R]:
        return parts[0] if parts else lambda _resource: True

    def any_of(self, parts: list[Predicate[R]]) -> Predicate[R]:
        return lambda resource: any(part(resource) for part in parts)

    def all_of(self, parts: list[Predicate[R]]) -> Predicate[R]:
        return lambda resource: all(part(resource) for part in parts)

    def negated(self, parts: list[Predicate[R]]) -> Predicate[R]:
        return lambda resource: not parts[0](resource)

    def comparison(self, parts: list[Token]) -> Predicate[R]:
        field, operator, value = parts
        text = re.sub(r"\\(.)", r"\1", value[1:-1]) if value.type == "QUOTED" else str(value)
        return self._comparison(str(field), {"eq": "=", "ne": "!="}.get(operator, operator), text)


def read_filter(text: str, comparison: Comparison[R]) -> Predicate[R]:
    """Return the predicate of a filter such as ``state="ACTIVE" AND labels.run="a"``.

    Args:
        comparison: makes the predicate of one comparison from field, operator (one of
            ``= != < <= > >= :``) and value; raises ValueError for what it does not know.

    Raises:
        ValueError: it cannot be read, or what ``comparison`` raises.
    """
    if len(text) > _MAX:
        raise ValueError(f"the filter has {len(text)} characters; at most {_MAX} are read")
    try:
        return _Predicates(comparison).transform(_GRAMMAR.parse(text))
    except UnexpectedInput as error:
        rest = text[error.pos_in_stream or 0 :] if (error.pos_in_stream or -1) >= 0 else ""
        raise ValueError(
            f"the filter cannot be read at {rest!r}" if rest else "the filter ends too early"
        ) from None
    except VisitError as error:
        if isinstance(error.orig_exc, ValueError):
            raise error.orig_exc from None
        raise
    except RecursionError:
        raise ValueError("the filter has too many brackets within brackets") from None
