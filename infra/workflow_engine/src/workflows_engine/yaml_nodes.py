"""A workflow source as a tree that remembers its lines.

Scalars are read by the YAML 1.2 core rules: only true/True/TRUE and false/False/FALSE are
booleans, so that ``on`` and ``no`` stay text; dates and 12:30 stay text as well.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import yaml

from workflows_engine import limits
from workflows_engine.errors import Fault, Faults, FaultySource
from workflows_engine.values import INT_MAX, INT_MIN


@dataclass(slots=True)
class Scalar:
    """A leaf; ``text`` is what the source says, ``plain`` that it was not quoted."""

    value: Any
    line: int
    text: str
    plain: bool


@dataclass(slots=True)
class Sequence:
    """A list."""

    items: list[Tree]
    line: int


@dataclass(slots=True)
class Mapping:
    """A map, in the source's order."""

    items: list[tuple[Scalar, Tree]]
    line: int

    def get(self, key: str) -> Tree | None:
        """The value of a key, or None."""
        for name, value in self.items:
            if name.text == key:
                return value
        return None


Tree = Scalar | Sequence | Mapping

_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False}
_BOOLEANS["FALSE"] = False
_NULLS = {"null", "Null", "NULL", "~", ""}
_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
# libyaml's parser, where PyYAML was built with it.
_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MIXED_BOOLEANS = {"yes", "no", "on", "off"}


def resolve(text: str) -> Any:
    """The value of a plain scalar."""
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if text in _NULLS:
        return None
    if _INT.fullmatch(text):
        try:
            number = int(text)
        except ValueError:  # Python refuses to read more than 4,300 digits
            return math.copysign(math.inf, -1 if text[0] == "-" else 1)
        return number if INT_MIN <= number <= INT_MAX else float(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


_HALF = re.compile("[\ud800-\udfff]")


def _spaces(match: re.Match[str]) -> str:
    return match[0].replace("\t", " ")


class Reader(Faults):
    """Reads a source into a Tree and collects what is wrong with it as YAML."""

    def __init__(self, source: str, path: str) -> None:
        super().__init__(path)
        # JSON may be indented with tabs, YAML may not; neither has tabs that mean something there.
        json = source.lstrip().startswith(("{", "["))
        self._source = re.sub(r"(?m)^[ \t]+", _spaces, source) if json else source
        self._seen: set[int] = set()

    def read(self) -> Tree:
        """The tree. Raises FaultySource when the source is too large or not YAML."""
        size = len(self._source.encode("utf-8", "replace"))
        if size > limits.SOURCE_BYTES:
            self.fault(
                1,
                f"the source has {size} bytes, {limits.SOURCE_BYTES} are allowed",
                "a smaller workflow, with parts of it as workflows of their own",
            )
            raise FaultySource(self.faults)
        self._check_depth()
        try:
            node = self._composed()
        except yaml.MarkedYAMLError as exc:
            mark = exc.problem_mark or exc.context_mark
            self._explain(mark.line + 1 if mark else 1, exc.problem or str(exc))
            raise FaultySource(self.faults) from None
        except (yaml.YAMLError, RecursionError, ValueError) as exc:
            self.fault(1, f"not YAML: {str(exc).splitlines()[0]}", "plain YAML text")
            raise FaultySource(self.faults) from None
        if node is None:
            self.fault(1, "the source is empty", "a list of steps, or main with steps")
            raise FaultySource(self.faults)
        return self._tree(node, 0)

    def _composed(self) -> Any:
        """The nodes by libyaml, ten times as fast; by PyYAML when libyaml refuses the source.

        PyYAML's errors say more, and it has the last word on what is YAML.
        """
        try:
            return yaml.compose(self._source, Loader=_FAST)
        except (yaml.YAMLError, ValueError):
            return yaml.compose(self._source, Loader=yaml.SafeLoader)

    def _check_depth(self) -> None:
        """Refuse a source that nests too deep before PyYAML, quadratic in depth, reads it."""
        depth = 0
        try:
            for event in yaml.parse(self._source, Loader=_FAST):
                if isinstance(event, yaml.CollectionStartEvent):
                    depth += 1
                elif isinstance(event, yaml.CollectionEndEvent):
                    depth -= 1
                if depth > 4 * limits.SOURCE_NESTING:
                    self._too_deep(event.start_mark.line + 1 if event.start_mark else 1)
        except FaultySource:
            raise
        except (yaml.YAMLError, ValueError) as exc:
            if "maximum nesting" in str(exc):  # libyaml's own limit
                self._too_deep(1)
            # What else is wrong is explained by the reading proper.

    def _too_deep(self, line: int) -> None:
        self.fault(line, "the source nests too deep", "subworkflows instead of nested steps")
        raise FaultySource(self.faults)

    def _explain(self, line: int, problem: str) -> None:
        lines = self._source.splitlines()
        text = lines[line - 1] if 0 < line <= len(lines) else ""
        flow = "expected ',' or" in problem and "${" in text
        if flow or re.search(r"[\[{,]\s*\$\{", text):
            self.fault(
                line,
                "YAML cannot hold an unquoted ${...} inside [...] or {...}",
                '${[a, b]} as one expression, or quotes around each: ["${a}", "${b}"]',
            )
        elif "${" in text and ": " in text[text.index("${") :]:
            self.fault(
                line,
                "YAML takes ': ' inside an unquoted ${...} for a new key",
                "the whole expression in single quotes: '${\"key: \" + value}'",
            )
        else:
            self.fault(line, f"not YAML: {problem}", "YAML that parses")

    def _tree(self, node: Any, depth: int) -> Tree:
        line = node.start_mark.line + 1
        if id(node) in self._seen:
            self.fault(line, "YAML aliases (*name) are not part of Workflows", "the text again")
            raise FaultySource(self.faults)
        self._seen.add(id(node))
        if depth > 4 * limits.SOURCE_NESTING:
            self._too_deep(line)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, line)
        if isinstance(node, yaml.SequenceNode):
            return Sequence([self._tree(item, depth + 1) for item in node.value], line)
        items: list[tuple[Scalar, Tree]] = []
        names: set[str] = set()
        for key, value in node.value:
            name = self._tree(key, depth + 1)
            if not isinstance(name, Scalar):
                self.fault(line, "a key must be text", "a plain or quoted name before the colon")
                raise FaultySource(self.faults)
            if name.text in names:
                self.fault(
                    name.line, f"the key {name.text!r} appears twice", "each key of a map once"
                )
            names.add(name.text)
            items.append((name, self._tree(value, depth + 1)))
        return Mapping(items, line)

    def _scalar(self, node: yaml.ScalarNode, line: int) -> Scalar:
        plain = not node.style  # libyaml: "", PyYAML: None
        text: str = node.value
        if _HALF.search(text):  # JSON writes characters beyond 16 bits as two escapes
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if plain and text.lower() in _MIXED_BOOLEANS:
            self.warn(
                line,
                f"{text} is a boolean to some YAML readers and text to others",
                f'"{text}" for the text, or true or false',
            )
        value = resolve(text) if plain else text
        if isinstance(value, float) and not math.isfinite(value):
            self.fault(line, "a number is too large for a double", "a smaller number, or quotes")
            value = 0
        return Scalar(value, line, text, plain)


def read(source: str, path: str = "<source>") -> tuple[Tree, list[Fault]]:
    """Read a YAML or JSON source: the tree, and the faults that do not stop the reading."""
    reader = Reader(source, path)
    tree = reader.read()
    return tree, reader.faults
