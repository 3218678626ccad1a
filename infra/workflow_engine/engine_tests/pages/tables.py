"""Reads the tables of docs/*.md, which are the expectations of the tests beside this file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from engine_tests.support import drive

DOCS = Path(__file__).parents[2] / "docs"
# One value of each type, as an expression; the names are those of get_type().
SAMPLES = {
    "integer": "7",
    "double": "2.5",
    "string": '"text"',
    "boolean": "true",
    "null": "null",
    "list": "[1]",
    "map": 'json.decode("{\\"text\\": 1}")',
    "bytes": 'text.encode("x")',
}


def tables(document: str) -> dict[str, list[dict[str, str]]]:
    """The rows of every table of a document, by the heading above it; a cell by its column."""
    found: dict[str, list[dict[str, str]]] = {}
    heading, columns = "", []
    for line in (DOCS / document).read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading, columns = line.lstrip("# "), []
        elif not line.startswith("|"):
            columns = []
        elif not columns:
            columns = cells(line)
        elif not set(line) <= set("|-: "):
            found.setdefault(heading, []).append(dict(zip(columns, cells(line), strict=True)))
    return found


def cells(line: str) -> list[str]:
    """The cells of a row; a bar that belongs to a cell is written with a backslash."""
    parts = re.split(r"(?<!\\)\|", line.strip()[1:-1])
    return [part.strip().replace("\\|", "|") for part in parts]


def code(cell: str) -> str:
    """What stands in back quotes in a cell."""
    match = re.search(r"`([^`]*)`", cell)
    assert match is not None, cell
    return match[1]


def outcomes(expressions: list[str]) -> list[Any]:
    """For each expression its (type, value), or the first tag of the error ``try`` catches.

    Bytes are given as their Base64 text. One workflow evaluates them all.
    """
    steps: list[Any] = [{"begin": {"assign": [{"found": []}]}}]
    for number, expression in enumerate(expressions):
        attempt = {
            "steps": [
                {"value": {"assign": [{"value": "${" + expression + "}"}]}},
                {"kind": {"assign": [{"kind": "${get_type(value)}"}]}},
                {
                    "plain": {
                        "switch": [
                            {
                                "condition": '${kind == "bytes"}',
                                "assign": [{"value": "${base64.encode(value)}"}],
                            }
                        ]
                    }
                },
                {"keep": {"assign": [{"found": "${list.concat(found, [kind, value])}"}]}},
            ]
        }
        caught = {
            "as": "e",
            "steps": [{"note": {"assign": [{"found": "${list.concat(found, e.tags[0])}"}]}}],
        }
        steps.append({f"s{number}": {"try": attempt, "except": caught}})
    steps.append({"give": {"return": "${found}"}})
    execution = drive(json.dumps({"main": {"steps": steps}}), seed=1, env={"A": "b"})
    assert execution.state == "SUCCEEDED", execution.error
    return [item if isinstance(item, str) else tuple(item) for item in execution.value]


def kind(outcome: Any) -> str:
    """The type of an outcome, or its error's tag."""
    return outcome if isinstance(outcome, str) else str(outcome[0])


def expected(cell: str) -> Any:
    """The outcome that a cell tells: an error's tag, or a JSON value in back quotes."""
    return cell if cell.endswith("Error") else json.loads(code(cell))


def check(expression: str, cell: str) -> None:
    """Fail unless an expression gives what a cell of the documentation says."""
    (got,), wanted = outcomes([expression]), expected(cell)
    if isinstance(got, tuple):
        _, got = got
    assert (type(got), got) == (type(wanted), wanted)
