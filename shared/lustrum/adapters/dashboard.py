"""The Ray dashboard of a run on localhost: a reverse proxy through the API server's service proxy.

Nothing is opened in the cluster: the browser asks 127.0.0.1, this asks the cluster's DNS endpoint
with the user's own token, and the API server asks the Ray head. Ray 2.46 has no authentication, so
what listens here must not be usable by a web page: see `refusal`.

Websockets are not forwarded; the dashboard's own log view reads streamed HTTP, which is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx
from rich.console import Console

from lustrum.core import names

TIMEOUT = httpx.Timeout(60.0, connect=10.0, read=600.0)  # seconds; a followed log may be silent
MAX_BODY = 256 * 1024 * 1024  # bytes; a working directory posted as a package
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})
# RFC 9110, 7.6.1: for one connection only. The answer is framed anew here.
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# Authorization is ours; cookies of other programs on localhost are not the cluster's business.
_NOT_SENT = _HOP_BY_HOP | {
    "authorization",
    "content-length",
    "cookie",
    "host",
    "origin",
    "referer",
}


class TokenSource(Protocol):
    """Where bearer tokens come from; `lustrum.adapters.google.Tokens` is one."""

    def get(self, *, fresh: bool = False) -> str:
        """Return a valid token; ``fresh`` asks for a new one after a 401."""


class Upstream:
    """A port of a service in a cluster, seen through the API server's service proxy."""

    def __init__(
        self,
        endpoint: str,
        service: str,
        tokens: TokenSource,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.base = (endpoint if "://" in endpoint else f"https://{endpoint}").rstrip("/")
        self.prefix = (
            f"/api/v1/namespaces/{names.NAMESPACE}/services/"
            f"http:{service}:{names.DASHBOARD_PORT}/proxy"
        )
        self._tokens = tokens
        # No redirect is followed: where to go is the browser's to know.
        self._client = httpx.Client(timeout=TIMEOUT, transport=transport, trust_env=False)

    def url(self, target: str) -> str:
        """Return the URL of a path (with query) of the dashboard.

        The API server rewrites links in HTML to its own proxy path; asked for one of those, the
        prefix is not put before it twice.
        """
        path = target if target.startswith("/") else "/" + target
        if path == self.prefix or path.startswith((self.prefix + "/", self.prefix + "?")):
            return self.base + path
        return self.base + self.prefix + path

    def local(self, location: str) -> str:
        """Return where a redirect leads, as a path of this proxy."""
        parts = urlsplit(location)
        if parts.netloc and parts.netloc != urlsplit(self.base).netloc:
            return location
        path = parts.path.removeprefix(self.prefix) or "/"
        return path + (f"?{parts.query}" if parts.query else "")

    def send(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> httpx.Response:
        """Send one request; the answer is not read yet, close it. A 401 is tried once more.

        Raises:
            httpx.HTTPError: no answer.
            ServiceError: no credentials.
        """
        for fresh in (False, True):
            request = self._client.build_request(
                method,
                self.url(target),
                content=body or None,
                headers={**headers, "Authorization": f"Bearer {self._tokens.get(fresh=fresh)}"},
            )
            answer = self._client.send(request, stream=True)
            if answer.status_code != 401 or fresh:
                break
            answer.close()
        return answer

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


def refusal(headers: Mapping[str, str] | Message, port: int) -> str:
    """Say why a request is not forwarded, or the empty string.

    A page in the user's browser can send requests to 127.0.0.1: a name that resolves to it shows
    in ``Host`` (DNS rebinding), another site in ``Origin`` or ``Sec-Fetch-Site``.
    """
    if not _is_here(headers.get("Host", ""), port):
        return "the Host header is not this address; open http://127.0.0.1 with the port shown"
    origin = headers.get("Origin")
    if origin is not None and not _is_here(urlsplit(origin).netloc, port):
        return f"the request comes from another site ({origin})"
    site = headers.get("Sec-Fetch-Site")
    if site == "cross-site" and headers.get("Sec-Fetch-Mode") != "navigate":
        return "the request comes from another site"
    if headers.get("Upgrade"):
        return (
            "websockets are not forwarded; read the log in the dashboard or with `lustrum watch`"
        )
    return ""


def make_server(upstream: Upstream, port: int, console: Console) -> ThreadingHTTPServer:
    """Return a server on 127.0.0.1 that forwards to ``upstream``; port 0 takes a free one.

    Raises:
        OSError: the port is taken.
    """

    class Handler(_Forward):
        pass

    Handler.upstream = upstream
    Handler.console = console
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    Handler.port = server.server_port
    server.daemon_threads = True  # a followed log must not keep the command alive
    return server


def serve(
    cluster_endpoint: str,
    service: str,
    token_source: TokenSource,
    port: int,
    console: Console,
) -> int:
    """Serve the dashboard until Ctrl-C and return the exit code.

    ``cluster_endpoint`` is the DNS endpoint of the run's cluster, ``service`` the head's Service,
    ``port`` the local port, 0 for a free one.
    """
    upstream = Upstream(cluster_endpoint, service, token_source)
    try:
        server = make_server(upstream, port, console)
    except OSError as error:
        console.print(
            f"[red]port {port} of 127.0.0.1: {error.strerror}[/]; use --port 0 for a free one"
        )
        upstream.close()
        return 1
    address = f"http://127.0.0.1:{server.server_address[1]}/"
    console.print(f"Ray dashboard of {service}: [bold]{address}[/]  (Ctrl-C ends it)")
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        console.print("ended")
    finally:
        server.server_close()
        upstream.close()
    return 0


class _Forward(BaseHTTPRequestHandler):
    """Forwards one request at a time per connection; the body of an answer as it comes."""

    protocol_version = "HTTP/1.1"
    server_version = "lustrum"
    sys_version = ""
    upstream: Upstream
    console: Console
    port: int
    timeout = 600  # seconds, for a browser's idle connection

    def _forward(self) -> None:
        why = refusal(self.headers, self.port)
        if why:
            self._problem(403, why)
            return
        body = self._body()
        if body is None:
            return
        headers = {
            # httpx would ask for compression by itself, and bodies are passed on as they come
            "Accept-Encoding": "identity",
            **{n: v for n, v in self.headers.items() if n.lower() not in _NOT_SENT},
        }
        try:
            answer = self.upstream.send(self.command, self.path, headers, body)
        except httpx.HTTPError as error:
            self._problem(
                502,
                f"the cluster did not answer ({type(error).__name__}): is the run still there?",
            )
            return
        except Exception as error:  # no credentials, for one; the browser must learn of it
            self._problem(502, f"{type(error).__name__}: {error}")
            return
        try:
            self._answer(answer)
        finally:
            answer.close()

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _forward

    def _body(self) -> bytes | None:
        if self.headers.get("Transfer-Encoding"):
            self._problem(411, "send a Content-Length")
            return None
        try:
            length = int(self.headers.get("Content-Length") or 0)
        except ValueError:
            length = -1
        if not 0 <= length <= MAX_BODY:
            self._problem(413, f"the body must be 0 to {MAX_BODY} bytes")
            return None
        return self.rfile.read(length)

    def _answer(self, answer: httpx.Response) -> None:
        if answer.status_code == 403:
            self._forbidden(answer)
            return
        bodyless = self.command == "HEAD" or answer.status_code in (204, 304)
        framed = "content-length" in answer.headers or bodyless
        self.send_response(answer.status_code)
        for name, value in self._headers(answer.headers.multi_items()):
            self.send_header(name, value)
        if not framed:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if bodyless:
            return
        try:
            for part in answer.iter_raw():
                self._write(part, framed)
            if not framed:
                self.wfile.write(b"0\r\n\r\n")
        except (httpx.HTTPError, OSError):
            # Either side went away in the middle. An answer cut short must not look whole.
            self.close_connection = True

    def _forbidden(self, answer: httpx.Response) -> None:
        """Pass a 403 on; the API server's own (a ``Status``) is explained."""
        text = answer.read().decode(errors="replace")
        if '"kind":"Status"' in text.replace(" ", ""):
            text = (
                "The cluster refuses you. Your account needs container.clusters.connect, and get"
                " and create on services/proxy (roles/container.developer has them).\n\n" + text
            )
            self.console.print(f"[red]403[/] {text.splitlines()[0]}")
        self._problem(403, text)

    def _headers(self, found: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
        for name, value in found:
            low = name.lower()
            # Ray allows every origin; through this port that would let any site read answers.
            if (
                low in _HOP_BY_HOP
                or low.startswith("access-control-")
                or low in ("server", "date")
            ):
                continue
            yield name, self.upstream.local(value) if low == "location" else value

    def _write(self, part: bytes, framed: bool) -> None:
        if not part:
            return
        self.wfile.write(part if framed else b"%x\r\n%s\r\n" % (len(part), part))
        self.wfile.flush()

    def _problem(self, status: int, why: str) -> None:
        body = (why + "\n").encode()
        self.close_connection = True  # what is left of the request is not read
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a dashboard asks every few seconds."""


def _is_here(netloc: str, port: int) -> bool:
    host, separator, given = netloc.rpartition(":")
    return bool(separator) and host in _LOOPBACK and given == str(port)
