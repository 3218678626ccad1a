"""Google's page of quotas and limits: each limit of a workflow is reached, and passed by one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from workflows_engine import FaultySource, Workflow

from engine_tests.support import Web, drive, failure, result

END: list[Any] = [{"end_": {"return": "reached"}}]


def flow(steps: list[Any], **routines: Any) -> str:
    """A source whose main has these steps."""
    return json.dumps({"main": {"steps": steps}, **routines})


def refused(source: str, message: str) -> None:
    """Fail unless ``check`` refuses a source for this."""
    with pytest.raises(FaultySource) as raised:
        Workflow(source)
    assert message in str(raised.value)


def test_an_expression_may_have_400_characters() -> None:
    assert result(flow([{"a": {"return": "${" + "1+" * 199 + "11}"}}])) == 210
    refused(flow([{"a": {"return": "${" + "1+" * 199 + "111}"}}]), "401 characters")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("-" * 398 + "1", 1),
        ("(" * 199 + "1" + ")" * 199, 1),
        ("not " * 98 + "true", True),
        ('len(keys(json.decode("{}")))+' * 10 + "string(" * 9 + "7" + ")" * 9, "07"),
    ],
)
def test_no_expression_of_400_characters_is_too_deep(expression: str, value: Any) -> None:
    assert result(flow([{"a": {"return": "${" + expression + "}"}}])) == value


def test_a_step_may_have_50_assignments() -> None:
    fifty = [{f"x{i}": i} for i in range(50)]
    assert result(flow([{"a": {"assign": fifty}}, *END])) == "reached"
    refused(flow([{"a": {"assign": [*fifty, {"y": 1}]}}, *END]), "51 assignments")


def test_a_switch_may_have_50_conditions() -> None:
    cases = [{"condition": False, "next": "end"} for _ in range(50)]
    assert result(flow([{"a": {"switch": cases}}, *END])) == "reached"
    refused(flow([{"a": {"switch": [*cases, cases[0]]}}, *END]), "51 conditions")


def test_more_than_10_parameters_are_a_warning() -> None:
    eleven: list[Any] = [{f"p{i}": i} for i in range(11)]
    call = [{"a": {"return": "${sub()}"}}]
    body = [{"s": {"return": "${p9}"}}]
    assert Workflow(flow(call, sub={"params": eleven[:10], "steps": body})).warnings == []
    source = Workflow(flow(call, sub={"params": eleven, "steps": body}))
    assert "11 params" in str(source.warnings[0])
    assert result(source) == 9


def test_a_parallel_step_may_have_10_branches() -> None:
    ten = [{f"b{i}": {"steps": [{"s": {"assign": [{"x": 1}]}}]}} for i in range(10)]
    assert result(flow([{"a": {"parallel": {"branches": ten}}}, *END])) == "reached"
    eleven = [*ten, {"c": ten[0]["b0"]}]
    refused(flow([{"a": {"parallel": {"branches": eleven}}}, *END]), "2 to 10")


def nested(depth: int, inner: list[Any]) -> list[Any]:
    """Parallel loops inside one another."""
    if depth == 0:
        return inner
    loop = {"value": f"v{depth}", "in": [1], "steps": nested(depth - 1, inner)}
    return [{f"p{depth}": {"parallel": {"for": loop}}}]


def test_parallel_steps_nest_2_deep() -> None:
    leaf = [{"s": {"assign": [{"x": 1}]}}]
    assert result(flow([*nested(2, leaf), *END])) == "reached"
    refused(flow(nested(3, leaf)), "nest more than 2 deep")
    through = flow(nested(2, [{"c": {"call": "sub"}}]), sub={"steps": nested(1, leaf)})
    inner = failure(through)["branches"][0]["error"]["payload"]
    inner = json.loads(json.loads(inner)["branches"][0]["error"]["payload"])
    assert inner["tags"] == ["ParallelNestingError"]


def test_calls_nest_20_deep() -> None:
    sub = {
        "params": ["n"],
        "steps": [
            {"a": {"switch": [{"condition": "${n == 0}", "return": "deep"}]}},
            {"b": {"return": "${sub(n - 1)}"}},
        ],
    }
    assert result(flow([{"a": {"return": "${sub(18)}"}}], sub=sub)) == "deep"
    assert failure(flow([{"a": {"return": "${sub(19)}"}}], sub=sub))["tags"][0] == "RecursionError"


def test_20_iterations_run_at_once() -> None:
    running, most = 0, 0

    async def answer(_: Any) -> tuple[int, None]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(5)
        running -= 1
        return 200, None

    loop = {
        "value": "v",
        "range": [1, 50],
        "steps": [{"s": {"call": "http.get", "args": {"url": "https://a.example"}}}],
    }
    drive(flow([{"a": {"parallel": {"for": loop}}}]), http=Web(answer))
    assert most == 20


def test_100_errors_of_branches_are_kept() -> None:
    loop = {"value": "v", "range": [1, 101], "steps": [{"s": {"raise": "oh"}}]}
    error = failure(flow([{"a": {"parallel": {"for": loop}}}]))
    assert (len(error["branches"]), error["truncated"]) == (100, True)
    loop["range"] = [1, 100]
    error = failure(flow([{"a": {"parallel": {"for": loop}}}]))
    assert (len(error["branches"]), error["truncated"]) == (100, False)


GROW = [
    {"a": {"assign": [{"s": "x"}, {"i": 0}]}},
    {"b": {"assign": [{"s": "${s + s}"}, {"i": "${i + 1}"}]}},
    {"c": {"switch": [{"condition": "${i < 17}", "next": "b"}]}},
]


@pytest.mark.parametrize(
    "expression",
    [
        'text.replace_all(s, "x", s)',
        'text.replace_all(s, "", s)',
        'text.replace_all_regex(s, "x", s)',
        'text.replace_all_regex(s, "", s)',
        'len(text.replace_all(text.replace_all(s, "x", "yyyy"), "y", s))',
        "len(s + s + s)",
        "len(json.encode_to_string([[[1, 2, 3]]], m))",
    ],
)
def test_a_result_that_would_fill_the_machine_is_refused_before_it_is_made(
    expression: str,
) -> None:
    """131,072 characters, each replaced by as many, would be 16 GB."""
    steps = [*GROW, {"m": {"assign": [{"m": {"prefix": "${s}", "indent": "${s}"}}]}}]
    error = failure(flow([*steps, {"d": {"return": "${" + expression + "}"}}]))
    assert error["tags"] == ["ResourceLimitError"]


def test_a_shorter_replacement_of_a_long_text_is_no_limit() -> None:
    expression = 'len(text.replace_all_regex(text.replace_all(s, "x", "yy"), "yy|z", "z"))'
    assert result(flow([*GROW, {"d": {"return": "${" + expression + "}"}}])) == 2**17


def test_an_http_response_may_have_2_megabytes() -> None:
    """More than the memory of an execution: it can be had, but not kept in a variable."""
    source = flow([{"a": {"call": "http.get", "args": {"url": "https://a.example"}}}, *END])
    assert result(source, http=Web((200, "x" * 2 * 1024 * 1024))) == "reached"
    over = failure(source, http=Web((200, "x" * (2 * 1024 * 1024 + 1))))
    assert over["tags"] == ["ResourceLimitError"]
