"""`run --trace` and `--trace-json`: what ran where, when, and how it ended."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from workflows_engine.cli import main

FLOW = """
main:
  steps:
    - start: {assign: [{all: []}]}
    - each:
        for:
          value: i
          in: [1, 2]
          steps:
            - fan:
                parallel:
                  shared: [all]
                  branches:
                    - left:
                        steps:
                          - nap: {call: sys.sleep, args: {seconds: 2}}
                          - ask: {call: twice, args: {x: "${i}"}, result: doubled}
                    - right:
                        steps:
                          - add: {assign: [{all: "${list.concat(all, i)}"}]}
    - risky:
        try: {call: http.get, args: {url: "https://example.com/"}}
        except: {as: e, steps: [{told: {assign: [{m: "${e.tags}"}]}}]}
    - give: {return: "${all}"}
twice:
  params: [x]
  steps: [{back: {return: "${x * 2}"}}]
"""


@pytest.fixture
def trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run with both traces; gives the rows and the table's lines."""

    def call(flow: str) -> tuple[list[dict[str, Any]], list[str]]:
        (tmp_path / "w.yaml").write_text(textwrap.dedent(flow))
        file = tmp_path / "t.json"
        argv = ["run", str(tmp_path / "w.yaml"), "--virtual-time", "--trace"]
        main([*argv, "--trace-json", str(file)])
        return json.loads(file.read_text()), capsys.readouterr().err.splitlines()

    return call


class TestRows:
    def test_a_place_names_iterations_branches_and_subworkflows(self, trace: Any) -> None:
        rows, _ = trace(FLOW)
        places = {(row["step"], " > ".join(row["place"])) for row in rows}
        assert ("start", "main") in places
        assert ("fan", "main > each[1]") in places
        assert ("nap", "main > each[0] > fan[left]") in places
        assert ("back", "main > each[1] > fan[left] > twice") in places
        assert ("told", "main") in places

    def test_times_are_virtual_seconds_since_the_start(self, trace: Any) -> None:
        rows, _ = trace(FLOW)
        naps = [(row["begin"], row["seconds"]) for row in rows if row["step"] == "nap"]
        assert naps == [(0.0, 2.0), (2.0, 2.0)]
        assert next(row for row in rows if row["step"] == "each")["seconds"] == 4.0

    def test_results_and_errors_stand_in_their_row(self, trace: Any) -> None:
        rows, _ = trace(FLOW)
        by_step = {row["step"]: row for row in rows if row["state"] == "SUCCEEDED"}
        assert by_step["ask"]["result"] == by_step["back"]["result"] == 4
        assert by_step["give"]["result"] == [1, 2]
        (failed,) = (row for row in rows if row["state"] == "FAILED")
        assert failed["error"]["tags"] == ["ConnectionFailedError"] and failed["line"] == 21
        assert "result" not in by_step["start"]

    def test_more_steps_than_the_api_keeps_are_all_there(self, trace: Any) -> None:
        rows, _ = trace(
            "- a: {for: {value: i, range: [1, 1500], steps: [{b: {assign: [{x: 1}]}}]}}"
        )
        assert len(rows) == 1501
        assert rows[-1]["place"] == ["main", "a[1499]"]

    def test_a_result_of_bytes_is_printable(self, trace: Any) -> None:
        rows, _ = trace("- a: {call: text.encode, args: {text: x}, result: raw}\n")
        assert isinstance(rows[0]["result"], str)


class TestTable:
    def test_columns_line_up(self, trace: Any) -> None:
        _, lines = trace(FLOW)
        head = next(line for line in lines if "begin s" in line)
        failed = next(line for line in lines if "  failed  " in line)
        assert failed.index("failed") == head.index("state")
        assert "ConnectionFailedError: cannot connect" in failed
        assert any(line.endswith("[1, 2]") or line.endswith("[1,2]") for line in lines)

    def test_a_long_value_is_cut(self, trace: Any) -> None:
        _, lines = trace(f"- a: {{return: {'x' * 500}}}")
        assert lines[-1].endswith("x...") and len(lines[-1]) < 200
