"""The standard library's plain functions, by position and by name, with their errors."""

from __future__ import annotations

import base64

import pytest

from engine_tests.support import drive, evaluate, faults, refusal, result

RFC_2202_DATA = "what do ya want for nothing?"


class TestConversions:
    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ('int("42")', 42),
            ('int("-7")', -7),
            ("int(2.7)", 2),
            ("int(-2.7)", -2),
            ("int(5)", 5),
            ('double("2.7")', 2.7),
            ("double(1)", 1.0),
            ("string(1.7)", "1.7"),
            ("string(12)", "12"),
            ("string(true)", "true"),
            ('string("x")', "x"),
            ('bool("true")', True),
            ("bool(false)", False),
            ('len("héé")', 3),
            ("len([1, 2])", 2),
            ("len(m)", 1),
            ("keys(m)", ["a"]),
        ],
    )
    def test_value(self, expression: str, value: object) -> None:
        got = evaluate(expression, m={"a": 1})
        assert (got, type(got)) == (value, type(value))

    @pytest.mark.parametrize(
        ("expression", "tag"),
        [
            ('int("x")', "ValueError"),
            ('int("1_000")', "ValueError"),
            ('int(" 1")', "ValueError"),
            ('int("99999999999999999999")', "ValueError"),
            ("int(1e300)", "ValueError"),
            ("int(null)", "TypeError"),
            ("int([1])", "TypeError"),
            ('double("nan")', "ValueError"),
            ("double(true)", "TypeError"),
            ("string(null)", "TypeError"),
            ("string(m)", "TypeError"),
            ('bool("yes")', "ValueError"),
            ("bool(1)", "TypeError"),
            ("len(1)", "TypeError"),
            ("keys([1])", "TypeError"),
            ('if("x", 1, 2)', "TypeError"),
        ],
    )
    def test_error(self, expression: str, tag: str) -> None:
        assert refusal(expression, m={}) == [tag]


class TestCollections:
    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ("list.concat(l, 3)", [1, 2, 3]),
            ("list.concat(l, [3])", [1, 2, [3]]),
            ("list.prepend(l, 0)", [0, 1, 2]),
            ('map.get(m, "a")', {"b": 1}),
            ('map.get(m, "x", 5)', 5),
            ('map.get(m, ["a", "b"])', 1),
            ('map.get(m, ["a", "x"], "d")', "d"),
            ('map.get(m, ["a", "b", "c"])', None),
            ('map.delete(m, "a")', {"z": 2}),
            ('map.delete(m, "nope") == m', True),
            ("map.merge(m, n)", {"a": {"c": 3}, "z": 2, "y": 1}),
            ("map.merge_nested(m, n)", {"a": {"b": 1, "c": 3}, "z": 2, "y": 1}),
        ],
    )
    def test_value(self, expression: str, value: object) -> None:
        variables = {"l": [1, 2], "m": {"a": {"b": 1}, "z": 2}, "n": {"a": {"c": 3}, "y": 1}}
        assert evaluate(expression, **variables) == value

    @pytest.mark.parametrize("looked_into", ["null", "1", '"text"', "true", "[1]"])
    @pytest.mark.parametrize("keys", ['"a"', '["a"]', '["a", "b"]'])
    def test_map_get_of_what_is_no_map_is_null(self, looked_into: str, keys: str) -> None:
        assert evaluate(f"map.get({looked_into}, {keys})") is None

    @pytest.mark.parametrize(
        "expression",
        [
            "list.concat(1, 2)",
            "map.get(null, 1)",
            "map.get(m, 1)",
            'map.delete([], "a")',
            "map.merge(m, null)",
            "map.merge_nested([], m)",
            "map.get(m, [1])",
        ],
    )
    def test_type_error(self, expression: str) -> None:
        assert refusal(expression, m={"a": 1}) == ["TypeError"]


class TestMath:
    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ("math.abs(-3)", 3),
            ("math.abs(-1.5)", 1.5),
            ("math.floor(2.9)", 2),
            ("math.floor(-2.1)", -3),
            ("math.floor(4)", 4),
            ("math.max(1, 2.5)", 2.5),
            ("math.min(1, 2.5)", 1),
        ],
    )
    def test_value(self, expression: str, value: object) -> None:
        assert evaluate(expression) == value

    def test_error(self) -> None:
        assert refusal('math.max("a", "b")') == ["TypeError"]
        assert refusal("math.floor(1e300)") == ["ValueError"]
        assert refusal("math.abs(null)") == ["TypeError"]


class TestText:
    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ('text.decode(text.encode("hé"))', "hé"),
            ('text.decode(text.encode("hé", "ISO-8859-1"), "ISO-8859-1")', "hé"),
            ('text.find_all("banana", "an")', [1, 3]),
            (
                'text.find_all_regex("a1b22", "[0-9]+")',
                [{"index": 1, "match": "1"}, {"index": 3, "match": "22"}],
            ),
            ('text.match_regex("hello", "^h.*o$")', True),
            ('text.match_regex("hello", "ell")', True),
            ('text.match_regex("hello", "^ell")', False),
            ('text.replace_all("a.b.c", ".", "-")', "a-b-c"),
            ('text.split("a,b,c", ",")', ["a", "b", "c"]),
            ('text.substring("hello", 1, 3)', "el"),
            ('text.to_lower("ÀB")', "àb"),
            ('text.to_upper("àb")', "ÀB"),
            ('text.url_encode("a b/é")', "a%20b%2F%C3%A9"),
            ('text.url_encode_plus("a b")', "a+b"),
            ('text.url_decode("a%20b+c")', "a b c"),
        ],
    )
    def test_value(self, expression: str, value: object) -> None:
        assert evaluate(expression) == value

    @pytest.mark.parametrize(
        ("expression", "tag"),
        [
            ('text.decode("x")', "TypeError"),
            ("text.encode(1)", "TypeError"),
            ('text.encode("x", "utf-9")', "ValueError"),
            ('text.match_regex("x", "(")', "ValueError"),
            ('text.match_regex("x", "(?=x)")', "ValueError"),
            (r'text.match_regex("xx", "(x)\\1")', "ValueError"),
            ('text.substring("abc", 2, 9)', "ValueError"),
            ('text.substring("abc", 2, 1)', "ValueError"),
            ('text.substring("abc", "0", 1)', "TypeError"),
            ("text.split(null, 1)", "TypeError"),
        ],
    )
    def test_error(self, expression: str, tag: str) -> None:
        assert refusal(expression) == [tag]


class TestEncodings:
    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ('json.decode("[1, {\\"a\\": null}]")', [1, {"a": None}]),
            ('json.decode(text.encode("{}"))', {}),
            ("json.encode_to_string(m)", '{"a":[1,2.5,true,null,"é"]}'),
            ("text.decode(json.encode(m))", '{"a":[1,2.5,true,null,"é"]}'),
            ("json.encode_to_string([1], true)", "[\n    1\n]"),
            ('base64.encode(text.encode("hi?"))', "aGk/"),
            ('base64.encode(text.encode("h"), false)', "aA"),
            ('text.decode(base64.decode("aGk/"))', "hi?"),
            ('text.decode(base64.decode("aA", false))', "h"),
            (
                'base64.encode(hash.compute_checksum(text.encode(""), "SHA1"))',
                "2jmj7l5rSw0yVb/vlWAYkK/YBwk=",
            ),
            ('len(base64.encode(hash.compute_checksum(text.encode("x"), "SHA512")))', 88),
        ],
    )
    def test_value(self, expression: str, value: object) -> None:
        assert evaluate(expression, m={"a": [1, 2.5, True, None, "é"]}) == value

    @pytest.mark.parametrize(
        ("expression", "tag"),
        [
            ('json.decode("{oops")', "ValueError"),
            ('json.decode("NaN")', "ValueError"),
            ('json.decode("' + "[" * 300 + '")', "ValueError"),
            ("json.decode(1)", "TypeError"),
            ('json.encode(text.encode("x"))', "ValueError"),
            ('base64.decode("***")', "ValueError"),
            ('base64.decode("aA")', "ValueError"),
            ('hash.compute_checksum(text.encode("x"), "CRC")', "ValueError"),
            ('hash.compute_hmac(1, "x", "MD5")', "TypeError"),
        ],
    )
    def test_error(self, expression: str, tag: str) -> None:
        assert refusal(expression) == [tag]

    def test_hmac_as_in_rfc_2202(self) -> None:
        got = evaluate(
            'base64.encode(hash.compute_hmac(text.encode("Jefe"), text.encode(d), "SHA1"))',
            d=RFC_2202_DATA,
        )
        assert base64.b64decode(got).hex() == "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"

    def test_json_that_nests_too_deep_is_an_error_not_a_crash(self) -> None:
        source = """
            - set: {assign: [{s: "["}]}
            - grow: {for: {value: v, range: [1, 15], steps: [{g: {assign: [{s: "${s + s}"}]}}]}}
            - decode: {return: "${json.decode(s)}"}
        """
        execution = drive(source)
        assert execution.state == "FAILED"
        assert execution.failure["tags"] == ["ValueError"]

    def test_half_characters_do_not_reach_the_result(self) -> None:
        got = evaluate(r'json.decode("[\"\\ud800x\", \"\\ud83d\\ude00\"]")')
        assert got == ["\ufffdx", "😀"]


class TestTimeAndSystem:
    def test_time(self) -> None:
        assert evaluate("time.format(0)") == "1970-01-01T00:00:00.000000Z"
        assert evaluate("time.format(1.5)") == "1970-01-01T00:00:01.500000Z"
        assert evaluate('time.format(0, "America/New_York")') == "1969-12-31T19:00:00.000000-05:00"
        assert evaluate('time.parse("2026-01-01T00:00:00Z")') == 1767225600.0
        assert evaluate('time.parse("2026-01-01T01:00:00.5+01:00")') == 1767225600.5
        assert refusal('time.parse("yesterday")') == ["ValueError"]
        assert refusal('time.parse("2026-01-01T00:00:00")') == ["ValueError"]
        assert refusal('time.format(0, "Nowhere/City")') == ["ValueError"]
        assert refusal("time.format(1e300)") == ["ValueError"]
        assert refusal('time.format("0")') == ["TypeError"]

    def test_now_moves_with_sleep(self) -> None:
        source = """
            - a: {assign: [{t: "${sys.now()}"}]}
            - b: {call: sys.sleep, args: {seconds: 90.5}}
            - c: {call: sys.sleep_until, args: {time: "${time.format(t + 100)}"}}
            - d: {call: sys.sleep_until, args: {time: "${time.format(t + 200)}"}}
            - e: {call: sys.sleep_until, args: {time: "1970-01-01T00:00:00Z"}}
            - f: {return: "${sys.now() - t}"}
        """
        assert result(source) == 200

    def test_sleep_refuses_what_is_no_time(self) -> None:
        for seconds, tag in (("-1", "ValueError"), ('"1"', "TypeError"), ("1e9", "ValueError")):
            source = f"- a: {{call: sys.sleep, args: {{seconds: '${{{seconds}}}'}}}}"
            assert drive(source).failure["tags"] == [tag]

    def test_log_reaches_the_sink_with_its_severity(self) -> None:
        lines: list[object] = []
        source = """
            - a: {call: sys.log, args: {data: {x: 1}}}
            - b: {call: sys.log, args: {text: hello, severity: warning}}
            - c: {call: sys.log, args: {json: {k: "${text.encode(\\"hi\\")}"}, severity: ERROR}}
        """
        drive(
            source, on_log=lambda execution, severity, payload: lines.append((severity, payload))
        )
        assert lines == [("DEFAULT", {"x": 1}), ("WARNING", "hello"), ("ERROR", {"k": "aGk="})]

    @pytest.mark.parametrize("args", ["{}", "{data: 1, text: x}", "{data: 1, severity: LOUD}"])
    def test_log_refuses_wrong_arguments(self, args: str) -> None:
        execution = drive(f"- a: {{call: sys.log, args: {args}}}")
        assert execution.failure["tags"][0] in ("TypeError", "ValueError")

    def test_the_built_in_environment(self) -> None:
        source = """
            - a:
                return:
                  - ${sys.get_env("GOOGLE_CLOUD_PROJECT_ID")}
                  - ${sys.get_env("GOOGLE_CLOUD_PROJECT_NUMBER")}
                  - ${sys.get_env("GOOGLE_CLOUD_LOCATION")}
                  - ${sys.get_env("GOOGLE_CLOUD_WORKFLOW_ID")}
                  - ${sys.get_env("GOOGLE_CLOUD_WORKFLOW_REVISION_ID")}
                  - ${len(sys.get_env("GOOGLE_CLOUD_WORKFLOW_EXECUTION_ID"))}
        """
        value = result(source, project="p", project_number="7", location="l")
        assert value[:4] == ["p", "7", "l", "w"]
        assert value[4].startswith("000001-")
        assert value[5] == 36

    def test_uuids_differ_and_follow_the_seed(self) -> None:
        source = "- a: {return: ['${uuid.generate()}', '${uuid.generate()}']}"
        first = result(source, seed=1)
        assert first[0] != first[1]
        assert result(source, seed=1) == first
        assert result(source, seed=2) != first


class TestByName:
    def test_a_call_step_names_the_arguments(self) -> None:
        source = """
            - a: {call: text.split, args: {separator: ",", source: "a,b"}, result: x}
            - b: {call: map.get, args: {map: {k: 1}, keys: k}, result: y}
            - c: {call: sys.get_env, args: {name: A}, result: z}
            - d: {call: uuid.generate, result: u}
            - e: {return: ["${x}", "${y}", "${z}", "${len(u)}"]}
        """
        assert result(source, env={"A": "b"}) == [["a", "b"], 1, "b", 36]

    def test_a_call_step_may_give_the_arguments_as_a_list(self) -> None:
        """Google's page of sys.log: args: [data, severity, text]."""
        lines = []
        source = """
            main:
              steps:
                - a: {call: sys.log, args: ["${null}", ERROR, {k: 1}]}
                - b: {call: text.split, args: ["a,b", ","], result: x}
                - c: {call: two, args: ["${x}"], result: y}
                - d: {return: "${y}"}
            two:
              params: [first, {second: 2}]
              steps: [{s: {return: ["${first}", "${second}"]}}]
        """
        assert result(source, on_log=lambda *line: lines.append(line[1:])) == [["a", "b"], 2]
        assert lines == [("ERROR", '{"k": 1}')]

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            ("- a: {call: text.split, args: {source: x}}", "needs the argument 'separator'"),
            (
                "- a: {call: text.split, args: {source: x, seperator: y}}",
                "write separator instead",
            ),
            ("- a: {return: '${text.split(1)}'}", "takes 2 arguments, not 1"),
            ("- a: {return: '${map.get(1, 2, 3, 4)}'}", "takes 2 to 3 arguments, not 4"),
            ("- a: {return: '${uuid.generate(1)}'}", "takes 0 arguments"),
            ("- a: {return: '${http.get(1)}'}", "blocks and cannot be called in an expression"),
            ("- a: {return: '${sys.log(1)}'}", "blocks"),
            ("- a: {return: '${text.splt(1, 2)}'}", "write text.split instead"),
            ("- a: {return: '${text.split}'}", "is not called"),
            ("- a: {return: '${text.nothing}'}", "the module text has no"),
            ("- a: {return: '${foo(1)}'}", "no function 'foo'"),
        ],
    )
    def test_refused(self, source: str, message: str) -> None:
        assert message in "\n".join(faults(source))


class TestRegularExpressions:
    """Google's pages of text.*_regex: the syntax is RE2's."""

    def test_a_hostile_pattern_takes_linear_time(self) -> None:
        text = "a" * 5000
        assert evaluate('text.match_regex(t, "^(a+)+$")', t=text + "!") is False

    def test_of_matches_that_start_together_the_longest_is_found(self) -> None:
        got = evaluate('text.find_all_regex("Ébcabc", "a|ab|abc")')
        assert got == [{"index": 3, "match": "abc"}]

    @pytest.mark.parametrize("pattern", ["(?=a)", "(?<!a)b", "(a)\\\\1", "(", "a{9999}"])
    def test_what_re2_has_not_is_a_value_error(self, pattern: str) -> None:
        assert refusal(f'text.match_regex("a", "{pattern}")') == ["ValueError"]


class TestLongIntegers:
    @pytest.mark.parametrize("digits", [20, 400, 5000])
    def test_no_number_of_digits_is_more_than_a_value_error(self, digits: int) -> None:
        assert refusal("int(t)", t="9" * digits) == ["ValueError"]

    @pytest.mark.parametrize("digits", [400, 5000])
    def test_json_with_a_number_beyond_a_double_is_a_value_error(self, digits: int) -> None:
        assert refusal("json.decode(t)", t="9" * digits) == ["ValueError"]

    @pytest.mark.parametrize("digits", [400, 5000])
    def test_a_source_with_such_a_number_is_refused(self, digits: int) -> None:
        assert "too large" in faults("- a: {return: " + "9" * digits + "}")[0]
