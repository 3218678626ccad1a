"""What the supervisor says: whole lines and events, without secrets."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from lustrum.head.names import EVENT_PREFIX
from lustrum.head.signature import read_key
from lustrum.head.spec import Spec

Event = dict[str, Any]
PUBLISHED = (
    "stage.done",
    "stage.failed",
    "attempt.started",
    "job.progress",
    "checkpoint.saved",
    "job.stalled",
    "job.gpus_idle",
    "job.completed",
)


class LogFile(threading.Thread):
    """The attempt's log on Lustre, written in its own thread: a hung file system hangs only it."""

    LIMIT = 2**26  # bytes waiting; beyond it lines are dropped, Ray's own log has them

    def __init__(self, path: str) -> None:
        super().__init__(daemon=True, name="log")
        self._path = path
        self._change = threading.Condition()
        self._waiting = bytearray()
        self._busy = False
        self.start()

    def add(self, data: bytes) -> None:
        """Queue some bytes; dropped when more than ``LIMIT`` wait."""
        with self._change:
            if len(self._waiting) < self.LIMIT:
                self._waiting += data
            self._change.notify_all()

    def close(self, seconds: float) -> None:
        """Wait until all is written, at most this long."""
        with self._change:
            self._change.wait_for(lambda: not self._waiting and not self._busy, seconds)

    def run(self) -> None:
        """Write what waits, for ever; a disk that refuses it costs only the log."""
        log: int | None = None
        while True:
            with self._change:
                self._busy = False
                self._change.notify_all()
                self._change.wait_for(lambda: self._waiting)
                data, self._waiting, self._busy = bytes(self._waiting), bytearray(), True
            try:
                if log is None:
                    log = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
                write_all(log, data)
            except OSError:
                continue  # a full or unwritable disk is no reason to end a training


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes, however many calls it takes; raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class Voice:
    """Standard output and the attempt's log: whole lines only, secrets taken out."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._began = int(time.time() * 1000)
        self._lock = threading.Lock()
        self._log: LogFile | None = None
        own = read_key(spec.event_key)
        self._secrets = [secret.encode() for secret in (*known_secrets(), own) if secret]
        self.publish: Callable[[Event], None] = lambda event: None

    def open_log(self, path: str) -> None:
        """Also write everything to this file."""
        self._log = LogFile(path)

    def close(self, seconds: float) -> None:
        """Wait until the log is written, at most this long."""
        if self._log is not None:
            self._log.close(seconds)

    def write(self, data: bytes) -> bytes:
        """Pass on one whole line (or a piece of an over-long one), as returned."""
        for secret in self._secrets:
            data = data.replace(secret, b"<redacted>")
        data = re.sub(rb"\bhf_[A-Za-z0-9]{20,}", b"<redacted>", data)
        with self._lock:
            if self._log is not None:
                self._log.add(data)
            try:
                write_all(1, data)
            except OSError:
                return data  # a closed pipe is no reason to end a training
        return data

    def say(self, text: str) -> None:
        """Print one line of text."""
        self.write(text.encode("utf-8", "replace") + b"\n")

    def event(self, kind: str, step: int | None = None, **more: Any) -> Event:
        """Print one event and hand it to the publisher if its type is one that is published."""
        spec = self._spec
        event: Event = {"type": kind, "run_id": spec.run_id, "attempt": spec.attempt}
        if step is not None:
            event["step"] = step
        if "failure" in more:
            more["class"] = more.pop("failure")  # a keyword of Python, not of the protocol
        event.update(more)
        # Staging may be repeated with the same attempt number, so its start tells it apart.
        serial = self._began if kind.startswith("stage.") else step or 0
        event["event_id"] = f"{spec.run_id}-a{spec.attempt}-{kind}-{serial}"
        event["at"] = now_text()
        line = self.write(EVENT_PREFIX.encode() + json.dumps(event).encode() + b"\n")
        if kind in PUBLISHED:
            self.publish(json.loads(line[8:]))  # what was printed: without secrets
        return event


def known_secrets() -> list[str]:
    """Values that must never be printed: from the environment, the token file and netrc."""
    found = []
    for name, value in os.environ.items():
        if re.search(r"TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY", name) and value[:1] != "/":
            found.append(value)
    for variable, pattern in (("HF_TOKEN_PATH", r"\S+"), ("NETRC", r"password\s+(\S+)")):
        try:
            with open(os.environ.get(variable, ""), encoding="utf-8") as file:
                found += re.findall(pattern, file.read())
        except (OSError, ValueError):
            continue
    return [value for value in found if len(value) >= 8 and not value.isdigit()]


def now_text() -> str:
    """Return the time in UTC as RFC 3339 text with milliseconds."""
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
