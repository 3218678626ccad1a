"""`graph`: a mermaid flowchart of every kind of step.

The charts of 474 public workflow files were parsed by mermaid 11.17 in Node when this was written;
here each line is held to the grammar that they keep, without Node.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from workflows_engine import Workflow
from workflows_engine.cli import main
from workflows_engine.graph import mermaid

from engine_tests.support import workflow

TEXT = r'"(?P<text>(?:[^"#<>&`\n]|#(?:35|96|quot|lt|gt|amp);)+)"'
SHAPES = ["[]", "([])", "{}", "{{}}", "[[]]", "[//]", "(())"]
NODE = re.compile(
    r" +(?P<id>[a-z]+\d+)(?:"
    + "|".join(
        re.escape(s[: len(s) // 2]) + TEXT.replace("text", f"t{i}") + re.escape(s[len(s) // 2 :])
        for i, s in enumerate(SHAPES)
    )
    + ")"
)
EDGE = re.compile(rf"  (?P<from>[a-z]+\d+) (?P<arrow>-->|-\.->)(?:\|{TEXT}\|)? (?P<to>[a-z]+\d+)")
OPEN = re.compile(rf" +subgraph (?P<id>g\d+)\[{TEXT}\]")

Edges = set[tuple[str, str, str, str]]


def chart(source: str | Workflow) -> tuple[dict[str, str], Edges]:
    """Parse a chart strictly: its nodes (text by id) and its edges (from, arrow, text, to)."""
    flow = source if isinstance(source, Workflow) else workflow(source)
    head, *lines = mermaid(flow.model).splitlines()
    assert head == "flowchart TD"
    nodes: dict[str, str] = {}
    edges: Edges = set()
    depth = 0
    for line in lines:
        if found := EDGE.fullmatch(line):
            edges.add((found["from"], found["arrow"], found["text"] or "", found["to"]))
        elif found := OPEN.fullmatch(line):
            depth += 1
        elif line.strip() == "end":
            depth -= 1
        else:
            found = NODE.fullmatch(line)
            assert found is not None, line
            assert found["id"] not in nodes, line
            texts = [found[f"t{i}"] for i in range(len(SHAPES)) if found[f"t{i}"]]
            nodes[found["id"]] = texts[0]
        assert depth >= 0, line
    assert depth == 0
    for one, _, _, other in edges:
        assert one in nodes and other in nodes, (one, other)
    return nodes, edges


def named(source: str | Workflow) -> Edges:
    """The edges, by the text of their nodes."""
    nodes, edges = chart(source)
    return {(nodes[one], arrow, text, nodes[other]) for one, arrow, text, other in edges}


class TestShapes:
    def test_steps_follow_one_another_to_the_end(self) -> None:
        assert named("- a: {assign: [{x: 1}]}\n- b: {call: sys.log, args: {text: hi}}") == {
            ("start", "-->", "", "a: assign x"),
            ("a: assign x", "-->", "", "b: sys.log"),
            ("b: sys.log", "-->", "", "end"),
        }

    def test_a_switch_has_a_way_for_each_condition_and_past_them(self) -> None:
        edges = named("""
            - x: {assign: [{n: 1}]}
            - which:
                switch:
                  - {condition: "${n == 1}", next: last}
                  - {condition: "${n == 2}", return: two}
                  - {condition: "${n > 3}", assign: [{n: 0}]}
            - other: {next: end}
            - last: {return: "${n}"}
        """)
        assert ("which", "-->", "n == 1", "last: return n") in edges
        assert ("which", "-->", "n == 2", "which: return two") in edges
        assert ("which", "-->", "n #gt; 3", "which: assign n") in edges
        assert ("which: assign n", "-->", "", "other") in edges
        assert ("which", "-->", "else", "other") in edges
        assert ("other", "-->", "", "end") in edges

    def test_a_switch_that_always_holds_has_no_way_past(self) -> None:
        edges = named("- a: {switch: [{condition: true, next: b}]}\n- b: {return: 1}")
        assert not any(text == "else" for _, _, text, _ in edges)

    def test_a_loop_goes_round_and_out(self) -> None:
        edges = named("""
            - each:
                for:
                  value: i
                  range: [1, 9]
                  steps:
                    - odd: {switch: [{condition: "${i == 3}", next: break},
                                     {condition: "${i == 4}", next: continue}]}
                    - body: {call: sys.log, args: {text: hi}}
            - after: {return: 1}
        """)
        head = "for i range [1, 9]"
        assert ("start", "-->", "", head) in edges
        assert (head, "-->", "each", "odd") in edges
        assert ("odd", "-->", "i == 3", "after: return 1") in edges
        assert ("odd", "-->", "i == 4", head) in edges
        assert ("body: sys.log", "-->", "", head) in edges
        assert (head, "-->", "done", "after: return 1") in edges

    def test_branches_part_and_join(self) -> None:
        edges = named("""
            - fan:
                parallel:
                  branches:
                    - left: {steps: [{l: {call: sys.log, args: {text: hi}}}]}
                    - right: {steps: [{r: {call: sys.log, args: {text: hi}}}]}
            - after: {return: 1}
        """)
        assert ("fan", "-->", "left", "l: sys.log") in edges
        assert ("fan", "-->", "right", "r: sys.log") in edges
        assert ("l: sys.log", "-->", "", "all done") in edges
        assert ("r: sys.log", "-->", "", "all done") in edges
        assert ("all done", "-->", "", "after: return 1") in edges

    def test_a_parallel_loop_joins_without_going_round(self) -> None:
        edges = named("""
            - fan: {parallel: {for: {value: v, in: [1], steps: [{l: {call: sys.now}}]}}}
        """)
        assert ("parallel for v in [1]", "-->", "each", "l: sys.now") in edges
        assert ("l: sys.now", "-->", "", "all done") in edges
        assert not any(
            other == "parallel for v in [1]" and one != "start" for one, _, _, other in edges
        )

    def test_try_shows_its_retry_and_its_except(self) -> None:
        edges = named("""
            - risky:
                try: {call: http.get, args: {url: "https://e.com"}}
                retry: "${http.default_retry}"
                except: {as: e, steps: [{tell: {raise: "${e}"}}]}
            - after: {return: 1}
        """)
        assert ("try risky", "-->", "", "risky: http.get") in edges
        assert ("try risky", "-.->", "retry", "try risky") in edges
        assert ("try risky", "-.->", "error", "except e") in edges
        assert ("except e", "-->", "", "tell: raise e") in edges
        assert ("risky: http.get", "-->", "", "after: return 1") in edges

    def test_a_call_points_to_its_subworkflow(self) -> None:
        nodes, edges = chart("""
            main: {steps: [{a: {call: sub, result: r}}, {b: {return: "${r}"}}]}
            sub: {steps: [{c: {return: 1}}]}
        """)
        assert [text for text in nodes.values()].count("start") == 2
        (dotted,) = (edge for edge in edges if edge[1] == "-.->")
        assert nodes[dotted[0]] == "a: sub" and dotted[3] == "start2"

    def test_nested_steps_and_jumps_out_of_them(self) -> None:
        edges = named("""
            - box: {steps: [{in: {next: last}}, {never: {call: sys.now}}]}
            - last: {return: 1}
        """)
        assert ("box", "-->", "", "in") in edges
        assert ("in", "-->", "", "last: return 1") in edges
        assert ("never: sys.now", "-->", "", "last: return 1") in edges


class TestLabels:
    @pytest.mark.parametrize(
        "text", ['a "b" c', "<b>&#35;</b>", "`x`", "end", "x" * 200, "a|b{c}[d](e)", "é ☃", "\t"]
    )
    def test_no_text_leaves_its_label(self, text: str) -> None:
        nodes, _ = chart(f"- a: {{return: {json.dumps(text)}}}")
        assert len(nodes) == 2


class TestEveryWorkflowHere:
    @pytest.mark.parametrize(
        "path",
        sorted((Path(__file__).parents[3] / "workflows").glob("*.yaml")),
        ids=lambda path: path.stem,
    )
    def test_it_draws_each_step(self, path: Path) -> None:
        flow = Workflow.from_file(path)
        nodes, _ = chart(flow)
        texts = " ".join(nodes.values())
        for routine in flow.model.routines.values():
            for step in routine.steps:
                assert step.name in texts


class TestCommand:
    def test_it_prints_the_chart(self, tmp_path: Path, capsys: Any) -> None:
        (tmp_path / "w.yaml").write_text("- a: {return: 1}")
        assert main(["graph", str(tmp_path / "w.yaml")]) == 0
        assert capsys.readouterr().out.startswith("flowchart TD\n")

    def test_a_faulty_file_is_told(self, tmp_path: Path, capsys: Any) -> None:
        (tmp_path / "w.yaml").write_text("- a: {next: b}")
        assert main(["graph", str(tmp_path / "w.yaml")]) == 2
        assert "there is no step 'b'" in capsys.readouterr().err
