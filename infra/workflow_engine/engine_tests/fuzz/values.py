"""Expressions of the fuzzer: mostly of the type that is wanted, often enough of another."""

from __future__ import annotations

import json
import random
from typing import Any

from workflows_engine.builtins import CONSTANTS, FUNCTIONS
from workflows_engine.registry import REQUIRED

KINDS = ("integer", "double", "string", "boolean", "null", "list", "map", "bytes")
# The variables that every routine begins with, by type.
VARIABLES = {
    "integer": ["i", "big"],
    "double": ["d"],
    "string": ["s", "u", "stamp"],
    "boolean": ["t"],
    "null": ["n"],
    "list": ["l", "ls"],
    "map": ["m"],
    "bytes": ["raw"],
}
BEGIN: list[Any] = [
    {"i": 3}, {"big": 9223372036854775807}, {"d": 2.5}, {"s": "text"}, {"u": "é😀\n\\ \"q\" $'"},
    {"stamp": "2026-05-08T13:22:58Z"}, {"t": True}, {"n": None}, {"l": [1, "two", [3.5, None]]},
    {"ls": ["a", "b", "c"]}, {"m": {"k": 1, "in": {"k": [0, {"k": "deep"}]}, "special!key": "x"}},
    {"raw": '${text.encode("héllo")}'}, {"r": {"url": "x", "body": {"k": "v"}}}, {"v0": [1]},
    {"v1": None}, {"v2": 1}, {"v3": "a"},
]  # fmt: skip
LITERALS = {
    "integer": ["0", "1", "2", "7", "-1", "9223372036854775807", "1000000", "04"],
    "double": ["0.0", "1.5", "-2.5", "1e3", "1e308", "0.1", "5e-324"],
    "string": [
        '""', '"k"', '"text"', '"a,b,c"', '"é😀"', "'single'", '"\\n\\t\\\\"', '"\\u0041"', '"42"',
        '"2.5"', '"true"', '"SHA256"', '"UTF-8"', '"us-ascii"', '"Europe/Paris"', '"[a-z]+"',
        '"(a|b)*"', '"("', '"a{1000}"', '"aGk="', '"%41%zz"', '"{\\"k\\": [1]}"', '"[1, 2"',
        '"2024-05-08T12:01:00Z"', '"GET"', '"http://a.example/x"', '"http://["', '"special!key"',
        '"\\uD83D"', '"${x}"', '"}"',
    ],
    "boolean": ["true", "false", "True", "FALSE"],
    "null": ["null", "NULL"],
    "list": ["[]", "[1, 2, 3]", '["a", "b"]', "[[1], [2]]", "[null]", '["k", "in"]'],
    "map": ['json.decode("{}")', 'json.decode("{\\"k\\": 1}")'],
    "bytes": ['text.encode("x")', 'base64.decode("AP8=")'],
}  # fmt: skip
# What a parameter wants, by its name; any other takes what comes.
WANTS = {
    "value": "string", "val": "map", "condition": "boolean", "map": "map", "objs": "list",
    "keys": "string", "key": "string", "first": "map", "second": "map", "x": "integer",
    "y": "double", "data": "bytes", "padding": "boolean", "algorithm": "string",
    "charset": "string", "source": "string", "substr": "string", "regexp": "string",
    "repl": "string", "separator": "string", "start": "integer", "end": "integer",
    "seconds": "integer", "timezone": "string", "name": "string", "text": "string", "e": "map",
    "indent": "boolean",
}  # fmt: skip
OPERATORS = {
    "integer": ["+", "-", "*", "//", "%"],
    "double": ["+", "-", "*", "/", "//", "%"],
    "string": ["+"],
    "boolean": ["==", "!=", "<", "<=", ">", ">=", "in", "and", "or", "AND", "OR"],
}
RETURNS = {
    "integer": ["int", "len", "math.floor", "math.abs"],
    "double": ["double", "math.max", "time.parse", "sys.now"],
    "string": [
        "string", "get_type", "json.encode_to_string", "base64.encode", "text.decode",
        "text.replace_all", "text.replace_all_regex", "text.substring", "text.to_lower",
        "text.url_encode", "text.url_decode", "time.format", "uuid.generate", "sys.get_env",
    ],
    "boolean": ["text.match_regex", "bool", "retry.always", "http.default_retry_predicate"],
    "list": ["keys", "list.concat", "list.prepend", "text.find_all", "text.split",
             "text.find_all_regex"],
    "map": ["map.merge", "map.merge_nested", "map.delete", "json.decode"],
    "bytes": ["text.encode", "json.encode", "base64.decode", "hash.compute_checksum"],
    "null": ["map.get", "default", "if"],
}  # fmt: skip


class Expressions:
    """Makes expressions from a seeded source of chance; ``names`` are the known variables."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.names: list[str] = []  # the variables known here, besides VARIABLES
        self.routines: list[tuple[str, int]] = []

    def one(self, options: Any) -> Any:
        """One of some options."""
        return self.chance.choice(options)

    def kind(self) -> str:
        """The name of a type."""
        return str(self.one(KINDS))

    def expression(self, kind: str | None = None, depth: int = 3) -> str:
        """The inside of ``${...}``, most often of the type ``kind``."""
        kind = kind or self.kind()
        if self.chance.random() < 0.06:
            kind = self.kind()
        roll = self.chance.random()
        if depth <= 0 or roll < 0.3:
            return str(self.one(LITERALS[kind]))
        if roll < 0.55:
            return self.variable(kind)
        if roll < 0.75 and kind in OPERATORS:
            return self.operation(kind, depth)
        if roll < 0.8:
            return f"({self.expression(kind, depth - 1)})"
        if roll < 0.84:
            items = [self.expression(None, depth - 1) for _ in range(self.chance.randrange(3))]
            return f"[{', '.join(items)}]"
        if roll < 0.87 and self.routines:
            name, count = self.one(self.routines)
            if self.chance.random() < 0.01:
                count -= 1
            args = [self.expression(None, depth - 1) for _ in range(count)]
            return f"{name}({', '.join(args)})"
        if roll < 0.88:
            return str(self.one([*CONSTANTS, "sub", "wants"]))
        if roll < 0.8803:
            secret = "googleapis.secretmanager.v1.projects.secrets.versions.accessString"
            return f"{secret}({self.expression('string', 1)}, {self.expression('string', 1)})"
        if roll < 0.8808:
            return str(self.one(["len", "text", "unknown.name", "http.get(s)", "a b"]))
        return self.call(str(self.one(RETURNS[kind])), depth)

    def variable(self, kind: str) -> str:
        """A variable, or a part of one."""
        name = self.one(VARIABLES[kind] + self.names[-4:])
        roll = self.chance.random()
        if roll < 0.75:
            return str(name)
        if roll < 0.83:
            return f"{name}.{self.one(['k', 'in', 'missing', 'tags', 'body', 'not', 'message'])}"
        if roll < 0.86:
            return str(
                self.one(['m["in"].k[1].k', 'm["special!key"]', "l[2][0]", "ls[i]", "l[9]"])
            )
        return f"{name}[{self.expression(self.one(['integer', 'string']), 1)}]"

    def operation(self, kind: str, depth: int) -> str:
        """An operator with operands that mostly fit it."""
        operator = str(self.one(OPERATORS[kind]))
        wanted = kind
        if kind == "boolean":
            if operator.lower() in ("and", "or"):
                wanted = "boolean"
                if self.chance.random() < 0.2:
                    return f"{self.one(['not', 'NOT'])} {self.expression(wanted, depth - 1)}"
            else:
                wanted = str(self.one(["integer", "double", "string", *KINDS]))
        elif self.chance.random() < 0.1:
            return f"{self.one(['-', '- ', '+', 'not '])}{self.expression(kind, depth - 1)}"
        right = wanted
        if operator == "in":
            right = str(self.one(["list", "map"]))
        return (
            f"{self.expression(wanted, depth - 1)} {operator} {self.expression(right, depth - 1)}"
        )

    def call(self, name: str, depth: int) -> str:
        """A call of a library function, seldom with too few or too many arguments."""
        if self.chance.random() < 0.15:
            name = str(self.one(sorted(FUNCTIONS)))
        args = []
        for param, default in FUNCTIONS[name].params:
            if default is not REQUIRED and self.chance.random() < 0.6:
                break
            args.append(self.expression(WANTS.get(param), depth - 1))
        roll = self.chance.random()
        if roll < 0.001 and args:
            args.pop()
        elif roll < 0.002:
            args.append("1")
        return f"{name}({', '.join(args)})"

    def value(self, kind: str | None = None, depth: int = 2) -> Any:
        """A value of the source: an expression, a literal, or a list or map of values."""
        roll = self.chance.random()
        if depth > 0 and kind in (None, "map") and roll < 0.12:
            count = self.chance.randrange(4)
            keys = ["k", "in", "x!", "${s}", "${i}", "code", "message", "tags", "deep"]
            return {self.one(keys): self.value(None, depth - 1) for _ in range(count)}
        if depth > 0 and kind in (None, "list") and roll < 0.22:
            return [self.value(None, depth - 1) for _ in range(self.chance.randrange(4))]
        if roll < 0.35:
            return self.literal(kind or self.kind())
        if roll < 0.37:
            return "text with ${" + self.expression(kind, 1) + "} inside"
        return "${" + self.expression(kind)[:420] + "}"

    def literal(self, kind: str) -> Any:
        """A literal of the source."""
        options: dict[str, list[Any]] = {
            "integer": [0, 1, 2, -1, 9223372036854775807, 10**25],
            "double": [0.5, -1.5, 1e300, 1e-9],
            "string": ["", "text", "no", "${", "}", "é😀", "$", "2026-01-01T00:00:00Z", "a" * 300],
            "boolean": [True, False],
            "null": [None],
            "list": [[], [1, [2, [3]]]],
            "map": [{}, {"k": {"k": 1}}],
            "bytes": ['${text.encode("b")}'],
        }
        return self.one(options[kind])

    def number(self) -> Any:
        """A small number, now and then something else."""
        if self.chance.random() < 0.1:
            return self.value()
        return self.one([1, 2, 3, 5, 0.5, 60, "${i}", "${d}", 0, -1])

    def condition(self) -> Any:
        """The condition of a switch."""
        if self.chance.random() < 0.05:
            return self.one([True, False, True, False, True, "${1}", "${1}", "yes"])
        return "${" + self.expression("boolean")[:420] + "}"


def text(source: Any) -> str:
    """A source as JSON, which is YAML."""
    return json.dumps(source, ensure_ascii=False)
