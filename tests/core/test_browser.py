"""The pages in a real browser: they open, they complain of nothing, they ask nobody.

Skipped where no Chromium is: none is fetched for a test. A browser takes a second to start.
"""

from __future__ import annotations

import re
import shutil
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from lustrum.show.index import render_index
from lustrum.show.live import render_live
from lustrum.show.report import render

from testing import records
from tests.core.test_pages import AT, hostile_run

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
# What Chromium asks for itself, whatever page it shows.
ITS_OWN = re.compile(r"(\.google\.com|\.googleapis\.com|\.gvt1\.com|\.gstatic\.com)(:\d+)?$")

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed here")


class Proxy(socketserver.ThreadingTCPServer):
    """Refuses whatever is asked, and remembers of whom."""

    allow_reuse_address = daemon_threads = True

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), Refusal)


class Refusal(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        line = self.rfile.readline().decode(errors="replace").split()
        assert isinstance(self.server, Proxy)
        self.server.asked.append(re.sub(r"^\w+://|/.*$", "", ([*line, "", ""])[1]))
        self.wfile.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def opened(page: str, folder: Path, proxy: Proxy, *more: str) -> tuple[str, list[str]]:
    """Open a page; return its document after loading, and the lines of the console."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    done = subprocess.run(
        [
            str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr",
            f"--proxy-server=127.0.0.1:{proxy.server_address[1]}",
            *more, "--dump-dom", path.as_uri(),
        ],
        capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


PAGES = {
    "live": lambda: render_live(hostile_run(), AT, said="<img src=http://evil.test/x.png>",
                                address="https://page.test/x"),
    "index": lambda: render_index([hostile_run(), records.eventful_run()], AT, {}),
    "report": lambda: render(hostile_run(), records.events(), AT),
}  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_complains_of_nothing_and_asks_nobody(
    name: str, tmp_path: Path, proxy: Proxy
) -> None:
    document, console = opened(PAGES[name](), tmp_path, proxy)
    assert records.RUN_ID in document and document.rstrip().endswith("</html>")
    assert console == []
    assert "<script" not in document and "<img" not in document
    assert [one for one in proxy.asked if not ITS_OWN.search(one)] == []


def test_a_page_that_did_ask_would_be_found(tmp_path: Path, proxy: Proxy) -> None:
    page = "<html><img src=http://evil.test/x.png><script>console.error('oh')</script></html>"
    _, console = opened(page, tmp_path, proxy)
    assert "evil.test" in proxy.asked and len(console) == 1
