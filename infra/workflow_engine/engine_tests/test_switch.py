"""switch: the first match, its body, its jump, and the switch's own next."""

from __future__ import annotations

import pytest

from engine_tests.support import failure, faults, result

CHOICE = """
main:
  params: [n]
  steps:
    - choose:
        switch:
          - condition: ${n < 10}
            next: small
          - condition: ${n < 100}
            return: medium
          - condition: ${n < 1000}
            steps:
              - inner: {assign: [{x: large}]}
          - condition: ${n < 10000}
            raise: "too large"
          - condition: ${n < 100000}
            assign: [{x: huge}]
            next: give
        next: nothing
    - give: {return: "${x}"}
    - small: {return: small}
    - nothing: {return: nothing}
"""


class TestSwitch:
    @pytest.mark.parametrize(
        ("n", "value"),
        [(5, "small"), (50, "medium"), (50000, "huge"), (500000, "nothing")],
    )
    def test_first_match(self, n: int, value: str) -> None:
        assert result(CHOICE, n) == value

    def test_a_match_that_does_not_jump_goes_on_with_the_switchs_next(self) -> None:
        assert result(CHOICE, 500) == "nothing"

    def test_a_case_may_raise(self) -> None:
        assert failure(CHOICE, 5000) == "too large"

    def test_without_a_match_or_next_the_following_step_runs(self) -> None:
        source = """
            - choose: {switch: [{condition: false, return: 1}]}
            - after: {return: 2}
        """
        assert result(source) == 2

    def test_a_condition_that_is_not_bool_is_a_type_error(self) -> None:
        for value in ("1", "null", '"true"'):
            source = f"- s: {{switch: [{{condition: '${{{value}}}', next: end}}]}}"
            assert failure(source)["tags"] == ["TypeError"]

    def test_a_condition_may_call_a_subworkflow(self) -> None:
        source = """
            main:
              steps:
                - s:
                    switch:
                      - condition: ${never()}
                        return: wrong
                      - condition: ${not never()}
                        return: right
            never: {steps: [{s: {return: false}}]}
        """
        assert result(source) == "right"

    def test_nested_switches_jump_out(self) -> None:
        source = """
            - s:
                switch:
                  - condition: true
                    switch:
                      - condition: ${1 == 2}
                        return: wrong
                      - condition: true
                        steps:
                          - deep:
                              switch:
                                - condition: true
                                  next: target
                          - skipped: {return: wrong}
            - wrong: {return: wrong}
            - target: {return: right}
        """
        assert result(source) == "right"

    def test_51_conditions_are_refused(self) -> None:
        source = "- s:\n    switch:\n" + "    - condition: true\n      next: end\n" * 51
        assert "51 conditions" in faults(source)[0]

    def test_a_condition_must_be_an_expression(self) -> None:
        assert "not an expression" in faults("- s: {switch: [{condition: x, next: end}]}")[0]
        assert "no condition" in faults("- s: {switch: [{next: end}]}")[0]
