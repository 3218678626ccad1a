"""A command as a child process, and the signals that end it."""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from lustrum.head.exits import JobFailed, Stopped
from lustrum.head.names import EVENT_PREFIX
from lustrum.head.output import Voice


class Bell:
    """Wakes the main loop from threads and signal handlers (a pipe: safe in both)."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        for descriptor in (self._read, self._write):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def ring(self) -> None:
        """Wake whoever waits; safe in a signal handler."""
        try:
            os.write(self._write, b"!")
        except OSError:
            return  # full: it rings already

    def wait(self, seconds: float) -> None:
        """Wait for a ring, at most this long."""
        if select.select([self._read], [], [], seconds)[0]:
            os.read(self._read, 4096)


# A training may show any text, an event of its own run too: that one is no event.
PREFIX = EVENT_PREFIX.encode()
ESCAPED = PREFIX.rstrip() + b"_"


class Child:
    """A command in its own process group, its output passed on line by line."""

    PIECE = 2**16  # bytes of one line passed on at most before its end is seen

    def __init__(
        self,
        argv: list[str],
        cwd: str | None,
        env: dict[str, str],
        voice: Voice,
        on_line: Callable[[str], None],
    ) -> None:
        libc = ctypes.CDLL(None)
        try:
            # PR_SET_PDEATHSIG: if the supervisor is killed the training must not go on writing
            # into a folder that the next attempt will use.
            self.process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: libc.prctl(1, signal.SIGTERM),
            )
        except FileNotFoundError as error:
            raise JobFailed("CONFIG", f"command: {error.filename!r} does not exist", 127) from None
        except PermissionError as error:
            raise JobFailed("CONFIG", f"command: {error.filename!r} may not be run", 126) from None
        self._voice, self._on_line = voice, on_line
        self._reader = threading.Thread(target=self._read, daemon=True, name="output")
        self._reader.start()

    def signal(self, signum: int) -> None:
        """Send a signal to the whole group; a group that is gone is fine."""
        try:
            os.killpg(self.process.pid, signum)
        except (ProcessLookupError, PermissionError):
            return

    def end(self, grace: float) -> int:
        """SIGTERM, SIGKILL after the grace, also to what outlived its leader; the exit code."""
        self.signal(signal.SIGTERM)
        until = time.monotonic() + grace
        while self._lives() and time.monotonic() < until:
            time.sleep(0.05)
        self.signal(signal.SIGKILL)
        try:
            code = self.process.wait(10)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL  # it hangs in the kernel; nobody can do more
        self._reader.join(5)
        return 128 - code if code < 0 else code

    def _lives(self) -> bool:
        self.process.poll()
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def _read(self) -> None:
        assert self.process.stdout is not None
        descriptor, rest = self.process.stdout.fileno(), b""
        while True:
            block = os.read(descriptor, 2**16)
            # A progress bar's bare carriage return ends a line too, or it would swallow ours.
            *lines, rest = re.split(rb"\r?\n|\r(?!\n)", rest + block)
            if rest and (not block or len(rest) > self.PIECE):
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._voice.write(line.replace(PREFIX, ESCAPED) + b"\n")
                self._tell(line.decode("utf-8", "replace"))
            if not block:
                return

    def _tell(self, line: str) -> None:
        """A line that nobody expected must not stop the reading: the pipe would fill and block
        the training.
        """
        try:
            self._on_line(line)
        except Exception as error:
            self._voice.say(f"lustrum: a line of the training could not be read: {error!r}")


class Signals:
    """SIGTERM and SIGINT go to the training's group; before there is one they end us."""

    def __init__(self) -> None:
        self.child: Child | None = None
        self.received: int | None = None
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._handle)
        signal.signal(signal.SIGCHLD, lambda signum, frame: None)  # so that it rings the bell

    def _handle(self, signum: int, frame: Any) -> None:
        first, self.received = self.received is None, signum
        if self.child is not None:
            self.child.signal(signum)
        elif first:
            raise Stopped(signum)
