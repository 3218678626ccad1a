"""`run --coverage`: steps and branches reached, as text and JSON, merged over runs."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from workflows_engine import Engine, Workflow, virtual
from workflows_engine.cli import main
from workflows_engine.coverage import Coverage

FLOW = """
main:
  params: [n]
  steps:
    - which:
        switch:
          - condition: ${n == 1}
            next: risky
          - condition: ${n == 2}
            return: two
    - other: {return: other}
    - risky:
        try: {call: fail, args: {n: "${n}"}}
        retry: {predicate: "${retry.always}", max_retries: 1}
        except: {as: e, steps: [{told: {return: "${e}"}}]}
    - last: {return: fine}
fail:
  params: [n]
  steps: [{now: {raise: broken}}]
"""


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run with coverage; gives the report's lines."""
    (tmp_path / "w.yaml").write_text(textwrap.dedent(FLOW))

    def call(n: int, *more: str) -> list[str]:
        argv = ["run", str(tmp_path / "w.yaml"), "--virtual-time", "--data", str(n), *more]
        main([*argv, "--coverage"])
        return capsys.readouterr().err.splitlines()

    return call


class TestText:
    def test_a_run_reaches_its_own_steps_and_branches(self, run: Any) -> None:
        head, *missed = run(2)
        assert head.endswith("w.yaml: steps 1 of 6 (17 %), branches 1 of 5 (20 %)")
        assert [line.strip() for line in missed] == [
            "not reached: line 7: main.which: no condition",
            "not reached: line 7: main.which: condition 1",
            "not reached: line 11: main.other",
            "not reached: line 12: main.risky",
            "not reached: line 12: main.risky: retry",
            "not reached: line 12: main.risky: except",
            "not reached: line 15: main.told",
            "not reached: line 16: main.last",
            "not reached: line 19: fail.now",
        ]

    def test_retry_and_except_are_reached(self, run: Any) -> None:
        head, *missed = run(1)
        assert "branches 3 of 5" in head
        assert not any("except" in line or "retry" in line for line in missed)

    def test_past_every_condition_is_a_branch(self, run: Any) -> None:
        assert not any("no condition" in line for line in run(3)[1:])

    def test_a_condition_that_is_true_leaves_no_way_past(self) -> None:
        text = "- a:\n    switch:\n      - {condition: true, return: 1}"
        counted = Coverage.of(text, "w")
        Workflow(text, "w", counted)
        assert {one.kind for one in counted.targets.values()} == {"step", "condition"}


class TestMerging:
    def test_runs_add_up_in_one_file_and_over_files(
        self, run: Any, tmp_path: Path, capsys: Any
    ) -> None:
        one, two = str(tmp_path / "one.json"), str(tmp_path / "two.json")
        run(1, "--coverage-json", one)
        run(2, "--coverage-json", one)
        run(3, "--coverage-json", two)
        merged = tmp_path / "all.json"
        assert main(["coverage", one, two, "--json", str(merged), "--fail-under", "90"]) == 0
        out = capsys.readouterr().out
        assert "steps 5 of 6 (83 %), branches 5 of 5 (100 %)" in out
        (workflow,) = json.loads(merged.read_text())["workflows"]
        hits = {(t["step"], t["kind"], t["number"]): t["hits"] for t in workflow["targets"]}
        assert hits["which", "step", 0] == 3
        assert hits["which", "condition", 1] == 1
        assert hits["now", "step", 0] == 2
        assert hits["last", "step", 0] == 0

    def test_too_little_fails(self, run: Any, tmp_path: Path, capsys: Any) -> None:
        one = str(tmp_path / "one.json")
        run(2, "--coverage-json", one)
        assert main(["coverage", one, "--fail-under", "50"]) == 1
        assert "18.2 % is under 50 %" in capsys.readouterr().err

    def test_another_source_under_the_same_path_is_refused(self, run: Any, tmp_path: Path) -> None:
        one = str(tmp_path / "one.json")
        run(1, "--coverage-json", one)
        (tmp_path / "w.yaml").write_text(textwrap.dedent(FLOW) + "# changed\n")
        with pytest.raises(SystemExit, match=r"w\.yaml changed between the runs"):
            run(1, "--coverage-json", one)

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("{", "is no coverage of workflows"),
            ("{}", "has no 'version'"),
            ('{"version": 9}', "version is 9, only 1 is known"),
            ('{"version": 1, "workflows": [{}]}', "has no 'path'"),
            ('{"version": 1, "workflows": 5}', "is no coverage"),
        ],
    )
    def test_a_file_that_is_none_is_named(self, tmp_path: Path, text: str, told: str) -> None:
        file = tmp_path / "c.json"
        file.write_text(text)
        with pytest.raises(SystemExit, match=f"c.json {told}|{told}"):
            main(["coverage", str(file)])


class TestInAProgram:
    def test_executions_of_one_workflow_share_its_counts(self) -> None:
        counted = Coverage.of(FLOW, "w")
        flow = Workflow(FLOW, "w", counted)

        async def go() -> None:
            engine = Engine()
            engine.deploy("w", flow)
            for n in (1, 2, 3):
                await engine.create("w", n).wait()

        virtual.run(go)
        assert counted.count(steps=True) == (5, 6)
        assert counted.count(steps=False) == (5, 5)
