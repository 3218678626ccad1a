"""Rows 20 to 30 of the list that test_b1.py begins."""

from __future__ import annotations

import asyncio

import pytest
from workflows_engine import ApiError, Engine, virtual

from engine_tests.support import (
    Web,
    drive,
    evaluate,
    failure,
    refusal,
    result,
    workflow,
)


class TestB1:
    def test_b1_20_connectors_poll_their_operation(self) -> None:
        running = {"name": "operations/build/p/1", "metadata": {"build": {"id": "1"}}}
        done = {**running, "done": True, "response": {"status": "SUCCESS"}}
        web = Web((200, running), (200, running), (200, done))
        source = """
            - build:
                call: googleapis.cloudbuild.v1.projects.triggers.run
                args:
                  projectId: p
                  triggerId: t
                  body: {substitutions: {_A: b}}
                  connector_params:
                    polling_policy: {initial_delay: 10, multiplier: 2, max_delay: 60}
                result: operation
            - give:
                return: ["${operation.response.status}", "${sys.now()}"]
        """
        execution = drive(source, http=web)
        status, at = execution.value
        assert status == "SUCCESS"
        assert at - (execution.start_time or 0) == 30
        assert [r["url"].split(".com")[1] for r in web.requests] == [
            "/v1/projects/p/triggers/t:run",
            "/v1/operations/build/p/1",
            "/v1/operations/build/p/1",
        ]
        assert web.requests[0]["body"] == {"substitutions": {"_A": "b"}}

    def test_b1_21_bytes_stay_bytes(self) -> None:
        source = """
            - set:
                assign:
                  - raw: ${text.encode("h\\u00e9")}
                  - copy: ${raw}
            - give:
                return: ["${base64.encode(copy)}", "${text.decode(copy)}"]
        """
        assert result(source) == ["aMOp", "hé"]
        assert failure('- give: {return: "${text.encode(\\"a\\")}"}')["tags"] == ["TypeError"]

    def test_b1_22_nested_assignment_creates_maps(self) -> None:
        source = """
            - set:
                assign:
                  - m: {a: 1}
                  - m.y.z: 2
                  - m.y["w"].v: 3
            - give: {return: "${m}"}
        """
        assert result(source) == {"a": 1, "y": {"z": 2, "w": {"v": 3}}}

    def test_b1_23_default_keeps_zero(self) -> None:
        assert evaluate("default(0, 5)") == 0
        assert evaluate('default("", "x")') == ""
        assert evaluate("default(false, true)") is False
        assert evaluate("default(null, 5)") == 5

    def test_b1_24_negative_index_is_an_index_error(self) -> None:
        assert refusal("l[-1]", l=[1, 2]) == ["IndexError", "LookupError"]
        assert refusal("l[2]", l=[1, 2]) == ["IndexError", "LookupError"]

    def test_b1_25_next_beside_try_is_followed(self) -> None:
        source = """
            - attempt:
                try:
                  call: sys.sleep
                  args: {seconds: 1}
                retry: ${http.default_retry}
                next: there
            - skipped: {return: "fell through"}
            - there: {return: "jumped"}
        """
        assert result(source) == "jumped"

    def test_b1_26_missing_environment_variable_is_null(self) -> None:
        assert evaluate('sys.get_env("NOT_SET")') is None
        assert evaluate('sys.get_env("NOT_SET", "other")') == "other"
        assert result("- give: {return: '${sys.get_env(\"A\")}'}", env={"A": "b"}) == "b"

    def test_b1_27_keys_are_the_keys_only(self) -> None:
        source = """
            - init:
                assign: [{m: {a: 1}}, {seen: []}]
            - run:
                parallel:
                  shared: [seen]
                  for:
                    value: v
                    in: [1, 2]
                    steps:
                      - keep:
                          assign: [{seen: "${list.concat(seen, v)}"}]
            - give: {return: "${keys(m)}"}
        """
        assert result(source) == ["a"]

    def test_b1_28_create_is_asynchronous_and_main_gets_the_argument(self) -> None:
        source = workflow("""
            main:
              params: [args]
              steps:
                - wait: {call: sys.sleep, args: {seconds: 60}}
                - give: {return: "${args.n}"}
        """)

        async def main() -> None:
            engine = Engine()
            engine.deploy("w", source)
            execution = engine.create("w", {"n": 7}, {"run": "a"})
            assert execution.state == "ACTIVE"
            assert engine.list("w", 'state="ACTIVE" AND labels.run="a"') == [execution]
            await execution.wait()
            assert (execution.state, execution.result) == ("SUCCEEDED", "7")
            other = engine.create("w", {"n": 1})
            engine.cancel(other.name)
            assert other.state == "CANCELLED"
            with pytest.raises(ApiError):
                engine.get("nothing")

        virtual.run(main)

    def test_b1_29_limits_steps_memory_and_virtual_time(self) -> None:
        execution = drive("- wait: {call: sys.sleep, args: {seconds: 86400}}")
        assert (execution.end_time or 0) - (execution.start_time or 0) == 86400
        assert execution.steps == 1
        forever = "- a: {assign: [{x: 1}], next: a}"
        assert failure(forever)["tags"] == ["ResourceLimitError"]
        grow = """
            - init: {assign: [{s: "0123456789abcdef"}, {l: []}]}
            - more:
                assign: [{s: "${s + s}"}, {l: "${list.concat(l, s)}"}]
                next: more
        """
        assert "memory" in failure(grow)["message"]

    def test_b1_30_parallel_branches_are_isolated_and_limited(self) -> None:
        busy: list[int] = []
        peak: list[int] = []

        async def slow(_: object) -> tuple[int, None]:
            busy.append(1)
            peak.append(len(busy))
            await asyncio.sleep(10)
            busy.pop()
            return 200, None

        source = """
            - run:
                parallel:
                  concurrency_limit: 3
                  for:
                    value: v
                    in: [1, 2, 3, 4, 5, 6]
                    steps:
                      - mine: {assign: [{own: "${v}"}]}
                      - wait: {call: http.get, args: {url: "http://a.b/"}}
                      - check:
                          switch:
                            - condition: ${own != v}
                              raise: "another branch wrote my variable"
        """
        execution = drive(source, http=Web(slow))
        assert execution.state == "SUCCEEDED"
        assert max(peak) == 3
        assert (execution.end_time or 0) - (execution.start_time or 0) == 20
