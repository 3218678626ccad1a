"""Expressions: literals, operators, precedence, access, calls, and what is refused."""

from __future__ import annotations

import pytest
from workflows_engine.expressions import BadExpression, parse, unparse

from engine_tests.support import evaluate, failure, refusal, result


class TestLiterals:
    def test_numbers_are_ints_and_doubles(self) -> None:
        assert evaluate("[1, 1.5, 2e3, 1.5E-1]") == [1, 1.5, 2000.0, 0.15]

    def test_strings_have_escapes(self) -> None:
        assert evaluate(r'"a\"b\\c\n\té"') == 'a"b\\c\n\té'

    def test_strings_may_be_single_quoted_as_on_googles_error_page(self) -> None:
        assert evaluate("'SystemError' in tags", tags=["SystemError"]) is True

    def test_null_has_three_spellings_like_the_booleans(self) -> None:
        assert evaluate("[null, Null, NULL]") == [None, None, None]

    def test_lists_nest_and_may_end_with_a_comma(self) -> None:
        assert evaluate("[[], [1, [2]],]") == [[], [1, [2]]]


class TestArithmetic:
    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ("1 + 2 * 3", 7),
            ("(1 + 2) * 3", 9),
            ("10 - 3 - 2", 5),
            ("7 / 2", 3.5),
            ("4 / 2", 2.0),
            ("7 // 2", 3),
            ("-7 // 2", -4),
            ("7 % 3", 1),
            ("-7 % 3", 2),
            ("7.5 // 2", 3.0),
            ("1 + 0.5", 1.5),
            ('"a" + "b"', "ab"),
            ("--1", 1),
            ("- 1 + +2", 1),
            ("2 * -3", -6),
        ],
    )
    def test_value(self, expression: str, value: object) -> None:
        got = evaluate(expression)
        assert got == value
        assert type(got) is type(value)

    @pytest.mark.parametrize("expression", ["1 / 0", "1 // 0", "1 % 0", "1.5 / 0", "1 % 0.0"])
    def test_division_by_zero(self, expression: str) -> None:
        assert refusal(expression) == ["ZeroDivisionError", "ArithmeticError"]

    @pytest.mark.parametrize(
        "expression",
        [
            "true + 1",
            "1.5 + true",
            "true + true",
            'null + "a"',
            "null + 1",
            '"a" * 2',
            "[1] + [2]",
            '-"a"',
            "not 1",
            "m + 1",
        ],
    )
    def test_types_are_not_converted(self, expression: str) -> None:
        assert refusal(expression, m={}) == ["TypeError"]

    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ("1 + 1", 2),
            ("1 + 1.5", 2.5),
            ('1 + "s"', "1s"),
            ("1 + true", None),
            ("1.5 + 1", 2.5),
            ("1.5 + 1.5", 3.0),
            ('1.5 + "s"', "1.5s"),
            ("1.5 + true", None),
            ('"s" + 1', "s1"),
            ('"s" + 1.5', "s1.5"),
            ('"s" + "s"', "ss"),
            ('"s" + true', "strue"),
            ("true + 1", None),
            ("true + 1.5", None),
            ('false + "s"', "falses"),
            ("true + true", None),
        ],
    )
    def test_each_cell_of_the_plus_table_of_the_data_types_page(
        self, expression: str, value: object
    ) -> None:
        if value is None:
            assert refusal(expression) == ["TypeError"]
        else:
            assert evaluate(expression) == value

    def test_an_integer_beyond_64_bits_is_a_value_error(self) -> None:
        assert refusal("9223372036854775807 + 1") == ["ValueError"]
        assert refusal("-9223372036854775807 - 2") == ["ValueError"]
        assert refusal("9223372036854775807 * 2") == ["ValueError"]


class TestComparison:
    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ("1 < 2 and 2 <= 2 and 3 > 2 and 3 >= 3", True),
            ('"a" < "b"', True),
            ("1 == 1.0", True),
            ("1 == true", False),
            ('1 == "1"', False),
            ("null == null", True),
            ("null == 0", False),
            ("null != 1", True),
            ("[1, [2]] == [1, [2]]", True),
            ("[true] == [1]", False),
            ("m == m", True),
            ('"a" in m', True),
            ('"b" in m', False),
            ("1 in [1, 2]", True),
            ("1 in [true]", False),
            ("not(3 in [1, 2])", True),
            ('[1] in [[1], "x"]', True),
        ],
    )
    def test_value(self, expression: str, value: bool) -> None:
        assert evaluate(expression, m={"a": [1]}) is value

    @pytest.mark.parametrize(
        "expression",
        ['1 < "a"', "null < 1", "[1] < [2]", "true < false", '"a" in "abc"', "1 in m"],
    )
    def test_what_cannot_be_compared_is_a_type_error(self, expression: str) -> None:
        assert refusal(expression, m={}) == ["TypeError"]


class TestLogic:
    def test_words_are_lower_or_upper_case(self) -> None:
        assert evaluate("true AND NOT false OR false") is True

    def test_the_right_operand_is_not_evaluated_when_the_left_decides(self) -> None:
        assert evaluate("false and 1 / 0 == 1") is False
        assert evaluate("true or 1 / 0 == 1") is True

    def test_operands_must_be_bool(self) -> None:
        assert refusal("1 and true") == ["TypeError"]
        assert refusal("true and null") == ["TypeError"]
        assert refusal('false or "x"') == ["TypeError"]


class TestPrecedence:
    @pytest.mark.parametrize(
        ("expression", "grouped"),
        [
            ("not a and b", "(not a) and b"),
            ("a or b and c", "a or (b and c)"),
            ("not a == b", "(not a) == b"),
            ("a + b < c", "(a + b) < c"),
            ("a in b == c", "(a in b) == c"),
            ("-a * b", "(-a) * b"),
            ("-a.b[0]", "-(a.b[0])"),
            ("a // b % c", "(a // b) % c"),
        ],
    )
    def test_as_documented(self, expression: str, grouped: str) -> None:
        assert parse(expression) == parse(grouped)


class TestAccess:
    def test_keys_and_indexes_chain(self) -> None:
        assert evaluate('m.a[1]["special!key"]', m={"a": [0, {"special!key": 5}]}) == 5

    def test_a_key_may_be_a_word_of_the_language(self) -> None:
        assert evaluate("m.in + m.not + m.or", m={"in": 1, "not": 2, "or": 3}) == 6

    def test_wrong_kinds_of_keys_are_type_errors(self) -> None:
        assert refusal("m[0]", m={"0": 1}) == ["TypeError"]
        assert refusal('l["0"]', l=[1]) == ["TypeError"]
        assert refusal("l[1.0]", l=[1, 2]) == ["TypeError"]
        assert refusal("l[true]", l=[1, 2]) == ["TypeError"]
        assert refusal("n.x", n=None) == ["TypeError"]
        assert refusal("s[0]", s="abc") == ["TypeError"]

    def test_a_variable_hides_the_module_of_its_name(self) -> None:
        source = """
            - set: {assign: [{map: {get: 1}}, {list: [1]}]}
            - give: {return: ["${map.get}", "${list.concat(list, 2)}", "${map.get(map, 'get')}"]}
        """
        assert result(source) == [1, [1, 2], 1]


class TestRefused:
    @pytest.mark.parametrize(
        ("expression", "instead"),
        [
            ("a not in b", "not(x in y)"),
            ('{"a": 1}', "map in YAML"),
            ("a = b", "=="),
            ("a && b", "and"),
            ("!a", "not"),
            ("a ? b : c", ""),
            ("${a}", "without ${"),
            ('"abc', "closing quote"),
            ("(a", "missing"),
            ("a.", "missing"),
            ("f(a)(b)", "name(arguments)"),
            (r'"\d"', r"\\\\d"),
            ("9223372036854775808", "double("),
            ("1e999", "smaller"),
            ("", "${expression}"),
            ("a" * 401, "shorter"),
            ("(" * 150 + "1" + ")" * 150, ""),
        ],
    )
    def test_syntax_says_what_to_write(self, expression: str, instead: str) -> None:
        if expression.startswith("((("):
            assert parse(expression) == parse("1")  # brackets alone are no depth
            return
        with pytest.raises(BadExpression) as raised:
            parse(expression)
        assert instead in raised.value.instead

    def test_400_characters_are_allowed(self) -> None:
        assert parse('"' + "a" * 398 + '"')


class TestUnparse:
    def test_writes_only_the_brackets_that_are_needed(self) -> None:
        assert unparse(parse("((a + (b * c))) - (d - e)")) == "a + b * c - (d - e)"


class TestUnassigned:
    def test_reading_a_variable_that_no_step_has_assigned_yet_is_an_error(self) -> None:
        source = """
            - skip: {switch: [{condition: true, next: read}]}
            - set: {assign: [{x: 1}]}
            - read: {return: "${x}"}
        """
        assert failure(source)["tags"] == ["KeyError", "LookupError"]
