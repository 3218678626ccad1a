"""Expressions: their syntax tree, the parser and the way back to text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, VisitError

from workflows_engine import limits


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, a string in double quotes, true, false or null."""

    value: int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class Name:
    """A variable, or the first part of a dotted name."""

    id: str


@dataclass(frozen=True, slots=True)
class Attribute:
    """``base.name``: a key of a map, or a member of a module."""

    base: Node
    name: str


@dataclass(frozen=True, slots=True)
class Index:
    """``base[key]``: an element of a list, or a key of a map."""

    base: Node
    key: Node


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function by its dotted name; there are no other callable things."""

    name: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Unary:
    """An operator before its operand."""

    op: str  # "-", "+" or "not"
    operand: Node


@dataclass(frozen=True, slots=True)
class Binary:
    """An operator between two operands that are both evaluated."""

    op: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Logic:
    """``and`` or ``or``: the right side is evaluated only when it decides."""

    op: str  # "and" or "or"
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of expressions. There are no maps in expressions (Google's page of expressions)."""

    items: tuple[Node, ...]


Node = Literal | Name | Attribute | Index | Call | Unary | Binary | Logic | ListOf


class BadExpression(ValueError):
    """An expression the service would refuse; ``instead`` says what to write."""

    def __init__(self, message: str, instead: str) -> None:
        super().__init__(message)
        self.message = message
        self.instead = instead


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] == "u" and len(code) == 5:
        return chr(int(code[1:], 16))
    if code in _ESCAPES:
        return _ESCAPES[code]
    if code in "\"'\\/":
        return code
    raise BadExpression(
        f"unknown escape \\{code} in a string", f"\\\\\\\\{code} for a backslash before {code!r}"
    )


def dotted_name(node: Node) -> str | None:
    """``a.b.c`` of a chain of attributes that begins with a name."""
    if isinstance(node, Name):
        return node.id
    if isinstance(node, Attribute):
        base = dotted_name(node.base)
        return None if base is None else f"{base}.{node.name}"
    return None


class _Build(Transformer[Token, Any]):
    """Builds the tree bottom-up while the parser runs, so deep input costs no recursion."""

    def int_(self, items: list[Token]) -> Node:
        if len(items[0].lstrip("0")) > 19 or (number := int(items[0])) >= 2**63:
            raise BadExpression(
                f"{items[0]} does not fit a 64 bit integer", f'double("{items[0]}")'
            )
        return Literal(number)

    def float_(self, items: list[Token]) -> Node:
        number = float(items[0])
        if number == float("inf"):
            raise BadExpression(f"{items[0]} is too large for a double", "a smaller number")
        return Literal(number)

    def string(self, items: list[Token]) -> Node:
        text = _ESCAPE.sub(_unescape, items[0][1:-1])
        # A pair of \u surrogates is one character, as in JSON.
        return Literal(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))

    def true(self, _: list[Token]) -> Node:
        return Literal(True)

    def false(self, _: list[Token]) -> Node:
        return Literal(False)

    def null(self, _: list[Token]) -> Node:
        return Literal(None)

    def name(self, items: list[Token]) -> Node:
        return Name(str(items[0]))

    def group(self, items: list[Node]) -> Node:
        return items[0]

    def arguments(self, items: list[Node | None]) -> list[Node]:
        return [item for item in items if item is not None]

    def list_(self, items: list[Any]) -> Node:
        return ListOf(tuple(items[0] or ()))

    def attribute(self, items: list[Any]) -> Node:
        return Attribute(items[0], str(items[1]))

    def index(self, items: list[Node]) -> Node:
        return Index(items[0], items[1])

    def call(self, items: list[Any]) -> Node:
        name = dotted_name(items[0])
        if name is None:
            raise BadExpression("only a function can be called, by its name", "name(arguments)")
        return Call(name, tuple(items[1] or ()))

    def unary(self, items: list[Any]) -> Node:
        return Unary(str(items[0]).lower(), items[1])

    def binary(self, items: list[Any]) -> Node:
        return Binary(str(items[1]), items[0], items[2])

    def logic(self, items: list[Any]) -> Node:
        return Logic(str(items[1]).lower(), items[0], items[2])


_PARSER = Lark(
    Path(__file__).with_name("expression.lark").read_text(encoding="utf-8"),
    parser="lalr",
    transformer=_Build(),
    maybe_placeholders=True,
)


@lru_cache(maxsize=4096)
def parse(text: str) -> Node:
    """Parse the inside of ``${...}``. Raises BadExpression with what to write instead."""
    length = len(text)
    if length > limits.EXPRESSION_CHARACTERS:
        raise BadExpression(
            f"the expression has {length} characters, {limits.EXPRESSION_CHARACTERS} are allowed",
            "several assignments with shorter expressions",
        )
    if not text.strip():
        raise BadExpression("the expression is empty", "${expression}")
    try:
        node: Node = _PARSER.parse(text)  # type: ignore[assignment]
    except VisitError as exc:
        if isinstance(exc.orig_exc, BadExpression):
            raise exc.orig_exc from None
        raise
    except UnexpectedInput as exc:
        raise _explained(text, exc) from None
    return node


def _explained(text: str, exc: UnexpectedInput) -> BadExpression:
    token = getattr(exc, "token", None)
    ended = token is not None and token.type == "$END"
    position = len(text) if ended or exc.pos_in_stream is None else exc.pos_in_stream
    rest = text[position:]
    before = text[:position].rstrip()
    if re.match(r"not\s+in\b", rest, re.IGNORECASE):
        return BadExpression("there is no operator 'not in'", "not(x in y)")
    if rest.startswith("{"):
        return BadExpression(
            "there are no map literals in expressions",
            "the map in YAML, with an expression for each value",
        )
    if rest.startswith("$"):
        return BadExpression(
            "an expression cannot hold another ${...}", "the inner expression without ${ and }"
        )
    if rest.startswith("}"):
        return BadExpression(
            "a value is either one ${expression} or literal text, not a mix",
            '${"text " + name} with everything inside one expression',
        )
    if rest[:2] in ("&&", "||") or rest[:1] == "!":
        return BadExpression(f"unknown operator {rest[:2].strip()!r}", "and, or, not")
    if rest[:1] == "=":
        return BadExpression("'=' is not an operator", "== to compare")
    if rest[:1] in "\"'" and rest:
        return BadExpression("a string does not end", "the closing quote")
    if not rest.strip():
        return BadExpression("the expression ends too early", "the missing operand or bracket")
    what = rest[0] if isinstance(exc, UnexpectedCharacters) else rest.split()[0]
    after = f" after {before[-20:]!r}" if before else ""
    return BadExpression(
        f"syntax error at character {position + 1}: unexpected {what[:20]!r}{after}",
        "an expression of names, literals, operators and function calls",
    )


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly inside a node, in evaluation order."""
    match node:
        case Literal() | Name():
            return ()
        case Attribute(base, _):
            return (base,)
        case Index(base, key):
            return (base, key)
        case Call(_, args):
            return args
        case Unary(_, operand):
            return (operand,)
        case Binary(_, left, right) | Logic(_, left, right):
            return (left, right)
        case ListOf(items):
            return items


def walk(node: Node) -> Iterator[Node]:
    """The node and everything inside it."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(children(top))


_LEVELS = {"or": 1, "and": 2, "compare": 3, "+": 4, "-": 4, "*": 5, "/": 5, "//": 5, "%": 5}
_UNARY = 6
_POSTFIX = 7


def _level(node: Node) -> int:
    match node:
        case Logic(op, _, _):
            return _LEVELS[op]
        case Binary(op, _, _):
            return _LEVELS.get(op, _LEVELS["compare"])
        case Unary():
            return _UNARY
        case _:
            return _POSTFIX


def unparse(node: Node) -> str:
    """Text that parses to the same tree, with the fewest parentheses."""
    match node:
        case Literal(value):
            return _literal(value)
        case Name(id):
            return id
        case Attribute(base, name):
            return f"{_inside(base, _POSTFIX)}.{name}"
        case Index(base, key):
            return f"{_inside(base, _POSTFIX)}[{unparse(key)}]"
        case Call(name, args):
            return f"{name}({', '.join(map(unparse, args))})"
        case ListOf(items):
            return f"[{', '.join(map(unparse, items))}]"
        case Unary(op, operand):
            space = " " if op == "not" else ""
            return f"{op}{space}{_inside(operand, _UNARY)}"
        case Binary(op, left, right) | Logic(op, left, right):
            level = _level(node)
            return f"{_inside(left, level)} {op} {_inside(right, level + 1)}"


def _inside(node: Node, level: int) -> str:
    text = unparse(node)
    if isinstance(node, Literal) and type(node.value) is int and level == _POSTFIX:
        return f"({text})"  # 1.x would read as a number
    return f"({text})" if _level(node) < level else text


def _literal(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return repr(value)
