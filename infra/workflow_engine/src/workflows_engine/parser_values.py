"""Values of a source: literals, expressions, targets of assignments, names."""

from __future__ import annotations

import re
from typing import Any

from workflows_engine import expressions, limits
from workflows_engine.errors import Faults
from workflows_engine.expressions import Attribute, BadExpression, Index, Literal, Name, Node
from workflows_engine.model import Const, Expr, ListValue, MapValue, Target, Value
from workflows_engine.yaml_nodes import Mapping, Scalar, Sequence, Tree

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ValueParser(Faults):
    """Reads values; goes on after a fault, to report them all."""

    def value(self, tree: Tree) -> Value:
        """A value of the source: a literal, an expression, or a list or map of them."""
        if isinstance(tree, Sequence):
            return ListValue([self.value(item) for item in tree.items], tree.line)
        if isinstance(tree, Mapping):
            return MapValue(
                [(self._key(key), self.value(value)) for key, value in tree.items], tree.line
            )
        if isinstance(tree.value, str):
            return self._text(tree)
        return Const(tree.value, tree.line)

    def _key(self, key: Scalar) -> Const | Expr:
        value = self._text(key)
        return value if isinstance(value, Expr) else Const(key.text, key.line)

    def _text(self, scalar: Scalar) -> Const | Expr:
        text = scalar.text.strip()
        if text.startswith("${"):
            if not text.endswith("}"):
                if scalar.plain and "}" not in text:
                    self.fault(
                        scalar.line,
                        "an expression that begins with ${ does not end with }",
                        "the whole ${...} in single quotes (YAML ends plain text at ' #')",
                    )
                    return Const(None, scalar.line)
                return Const(scalar.text, scalar.line, _mixed(scalar.text))
            try:
                return Expr(expressions.parse(text[2:-1]), scalar.line)
            except BadExpression as exc:
                self.fault(scalar.line, exc.message, exc.instead)
                return Const(None, scalar.line)
        if len(scalar.text.encode("utf-8", "replace")) > limits.STRING_BYTES:
            self.fault(scalar.line, "a string is longer than 256 KB", "a shorter string")
        return Const(scalar.text, scalar.line, _mixed(scalar.text))

    def _target(self, key: Scalar) -> Target | None:
        path: list[Node] = []
        try:
            node: Node = expressions.parse(key.text)
        except BadExpression as exc:
            self.fault(key.line, f"cannot assign to {key.text!r}: {exc.message}", exc.instead)
            return None
        while not isinstance(node, Name):
            if isinstance(node, Attribute):
                path.append(Literal(node.name))
                node = node.base
            elif isinstance(node, Index):
                path.append(node.key)
                node = node.base
            else:
                self.fault(
                    key.line, f"cannot assign to {key.text!r}", "name, name.key or name[index]"
                )
                return None
        return Target(node.id, path[::-1], key.line)

    def _variable(self, tree: Tree | None, what: str) -> Target | None:
        if tree is None:
            return None
        if isinstance(tree, Scalar) and IDENTIFIER.fullmatch(tree.text):
            return Target(tree.text, [], tree.line)
        shown = tree.text if isinstance(tree, Scalar) else "a list or map"
        self.fault(tree.line, f"{what} must be the name of a variable, not {shown}", "a name")
        return None

    def _listed(self, tree: Tree, name: str, example: str, what: str, most: int) -> list[Tree]:
        """The items of a list that has at least one and at most ``most``."""
        if not isinstance(tree, Sequence) or not tree.items:
            self.fault(tree.line, f"{name} must be a list", example)
            return []
        count = len(tree.items)
        if count > most:
            message = f"{count} {what} in one {name}, {most} allowed"
            self.fault(tree.line, message, "several steps")
        return tree.items

    def _known(self, tree: Mapping, where: str, keys: set[str]) -> None:
        for item, _ in tree.items:
            if item.text not in keys:
                self.fault(
                    item.line, f"{where} cannot have {item.text!r}", ", ".join(sorted(keys))
                )


def _mixed(text: str) -> tuple[Node, ...]:
    """The expressions inside a text that the service would leave as they are."""
    found: list[Node] = []
    for match in re.finditer(r"\$\{([^{}]*)\}", text):
        try:
            found.append(expressions.parse(match[1]))
        except BadExpression:
            continue
    return tuple(found)


def constant(value: Value) -> Any:
    """The Python value of a source value without expressions; raises ValueError for others."""
    match value:
        case Const(literal):
            return literal
        case ListValue(items):
            return [constant(item) for item in items]
        case MapValue(pairs):
            return {constant(key): constant(item) for key, item in pairs}
        case _:
            raise ValueError("an expression has no constant value")
