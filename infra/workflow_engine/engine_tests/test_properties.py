"""Properties that hold for any input: round trips, an independent evaluator, no crash."""

from __future__ import annotations

import fractions
import math
import string
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from workflows_engine import Workflow
from workflows_engine.errors import WorkflowError
from workflows_engine.evaluate import Compiler
from workflows_engine.expressions import (
    Attribute,
    BadExpression,
    Binary,
    Call,
    Index,
    ListOf,
    Literal,
    Logic,
    Name,
    Node,
    Unary,
    parse,
    unparse,
    walk,
)
from workflows_engine.scope import Frame, Scope
from workflows_engine.values import equal, measure, set_item

from engine_tests.support import drive

QUICK = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])

KEYWORDS = {"and", "or", "not", "in", "true", "false", "null", "AND", "OR", "NOT"}
KEYWORDS |= {"True", "TRUE", "False", "FALSE", "Null", "NULL"}
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True).filter(
    lambda name: name not in KEYWORDS
)
TEXT = st.text(st.characters(blacklist_categories=("Cs",)), max_size=8)
LITERALS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(0, 2**63 - 1),
    st.floats(0, 1e300, allow_nan=False),
    TEXT,
).map(Literal)


def nodes(leaves: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    """Syntax trees over some leaves."""
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(Attribute, inner, NAMES),
            st.builds(Index, inner, inner),
            st.builds(Unary, st.sampled_from(["-", "+", "not"]), inner),
            st.builds(Binary, st.sampled_from(sorted(OPERATORS)), inner, inner),
            st.builds(Logic, st.sampled_from(["and", "or"]), inner, inner),
            st.builds(lambda items: ListOf(tuple(items)), st.lists(inner, max_size=3)),
            st.builds(
                lambda name, args: Call(name, tuple(args)),
                st.sampled_from(["len", "text.split", "if", "sub"]),
                st.lists(inner, max_size=3),
            ),
        ),
        max_leaves=8,
    )


OPERATORS = ["+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "in"]


class TestParser:
    @QUICK
    @given(nodes(st.one_of(LITERALS, st.builds(Name, NAMES))))
    def test_text_of_a_tree_parses_to_the_tree(self, node: Node) -> None:
        text = unparse(node)
        if len(text) <= 400:
            assert parse(text) == node

    @QUICK
    @given(st.text(string.printable, max_size=60))
    def test_any_text_is_an_expression_or_a_bad_one(self, text: str) -> None:
        try:
            node = parse(text)
        except BadExpression as exc:
            assert exc.message
            assert exc.instead
        else:
            assert parse(unparse(node)) == node


SAMPLE: dict[str, Any] = {
    "i": 7,
    "d": 2.5,
    "s": "text",
    "t": True,
    "n": None,
    "l": [1, "a", [2]],
    "m": {"a": 1, "b": {"c": []}},
}


def evaluated(node: Node) -> Any:
    """What the engine makes of a tree over SAMPLE: a value, or the first tag of its error."""

    async def never(*_: Any) -> None:
        raise AssertionError

    run = Compiler(SAMPLE, (), never).expression(node).run
    scope = Scope.__new__(Scope)
    Scope.__init__(scope, Frame.__new__(Frame))
    scope.variables = SAMPLE
    try:
        return run(scope)
    except WorkflowError as exc:
        return exc.tags[0]


class Refused(Exception):
    """The independent evaluator's error: the tag the language has for it."""


def expected(node: Node) -> Any:
    """A second evaluator, written from the documentation alone, with exact arithmetic."""
    match node:
        case Literal(value):
            return value
        case Name(name):
            return SAMPLE[name]
        case Unary("-", operand):
            value = expected(operand)
            if type(value) not in (int, float):
                raise Refused("TypeError")
            return _fits(-value)
        case Binary(op, left, right):
            return _binary(op, expected(left), expected(right))
        case _:
            raise AssertionError(node)


def _fits(value: Any) -> Any:
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise Refused("ValueError")
    return value


def _binary(op: str, left: Any, right: Any) -> Any:
    if op in ("==", "!="):
        return _same(left, right) is (op == "==")
    numbers = type(left) in (int, float) and type(right) in (int, float)
    texts = type(left) is str and type(right) is str
    if op in ("<", "<=", ">", ">="):
        if not numbers and not texts:
            raise Refused("TypeError")
        if numbers:
            left, right = fractions.Fraction(left), fractions.Fraction(right)
        order = (left > right) - (left < right)
        return {"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[op]
    joined = {str, int, float, bool}
    if op == "+" and str in (type(left), type(right)) and {type(left), type(right)} <= joined:
        return "".join(
            str(part).lower() if type(part) is bool else str(part) for part in (left, right)
        )
    if not numbers:
        raise Refused("TypeError")
    if op in ("/", "//", "%") and right == 0:
        raise Refused("ZeroDivisionError")
    integers = type(left) is int and type(right) is int
    if op == "/" or not integers:
        return _double(op, float(left), float(right))
    whole = left // right if op in ("//", "%") else 0
    exact = {
        "+": left + right,
        "-": left - right,
        "*": left * right,
        "//": whole,
        "%": left - whole * right,
    }
    return _fits(exact[op])


def _double(op: str, left: float, right: float) -> float:
    results = {
        "/": lambda: left / right,
        "//": lambda: left // right,
        "%": lambda: left % right,
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
    }
    result = results[op]()
    if not math.isfinite(result):
        raise Refused("ValueError")
    return result


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, int | float) and isinstance(right, int | float):
        return fractions.Fraction(left) == fractions.Fraction(right)
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict):
        return set(left) == set(right) and all(_same(left[k], right[k]) for k in left)
    return bool(left == right)


ARITHMETIC = st.recursive(
    st.one_of(
        st.sampled_from(sorted(SAMPLE)).map(Name),
        st.integers(0, 2**63 - 1).map(Literal),
        st.integers(0, 9).map(Literal),
        st.floats(0, 1e15).map(Literal),
        st.sampled_from(["", "a", "b"]).map(Literal),
    ),
    lambda inner: st.one_of(
        st.builds(Unary, st.just("-"), inner),
        st.builds(Binary, st.sampled_from([op for op in OPERATORS if op != "in"]), inner, inner),
    ),
    max_leaves=6,
)


class TestEvaluator:
    @settings(QUICK, max_examples=300)
    @given(ARITHMETIC)
    def test_arithmetic_and_comparison_agree_with_an_independent_evaluator(
        self, node: Node
    ) -> None:
        try:
            wanted = expected(node)
        except Refused as exc:
            wanted = str(exc)
        got = evaluated(node)
        assert (type(got), got) == (type(wanted), wanted) or got is wanted

    @QUICK
    @given(nodes(st.one_of(LITERALS, st.sampled_from(sorted(SAMPLE)).map(Name))))
    def test_any_expression_gives_a_value_or_a_documented_error(self, node: Node) -> None:
        if not any(isinstance(part, Call) for part in walk(node)):  # arity is the checker's work
            evaluated(node)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=10,
)


class TestValues:
    @QUICK
    @given(JSON, st.lists(st.one_of(st.integers(0, 3), TEXT), min_size=1, max_size=4), JSON)
    def test_setting_a_part_keeps_the_rest_and_counts_the_difference(
        self, value: Any, path: list[Any], new: Any
    ) -> None:
        before = measure(value)
        text = repr(value)
        try:
            changed, delta = set_item(value, path, new, measure(new))
        except WorkflowError as exc:
            assert exc.tags[0] in ("TypeError", "IndexError")
        else:
            assert measure(changed) == before + delta
            found = changed
            for key in path:
                found = found[key]
            assert equal(found, new)
        assert repr(value) == text  # values never change in place

    @QUICK
    @given(JSON)
    def test_an_argument_comes_back_as_it_went_in(self, value: Any) -> None:
        execution = drive(ECHO, value)
        assert execution.state == "SUCCEEDED"
        assert equal(execution.value, value)


ECHO = Workflow("main: {params: [a], steps: [{s: {return: '${a}'}}]}")
