"""The kinds of things that public workflow files hold, each in a source of our own."""
# ruff: noqa: E501 -- a source stands in one line

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from engine_tests.support import faults, workflow

TOOL = Path(__file__).parents[1] / "tools" / "public_files.py"
LIST = Path(__file__).parents[1] / "docs" / "public-files.md"

TAKEN = {
    "a list of steps, with names of several words": "- Say hello!: {return: hello}",
    "JSON": '{"main": {"steps": [{"a": {"return": 1}}]}}',
    "a file that begins with a document mark and a comment": "---\n# A flow\nmain:\n  steps:\n  - a: {return: 1}",
    "a folded condition": "- a:\n    switch:\n      - condition: >\n          ${1 == 1}\n        next: end\n",
    "capitals of booleans and operators": "- a: {switch: [{condition: True, return: '${1 < 2 AND NOT false}'}]}",
    "an argument that a step does not use": "main: {params: [args], steps: [{a: {next: end}}]}",
    "a connector of any service": """
        - a:
            call: googleapis.run.v2.projects.locations.jobs.run
            args: {name: projects/p/locations/l/jobs/j, connector_params: {timeout: 1800}}
    """,
    "a subworkflow called from an expression": """
        main: {steps: [{a: {return: "${twice(2)}"}}]}
        twice: {params: [n], steps: [{b: {return: "${n * 2}"}}]}
    """,
    "a switch case with a jump and a body": """
        - a: {switch: [{condition: "${1 == 1}", assign: [{x: 1}], next: b}]}
        - b: {return: "${x}"}
    """,
    "text for a template engine in a string": "- a: {return: '{{ name }} and $${x}'}",
    "shell variables in a build's script": "- a: {assign: [{script: 'echo $HOME ${HOME:-x} && ls'}]}",
    "SQL with quotes": """
        - a: {assign: [{d: day}]}
        - b: {return: '${"SELECT * FROM `t` WHERE d = ''" + d + "''"}'}
    """,
}
REFUSED = {
    "a part without main": ("helper: {steps: [{a: {return: 1}}]}", "there is no main"),
    "a function that no reference lists": (
        "- a: {return: '${text.upper(\"a\")}'}",
        "text.to_upper",
    ),
    "a blocking function that no reference lists": ("- a: {call: shell.gcloud}", "'shell.gcloud'"),
    "a name that the template should have filled in": ("- a: {return: '${region}'}", "'region'"),
    "the escape of another template": (
        "- a: {switch: [{condition: '$${1 == 1}', next: end}]}",
        "condition is not an expression",
    ),
    "the parameters of a connector beside its arguments": (
        "- a: {call: googleapis.a.v1.b.list, args: {}, connector_params: {timeout: 1}}",
        "cannot have 'connector_params'",
    ),
    "a jump into nested steps": (
        "- a: {steps: [{in: {call: sys.now}}]}\n- b: {next: in}",
        "is inside another step",
    ),
    "a name twice in one list": ("- a: {call: sys.now}\n- a: {call: sys.now}", "appears twice"),
    "a range of three": (
        "- a: {for: {value: i, range: [1, 9, 2], steps: [{b: {next: end}}]}}",
        "range needs",
    ),
    "a URL in an expression": ("- a: {return: '${https://e.com/x}'}", "syntax error"),
    "a slice": ("- a: {assign: [{t: text}]}\n- b: {return: '${t[0:2]}'}", "unexpected ':'"),
    "a map in an expression": ("- a: {return: '${ {\"a\": 1} }'}", "no map literals"),
    "what is no YAML": ("- a:\n    call: b\n      args: {}", "not YAML"),
}


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """The tool that makes the list."""
    spec = importlib.util.spec_from_file_location("public_files", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["public_files"] = module
    spec.loader.exec_module(module)
    return module


class TestKinds:
    @pytest.mark.parametrize("kind", TAKEN)
    def test_taken(self, kind: str) -> None:
        workflow(TAKEN[kind])

    @pytest.mark.parametrize("kind", REFUSED)
    def test_refused(self, kind: str) -> None:
        source, told = REFUSED[kind]
        assert told in "\n".join(faults(source))


class TestTheTool:
    def test_it_reads_clones_and_tells_why(
        self, tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        clone = tmp_path / "someone+flows"
        (clone / "tests").mkdir(parents=True)
        files = {
            "good.yaml": "main:\n  steps:\n    - a:\n        return: 1\n",
            "part.yaml": "helper:\n  steps:\n    - a:\n        return: 1\n",
            "flow.yaml": "main:\n  steps:\n    - a:\n        return: ${var.region}\n",
            "tests/odd.yaml": "- a:\n    call: sys.log\n    next: gone\n",
            "ci.yaml": "on: push\njobs:\n  a:\n    runs-on: x\n    steps:\n      - run: echo ${x}\n",
        }
        for name, text in files.items():
            (clone / name).write_text(text)
        for args in (
            ["init", "-q"],
            ["add", "."],
            ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "x"],
        ):
            subprocess.run(["git", "-C", str(clone), *args], check=True, timeout=60)
        assert tool.main(tmp_path) == 0
        out = capsys.readouterr().out
        assert "4 different workflow files (YAML and JSON) in 1 public GitHub" in out
        assert "* `good.yaml`" in out
        assert "| someone/flows | part.yaml | refused: a part without main" in out
        assert "| someone/flows | flow.yaml | refused: a template" in out
        assert (
            "refused: a fragment of another tool's tests (line 1: there is no step 'gone'" in out
        )
        assert "ci.yaml" not in out


class TestTheList:
    def test_it_names_enough_sources_and_a_reason_for_each_refusal(self) -> None:
        text = LIST.read_text(encoding="utf-8")
        rows = [
            line for line in text.splitlines() if line.startswith("| ") and "refused: " in line
        ]
        passed = [line for line in text.splitlines() if line.startswith("* `")]
        assert f"{len(passed)} pass and {len(rows)} are refused" in text
        assert len(passed) + len(rows) >= 100
        assert len({line for line in text.splitlines() if " at `" in line}) >= 30
        assert all(len(cell) <= 200 for row in rows for cell in row.split(" | "))
