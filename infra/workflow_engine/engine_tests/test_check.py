"""The static checker: places, what to write instead, and the traps of YAML."""

from __future__ import annotations

import pytest
from workflows_engine.check import check

from engine_tests.support import faults, result, warnings, workflow


class TestFaults:
    def test_each_has_its_file_line_and_what_to_write(self) -> None:
        text = "main:\n  steps:\n    - a:\n        return: ${x}\n    - b:\n        next: c\n"
        _, found = check(text, "flow.yaml")
        assert [str(fault) for fault in found] == [
            "flow.yaml:4: symbol 'x' is neither a variable nor a sub-workflow name; "
            "write a name that is assigned instead",
            "flow.yaml:5: there is no step 'c' to go to; write the name of a step, or end instead",
        ]

    def test_all_are_reported_in_order_of_lines(self) -> None:
        text = (
            "- a: {return: '${x}'}\n- b: {retrun: 1}\n- c: {call: 'htp.get'}\n- c: {next: end}\n"
        )
        lines = [int(fault.split(":")[1]) for fault in faults(text)]
        assert lines == sorted(lines)
        assert set(lines) == {1, 2, 3, 4}

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            ("", "source is empty"),
            ("5", "list of steps or a map"),
            ("- 5", "map with one key"),
            ("- a: 5", "has no body"),
            ("- a: {}", "does nothing"),
            ("- a: {assign: [{x: 1}], call: sys.log}", "assign and call"),
            ("- a: {asign: [{x: 1}]}", "cannot have 'asign'"),
            ("- a: {args: {x: 1}, return: 1}", "args without call"),
            ("- a: {result: x, return: 1}", "result without call"),
            ("- a: {assign: {x: 1}}", "assign must be a list"),
            ("- a: {assign: [{x: 1, y: 2}]}", "map with one key"),
            ("- a: {assign: [{1x: 1}]}", "cannot assign to '1x'"),
            ("- a: {assign: [{f(x): 1}]}", "cannot assign to 'f(x)'"),
            ("- a: {assign: [{x-y: 1}]}", "cannot assign to 'x-y'"),
            ("- a: {call: sys.log, args: 1}", "args must be a map or a list"),
            ("- a: {call: text.split, args: [x]}", "takes 2 arguments, not 1"),
            ("- a: {call: nothing, args: [x]}", "no function or subworkflow"),
            ("- a: {call: gke.request, args: [x]}", "takes its arguments by name"),
            ("- a: {call: sys.now, result: x.y}", "name of a variable"),
            ("- a: {call: '${x}'}", "name of a function"),
            ("- a: {switch: {condition: true}}", "switch must be a list"),
            ("- end: {return: 1}", "'end' is not a step name"),
            ("- a: {return: 1}\n- a: {return: 2}", "appears twice"),
            ("- a: {return: {x: 1, x: 2}}", "the key 'x' appears twice"),
            ("- a: {steps: []}", "list of named steps"),
            ("- a: {parallel: {}}", "either branches or for"),
            ("- a: {parallel: 5}", "parallel must be a map"),
            ("- a: {for: 5}", "for must be a map"),
            ("- a: {return: &x 1}\n- b: {return: *x}", "aliases"),
            ("- a: [", "not YAML"),
            ("\x00", "not YAML"),
            ("- a: {return: " + "[" * 300 + "]" * 300 + "}", "nests too deep"),
            ("- a: {return: " + "[" * 3000 + "]" * 3000 + "}", "nests too deep"),
        ],
    )
    def test_schema(self, source: str, message: str) -> None:
        assert message in "\n".join(faults(source))

    def test_a_name_close_to_a_known_one_is_suggested(self) -> None:
        source = "- a: {assign: [{response: 1}]}\n- b: {return: '${respose}'}"
        assert "write response instead" in faults(source)[0]

    def test_a_tree_of_steps_that_is_too_deep(self) -> None:
        source = "return: 1"
        for _ in range(70):
            source = f"steps: [{{s: {{{source}}}}}]"
        assert "deep" in faults(f"- a: {{{source}}}")[0]


class TestYamlTraps:
    @pytest.mark.parametrize(
        ("source", "instead"),
        [
            ('- a:\n    return: ${"foo: " + string(1)}', "single quotes"),
            ("- a:\n    assign:\n      - l: [${1}, ${2}]", '["${a}", "${b}"]'),
            ("- a:\n    return: {x: ${1}}", '["${a}", "${b}"]'),
            ('- a:\n    return: ${"a #b"}', "single quotes"),
            ("- a:\n    assign: [{x: 1}]\n- b:\n    return: ${x} and ${x}", '${"text " + name}'),
        ],
    )
    def test_what_does_not_say_what_it_seems_to(self, source: str, instead: str) -> None:
        found = faults(source)
        assert instead in found[0]

    @pytest.mark.parametrize("op", ["in", "<", ">="])
    def test_not_before_a_comparison_negates_its_left_side_only(self, op: str) -> None:
        source = f"- a: {{assign: [{{x: 1}}, {{y: [1]}}]}}\n- b: {{return: '${{not x {op} y}}'}}"
        assert f"write not (x {op} y) instead" in warnings(source)[0]

    @pytest.mark.parametrize(
        ("source", "instead", "value"),
        [
            ("- a: {return: yes}", '"yes" for the text', "yes"),
            ("- a: {return: no}", '"no" for the text', "no"),
            (
                "- a:\n    assign: [{x: 1}]\n- b:\n    return: hello-${x}",
                '${"text " + name}',
                "hello-${x}",
            ),
            ("- a:\n    return: 'now ${sys.now()}'", '${"text " + name}', "now ${sys.now()}"),
        ],
    )
    def test_style_is_a_warning_and_the_file_runs(
        self, source: str, instead: str, value: str
    ) -> None:
        (warning,) = warnings(source)
        assert "warning: " in warning and instead in warning
        assert result(source) == value

    def test_text_for_another_program_stays(self) -> None:
        assert result('- a: {return: "echo ${HOME} ${#x} $x ${y:-z}"}').startswith("echo ${HOME}")

    def test_a_quoted_expression_may_hold_colons_and_hashes(self) -> None:
        assert result("- a: {return: '${\"a: #b\"}'}") == "a: #b"

    def test_json_is_yaml(self) -> None:
        source = '{"main": {"steps": [{"a": {"return": "${1 + 1}"}}]}}'
        assert result(source) == 2

    def test_json_may_be_indented_with_tabs_and_escape_any_character(self) -> None:
        source = '{\n\t"main": {\n\t\t"steps": [{"a": {"return": "\\ud83d\\ude00 \\ud800 \\/"}}]}}'
        assert result(source) == "😀 \ufffd /"

    def test_step_names_may_hold_spaces_and_marks_as_googles_samples_do(self) -> None:
        assert result('- "Is it there?": {next: All done}\n- All done: {return: 1}') == 1


class TestScopes:
    def test_a_variable_of_any_path_is_known(self) -> None:
        workflow("""
            - a:
                switch:
                  - condition: true
                    assign: [{x: 1}]
            - b: {try: {call: sys.now, result: y}, except: {as: e, steps: [{h: {next: end}}]}}
            - c: {steps: [{d: {assign: [{z: 1}]}}]}
            - e: {return: ["${x}", "${y}", "${z}"]}
        """)

    def test_a_subworkflow_is_no_variable_in_another_place(self) -> None:
        source = """
            main: {steps: [{a: {return: "${sub.x}"}}]}
            sub: {steps: [{a: {assign: [{x: "${other}"}]}}]}
        """
        assert "symbol 'other'" in "\n".join(faults(source))

    def test_a_default_of_a_parameter_sees_no_variables(self) -> None:
        source = """
            main: {steps: [{a: {call: sub}}]}
            sub: {params: [p, q: "${p}"], steps: [{a: {return: 1}}]}
        """
        assert "symbol 'p'" in "\n".join(faults(source))
