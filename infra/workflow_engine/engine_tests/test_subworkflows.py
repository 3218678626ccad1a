"""Subworkflows: parameters, defaults, calls by name and by position, depth, scopes."""

from __future__ import annotations

import pytest

from engine_tests.support import failure, faults, result, warnings

GREET = """
main:
  steps:
    - call:
        call: greet
        args: {args}
        result: text
    - give: {{return: "${{text}}"}}
greet:
  params: [first, last, country: England, more: {{x: 1}}]
  steps:
    - give: {{return: "${{first + last + country}}"}}
"""


class TestSubworkflows:
    def test_named_arguments_and_defaults(self) -> None:
        assert result(GREET.format(args="{last: b, first: a}")) == "abEngland"
        assert result(GREET.format(args="{last: b, first: a, country: c}")) == "abc"

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            ("{first: a}", "needs the argument 'last'"),
            ("{first: a, last: b, frist: c}", "no argument 'frist'; write first"),
            ("{first: a, last: b, '${\"x\"}': c}", "cannot be an expression"),
        ],
    )
    def test_wrong_arguments_are_refused(self, args: str, message: str) -> None:
        assert message in "\n".join(faults(GREET.format(args=args)))

    @pytest.mark.parametrize("call", ["greet()", "greet(1)", "greet(1, 2, 3, 4, 5)"])
    def test_wrong_arity_in_an_expression_is_refused(self, call: str) -> None:
        source = GREET.format(args="{first: a, last: b}").replace("${text}", "${" + call + "}")
        assert "greet takes 2 to 4 arguments" in faults(source)[0]

    def test_positional_arguments_and_defaults(self) -> None:
        source = """
            main: {steps: [{s: {return: '${add(1) + add(1, 1)}'}}]}
            add: {params: [a, b: 10], steps: [{s: {return: '${a + b}'}}]}
        """
        assert result(source) == 13

    def test_a_subworkflow_sees_none_of_its_callers_variables(self) -> None:
        source = """
            main:
              steps:
                - set: {assign: [{x: 1}]}
                - call: {call: sub}
            sub: {steps: [{s: {return: '${x}'}}]}
        """
        assert "symbol 'x'" in faults(source)[0]

    def test_a_subworkflow_cannot_change_its_argument(self) -> None:
        source = """
            main:
              steps:
                - set: {assign: [{m: {a: 1}}]}
                - call: {call: sub, args: {m: '${m}'}, result: r}
                - give: {return: ['${m}', '${r}']}
            sub:
              params: [m]
              steps:
                - s: {assign: [{m.a: 2}]}
                - g: {return: '${m}'}
        """
        assert result(source) == [{"a": 1}, {"a": 2}]

    RECURSE = """
        main: {steps: [{s: {return: '${down(%d)}'}}]}
        down:
          params: [n]
          steps:
            - stop: {switch: [{condition: '${n == 0}', return: 0}]}
            - deeper: {return: '${1 + down(n - 1)}'}
    """

    def test_twenty_calls_may_nest(self) -> None:
        assert result(self.RECURSE % 18) == 18

    def test_the_twenty_first_is_a_catchable_recursion_error(self) -> None:
        assert failure(self.RECURSE % 19)["tags"] == ["RecursionError", "RuntimeError"]
        source = """
            main:
              steps:
                - t:
                    try: {call: loop}
                    except: {as: e, steps: [{g: {return: '${e.tags[0]}'}}]}
            loop: {steps: [{s: {call: loop}}]}
        """
        assert result(source) == "RecursionError"

    def test_deep_recursion_through_nested_steps_is_no_python_error(self) -> None:
        body = "call: loop"
        for level in range(12):
            body = f"steps: [{{s{level}: {{try: {{steps: [{{t: {{{body}}}}}]}}}}}}]"
        source = f"main: {{steps: [{{s: {{call: loop}}}}]}}\nloop: {{steps: [{{s: {{{body}}}}}]}}"
        assert failure(source)["tags"] == ["RecursionError", "RuntimeError"]

    def test_main_gets_the_argument_or_its_default_or_null(self) -> None:
        source = "main: {params: [%s], steps: [{s: {return: '${a}'}}]}"
        assert result(source % "a", {"x": [1]}) == {"x": [1]}
        assert result(source % "a") is None
        assert result(source % "{a: 5}") == 5
        assert result("main: {steps: [{s: {return: 1}}]}", {"ignored": 1}) == 1

    def test_more_parameters_than_the_schema_has_are_a_warning(self) -> None:
        """Google's own tools deploy subworkflows with 23; only the editors' schema says 10."""
        names = [f"p{number}" for number in range(23)]
        args = ", ".join(f"{name}: 1" for name in names)
        source = (
            f"main: {{steps: [{{s: {{call: sub, args: {{{args}}}, result: r}}}}, "
            "{t: {return: '${r}'}}]}\n"
            f"sub: {{params: {names}, steps: [{{s: {{return: '${{p0 + p22}}'}}}}]}}"
        )
        assert "23 params; the schema" in warnings(source)[0]
        assert result(source) == 2

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            ("main: {params: [a, b], steps: [{s: {next: end}}]}", "2 params, 1 allowed"),
            ("main: {params: [a-b], steps: [{s: {next: end}}]}", "not a parameter name"),
            ("main: {params: a, steps: [{s: {next: end}}]}", "must be a list"),
            ("main: {steps: []}", "list of named steps"),
            ("main: {params: []}", "main has no steps"),
            ("main: {step: []}", "cannot have 'step'"),
            ("sub: {steps: [{s: {next: end}}]}", "there is no main"),
            (
                "main: {steps: [{s: {next: end}}]}\nlen: {steps: [{s: {next: end}}]}",
                "function of the language",
            ),
            (
                "main: {steps: [{s: {next: end}}]}\na.b: {steps: [{s: {next: end}}]}",
                "not a name for a subworkflow",
            ),
            ("main: {steps: [{s: {call: nope}}]}", "no function or subworkflow 'nope'"),
            ("main: {steps: [{s: {call: htpp.get}}]}", "write http.get instead"),
        ],
    )
    def test_refused(self, source: str, message: str) -> None:
        assert message in "\n".join(faults(source))
