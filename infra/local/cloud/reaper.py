"""Ends every process of a stand-in cloud, also when the cloud itself was killed.

Ray starts processes in sessions and groups of their own, so neither a process group nor a parent
finds them all. Every child of the cloud carries `MARK` in its environment, and so do its children.
Run as a program, it waits until the pipe of its standard input closes, which happens however the
cloud ends, then ends what is marked and removes the folders named on its command line.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time

import psutil

MARK = "LUSTRUM_CLOUD_PROCESS"


def marked(mark: str) -> list[psutil.Process]:
    """Return the living processes that carry a mark, but for this one."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if process.environ().get(MARK) == mark:
                found.append(process)
    return found


def end_all(mark: str, seconds: float = 15.0) -> int:
    """Kill every marked process and return how many there were; repeated while new ones appear."""
    ended = 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = marked(mark)
        if not found:
            break
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
                ended += 1
        psutil.wait_procs(found, timeout=2)
    return ended


def main() -> None:
    """Wait for the end of standard input, then end what carries the mark of argument 1."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a Ctrl-C of the terminal is the cloud's to handle
    mark, folders = sys.argv[1], sys.argv[2:]
    sys.stdin.buffer.read()
    end_all(mark)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
