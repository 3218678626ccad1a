"""next: where it may go, where it may not, and how a routine ends."""

from __future__ import annotations

import pytest

from engine_tests.support import drive, faults, result


class TestJumps:
    def test_forward_and_backward(self) -> None:
        source = """
            - init: {assign: [{n: 0}], next: third}
            - second: {switch: [{condition: "${n >= 3}", return: "${n}"}]}
            - third: {assign: [{n: "${n + 1}"}], next: second}
        """
        assert result(source) == 3

    def test_end_returns_null_and_ends_a_subworkflow_only(self) -> None:
        source = """
            main:
              steps:
                - call: {call: sub, result: r}
                - give: {return: ["${r}", after]}
            sub:
              steps:
                - stop: {next: end}
                - never: {return: wrong}
        """
        assert result(source) == [None, "after"]

    def test_the_last_step_ends_with_null(self) -> None:
        assert result("- s: {assign: [{x: 1}]}") is None

    def test_nested_steps_jump_among_themselves_and_outwards(self) -> None:
        source = """
            - init: {assign: [{log: ""}]}
            - outer:
                steps:
                  - a: {assign: [{log: "${log + \\"a\\"}"}], next: c}
                  - b: {assign: [{log: "${log + \\"b\\"}"}], next: out}
                  - c: {assign: [{log: "${log + \\"c\\"}"}], next: b}
            - skipped: {assign: [{log: "${log + \\"!\\"}"}]}
            - out: {return: "${log}"}
        """
        assert result(source) == "acb"

    def test_a_jump_leaves_try_and_except_blocks(self) -> None:
        source = """
            - first:
                try:
                  steps:
                    - go: {next: second}
                except: {as: e, steps: [{h: {return: wrong}}]}
            - never: {return: wrong}
            - second:
                try: {raise: x}
                except: {as: e, steps: [{h: {next: done}}]}
            - never2: {return: wrong}
            - done: {return: right}
        """
        assert result(source) == "right"

    def test_an_error_after_a_jump_out_of_try_is_not_caught_by_it(self) -> None:
        source = """
            - first:
                try: {steps: [{go: {next: boom}}]}
                except: {as: e, steps: [{h: {return: caught}}]}
            - boom: {raise: "loose"}
        """
        assert drive(source).failure == "loose"

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            ("- a: {next: nowhere}", "no step 'nowhere'"),
            ("- a: {next: breka}\n- break_: {next: end}", "write break_ instead"),
            ("- a: {next: break}", "not inside a for"),
            ("- a: {next: continue}", "not inside a for"),
            (
                "- l: {for: {value: v, in: [1], steps: [{s: {next: out}}]}}\n- out: {next: end}",
                "outside this loop or branch",
            ),
            ("- a: {next: inner}\n- o: {steps: [{inner: {next: end}}]}", "inside another step"),
            ("- a: {next: '${x}'}", "cannot be an expression"),
            ("- a: {next: 5}", "name of a step"),
            (
                "main: {steps: [{a: {next: other}}]}\nsub: {steps: [{other: {next: end}}]}",
                "no step 'other'",
            ),
        ],
    )
    def test_refused(self, source: str, message: str) -> None:
        assert message in faults(source)[0]
