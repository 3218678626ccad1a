"""`lustrum dashboard`: what the browser gets, what the cluster gets, and who is turned away."""

from __future__ import annotations

import gzip
import http.client
import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from lustrum.adapters.dashboard import Upstream, make_server, refusal, serve
from rich.console import Console

SERVICE = "rl-0123456789-head-svc"
PREFIX = f"/api/v1/namespaces/default/services/http:{SERVICE}:8265/proxy"


class Tokens:
    """Counts how often it is asked, and for what."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    def get(self, *, fresh: bool = False) -> str:
        self.asked.append(fresh)
        return "new" if fresh else "old"


class Cluster:
    """An API server on loopback; ``answer`` decides, ``seen`` remembers."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answer: Callable[[Any], None] = lambda h: reply(h, 200, b"hello")
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.seen.append((self.command, self.path, dict(self.headers), body))
                outer.answer(self)

            do_GET = do_POST = do_DELETE = do_HEAD = _any

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"


def reply(handler: Any, status: int, body: bytes, **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


@contextmanager
def running(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = Cluster()
    with running(found.server):
        yield found


@pytest.fixture
def tokens() -> Tokens:
    return Tokens()


@pytest.fixture
def screen() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def browser(
    cluster: Cluster, tokens: Tokens, screen: io.StringIO
) -> Iterator[http.client.HTTPConnection]:
    upstream = Upstream(cluster.endpoint, SERVICE, tokens)
    server = make_server(upstream, 0, Console(file=screen, width=200))
    with running(server):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        yield connection
        connection.close()
    upstream.close()


class TestForwarding:
    def test_request_reaches_the_dashboard_through_the_service_proxy(
        self, browser: http.client.HTTPConnection, cluster: Cluster
    ) -> None:
        browser.request("GET", "/api/jobs/?limit=3")
        answer = browser.getresponse()
        assert (answer.status, answer.read()) == (200, b"hello")
        method, path, headers, _ = cluster.seen[0]
        assert (method, path) == ("GET", PREFIX + "/api/jobs/?limit=3")
        assert headers["Authorization"] == "Bearer old"

    def test_path_that_the_api_server_rewrote_is_not_prefixed_twice(
        self, browser: http.client.HTTPConnection, cluster: Cluster
    ) -> None:
        browser.request("GET", PREFIX + "/static/js/main.js")
        assert browser.getresponse().read() == b"hello"
        assert cluster.seen[0][1] == PREFIX + "/static/js/main.js"

    def test_body_and_method_pass_through(
        self, browser: http.client.HTTPConnection, cluster: Cluster
    ) -> None:
        browser.request("POST", "/api/jobs/x/stop", body=b'{"a": 1}')
        assert browser.getresponse().read() == b"hello"
        method, _, _, body = cluster.seen[0]
        assert (method, body) == ("POST", b'{"a": 1}')

    def test_redirect_stays_on_this_address(
        self, browser: http.client.HTTPConnection, cluster: Cluster
    ) -> None:
        cluster.answer = lambda h: reply(h, 307, b"", Location=PREFIX + "/jobs/?a=1")
        browser.request("GET", "/jobs")
        answer = browser.getresponse()
        answer.read()
        assert answer.getheader("Location") == "/jobs/?a=1"

    def test_compressed_answer_arrives_as_it_was_sent(
        self, browser: http.client.HTTPConnection, cluster: Cluster
    ) -> None:
        packed = gzip.compress(b"script")
        cluster.answer = lambda h: reply(h, 200, packed, Content_Encoding="gzip")
        browser.request("GET", "/main.js", headers={"Accept-Encoding": "gzip"})
        answer = browser.getresponse()
        assert answer.read() == packed
        assert answer.getheader("Content-Encoding") == "gzip"
        assert cluster.seen[0][2]["Accept-Encoding"] == "gzip"

    def test_compression_is_not_asked_for_the_client(
        self, browser: http.client.HTTPConnection, cluster: Cluster
    ) -> None:
        browser.putrequest("GET", "/", skip_accept_encoding=True)
        browser.endheaders()
        browser.getresponse().read()
        assert cluster.seen[0][2]["Accept-Encoding"] == "identity"

    def test_followed_log_is_seen_line_by_line(
        self, browser: http.client.HTTPConnection, cluster: Cluster
    ) -> None:
        """The first line must arrive while the cluster still holds the second back."""
        seen_first = threading.Event()

        def stream(handler: Any) -> None:
            handler.send_response(200)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            handler.wfile.write(b"7\r\nstep 1\n\r\n")
            assert seen_first.wait(10)
            handler.wfile.write(b"7\r\nstep 2\n\r\n0\r\n\r\n")

        cluster.answer = stream
        browser.request("GET", "/api/v0/logs/file?filename=job-driver.log")
        answer = browser.getresponse()
        assert answer.read(7) == b"step 1\n"
        seen_first.set()
        assert answer.read() == b"step 2\n"

    def test_answer_cut_short_does_not_look_whole(
        self, browser: http.client.HTTPConnection, cluster: Cluster
    ) -> None:
        def stream(handler: Any) -> None:
            handler.send_response(200)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            handler.wfile.write(b"4\r\nhalf\r\n")
            handler.close_connection = True

        cluster.answer = stream
        browser.request("GET", "/log")
        with pytest.raises(http.client.IncompleteRead):
            browser.getresponse().read()

    def test_head_has_no_body_and_the_connection_goes_on(
        self, browser: http.client.HTTPConnection
    ) -> None:
        browser.request("HEAD", "/")
        answer = browser.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
        browser.request("GET", "/")
        assert browser.getresponse().read() == b"hello"


class TestTokens:
    def test_expired_token_is_renewed_once_and_the_request_repeated(
        self, browser: http.client.HTTPConnection, cluster: Cluster, tokens: Tokens
    ) -> None:
        def judge(handler: Any) -> None:
            new = handler.headers["Authorization"] == "Bearer new"
            reply(handler, 200 if new else 401, b"in" if new else b"out")

        cluster.answer = judge
        browser.request("POST", "/api/jobs/", body=b"{}")
        answer = browser.getresponse()
        assert (answer.status, answer.read()) == (200, b"in")
        assert tokens.asked == [False, True]
        assert [seen[3] for seen in cluster.seen] == [b"{}", b"{}"]

    def test_second_401_is_the_answer(
        self, browser: http.client.HTTPConnection, cluster: Cluster
    ) -> None:
        cluster.answer = lambda h: reply(h, 401, b"no")
        browser.request("GET", "/")
        assert browser.getresponse().status == 401
        assert len(cluster.seen) == 2

    def test_token_of_the_browser_and_its_cookies_stay_here(
        self, browser: http.client.HTTPConnection, cluster: Cluster
    ) -> None:
        browser.request("GET", "/", headers={"Authorization": "Basic x", "Cookie": "other=app"})
        browser.getresponse().read()
        headers = cluster.seen[0][2]
        assert headers["Authorization"] == "Bearer old"
        assert "Cookie" not in headers


class TestTrouble:
    def test_missing_right_is_explained_in_browser_and_terminal(
        self, browser: http.client.HTTPConnection, cluster: Cluster, screen: io.StringIO
    ) -> None:
        status = json.dumps({"kind": "Status", "code": 403}).encode()
        cluster.answer = lambda h: reply(h, 403, status)
        browser.request("GET", "/")
        answer = browser.getresponse()
        assert answer.status == 403
        assert b"container.clusters.connect" in answer.read()
        assert "services/proxy" in screen.getvalue()

    def test_cluster_that_is_gone_is_a_502_with_a_sentence(self, tokens: Tokens) -> None:
        closed = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
        closed.server_close()
        upstream = Upstream(f"http://127.0.0.1:{closed.server_port}", SERVICE, tokens)
        server = make_server(upstream, 0, Console(file=io.StringIO()))
        with running(server):
            connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
            connection.request("GET", "/")
            answer = connection.getresponse()
            assert (answer.status, b"is the run still there" in answer.read()) == (502, True)
            connection.close()
        upstream.close()

    def test_body_beyond_the_limit_is_refused_unread(
        self, browser: http.client.HTTPConnection, cluster: Cluster
    ) -> None:
        browser.putrequest("PUT", "/api/packages/gcs/x.zip")
        browser.putheader("Content-Length", str(10**12))
        browser.endheaders()
        assert browser.getresponse().status == 413
        assert cluster.seen == []

    def test_taken_port_ends_with_what_to_do(self, cluster: Cluster, tokens: Tokens) -> None:
        screen = io.StringIO()
        port = cluster.server.server_port
        code = serve(cluster.endpoint, SERVICE, tokens, port, Console(file=screen, width=200))
        assert code == 1
        assert "--port 0" in screen.getvalue()


class TestRefusal:
    """Ray has no authentication: a web page must not drive it through this port."""

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"Host": "evil.example:4000"},
            {"Host": "127.0.0.1:4001"},
            {"Host": "127.0.0.1"},
            {"Host": "127.0.0.1:4000", "Origin": "https://evil.example"},
            {"Host": "127.0.0.1:4000", "Origin": "null"},
            {"Host": "127.0.0.1:4000", "Origin": "http://127.0.0.1:9999"},
            {
                "Host": "127.0.0.1:4000",
                "Sec-Fetch-Site": "cross-site",
                "Sec-Fetch-Mode": "no-cors",
            },
            {"Host": "127.0.0.1:4000", "Upgrade": "websocket"},
        ],
    )
    def test_refusal_of_what_a_web_page_could_send(self, headers: dict[str, str]) -> None:
        assert refusal(headers, 4000)

    @pytest.mark.parametrize(
        "headers",
        [
            {"Host": "127.0.0.1:4000"},
            {"Host": "localhost:4000", "Origin": "http://localhost:4000"},
            {"Host": "[::1]:4000"},
            # a link to the dashboard on some page
            {
                "Host": "127.0.0.1:4000",
                "Sec-Fetch-Site": "cross-site",
                "Sec-Fetch-Mode": "navigate",
            },
        ],
    )
    def test_refusal_lets_the_user_in(self, headers: dict[str, str]) -> None:
        assert refusal(headers, 4000) == ""

    def test_page_of_another_site_reaches_nothing(
        self, browser: http.client.HTTPConnection, cluster: Cluster
    ) -> None:
        browser.request(
            "POST", "/api/jobs/", body=b"{}", headers={"Origin": "https://evil.example"}
        )
        answer = browser.getresponse()
        assert (answer.status, cluster.seen) == (403, [])

    def test_leave_of_ray_to_read_from_anywhere_is_dropped(
        self, browser: http.client.HTTPConnection, cluster: Cluster
    ) -> None:
        cluster.answer = lambda h: reply(h, 200, b"x", Access_Control_Allow_Origin="*")
        browser.request("GET", "/")
        answer = browser.getresponse()
        answer.read()
        assert answer.getheader("Access-Control-Allow-Origin") is None
