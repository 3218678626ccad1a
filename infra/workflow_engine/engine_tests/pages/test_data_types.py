"""Google's page "Data types, functions, operators": every cell of docs/data-types.md."""

from __future__ import annotations

import pytest

from engine_tests.pages.tables import SAMPLES, check, code, kind, outcomes, tables

TABLES = tables("data-types.md")
# The sample of a boolean on the left is the one that does not decide alone.
UNDECIDED = {"and": "true", "or": "false"}


def binary() -> list[tuple[str, str, dict[str, str]]]:
    """(operator, left, outcome by right) of every row of every matrix."""
    found = []
    for heading, rows in TABLES.items():
        for operator in heading.replace("`", "").split():
            for row in rows if "left \\ right" in rows[0] else []:
                left = row["left \\ right"]
                found.append((operator, left, {right: row[right] for right in SAMPLES}))
    return found


ROWS = binary()


def test_the_matrices_hold_every_operator_and_every_pair() -> None:
    operators = [
        "+",
        "-",
        "*",
        "//",
        "%",
        "/",
        "==",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "in",
        "and",
        "or",
    ]
    assert sorted({row[0] for row in ROWS}) == sorted(operators)
    assert len(ROWS) == len(operators) * len(SAMPLES)


@pytest.mark.parametrize(("operator", "left", "wanted"), ROWS)
def test_binary(operator: str, left: str, wanted: dict[str, str]) -> None:
    first = UNDECIDED.get(operator, SAMPLES[left]) if left == "boolean" else SAMPLES[left]
    got = outcomes([f"{first} {operator} {SAMPLES[right]}" for right in wanted])
    assert dict(zip(wanted, map(kind, got), strict=True)) == wanted


@pytest.mark.parametrize("row", TABLES["Unary"], ids=lambda row: str(row["operator"]))
def test_unary(row: dict[str, str]) -> None:
    got = outcomes([f"{code(row['operator'])} {sample}" for sample in SAMPLES.values()])
    assert dict(zip(SAMPLES, map(kind, got), strict=True)) == {name: row[name] for name in SAMPLES}


@pytest.mark.parametrize(
    ("expression", "gives"),
    [(code(row["expression"]), row["gives"]) for row in TABLES["Statements and examples"]],
)
def test_statement(expression: str, gives: str) -> None:
    check(expression, gives)
