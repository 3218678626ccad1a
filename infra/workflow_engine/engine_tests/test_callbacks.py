"""Callbacks: kept when early, 429 when full, 404 after the end, timeouts, who may wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from workflows_engine import Engine, Execution

from engine_tests.support import drive, failure, faults, result

TWO = """
- open: {call: events.create_callback_endpoint, args: {http_callback_method: POST}, result: cb}
- busy: {call: sys.sleep, args: {seconds: 100}}
- first: {call: events.await_callback, args: {callback: "${cb}"}, result: a}
- second: {call: events.await_callback, args: {callback: "${cb}", timeout: 1000}, result: b}
- give: {return: ["${a.http_request.body}", "${b.http_request.body}"]}
"""


def url_of(execution: Execution) -> str:
    (callback,) = execution.callbacks
    return f"{execution.engine.base_url}/v1/{execution.name}/callbacks/{callback.id}"


class TestSending:
    def test_early_is_kept_a_second_gets_429_and_after_the_end_404(self) -> None:
        statuses = []

        async def send(engine: Engine, execution: Execution) -> None:
            await asyncio.sleep(50)
            url = url_of(execution)
            statuses.append(engine.callback(url, {"n": 1}))
            statuses.append(engine.callback(url, {"n": 2}))
            await asyncio.sleep(100)  # the first has been taken, the second await waits
            statuses.append(engine.callback(url, {"n": 3}))
            await execution.wait()
            statuses.append(engine.callback(url, {"n": 4}))

        execution = drive(TWO, meanwhile=send)
        assert statuses == [200, 429, 200, 404]
        assert execution.value == [{"n": 1}, {"n": 3}]

    def test_two_in_one_moment_while_one_waits(self) -> None:
        async def send(engine: Engine, execution: Execution) -> None:
            await asyncio.sleep(150)
            url = url_of(execution)
            assert [engine.callback(url, n) for n in (1, 2, 3)] == [200, 200, 429]

        assert drive(TWO, meanwhile=send).value == [1, 2]

    def test_the_wrong_method_or_a_stranger_is_refused(self) -> None:
        async def send(engine: Engine, execution: Execution) -> None:
            await asyncio.sleep(1)
            url = url_of(execution)
            assert engine.callback(url, method="GET") == 405
            assert engine.callback(url + "x") == 404
            assert engine.callback("http://elsewhere/") == 404
            assert engine.callback(url.replace(execution.id, "0" * 36)) == 404
            execution.cancel()
            assert engine.callback(url) == 404

        assert drive(TWO, meanwhile=send).state == "CANCELLED"

    def test_the_payload_has_the_documented_shape(self) -> None:
        source = """
            - open:
                call: events.create_callback_endpoint
                args: {http_callback_method: PUT}
                result: cb
            - wait: {call: events.await_callback, args: {callback: "${cb}"}, result: r}
            - give: {return: "${r}"}
        """

        async def send(engine: Engine, execution: Execution) -> None:
            await asyncio.sleep(5)
            engine.callback(url_of(execution), {"a": 1}, "put", {"X-A": "b"}, {"q": "1"})

        value: dict[str, Any] = drive(source, meanwhile=send).value
        assert set(value) == {"http_request", "received_time", "type"}
        assert value["type"] == "HTTP"
        assert value["received_time"] == "2026-01-01T00:00:05Z"
        url = value["http_request"].pop("url")
        assert url.startswith("/v1/projects/local-project/locations/us-central1/workflows/w/")
        assert value["http_request"] == {
            "body": {"a": 1},
            "headers": {"X-A": "b"},
            "method": "PUT",
            "query": {"q": "1"},
        }

    def test_a_pending_payload_counts_as_memory(self) -> None:
        async def send(engine: Engine, execution: Execution) -> None:
            await asyncio.sleep(1)
            before = execution.memory
            engine.callback(url_of(execution), "x" * 1000)
            assert execution.memory > before + 1000
            execution.cancel()

        drive(TWO, meanwhile=send)


class TestWaiting:
    def test_the_default_timeout_is_twelve_hours(self) -> None:
        source = """
            - open: {call: events.create_callback_endpoint, result: cb}
            - wait: {call: events.await_callback, args: {callback: "${cb}"}}
        """
        execution = drive(source)
        assert execution.failure["tags"] == ["TimeoutError"]
        assert (execution.end_time or 0) - (execution.start_time or 0) == 43_200

    def test_a_timeout_leaves_the_endpoint_usable(self) -> None:
        source = """
            - open: {call: events.create_callback_endpoint, result: cb}
            - again:
                try:
                  call: events.await_callback
                  args: {callback: "${cb}", timeout: 10}
                  result: r
                except: {as: e, steps: [{h: {next: again}}]}
            - give: {return: "${r.http_request.body}"}
        """

        async def send(engine: Engine, execution: Execution) -> None:
            await asyncio.sleep(35)
            assert engine.callback(url_of(execution), "late") == 200

        assert drive(source, meanwhile=send).value == "late"

    def test_branches_wait_for_one_endpoint_and_each_gets_a_payload(self) -> None:
        source = """
            - init: {assign: [{got: []}]}
            - open: {call: events.create_callback_endpoint, result: cb}
            - both:
                parallel:
                  shared: [got]
                  for:
                    value: v
                    range: [1, 2]
                    steps:
                      - w: {call: events.await_callback, args: {callback: "${cb}"}, result: r}
                      - s: {assign: [{got: "${list.concat(got, r.http_request.body)}"}]}
            - give: {return: "${got}"}
        """

        async def send(engine: Engine, execution: Execution) -> None:
            await asyncio.sleep(5)
            url = url_of(execution)
            assert [engine.callback(url, n) for n in (1, 2)] == [200, 200]

        assert drive(source, meanwhile=send).value == [1, 2]

    def test_each_endpoint_has_its_own_url(self) -> None:
        source = """
            - a: {call: events.create_callback_endpoint, result: x}
            - b: {call: events.create_callback_endpoint, result: y}
            - c: {return: "${x.url == y.url}"}
        """
        assert result(source) is False

    @pytest.mark.parametrize(
        ("args", "tag"),
        [
            ("{callback: '${{}}'}", ""),
            ("{callback: {url: 'https://x/callbacks/1'}}", "ValueError"),
            ("{callback: {}}", "TypeError"),
            ("{callback: '${1}'}", "TypeError"),
            ("{callback: '${cb}', timeout: '${\"1\"}'}", "TypeError"),
            ("{callback: '${cb}', timeout: 0}", "ValueError"),
            ("{callback: '${cb}', timeout: 99999999}", "ValueError"),
        ],
    )
    def test_wrong_arguments(self, args: str, tag: str) -> None:
        source = f"""
- open: {{call: events.create_callback_endpoint, result: cb}}
- wait: {{call: events.await_callback, args: {args}}}
"""
        if tag:
            assert failure(source)["tags"] == [tag]
        else:
            assert "no map literals" in faults(source)[0]

    def test_an_unknown_method_is_a_value_error(self) -> None:
        source = "- a: {call: events.create_callback_endpoint, args: {http_callback_method: BREW}}"
        assert failure(source)["tags"] == ["ValueError"]
