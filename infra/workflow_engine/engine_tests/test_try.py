"""try, except, retry and raise."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from workflows_engine import HttpConnectionBroken, HttpConnectionFailed

from engine_tests.support import Web, drive, failure, faults, result, warnings

GET = '{call: http.get, args: {url: "http://a.b/"}, result: r}'


class TestExcept:
    def test_no_error_skips_the_handler_and_keeps_the_variables(self) -> None:
        source = """
            - t:
                try: {steps: [{s: {assign: [{x: 1}]}}]}
                except: {as: e, steps: [{h: {return: wrong}}]}
            - give: {return: "${x}"}
        """
        assert result(source) == 1

    def test_a_handler_that_ends_goes_on_after_the_try(self) -> None:
        source = """
            - init: {assign: [{x: 0}]}
            - t:
                try: {raise: a}
                except: {as: e, steps: [{h: {assign: [{x: "${e}"}]}}]}
            - give: {return: "${x}"}
        """
        assert result(source) == "a"

    def test_a_handler_may_raise_the_error_again(self) -> None:
        source = """
            - outer:
                try:
                  steps:
                    - inner:
                        try: {raise: {code: 7, message: m, tags: [A], extra: [1]}}
                        except: {as: e, steps: [{h: {raise: "${e}"}}]}
                except: {as: f, steps: [{h: {return: "${f}"}}]}
        """
        assert result(source) == {"code": 7, "message": "m", "tags": ["A"], "extra": [1]}

    def test_an_error_of_a_subworkflow_is_caught_by_its_caller(self) -> None:
        source = """
            main:
              steps:
                - t:
                    try: {call: sub}
                    except: {as: e, steps: [{h: {return: "${e.message}"}}]}
            sub: {steps: [{s: {assign: [{x: "${[][0]}"}]}}]}
        """
        assert result(source).startswith("IndexError: ")

    def test_what_the_try_assigned_before_the_error_stays(self) -> None:
        source = """
            - init: {assign: [{x: 0}]}
            - t:
                try: {steps: [{a: {assign: [{x: 1}]}}, {b: {raise: y}}]}
                except: {as: e, steps: [{h: {return: "${x}"}}]}
        """
        assert result(source) == 1

    def test_try_without_except_lets_the_error_pass(self) -> None:
        assert failure("- t: {try: {raise: a}}") == "a"

    def test_except_without_as_is_allowed(self) -> None:
        assert result("- t: {try: {raise: a}, except: {steps: [{h: {return: 1}}]}}") == 1

    @pytest.mark.parametrize(
        ("step", "message"),
        [
            ("{try: {for: {value: v, in: [1], steps: [{s: {next: end}}]}}}", "for directly under"),
            ("{try: {}}", "nothing to do"),
            ("{try: 5}", "step or steps"),
            ("{try: {raise: a}, except: {as: e}}", "except holds nothing to do"),
            ("{try: {raise: a}, except: 5}", "except must be a map"),
            ("{try: {raise: a}, except: {as: e.x, steps: [{h: {next: end}}]}}", "as must be"),
            ("{except: {as: e, steps: [{h: {next: end}}]}, return: 1}", "except without try"),
            ("{retry: '${http.default_retry}', return: 1}", "retry without try"),
        ],
    )
    def test_refused(self, step: str, message: str) -> None:
        assert message in "\n".join(faults(f"- t: {step}"))


class TestRaise:
    @pytest.mark.parametrize("value", ['"text"', "{message: m, code: 5}", "{}"])
    def test_text_and_maps_are_raised_as_they_are(self, value: str) -> None:
        handler = "{as: e, steps: [{h: {return: '${e}'}}]}"
        source = f"- t: {{try: {{raise: {value}}}, except: {handler}}}"
        expected = {'"text"': "text", "{message: m, code: 5}": {"message": "m", "code": 5}}
        assert result(source) == expected.get(value, {})

    @pytest.mark.parametrize("value", ["5", "null", "[1]", "true"])
    def test_other_values_are_a_type_error(self, value: str) -> None:
        assert failure(f"- t: {{raise: {value}}}")["tags"] == ["TypeError"]

    def test_an_uncaught_error_fails_the_execution_with_its_place(self) -> None:
        source = """
            main:
              steps:
                - first: {call: sub}
            sub:
              steps:
                - deep: {raise: {message: "it broke", code: 3}}
        """
        execution = drive(source)
        assert execution.state == "FAILED"
        assert execution.result is None
        assert execution.error is not None
        assert execution.error["payload"] == '{"message": "it broke", "code": 3}'
        assert execution.error["context"].splitlines() == [
            "it broke",
            'in step "deep", routine "sub", line: 7',
            'in step "first", routine "main", line: 4',
        ]
        assert [e["step"] for e in execution.error["stackTrace"]["elements"]] == ["deep", "first"]


def attempts(answers: list[object], retry: str) -> tuple[list[float], object]:
    """When the requests came, and what the try ended with."""
    times: list[float] = []

    def answer(_: object) -> object:
        times.append(asyncio.get_running_loop().time())
        one = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(one, Exception):
            raise one
        return (one, {})

    source = f"""
main:
  steps:
    - t:
        try: {GET}
        retry: {retry}
        except: {{as: e, steps: [{{h: {{return: "${{e}}"}}}}]}}
    - give: {{return: "${{r.code}}"}}
yes_to_500:
  params: [e]
  steps:
    - judge: {{switch: [{{condition: "${{e.code == 500}}", return: true}}]}}
    - no_more: {{return: false}}
two: {{params: [a, b: 1], steps: [{{s: {{return: true}}}}]}}
odd: {{params: [e], steps: [{{s: {{return: maybe}}}}]}}
silent: {{params: [e], steps: [{{s: {{next: end}}}}]}}
"""
    return times, drive(source, http=Web(answer)).value


class TestRetry:
    def test_default_policy_waits_1_and_a_quarter_more_each_time(self) -> None:
        times, end = attempts([503], "${http.default_retry}")
        waits = [b - a for a, b in itertools.pairwise(times)]
        assert waits == pytest.approx([1, 1.25, 1.5625, 1.953125, 2.44140625])
        assert isinstance(end, dict)
        assert end["code"] == 503

    def test_success_ends_the_retries(self) -> None:
        times, end = attempts([503, 429, 200], "${http.default_retry}")
        assert (len(times), end) == (3, 200)

    @pytest.mark.parametrize(
        ("answer", "idempotent", "non_idempotent"),
        [
            (429, True, True),
            (500, False, False),
            (502, True, False),
            (503, True, True),
            (504, True, False),
            (404, False, False),
            (HttpConnectionFailed("x"), True, True),
            (HttpConnectionBroken("x"), True, False),
            (TimeoutError(), True, False),
        ],
    )
    def test_default_predicates(
        self, answer: object, idempotent: bool, non_idempotent: bool
    ) -> None:
        times, _ = attempts([answer], "${http.default_retry}")
        assert len(times) == (6 if idempotent else 1)
        times, _ = attempts([answer], "${http.default_retry_non_idempotent}")
        assert len(times) == (6 if non_idempotent else 1)

    POLICY = (
        "{predicate: '${%s}', max_retries: %s, "
        "backoff: {initial_delay: 1, max_delay: 100, multiplier: 10}}"
    )

    def test_a_subworkflow_is_the_predicate(self) -> None:
        times, end = attempts([500, 500, 404], self.POLICY % ("yes_to_500", 5))
        assert times == [0, 1, 11]
        assert isinstance(end, dict)
        assert end["code"] == 404

    def test_always_and_never(self) -> None:
        assert len(attempts([404], self.POLICY % ("retry.always", 2))[0]) == 3
        assert len(attempts([503], self.POLICY % ("retry.never", 2))[0]) == 1

    def test_the_values_may_be_expressions(self) -> None:
        assert len(attempts([404], self.POLICY % ("retry.always", '"${1 + 1}"'))[0]) == 3

    def test_backoff_may_be_the_default_or_a_part_of_it(self) -> None:
        policy = "{predicate: '${retry.always}', max_retries: 1, backoff: %s}"
        assert attempts([404], policy % "'${retry.default_backoff}'")[0] == [0, 1]
        assert attempts([404], policy % "{initial_delay: 7}")[0] == [0, 7]
        assert attempts([404], policy % "{initial_delay: 700}")[0] == [0, 60]

    def test_max_retries_zero_does_not_retry(self) -> None:
        assert len(attempts([404], self.POLICY % ("retry.always", 0))[0]) == 1

    def test_a_predicate_that_fails_replaces_the_error(self) -> None:
        times, end = attempts([HttpConnectionFailed("x")], self.POLICY % ("yes_to_500", 5))
        assert len(times) == 1
        assert isinstance(end, dict)
        assert end["tags"] == ["KeyError", "LookupError"]

    def test_a_predicate_must_return_bool(self) -> None:
        _, end = attempts([500], self.POLICY % ("odd", 5))
        assert isinstance(end, dict)
        assert end["tags"] == ["TypeError"]
        assert len(attempts([500], self.POLICY % ("silent", 5))[0]) == 1

    def test_the_whole_block_runs_again(self) -> None:
        source = """
            main:
              steps:
                - init: {assign: [{n: 0}]}
                - t:
                    try:
                      steps:
                        - count: {assign: [{n: "${n + 1}"}]}
                        - fail: {raise: again}
                    retry:
                      predicate: ${retry.always}
                      max_retries: 3
                      backoff: {initial_delay: 1, max_delay: 1, multiplier: 1}
                    except: {as: e, steps: [{h: {return: "${n}"}}]}
        """
        execution = drive(source)
        assert execution.value == 4
        # init, try; four times two; three retries, except and its step.
        assert execution.steps == 2 + 4 * 2 + 3 + 2

    @pytest.mark.parametrize(
        ("retry", "message"),
        [
            ("5", "must be a policy"),
            ("{predicate: retry.always, max_retries: 5}", "not an expression"),
            ("{predicate: '${http.default_retry}', max_retries: 5}", "whole policy"),
            ("{predicate: '${two}', max_retries: 5}", "has 2 parameters"),
            ("{predicate: '${odd(1)}', max_retries: 5}", "named, not called"),
            ("{predicate: '${http.default_retri}', max_retries: 5}", "write http.default_retry"),
            ("{predicate: '${retry.always}', max_retries: 5, backoff: {delay: 1}}", "'delay'"),
            ("{predicate: '${retry.always}', max_retries: 5, backoff: 3}", "must be a map"),
            ("{predicate: '${retry.always}', retries: 5}", "'retries'"),
        ],
    )
    def test_refused(self, retry: str, message: str) -> None:
        source = f"""
main: {{steps: [{{t: {{try: {{raise: a}}, retry: {retry}}}}}]}}
two: {{params: [a, b], steps: [{{s: {{return: true}}}}]}}
odd: {{params: [e], steps: [{{s: {{return: true}}}}]}}
"""
        assert message in "\n".join(faults(source))

    @pytest.mark.parametrize(
        "retry",
        [
            "{predicate: '${1}', max_retries: 5}",
            "{predicate: '${retry.always}', max_retries: '${\"5\"}'}",
            "{predicate: '${retry.always}', max_retries: -1}",
            "{predicate: '${retry.always}', max_retries: 5, backoff: {initial_delay: '${\"1\"}'}}",
            "${[1]}",
        ],
    )
    def test_a_policy_with_a_wrong_value_at_run_time_is_an_error(self, retry: str) -> None:
        _, end = attempts([503], f'"{retry}"' if retry.startswith("$") else retry)
        assert isinstance(end, dict)
        assert end["tags"] in (["TypeError"], ["ValueError"])

    @pytest.mark.parametrize(
        ("retry", "message"),
        [
            ("{max_retries: 2}", "no predicate"),
            ("{predicate: '${retry.always}'}", "no max_retries"),
            ("{}", "no predicate"),
        ],
    )
    def test_a_part_that_is_missing_is_that_of_the_default_policy(
        self, retry: str, message: str
    ) -> None:
        times, end = attempts([503], retry)
        assert isinstance(end, dict)
        assert end["code"] == 503
        assert len(times) == (3 if "2" in retry else 6)
        source = f"- t: {{try: {{call: sys.log, args: {{data: 1}}}}, retry: {retry}}}"
        assert any(message in warning for warning in warnings(source))


class TestExceptWithoutSteps:
    """The "Catch errors" page: ``steps`` is optional, the body of any step may stand there."""

    def test_raise(self) -> None:
        raised = failure("- a: {try: {raise: no}, except: {as: e, raise: {why: '${e}'}}}")
        assert raised == {"why": "no"}

    def test_assign_to_a_variable_of_outside(self) -> None:
        source = """
            - a: {assign: [{n: 0}]}
            - b: {try: {raise: x}, except: {as: e, assign: [{n: '${n + 1}'}]}}
            - c: {return: '${n}'}
        """
        assert result(source) == 1

    def test_call_return_and_next(self) -> None:
        assert result("- a: {try: {raise: x}, except: {as: e, return: '${e}'}}") == "x"
        source = """
            - a: {try: {raise: x}, except: {as: e, call: sys.log, args: {text: '${e}'}, next: c}}
            - b: {return: 1}
            - c: {return: 2}
        """
        assert result(source) == 2


class TestUrls:
    def test_a_url_that_cannot_be_parsed_is_caught(self) -> None:
        source = """
            - a:
                try: {call: http.get, args: {url: "https://[your-function-url]/run"}}
                except: {as: e, return: '${e.tags}'}
        """
        assert result(source) == ["ValueError"]
