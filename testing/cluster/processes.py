"""Child processes of the cluster tier: each ends with us, however we end."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG = 1


class NotReadyError(RuntimeError):
    """A child ended or did not answer in time; the message ends with its last log lines."""


class Child:
    """A process that is killed when this one dies, and whose whole tree is ended on stop.

    Must be started from the main thread: the kernel sends the signal when the *thread* that
    started the child ends.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        libc = ctypes.CDLL(None)

        def die_with_parent() -> None:
            libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))

        with log.open("ab") as out:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=dict(os.environ if environment is None else environment),
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Poll ``ready`` until it is true.

        Raises:
            NotReadyError: the child ended, or ``seconds`` passed.
        """
        deadline = time.monotonic() + seconds
        while not ready():
            if self.process.poll() is not None:
                raise NotReadyError(
                    f"{self.name} ended with {self.process.returncode}:\n{self.tail()}"
                )
            if time.monotonic() > deadline:
                raise NotReadyError(f"{self.name} not ready in {seconds:.0f} s:\n{self.tail()}")
            time.sleep(0.1)

    def tail(self, lines: int = 15) -> str:
        """The last lines of the child's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self, grace_s: float = 5.0) -> None:
        """End the child and all it started: TERM first, KILL after the grace (seconds)."""
        tree = self._tree()
        if grace_s > 0 and self.process.poll() is None:
            self.process.terminate()
            _, tree = psutil.wait_procs(tree, timeout=grace_s)
        for process in tree:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(tree, timeout=5)
        self.process.wait(timeout=5)

    def _tree(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self.process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
