"""Pub/Sub, Storage and the metadata server on loopback, as the supervisor asks them."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "ya29.a-token-that-must-never-be-printed"


class Google:
    """What was asked, and what is to be answered."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.attributes: list[dict[str, str]] = []
        self.data: list[bytes] = []
        self.authorizations: list[str | None] = []
        self.objects: dict[str, bytes] = {}  # "bucket/name"
        self.downloads = 0
        self.publish_status: list[int] = []  # answers of the next publishes; then 200
        self.storage_status: list[int] = []
        self.metadata_up = True
        self.silent = threading.Event()  # set: a publish is never answered
        self.url = ""

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]


@contextmanager
def serving() -> Iterator[Google]:
    """Serve on a free port of loopback."""
    google = Google()
    release = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            if path.startswith("/computeMetadata/"):
                up = google.metadata_up and self.headers["Metadata-Flavor"] == "Google"
                token = {"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"}
                self.answer(200 if up else 404, json.dumps(token).encode())
                return
            google.authorizations.append(self.headers["Authorization"])
            google.downloads += 1
            _, _, _, _, bucket, _, name = path.split("/", 6)
            body = google.objects.get(f"{bucket}/{unquote(name)}")
            status = google.storage_status.pop(0) if google.storage_status else 200
            self.answer(404 if body is None else status, body or b"")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if google.silent.is_set():
                release.wait(60)
                return
            google.authorizations.append(self.headers["Authorization"])
            status = google.publish_status.pop(0) if google.publish_status else 200
            if status == 200:
                for message in json.loads(body)["messages"]:
                    google.data.append(base64.b64decode(message["data"]))
                    google.events.append(json.loads(google.data[-1]))
                    google.attributes.append(message["attributes"])
            self.answer(status, b'{"messageIds": ["1"]}')

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    google.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield google
    finally:
        release.set()
        server.shutdown()
        thread.join()
        server.server_close()
