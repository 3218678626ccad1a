"""Child processes that end with us, whatever ends us: exit, Ctrl-C, crash, SIGKILL."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

LOOPBACK = "127.0.0.1"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
GRACE = 5.0  # seconds between SIGTERM and SIGKILL


class DidNotStart(Exception):
    """A part of the stack did not come up; the message holds the end of its log."""


def free_port() -> int:
    """Return a port that is free on loopback now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def adopt_orphans() -> None:
    """Make this process the parent of grandchildren whose parent dies, so that they are found
    at the end.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Ask the kernel, in a child before exec, to end it when its parent is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


class Children:
    """The processes of one stack, each with its own log file."""

    def __init__(self, log_folder: Path) -> None:
        self._logs = log_folder
        self._children: list[tuple[str, subprocess.Popen[bytes]]] = []
        log_folder.mkdir(parents=True, exist_ok=True)

    def start(
        self, name: str, command: Sequence[str], env: Mapping[str, str], cwd: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process in a group of its own."""
        with (self._logs / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(
                list(command),
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self._children.append((name, child))
        return child

    def await_ready(
        self, name: str, ready: Callable[[], bool], seconds: float, pause: float = 0.05
    ) -> None:
        """Wait until a part answers.

        Raises:
            DidNotStart: it ended, or did not answer in time.
        """
        child = next(one for known, one in reversed(self._children) if known == name)
        end = time.monotonic() + seconds
        while True:
            with suppress(OSError):
                if ready():
                    return
            if child.poll() is not None:
                raise DidNotStart(f"{name} ended with code {child.returncode}: {self.tail(name)}")
            if time.monotonic() >= end:
                raise DidNotStart(f"{name} did not answer within {seconds:g} s: {self.tail(name)}")
            time.sleep(pause)

    def tail(self, name: str, size: int = 1500) -> str:
        """Return the end of a part's log."""
        path = self._logs / f"{name}.log"
        return path.read_text(errors="replace")[-size:] if path.exists() else ""

    def check(self) -> None:
        """Raise DidNotStart if a part has ended."""
        for name, child in self._children:
            if child.poll() is not None:
                raise DidNotStart(f"{name} ended with code {child.returncode}: {self.tail(name)}")

    def stop(self) -> list[str]:
        """End every process and what it started; return what had to be killed."""
        family: dict[int, psutil.Process] = {}
        for _, child in self._children:
            with suppress(psutil.Error):
                parent = psutil.Process(child.pid)
                family |= {one.pid: one for one in [parent, *parent.children(recursive=True)]}
        for _, child in reversed(self._children):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGTERM)
        _, alive = psutil.wait_procs(family.values(), timeout=GRACE)
        with suppress(psutil.Error):  # orphans that came to us, see adopt_orphans
            known = {one.pid for one in alive}
            alive += [
                one for one in psutil.Process().children(recursive=True) if one.pid not in known
            ]
        killed = []
        for process in alive:
            with suppress(psutil.Error):
                killed.append(" ".join(process.cmdline())[:80])
                process.kill()
        psutil.wait_procs(alive, timeout=GRACE)
        self._children.clear()
        return killed


def answers(port: int) -> bool:
    """Say whether something listens on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0
