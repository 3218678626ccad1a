"""The thirty things that the published local engine gets wrong, each as the language has it."""

from __future__ import annotations

import asyncio

from workflows_engine import Engine, HttpConnectionFailed, virtual

from engine_tests.support import (
    Web,
    caught,
    drive,
    evaluate,
    faults,
    result,
    warnings,
    workflow,
)


class TestB1:
    def test_b1_01_switch_runs_the_first_match_only(self) -> None:
        source = """
            - init:
                assign: [{log: ""}]
            - choose:
                switch:
                  - condition: ${1 == 1}
                    assign: [{log: "${log + \\"first\\"}"}]
                  - condition: true
                    assign: [{log: "${log + \\"+default\\"}"}]
            - give:
                return: ${log}
        """
        assert result(source) == "first"

    def test_b1_02_failing_assign_holds_no_lock(self) -> None:
        source = """
            - attempt:
                try:
                  steps:
                    - bad:
                        assign: [{x: "${1 / 0}"}]
                except:
                  as: e
                  steps:
                    - good:
                        assign: [{y: 1}]
            - after:
                assign: [{z: 2}]
            - give:
                return: ${z}
        """
        assert result(source) == 2
        assert result(source) == 2

    def test_b1_03_literals_null_true_false(self) -> None:
        assert evaluate("[null, true, false, True, FALSE]") == [None, True, False, True, False]

    def test_b1_04_if_is_a_function(self) -> None:
        assert evaluate('if(1 < 2, "a", "b")') == "a"
        assert evaluate('if(null, "a", "b")') == "b"

    def test_b1_05_map_get_of_a_missing_key_is_null(self) -> None:
        assert evaluate('map.get(m, "nope")', m={"a": 1}) is None

    def test_b1_06_return_null_returns(self) -> None:
        for value in ("null", "${null}"):
            source = f"""
                - stop:
                    return: {value}
                - never:
                    return: "went on"
            """
            assert result(source) is None

    def test_b1_07_missing_key_is_a_catchable_key_error(self) -> None:
        for expression in ("m.x", 'm["x"]', "m.code"):
            step = f"assign: [{{m: {{}}}}, {{x: '${{{expression}}}'}}]"
            error = caught(step)
            assert isinstance(error, dict)
            assert error["tags"] == ["KeyError", "LookupError"]
            assert "code" not in error

    def test_b1_08_http_errors_are_tagged_http_error(self) -> None:
        error = caught('{call: http.get, args: {url: "http://a.b/"}}', http=Web((404, {"a": 1})))
        assert isinstance(error, dict)
        assert error["tags"] == ["HttpError"]
        assert error["code"] == 404
        assert error["body"] == {"a": 1}
        assert error["headers"] == {"Content-Type": "application/json"}

    def test_b1_09_refused_connection_is_a_connection_failed_error(self) -> None:
        web = Web(HttpConnectionFailed("connection refused"))
        error = caught('{call: http.get, args: {url: "http://a.b/"}}', http=web)
        assert isinstance(error, dict)
        assert error["tags"] == ["ConnectionFailedError"]

    RETRY = """
        main:
          steps:
            - attempt:
                try:
                  call: http.get
                  args: {url: "http://a.b/"}
                retry:
                  predicate: ${http.default_retry_predicate}
                  max_retries: %d
                  backoff: {initial_delay: %s, max_delay: %s, multiplier: %s}
                except:
                  as: e
                  steps:
                    - over:
                        return: ${sys.now()}
    """

    def test_b1_10_initial_delay_is_the_first_delay(self) -> None:
        times = []
        web = Web(lambda _: times.append(asyncio.get_running_loop().time()) or (503, None))
        drive(self.RETRY % (1, 4, 60, 2), http=web)
        assert times == [0, 4]

    def test_b1_11_max_delay_caps_the_delay_and_does_not_stop(self) -> None:
        times = []
        web = Web(lambda _: times.append(asyncio.get_running_loop().time()) or (503, None))
        drive(self.RETRY % (4, 2, 3, 2), http=web)
        assert times == [0, 2, 5, 8, 11]

    def test_b1_12_raised_text_is_the_error_itself(self) -> None:
        source = """
            main:
              steps:
                - attempt:
                    try:
                      raise: "broken"
                    retry:
                      predicate: ${http.default_retry_predicate}
                      max_retries: 2
                      backoff: {initial_delay: 1, max_delay: 1, multiplier: 1}
                    except:
                      as: e
                      steps:
                        - give: {return: "${e}"}
        """
        assert result(source) == "broken"

    def test_b1_13_default_predicate_is_false_without_a_code(self) -> None:
        source = """
            main:
              steps:
                - attempt:
                    try:
                      raise: {message: "no code here"}
                    retry: ${http.default_retry}
                    except:
                      as: e
                      steps:
                        - give: {return: "${sys.now()}"}
        """
        execution = drive(source)
        assert execution.value == execution.start_time  # no retry, so no wait

    def test_b1_14_except_variables_are_local(self) -> None:
        source = """
            - attempt:
                try: {raise: "x"}
                except:
                  as: e
                  steps:
                    - keep:
                        assign: [{inside: 1}]
            - give:
                return: ${inside}
        """
        assert "'inside' exists only inside" in faults(source)[0]
        assert "'e' exists only inside" in faults(source.replace("${inside}", "${e}"))[0]

    def test_b1_15_subworkflow_can_be_called_in_an_expression(self) -> None:
        source = """
            main:
              steps:
                - give: {return: "${1 + add(2, add(3, 4))}"}
            add:
              params: [a, b]
              steps:
                - wait: {call: sys.sleep, args: {seconds: 1}}
                - give: {return: "${a + b}"}
        """
        assert result(source) == 10

    def test_b1_16_braces_and_lines_inside_an_expression(self) -> None:
        source = """
            - set:
                assign:
                  - name: "world"
                  - braces: '${"{hello} " + name + " }"}'
                  - lines: ${
                      "SELECT * FROM " +
                      name
                      }
                  - block: |
                      ${"a" +
                        "b"}
            - give:
                return: ["${braces}", "${lines}", "${block}"]
        """
        assert result(source) == ["{hello} world }", "SELECT * FROM world", "ab"]

    def test_b1_17_text_with_an_expression_in_it_stays_text(self) -> None:
        assert result('- give: {return: "costs ${unknown}"}') == "costs ${unknown}"
        source = """
            - set:
                assign: [{x: "world"}]
            - give:
                return: "hello-${x}"
        """
        assert "not replaced" in warnings(source)[0]

    def test_b1_18_oidc_and_oauth2_attach_a_token(self) -> None:
        for kind, token in (("OIDC", "Bearer local-oidc"), ("OAuth2", "Bearer local-oauth2")):
            web = Web((200, {}))
            drive(
                f'- a: {{call: http.get, args: {{url: "http://a.b/", auth: {{type: {kind}}}}}}}',
                http=web,
            )
            assert web.requests[0]["headers"]["Authorization"] == token
            assert web.requests[0]["auth"] == {"type": kind}

    def test_b1_19_events_hash_and_experimental_executions_exist(self) -> None:
        source = """
            - open:
                call: events.create_callback_endpoint
                result: callback
            - child:
                call: experimental.executions.run
                args: {workflow_id: child, argument: {n: 20}}
                result: answer
            - give:
                return:
                  - ${text.match_regex(callback.url, "/callbacks/")}
                  - ${base64.encode(hash.compute_checksum(text.encode("abc"), "MD5"))}
                  - ${answer}
        """

        async def main() -> object:
            engine = Engine()
            engine.deploy("w", workflow(source))
            child = "main: {params: [a], steps: [{s: {return: '${a.n + 1}'}}]}"
            engine.deploy("child", workflow(child))
            return (await engine.create("w").wait()).value

        assert virtual.run(main) == [True, "kAFQmDzST7DWlj99KOF/cg==", 21]
