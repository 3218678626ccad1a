"""Google's pages of the standard library: every row of docs/standard-library.md."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from workflows_engine.builtins import BLOCKING, FUNCTIONS, REQUIRED
from workflows_engine.errors import HttpConnectionBroken, HttpConnectionFailed

from engine_tests.pages.tables import SAMPLES, check, code, kind, outcomes, tables
from engine_tests.support import Web, drive

TABLES = tables("standard-library.md")
# An argument that fits where the sample of its type does not.
FITTING = {
    "headers": 'json.decode("{\\"a\\": \\"b\\"}")',
    "algorithm": '"SHA256"',
    "charset": '"UTF-8"',
    "timezone": '"UTC"',
    "regexp": '"t"',
    "source": '"text"',
    "method": '"GET"',
    "url": '"https://a.example/"',
    "severity": '"INFO"',
    "time": '"2024-05-08T12:01:00Z"',
    "http_callback_method": '"POST"',
    "start": "0",
    "end": "1",
}
EXACT = {
    ("base64.decode", "data"): '"aGk="',
    ("time.parse", "value"): FITTING["time"],
    ("events.await_callback", "callback"): '"${bell}"',
}


def parameters(heading: str) -> dict[str, list[tuple[str, list[str], str]]]:
    """By function: (parameter, types taken, default) in their order."""
    found: dict[str, list[tuple[str, list[str], str]]] = {}
    for row in TABLES[heading]:
        taken = list(SAMPLES) if row["types taken"] == "any" else row["types taken"].split(", ")
        found.setdefault(row["function"], []).append((row["parameter"], taken, row["default"]))
    return found


PLAIN = parameters("Parameters")
WAITING = parameters("Parameters of functions that wait")


def written(default: Any) -> str:
    """How the tables write a default."""
    if default is REQUIRED:
        return "required"
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


@pytest.mark.parametrize("function", sorted({*FUNCTIONS, *BLOCKING}))
def test_the_tables_tell_every_function_and_parameter(function: str) -> None:
    params = FUNCTIONS[function].params if function in FUNCTIONS else BLOCKING[function]
    told = {**PLAIN, **WAITING}.get(function, [])
    assert [(name, default) for name, _, default in told] == [
        (name, written(default)) for name, default in params
    ]
    (row,) = [row for row in TABLES["Results and errors"] if row["function"] == function]
    assert row["result"]
    assert set(row["source"]) <= set("PTM")
    if function in FUNCTIONS:
        pages = {row["page"] for row in TABLES["Statements and examples"]}
        assert function in pages or "." not in function


def test_the_tables_tell_no_other_function() -> None:
    assert {*PLAIN, *WAITING} <= {*FUNCTIONS, *BLOCKING}


def argument(function: str, name: str, types: list[str]) -> str:
    """An argument that the function takes there."""
    if (function, name) in EXACT:
        return EXACT[function, name]
    return FITTING.get(name, SAMPLES["string" if len(types) == len(SAMPLES) else types[0]])


@pytest.mark.parametrize(
    ("function", "position"),
    [(function, at) for function, params in PLAIN.items() for at in range(len(params))],
)
def test_types(function: str, position: int) -> None:
    """Each of the eight types at each parameter: a TypeError unless the table lists it."""
    params = PLAIN[function]
    name, taken, _ = params[position]
    calls = []
    for sample in SAMPLES:
        given = [argument(function, other, types) for other, types, _ in params]
        fits = sample == "string" and sample in taken
        given[position] = argument(function, name, taken) if fits else SAMPLES[sample]
        given = given[: position + 1 + _needed(params, position)]
        calls.append(f"get_type({function}({', '.join(given)}))")
    got = dict(zip(SAMPLES, map(kind, outcomes(calls)), strict=True))
    refused = [sample for sample, what in got.items() if what == "TypeError"]
    # A list of keys is taken when its elements are strings; the sample holds an integer.
    inside = ["list"] if (function, name) == ("map.get", "keys") else []
    assert refused == [sample for sample in SAMPLES if sample not in taken or sample in inside]


def _needed(params: list[tuple[str, list[str], str]], position: int) -> int:
    return sum(1 for _, _, default in params[position + 1 :] if default == "required")


@pytest.mark.parametrize(
    ("function", "name", "taken"),
    [(f, name, taken) for f, params in WAITING.items() for name, taken, _ in params],
)
def test_types_of_functions_that_wait(function: str, name: str, taken: list[str]) -> None:
    if len(taken) == len(SAMPLES):
        return  # anything may be sent
    others = {
        other: argument(function, other, types)
        for other, types, default in WAITING[function]
        if default == "required" and other != name
    }
    if function == "sys.log" and name in ("severity", "timeout"):
        others["data"] = '"line"'
    steps: list[Any] = [
        {"bell": {"call": "events.create_callback_endpoint", "result": "bell"}},
        {"begin": {"assign": [{"found": []}]}},
    ]
    for sample, value in SAMPLES.items():
        text = argument(function, name, taken) if sample == taken[0] else value
        args = {**others, name: text}
        shown = {
            key: "${bell}" if "bell" in given else "${" + given + "}"
            for key, given in args.items()
        }
        attempt = {"call": function, "args": shown}
        steps += [
            {f"{sample}_0": {"assign": [{"tag": "none"}]}},
            {
                f"{sample}_1": {
                    "try": attempt,
                    "except": {"as": "e", "assign": [{"tag": "${e.tags[0]}"}]},
                }
            },
            {f"{sample}_2": {"assign": [{"found": "${list.concat(found, tag)}"}]}},
        ]
    steps.append({"give": {"return": "${found}"}})
    execution = drive(json.dumps({"main": {"steps": steps}}), http=Web((200, {})))
    assert execution.state == "SUCCEEDED", execution.error
    got = dict(zip(SAMPLES, execution.value, strict=True))
    refused = [sample for sample, tag in got.items() if tag == "TypeError"]
    wanted = [sample for sample in SAMPLES if sample not in taken]
    if function == "sys.log" and name in ("data", "text", "json"):
        wanted.insert(list(SAMPLES).index("null"), "null")  # then nothing is left to write
        wanted = [sample for sample in SAMPLES if sample in wanted]
    assert refused == wanted


def part_of(part: Any, whole: Any) -> bool:
    """Whether a map is inside another one, with the same values."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and part_of(item, whole[key]) for key, item in part.items())
    return bool(part == whole)


@pytest.mark.parametrize("row", TABLES["HTTP requests"], ids=lambda row: str(row["statement"]))
def test_http_request(row: dict[str, str]) -> None:
    answers: dict[str, Any] = {"failed": HttpConnectionFailed, "broken": HttpConnectionBroken}

    async def slow(_: Any) -> tuple[int, None]:
        await asyncio.sleep(1000)
        return 200, None

    answers["slow"] = slow
    web = Web(answers.get(row["answer"]) or (int(row["answer"]), {}))
    url = "method: GET, url: 'https://a.example'"
    given = code(row["arguments"])
    args = "{" + url + given[1:] if given == "{}" else "{" + url + ", " + given[1:]
    execution = drive(f"- a: {{call: http.request, args: {args}}}", http=web)
    if row["gives"].startswith("`"):
        assert execution.state == "SUCCEEDED", execution.error
        assert part_of(json.loads(code(row["gives"])), web.requests[0])
    else:
        assert execution.failure["tags"][0] == row["gives"]


@pytest.mark.parametrize(
    ("page", "expression", "gives"),
    [
        (row["page"], code(row["expression"]), row["gives"])
        for row in TABLES["Statements and examples"]
    ],
)
def test_statement(page: str, expression: str, gives: str) -> None:
    assert page
    check(expression, gives)
