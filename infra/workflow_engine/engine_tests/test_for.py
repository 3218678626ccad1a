"""for: lists, ranges, indexes, break, continue, and the loop's own scope."""

from __future__ import annotations

import pytest

from engine_tests.support import drive, failure, faults, result


def summed(header: str, init: str = "", after: str = "${seen}") -> str:
    return f"""
- init: {{assign: [{{seen: []}}{init}]}}
- loop:
    for:
      {header}
      steps:
        - keep: {{assign: [{{seen: "${{list.concat(seen, v)}}"}}]}}
- give: {{return: "{after}"}}
"""


class TestFor:
    @pytest.mark.parametrize(
        ("over", "seen"),
        [
            ("in: [1, 2, 3]", [1, 2, 3]),
            ("in: []", []),
            ("in: ${[4, 5]}", [4, 5]),
            ("range: [1, 4]", [1, 2, 3, 4]),
            ("range: [3, 1]", []),
            ("range: [-1, 1]", [-1, 0, 1]),
            ("range: ${[1, 1 + 1]}", [1, 2]),
            ('range: ["${1}", "${2}"]', [1, 2]),
            ("range: [0.5, 2]", [0.5, 1.5]),
        ],
    )
    def test_goes_over(self, over: str, seen: list[object]) -> None:
        assert result(summed("value: v\n      " + over)) == seen

    def test_goes_over_keys(self) -> None:
        source = summed("value: v\n      in: ${keys(m)}", ", {m: {a: 1, b: 2}}")
        assert result(source) == ["a", "b"]

    def test_index_counts_from_zero(self) -> None:
        source = summed("value: x\n      index: v\n      in: [a, b, c]")
        assert result(source) == [0, 1, 2]

    def test_a_map_cannot_be_gone_over(self) -> None:
        error = failure(summed("value: v\n      in: ${m}", ", {m: {a: 1}}"))
        assert error["tags"] == ["TypeError"]
        assert "keys(map)" in error["message"]

    def test_break_and_continue(self) -> None:
        source = """
            - init: {assign: [{seen: []}]}
            - outer:
                for:
                  value: i
                  range: [1, 3]
                  steps:
                    - inner:
                        for:
                          value: j
                          range: [1, 5]
                          steps:
                            - odd: {switch: [{condition: "${j == 2}", next: continue}]}
                            - over: {switch: [{condition: "${j == 4}", next: break}]}
                            - keep: {assign: [{seen: "${list.concat(seen, i * 10 + j)}"}]}
            - give: {return: "${seen}"}
        """
        assert result(source) == [11, 13, 21, 23, 31, 33]

    def test_break_and_continue_leave_a_try(self) -> None:
        source = """
            - init: {assign: [{seen: []}]}
            - l:
                for:
                  value: v
                  range: [1, 5]
                  steps:
                    - t:
                        try:
                          steps:
                            - skip: {switch: [{condition: "${v == 2}", next: continue}]}
                            - boom: {switch: [{condition: "${v == 4}", raise: over}]}
                        except: {as: e, steps: [{h: {next: break}}]}
                    - keep: {assign: [{seen: "${list.concat(seen, v)}"}]}
            - give: {return: "${seen}"}
        """
        assert result(source) == [1, 3]

    def test_return_leaves_every_loop(self) -> None:
        source = """
            - outer:
                for:
                  value: i
                  range: [1, 3]
                  steps:
                    - inner:
                        for:
                          value: j
                          range: [1, 3]
                          steps:
                            - s: {switch: [{condition: "${j == 2}", return: "${[i, j]}"}]}
        """
        assert result(source) == [1, 2]

    def test_an_outer_variable_keeps_its_change_and_an_inner_one_ends(self) -> None:
        source = """
            - init: {assign: [{total: 0}]}
            - loop:
                for:
                  value: v
                  in: [1, 2]
                  steps:
                    - add: {assign: [{total: "${total + v}"}, {own: "${v}"}]}
            - give: {return: "%s"}
        """
        assert result(source % "${total}") == 3
        for name in ("own", "v"):
            assert "only inside a loop" in faults(source % ("${" + name + "}"))[0]

    def test_an_iteration_does_not_see_the_variables_of_the_last_one(self) -> None:
        source = """
            - loop:
                for:
                  value: v
                  in: [1, 2]
                  steps:
                    - look: {switch: [{condition: "${v == 2}", next: read}]}
                    - set: {assign: [{own: 1}], next: continue}
                    - read: {return: "${own}"}
        """
        assert failure(source)["tags"] == ["KeyError", "LookupError"]

    def test_the_list_is_read_once(self) -> None:
        source = """
            - init: {assign: [{l: [1, 2]}, {n: 0}]}
            - loop:
                for:
                  value: v
                  in: ${l}
                  steps:
                    - grow: {assign: [{l: "${list.concat(l, v)}"}, {n: "${n + 1}"}]}
            - give: {return: ["${n}", "${len(l)}"]}
        """
        assert result(source) == [2, 4]

    def test_an_iteration_is_a_step(self) -> None:
        source = "- l: {for: {value: v, range: [1, 10], steps: [{s: {assign: [{x: 1}]}}]}}"
        assert drive(source).steps == 1 + 10 + 10

    def test_the_loop_variable_hides_an_outer_one(self) -> None:
        source = """
            - init: {assign: [{v: outer}]}
            - loop: {for: {value: v, in: [1], steps: [{s: {assign: [{w: "${v}"}]}}]}}
            - give: {return: "${v}"}
        """
        assert result(source) == "outer"

    def test_a_range_of_huge_doubles_ends_in_an_error(self) -> None:
        source = summed("value: v\n      range: [1e17, 2e17]")
        assert failure(source)["tags"] == ["ValueError"]

    def test_a_range_without_end_hits_the_step_limit(self) -> None:
        source = "- l: {for: {value: v, range: [0, 9000000000], steps: [{s: {assign: [{x: 1}]}}]}}"
        assert failure(source)["tags"] == ["ResourceLimitError"]

    @pytest.mark.parametrize(
        ("loop", "message"),
        [
            ("{value: v, steps: [{s: {next: end}}]}", "either in or range"),
            ("{value: v, in: [1], range: [1, 2], steps: [{s: {next: end}}]}", "either in or"),
            ("{value: v, in: 5, steps: [{s: {next: end}}]}", "cannot go over"),
            ("{value: v, in: {a: 1}, steps: [{s: {next: end}}]}", "cannot go over"),
            ("{value: v, range: [1], steps: [{s: {next: end}}]}", "first and last"),
            ("{value: v, in: [1]}", "no steps"),
            ("{value: 'a b', in: [1], steps: [{s: {next: end}}]}", "name of a variable"),
        ],
    )
    def test_refused(self, loop: str, message: str) -> None:
        assert message in faults(f"- l: {{for: {loop}}}")[0]
