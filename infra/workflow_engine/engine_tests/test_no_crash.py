"""Whatever is written or run, nothing but the engine's own errors comes out."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from workflows_engine import Engine, FaultySource, Workflow, limits, virtual
from workflows_engine.builtins import FUNCTIONS
from workflows_engine.errors import FatalError, WorkflowError
from workflows_engine.values import measure

QUICK = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TEXT = st.text(st.characters(blacklist_categories=("Cs",)), max_size=8)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=10,
)
WORDS = st.sampled_from(
    [
        "assign",
        "call",
        "for",
        "parallel",
        "try",
        "switch",
        "return",
        "raise",
        "next",
        "steps",
        "main",
        "params",
        "args",
        "result",
        "value",
        "in",
        "range",
        "branches",
        "shared",
        "except",
        "as",
        "retry",
        "condition",
        "predicate",
        "s",
        "x",
        "a",
        "http.get",
        "sys.log",
        "${x}",
        "end",
        "${1+a}",
        "${a.b[0]}",
        "break",
        "${len(a)}",
        "hello-${x}",
        "${http.default_retry}",
    ]
)
SOURCES = st.recursive(
    st.one_of(WORDS, st.none(), st.booleans(), st.integers(-5, 5), TEXT),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=4)
    ),
    max_leaves=25,
)

# Workflows that mostly pass the checker and do anything at all: jumps back, wrong types,
# missing keys, recursion, parallel writes, waits.
VALUES = st.sampled_from(
    [
        "${x}",
        "${x+1}",
        "${y.k}",
        "${y}",
        "${a.b[0]}",
        "${[x,y]}",
        "${x/0}",
        "${len(y)}",
        "${map.get(y,'k')}",
        "${sub(x)}",
        "${not(x==1)}",
        "${x<5}",
        "${list.concat(z,x)}",
        "${z[x]}",
        "${string(x)}",
        "${int(y)}",
        "${sys.now()}",
        "text",
        "${keys(y)}",
        "${json.decode(y)}",
        "${text.split(y,'e')}",
    ]
) | st.sampled_from([None, True, 0, 1, -1, 2.5, {"k": 1}, [], {"k": {"${'j'}": "${x}"}}])
BOOLEANS = st.sampled_from(
    ["${x == 1}", "${x < 3}", "${y}", True, "${'k' in y}", "${sub(x) == 2}"]
)
TARGETS = st.sampled_from(["x", "y", "z", "y.k", "y.k.j", "z[0]", "z[x]", "y[x]", "w"])
LEAF = st.one_of(
    st.builds(lambda t, v: {"assign": [{t: v}]}, TARGETS, VALUES),
    st.builds(lambda v: {"raise": v}, VALUES),
    st.builds(lambda v: {"return": v}, VALUES),
    st.builds(lambda v: {"call": "sub", "args": {"p": v}, "result": "x"}, VALUES),
    st.builds(lambda v: {"call": "sys.sleep", "args": {"seconds": v}}, VALUES),
    st.builds(lambda v: {"call": "sys.log", "args": {"data": v}}, VALUES),
    st.builds(lambda c: {"switch": [{"condition": c, "next": "end"}]}, BOOLEANS),
    st.just({"next": "s0"}),
    st.just({"next": "break"}),
    st.just({"next": "continue"}),
    st.just({"call": "events.create_callback_endpoint", "result": "y"}),
    st.just({"call": "events.await_callback", "args": {"callback": "${y}", "timeout": 5}}),
)


def _named(bodies: list[Any]) -> list[Any]:
    return [{f"s{i}": body} for i, body in enumerate(bodies)]


def _compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    steps = st.lists(inner, min_size=1, max_size=3).map(_named)
    retry = {"predicate": "${retry.always}", "max_retries": 2}
    loop = {"value": "v", "range": [1, 3]}
    return st.one_of(
        st.builds(lambda s, v: {"for": {"value": "v", "in": v, "steps": s}}, steps, VALUES),
        st.builds(lambda s: {"for": {**loop, "steps": s}}, steps),
        st.builds(lambda s: {"steps": s}, steps),
        st.builds(lambda s: {"try": {"steps": s}, "retry": retry}, steps),
        st.builds(
            lambda s, t: {"try": {"steps": s}, "except": {"as": "e", "steps": t}}, steps, steps
        ),
        st.builds(lambda c, s: {"switch": [{"condition": c, "steps": s}]}, BOOLEANS, steps),
        st.builds(
            lambda s: {"parallel": {"shared": ["x", "y", "z"], "for": {**loop, "steps": s}}}, steps
        ),
    )


STEPS = st.lists(st.recursive(LEAF, _compound, max_leaves=6), min_size=1, max_size=5)


def finish(source: Any) -> str:
    """Run a source if it passes the checker; gives the state, or "refused"."""
    try:
        compiled = Workflow(json.dumps(source))
    except FaultySource as exc:
        assert exc.faults
        return "refused"

    async def main() -> str:
        engine = Engine(history=5)
        engine.deploy("w", compiled)
        execution = await engine.create("w", {"b": [1]}).wait()
        # Without an HTTP handler a call fails loudly; nothing else may be internal.
        assert all("no HTTP handler" in str(exc) for _, exc in engine.faults)
        if execution.state == "FAILED":
            assert execution.error is not None
            json.loads(execution.error["payload"])
        return execution.state

    # Loops without end are common here, and their end is tested elsewhere.
    with mock.patch.object(limits, "STEPS", 2000):
        return virtual.run(main)


class TestNoCrash:
    @settings(QUICK, max_examples=100)
    @given(SOURCES)
    def test_any_structure_is_refused_or_runs_to_an_end(self, tree: Any) -> None:
        for source in (tree, [{"s": tree}], {"main": {"params": ["a"], "steps": [{"s": tree}]}}):
            assert finish(source) in ("refused", "SUCCEEDED", "FAILED")

    @settings(QUICK, max_examples=80)
    @given(STEPS, STEPS)
    def test_any_steps_run_to_an_end(self, main: list[Any], sub: list[Any]) -> None:
        begin = {"begin": {"assign": [{"x": 1}, {"y": {"k": 2}}, {"z": [1, 2]}]}}
        source = {
            "main": {"params": ["a"], "steps": [begin, *_named(main)]},
            "sub": {
                "params": ["p"],
                "steps": [begin, {"a": {"assign": [{"a": {"b": [1]}}]}}, *_named(sub)],
            },
        }
        assert finish(source) in ("refused", "SUCCEEDED", "FAILED")

    @settings(QUICK, max_examples=200)
    @given(st.text(max_size=80))
    def test_any_text_is_checked_without_a_crash(self, text: str) -> None:
        try:
            Workflow(text)
        except FaultySource as exc:
            assert all(fault.line >= 1 for fault in exc.faults)

    @QUICK
    @given(
        st.sampled_from(sorted(FUNCTIONS)),
        st.lists(st.one_of(JSON, st.floats(allow_nan=False), st.binary(max_size=9)), max_size=4),
    )
    def test_any_arguments_of_any_function_give_a_documented_error(
        self, name: str, args: list[Any]
    ) -> None:
        spec = FUNCTIONS[name]
        if spec.scoped or not spec.required <= len(args) <= len(spec.params):
            return
        defaults = [default for _, default in spec.params[len(args) :]]
        try:
            measure(spec.body(*args, *defaults))
        except WorkflowError as exc:
            assert exc.tags[0] in ("TypeError", "ValueError", "KeyError", "IndexError")
        except FatalError as exc:
            assert exc.value["tags"] == ["ResourceLimitError"]
