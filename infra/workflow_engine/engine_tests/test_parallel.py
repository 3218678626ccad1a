"""parallel: branches and iterations, shared variables, errors, limits, order."""

from __future__ import annotations

import json

import pytest

from engine_tests.support import drive, failure, faults, result

WAIT = "{call: sys.sleep, args: {seconds: %s}}"


class TestParallel:
    def test_branches_run_at_once_and_write_what_is_shared(self) -> None:
        source = """
            - init: {assign: [{a: 0}, {m: {}}]}
            - run:
                parallel:
                  shared: [a, m]
                  branches:
                    - one:
                        steps:
                          - w1: {call: sys.sleep, args: {seconds: 10}}
                          - s1: {assign: [{a: "${a + 1}"}, {m.one: true}, {own: 1}]}
                    - two:
                        steps:
                          - w2: {call: sys.sleep, args: {seconds: 20}}
                          - s2: {assign: [{a: "${a + 10}"}, {m.two: true}, {own: 2}]}
            - give: {return: ["${a}", "${m}", "${sys.now()}"]}
        """
        execution = drive(source)
        a, m, at = execution.value
        assert (a, m) == (11, {"one": True, "two": True})
        assert at - (execution.start_time or 0) == 20

    def test_a_loop_keeps_index_and_value_apart(self) -> None:
        source = """
            - init: {assign: [{out: ["", "", ""]}]}
            - run:
                parallel:
                  shared: [out]
                  for:
                    value: v
                    index: i
                    in: [a, b, c]
                    steps:
                      - w: {call: sys.sleep, args: {seconds: "${10 - i}"}}
                      - s: {assign: [{"out[i]": "${v}"}]}
            - give: {return: "${out}"}
        """
        assert result(source) == ["a", "b", "c"]

    def test_increments_of_a_shared_variable_are_not_lost(self) -> None:
        source = """
            - init: {assign: [{n: 0}]}
            - run:
                parallel:
                  shared: [n]
                  for: {value: v, range: [1, 50], steps: [{s: {assign: [{n: "${n + v}"}]}}]}
            - give: {return: "${n}"}
        """
        assert result(source) == 1275

    def test_twenty_run_at_once_without_a_limit(self) -> None:
        loop = f"{{value: v, range: [1, 40], steps: [{{s: {WAIT % 10}}}]}}"
        source = f"- r: {{parallel: {{for: {loop}}}}}"
        execution = drive(source)
        assert (execution.end_time or 0) - (execution.start_time or 0) == 20

    def test_the_limit_may_be_an_expression(self) -> None:
        source = f"""
- r:
    parallel:
      concurrency_limit: "${{%s}}"
      for: {{value: v, range: [1, 4], steps: [{{s: {WAIT % 10}}}]}}
"""
        execution = drive(source % "1 + 1")
        assert (execution.end_time or 0) - (execution.start_time or 0) == 20
        assert failure(source % "0")["tags"] == ["ValueError"]
        assert failure(source % "'x'")["tags"] == ["ValueError"]

    def test_the_seed_decides_the_order_and_nothing_else(self) -> None:
        source = """
            - init: {assign: [{seen: []}]}
            - run:
                parallel:
                  shared: [seen]
                  for:
                    value: v
                    range: [1, 8]
                    steps: [{s: {assign: [{seen: "${list.concat(seen, v)}"}]}}]
            - give: {return: "${seen}"}
        """
        orders = [tuple(result(source, seed=seed)) for seed in (1, 1, 2, 3)]
        assert orders[0] == orders[1]
        assert len(set(orders)) > 1
        assert {tuple(sorted(order)) for order in orders} == {tuple(range(1, 9))}

    def test_an_error_lets_the_other_branches_end_first(self) -> None:
        source = """
            - init: {assign: [{done: []}]}
            - t:
                try:
                  steps:
                    - run:
                        parallel:
                          shared: [done]
                          for:
                            value: v
                            range: [0, 3]
                            steps:
                              - odd: {switch: [{condition: "${v % 2 == 1}", raise: "how odd!"}]}
                              - w: {call: sys.sleep, args: {seconds: 30}}
                              - s: {assign: [{done: "${list.concat(done, v)}"}]}
                except: {as: e, steps: [{h: {return: ["${e}", "${len(done)}"]}}]}
        """
        error, done = result(source)
        assert done == 2
        assert error["tags"] == ["UnhandledBranchError", "RuntimeError"]
        assert error["truncated"] is False
        assert [branch["id"] for branch in error["branches"]] == ["1", "3"]
        assert json.loads(error["branches"][0]["error"]["payload"]) == "how odd!"
        assert 'in step "odd"' in error["branches"][0]["error"]["context"]

    def test_a_hundred_errors_are_kept(self) -> None:
        source = "- r: {parallel: {for: {value: v, range: [1, 120], steps: [{s: {raise: x}}]}}}"
        error = failure(source)
        assert (len(error["branches"]), error["truncated"]) == (100, True)

    def test_continue_ends_an_iteration(self) -> None:
        source = """
            - init: {assign: [{n: 0}]}
            - r:
                parallel:
                  shared: [n]
                  for:
                    value: v
                    range: [1, 4]
                    steps:
                      - skip: {switch: [{condition: "${v > 2}", next: continue}]}
                      - add: {assign: [{n: "${n + v}"}]}
            - give: {return: "${n}"}
        """
        assert result(source) == 3

    def test_a_branch_may_loop_and_break(self) -> None:
        source = """
            - init: {assign: [{n: 0}]}
            - r:
                parallel:
                  shared: [n]
                  branches:
                    - a:
                        steps:
                          - l:
                              for:
                                value: v
                                range: [1, 9]
                                steps:
                                  - s: {switch: [{condition: "${v == 3}", next: break}]}
                                  - t: {assign: [{n: "${n + v}"}]}
                    - b: {steps: [{u: {assign: [{x: 1}]}}]}
            - give: {return: "${n}"}
        """
        assert result(source) == 3

    def test_a_fatal_error_of_one_branch_ends_the_execution_at_once(self) -> None:
        source = f"""
- t:
    try:
      steps:
        - r:
            parallel:
              branches:
                - slow: {{steps: [{{w: {WAIT % 1000}}}]}}
                - big:
                    steps:
                      - i: {{assign: [{{s: "0123456789"}}]}}
                      - g: {{assign: [{{s: "${{s + s}}"}}], next: g}}
    except: {{as: e, steps: [{{h: {{return: caught}}}}]}}
"""
        execution = drive(source)
        assert execution.state == "FAILED"
        assert execution.failure["tags"] == ["ResourceLimitError"]
        assert execution.end_time == execution.start_time

    NESTED = """
        main: {{steps: [{{a: {{call: one}}}}]}}
        one: {{steps: [{{p: {{parallel: {{branches: [{{x: {{steps: [{{s: {{call: two}}}}]}}}}, {{y: {{steps: [{{n: {{assign: [{{z: 1}}]}}}}]}}}}]}}}}}}]}}
        two: {{steps: [{{p: {{parallel: {{branches: [{{x: {{steps: [{{s: {{call: {last}}}}}]}}}}, {{y: {{steps: [{{n: {{assign: [{{z: 1}}]}}}}]}}}}]}}}}}}]}}
        three: {{steps: [{{p: {{parallel: {{for: {{value: v, in: [1], steps: [{{n: {{assign: [{{z: 1}}]}}}}]}}}}}}}}]}}
        four: {{steps: [{{n: {{assign: [{{z: 1}}]}}}}]}}
    """  # noqa: E501

    def test_two_levels_may_nest_and_three_are_an_error(self) -> None:
        assert result(self.NESTED.format(last="four")) is None
        error = failure(self.NESTED.format(last="three"))
        assert "ParallelNestingError" in json.dumps(error)

    def test_shared_in_an_outer_and_inner_step(self) -> None:
        source = """
            - init: {assign: [{n: 0}]}
            - outer:
                parallel:
                  shared: [n]
                  for:
                    value: i
                    range: [1, 2]
                    steps:
                      - own: {assign: [{m: 0}]}
                      - inner:
                          parallel:
                            shared: [n, m]
                            for:
                              value: j
                              range: [1, 3]
                              steps: [{s: {assign: [{n: "${n + 1}"}, {m: "${m + 1}"}]}}]
                      - check: {switch: [{condition: "${m != 3}", raise: "m is not mine"}]}
            - give: {return: "${n}"}
        """
        assert result(source) == 6

    BRANCHES = """
        - init: {assign: [{a: 0}]}
        - r:
            parallel:
              %s
              branches:
                - one: {steps: [{s: {%s}}]}
                - two: {steps: [{t: {%s}}]}
        - out: {return: "%s"}
    """

    @pytest.mark.parametrize(
        ("shared", "one", "two", "out", "message"),
        [
            ("shared: []", "assign: [{a: 1}]", "next: t", "x", "not shared"),
            ("shared: []", "assign: [{a.b: 1}]", "assign: [{x: 1}]", "x", "not shared"),
            (
                "shared: []",
                "call: sys.get_env, args: {name: A}, result: a",
                "assign: [{x: 1}]",
                "x",
                "not shared",
            ),
            ("shared: [b]", "assign: [{x: 1}]", "assign: [{x: 1}]", "x", "'b' is not assigned"),
            ("shared: []", "assign: [{x: 1}]", "assign: [{y: '${x}'}]", "x", "only inside"),
            ("shared: []", "assign: [{x: 1}]", "assign: [{y: 1}]", "${x}", "only inside"),
            ("shared: []", "return: 1", "assign: [{y: 1}]", "x", "cannot return"),
            ("shared: []", "next: end", "assign: [{y: 1}]", "x", "cannot end"),
            ("shared: []", "next: out", "assign: [{y: 1}]", "x", "outside this loop or branch"),
            ("shared: []", "next: t", "assign: [{y: 1}]", "x", "inside another step"),
            ("shared: a", "assign: [{x: 1}]", "assign: [{y: 1}]", "x", "list of variables"),
            ("exception_policy: stop", "assign: [{x: 1}]", "assign: [{y: 1}]", "x", "continueAll"),
            ("concurrency_limit: 0", "assign: [{x: 1}]", "assign: [{y: 1}]", "x", "positive"),
            ("limit: 1", "assign: [{x: 1}]", "assign: [{y: 1}]", "x", "cannot have 'limit'"),
        ],
    )
    def test_refused(self, shared: str, one: str, two: str, out: str, message: str) -> None:
        assert message in "\n".join(faults(self.BRANCHES % (shared, one, two, out)))

    def test_number_of_branches(self) -> None:
        for count in (1, 11):
            names = (f"{{b{i}: {{steps: [{{s{i}: {{next: s{i}}}}}]}}}}" for i in range(count))
            branches = ", ".join(names)
            assert "2 to 10" in "\n".join(faults(f"- r: {{parallel: {{branches: [{branches}]}}}}"))
