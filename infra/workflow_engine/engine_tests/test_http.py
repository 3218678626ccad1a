"""http.*: what is sent, what comes back, and each way it can fail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web
from workflows_engine import Engine, Execution, HttpConnectionBroken, HttpConnectionFailed
from workflows_engine.errors import WorkflowError
from workflows_engine.http_client import HttpClient, decode, encode

from engine_tests.support import Web, drive, failure, faults, result, workflow


def call(args: str, function: str = "http.get") -> str:
    return f"""
- ask: {{call: {function}, args: {args}, result: r}}
- give: {{return: "${{r}}"}}
"""


class TestRequest:
    def test_method_query_headers_and_body_reach_the_handler(self) -> None:
        http = Web((201, {"ok": True}))
        args = '{url: "http://a.b/c", query: {q: 1}, headers: {X-A: "y"}, body: {n: [1]}}'
        got = result(call(args, "http.post"), http=http)
        assert got == {
            "body": {"ok": True},
            "code": 201,
            "headers": {"Content-Type": "application/json"},
        }
        request = http.requests[0]
        assert (request["method"], request["url"]) == ("POST", "http://a.b/c")
        assert request["query"] == {"q": 1}
        assert request["body"] == {"n": [1]}
        assert request["headers"]["X-A"] == "y"
        assert request["headers"]["Content-Type"] == "application/json; charset=utf-8"
        assert request["timeout"] == 300

    def test_the_user_agent_is_extended(self) -> None:
        http = Web(200)
        drive(call('{url: "http://a.b/", headers: {user-agent: mine}}'), http=http)
        assert http.requests[0]["headers"]["user-agent"].startswith("mine GoogleCloudWorkflows;")

    def test_bytes_have_their_own_type(self) -> None:
        http = Web(200)
        args = "{url: 'http://a.b/', body: '${text.encode(\"x\")}'}"
        drive(call(args, "http.put"), http=http)
        assert http.requests[0]["body"] == b"x"
        assert http.requests[0]["headers"]["Content-Type"] == "application/octet-stream"

    def test_request_names_its_method(self) -> None:
        http = Web(200)
        drive(call('{method: patch, url: "http://a.b/"}', "http.request"), http=http)
        assert http.requests[0]["method"] == "PATCH"
        error = failure(
            call('{method: "${\'FETCH\'}", url: "http://a.b/"}', "http.request"), http=http
        )
        assert error["tags"] == ["ValueError"]

    def test_a_handler_cannot_change_what_the_workflow_holds(self) -> None:
        answer = {"list": [1]}

        def spoil(request: dict[str, Any]) -> object:
            request["body"]["n"].append("spoilt")
            return 200, answer

        source = """
            - set: {assign: [{b: {n: [1]}}]}
            - ask: {call: http.post, args: {url: "http://a.b/", body: "${b}"}, result: r}
            - change: {assign: [{"r.body.list[0]": 2}]}
            - give: {return: ["${b}", "${r.body}"]}
        """
        assert result(source, http=Web(spoil)) == [{"n": [1]}, {"list": [2]}]
        assert answer == {"list": [1]}

    @pytest.mark.parametrize(
        "args",
        [
            "{url: '${5}'}",
            "{url: '${\"ftp://a.b\"}'}",
            "{url: '${\"no url\"}'}",
            "{url: 'http://a.b/', headers: '${[1]}'}",
            "{url: 'http://a.b/', query: {a: {b: 1}}}",
            "{url: 'http://a.b/', timeout: '${0}'}",
            "{url: 'http://a.b/', timeout: '${1801}'}",
            "{url: 'http://a.b/', auth: {type: Basic}}",
            "{url: 'http://a.b/', auth: {type: OIDC, token: x}}",
        ],
    )
    def test_wrong_arguments_are_errors(self, args: str) -> None:
        assert failure(call(args), http=Web(200))["tags"] in (["TypeError"], ["ValueError"])

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            ("{}", "needs the argument 'url'"),
            ("{url: 'http://a.b/', boddy: 1}", "write body instead"),
            ("{url: 'http://a.b/', timeout: 1801}", "timeout of http.get cannot be 1801"),
            ("{url: 'http://a.b/', timeout: soon}", "cannot be soon"),
        ],
    )
    def test_refused(self, args: str, message: str) -> None:
        assert message in faults(call(args))[0]

    def test_steps_bill_as_external_only_outside_google_cloud(self) -> None:
        for url, external in (
            ("https://us-east1-p.cloudfunctions.net/f", 0),
            ("https://x.a.run.app/", 0),
            ("https://compute.googleapis.com/", 0),
            ("http://127.0.0.1:8080/", 0),
            ("https://example.com/", 1),
            ("https://notgoogleapis.com/", 1),
        ):
            assert drive(call(f"{{url: '{url}'}}"), http=Web(200)).external_steps == external


class TestErrors:
    @pytest.mark.parametrize(
        ("answer", "tag"),
        [
            (HttpConnectionFailed("refused"), "ConnectionFailedError"),
            (ConnectionRefusedError(), "ConnectionFailedError"),
            (HttpConnectionBroken("reset"), "ConnectionError"),
            (ConnectionResetError(), "ConnectionError"),
            (TimeoutError(), "TimeoutError"),
            ((400, {}), "HttpError"),
            ((599, {}), "HttpError"),
        ],
    )
    def test_tag(self, answer: object, tag: str) -> None:
        assert failure(call('{url: "http://a.b/"}'), http=Web(answer))["tags"] == [tag]

    def test_a_late_answer_is_a_timeout_at_its_time(self) -> None:
        async def never(_: object) -> object:
            await asyncio.sleep(10_000)
            return 200

        execution = drive(call('{url: "http://a.b/", timeout: 90}'), http=Web(never))
        assert execution.failure["tags"] == ["TimeoutError"]
        assert (execution.end_time or 0) - (execution.start_time or 0) == 90

    def test_a_token_that_cannot_be_had_is_an_auth_error(self) -> None:
        def refuse(auth: dict[str, Any], url: str) -> str:
            raise PermissionError("no key")

        source = call('{url: "http://a.b/", auth: {type: OIDC, audience: x}}')
        assert failure(source, http=Web(200), token_source=refuse)["tags"] == ["AuthError"]

    def test_a_token_may_be_awaited_and_knows_its_audience(self) -> None:
        seen = []

        async def token(auth: dict[str, Any], url: str) -> str:
            seen.append((auth["audience"], url))
            return "abc"

        http = Web(200)
        source = call('{url: "http://a.b/", auth: {type: OIDC, audience: x}}')
        drive(source, http=http, token_source=token)
        assert seen == [("x", "http://a.b/")]
        assert http.requests[0]["headers"]["Authorization"] == "Bearer abc"

    def test_over_two_megabytes_end_the_execution(self) -> None:
        source = """
            - t:
                try: {call: http.get, args: {url: "http://a.b/"}}
                except: {as: e, steps: [{h: {return: caught}}]}
        """
        assert failure(source, http=Web((200, "x" * 2_097_153)))["tags"] == ["ResourceLimitError"]
        assert result(source, http=Web((200, "x" * 2_097_152))) is None  # not stored: no memory

    def test_a_handler_that_breaks_fails_the_execution_and_is_reported(self) -> None:
        async def main() -> tuple[Execution, int]:
            engine = Engine(http=Web(lambda _: 1 / 0))
            engine.deploy("w", workflow(call('{url: "http://a.b/"}')))
            execution = await engine.create("w").wait()
            return execution, len(engine.faults)

        from workflows_engine import virtual

        execution, reported = virtual.run(main)
        assert execution.failure["tags"] == ["SystemError"]
        assert reported == 1


class TestRealSockets:
    def run(self, source: str, answer: Any) -> Execution:
        """Run in real time against a server on loopback; {url} in the source is its address."""

        async def main() -> Execution:
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", answer)
            runner = web.AppRunner(app)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            port = runner.addresses[0][1]
            client = HttpClient()
            try:
                engine = Engine(http=client)
                engine.deploy("w", workflow(source.replace("{url}", f"http://127.0.0.1:{port}")))
                return await engine.create("w").wait()
            finally:
                await client.close()
                await runner.cleanup()

        return asyncio.run(main())

    def test_json_text_and_bytes_come_back_as_such(self) -> None:
        async def answer(request: web.Request) -> web.Response:
            match request.path:
                case "/json":
                    return web.json_response(
                        {"sent": await request.json(), "q": dict(request.query)}
                    )
                case "/text":
                    return web.Response(text="héllo")
                case _:
                    return web.Response(body=b"\x00\x01", content_type="application/x-thing")

        source = """
            - a:
                call: http.post
                args: {url: "{url}/json", body: {n: 1}, query: {a: "b c"}}
                result: j
            - b: {call: http.get, args: {url: "{url}/text"}, result: t}
            - c: {call: http.get, args: {url: "{url}/raw"}, result: r}
            - d:
                return:
                  - ${j.body}
                  - ${t.body}
                  - ${base64.encode(r.body)}
                  - ${j.headers["Content-Type"]}
        """
        assert self.run(source, answer).value == [
            {"sent": {"n": 1}, "q": {"a": "b c"}},
            "héllo",
            "AAE=",
            "application/json; charset=utf-8",
        ]

    def test_nobody_listening_is_a_connection_failed_error(self) -> None:
        async def answer(request: web.Request) -> web.Response:
            return web.Response()

        source = '- a: {call: http.get, args: {url: "http://127.0.0.1:1/"}}'
        assert self.run(source, answer).failure["tags"] == ["ConnectionFailedError"]

    def test_a_connection_that_breaks_is_a_connection_error(self) -> None:
        async def answer(request: web.Request) -> web.Response:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()

        source = '- a: {call: http.get, args: {url: "{url}/"}}'
        assert self.run(source, answer).failure["tags"] == ["ConnectionError"]

    def test_an_error_status_keeps_its_body(self) -> None:
        async def answer(request: web.Request) -> web.Response:
            return web.json_response({"error": {"class": "CONFIG"}}, status=422)

        source = '- a: {call: http.get, args: {url: "{url}/"}}'
        error = self.run(source, answer).failure
        assert (error["code"], error["body"]) == (422, {"error": {"class": "CONFIG"}})

    def test_a_body_over_the_limit_is_not_read_to_its_end(self) -> None:
        async def answer(request: web.Request) -> web.Response:
            return web.Response(body=b"x" * 3_000_000)

        source = '- a: {call: http.get, args: {url: "{url}/"}}'
        assert self.run(source, answer).failure["tags"] == ["ResourceLimitError"]


class TestBodies:
    def test_text_of_a_stated_type_is_sent_as_it_is(self) -> None:
        assert encode("a=b", {"Content-Type": "application/x-www-form-urlencoded"}) == b"a=b"
        assert encode("a", {"Content-Type": "application/json; charset=utf-8"}) == b'"a"'
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        assert encode({"a": 1, "b c": ["x&y", True]}, form) == b"a=1&b+c=x%26y&b+c=true"
        with pytest.raises(WorkflowError, match="cannot hold a map"):
            encode({"a": {"b": 1}}, form)
        assert encode(None, {}) is None

    def test_json_that_is_none_stays_text(self) -> None:
        assert decode(b"{oops", {"Content-Type": "application/json"}) == "{oops"
        assert decode(b"", {"Content-Type": "application/json"}) is None
        assert decode(b"\xff", {"content-type": "text/plain; charset=nonsense"}) == "\ufffd"
