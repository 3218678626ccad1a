"""Google's pages of the syntax reference: every row of docs/syntax.md."""

from __future__ import annotations

import json

import pytest
from workflows_engine import FaultySource, Workflow

from engine_tests.pages.tables import DOCS, code, tables
from engine_tests.support import drive

TABLES = tables("syntax.md")
ROWS = TABLES["Syntax, page by page"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['page']}: {row['statement']}")
def test_statement(row: dict[str, str]) -> None:
    source, gives = code(row["workflow"]), row["gives"]
    if gives.startswith("refused: "):
        with pytest.raises(FaultySource) as raised:
            Workflow(source)
        said = str(raised.value)
        for part in gives.removeprefix("refused: ").split(" or "):
            if part in said:
                return
        pytest.fail(said)
    execution = drive(source, {"given": 1})
    if gives.startswith("`"):
        assert execution.state == "SUCCEEDED", execution.error
        assert execution.value == json.loads(code(gives))
        return
    assert execution.state == "FAILED", execution.result
    if gives.startswith("raises "):
        assert execution.failure == json.loads(code(gives))
    else:
        assert execution.failure["tags"][0] == gives


def test_no_row_is_there_twice_and_every_row_has_a_source() -> None:
    statements = [(row["page"], row["statement"]) for row in ROWS]
    assert len(set(statements)) == len(statements)
    assert {row["source"] for row in ROWS} <= set("PJDTMS")


def test_the_limits_name_tests_that_are_there() -> None:
    for row in TABLES["Limits"]:
        file, function = code(row["test"]).split("::")
        text = (DOCS.parent / "engine_tests" / file).read_text(encoding="utf-8")
        assert f"def {function}(" in text, row["limit"]
