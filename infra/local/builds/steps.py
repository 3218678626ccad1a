"""One build's steps as processes: entrypoint, environment, workspace, output, time limits,
killing.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from infra.local.processes import die_with_parent


@dataclass(frozen=True)
class Outcome:
    """How a step ended, and what it left in ``$BUILDER_OUTPUT/output``."""

    status: str  # SUCCESS, FAILURE, TIMEOUT
    code: int
    output: bytes
    timing: dict[str, str]
    tolerated: bool


class StepRunner:
    """Runs the steps of one build after each other."""

    def __init__(self, folder: Path, environment: Mapping[str, str], limit: float) -> None:
        self._folder = folder
        self._workspace = folder / "workspace"
        self._environment = dict(environment)
        self._end = time.monotonic() + limit
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False
        self._lock = threading.Lock()
        for name in ("workspace", "home"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def run(self, number: int, step: Mapping[str, Any]) -> Outcome:
        """Run one step and return how it ended."""
        output = self._folder / f"output-{number}"
        output.mkdir()
        started = _now()
        limit = self._end - time.monotonic()
        if "timeout" in step:
            limit = min(limit, float(str(step["timeout"]).removesuffix("s")))
        code, timed_out = self._execute(number, step, output, limit)
        found = output / "output"
        content = found.read_bytes() if found.is_file() else b""
        status = "TIMEOUT" if timed_out else "SUCCESS" if code == 0 else "FAILURE"
        tolerated = not timed_out and (
            bool(step.get("allowFailure")) or code in step.get("allowExitCodes", [])
        )
        return Outcome(status, code, content, {"startTime": started, "endTime": _now()}, tolerated)

    def kill(self) -> None:
        """Kill the step that runs with everything it started; no later one begins."""
        with self._lock:
            self._killed = True
            self._kill_group()

    def _execute(
        self, number: int, step: Mapping[str, Any], output: Path, limit: float
    ) -> tuple[int, bool]:
        command = self._command(number, step)
        name = step.get("id") or str(number)
        with (self._folder / "log.txt").open("ab") as log:
            log.write(f'Starting Step #{number} - "{name}" ({step["name"]})\n'.encode())
            log.flush()
            if limit <= 0:
                return 1, True
            with self._lock:
                if self._killed:
                    return 137, False
                self._process = subprocess.Popen(
                    command,
                    cwd=self._workspace / step.get("dir", ""),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    env=self._env(step, output),
                    preexec_fn=die_with_parent,
                )
            timed_out = False
            try:
                code = self._process.wait(limit)
            except subprocess.TimeoutExpired:
                timed_out, code = True, 137
            with self._lock:
                self._kill_group()  # also what a step left behind: a container would be gone
                self._process = None
            log.write(f'Finished Step #{number} - "{name}": exit code {code}\n'.encode())
        return code, timed_out

    def _command(self, number: int, step: Mapping[str, Any]) -> list[str]:
        if "script" in step:
            script = self._folder / f"script-{number}"
            text = str(step["script"])
            script.write_text(text)
            # Read by its interpreter, not executed: a fork elsewhere in this process may still
            # hold the file open for writing, and the kernel then refuses to execute it.
            first = text.splitlines()[0] if text.startswith("#!") else "#!/bin/sh"
            return [*first[2:].split(), str(script)]
        entrypoint = step.get("entrypoint")
        if not entrypoint:
            raise ValueError(
                f"step {number} ({step['name']}) needs its image's entrypoint, and there is no "
                "image here: give entrypoint or script"
            )
        path = self._environment.get("PATH", os.defpath)
        return [shutil.which(entrypoint, path=path) or entrypoint, *step.get("args", [])]

    def _env(self, step: Mapping[str, Any], output: Path) -> dict[str, str]:
        own = dict(item.split("=", 1) for item in step.get("env", []))
        return {
            **self._environment,
            "HOME": str(self._folder / "home"),
            **own,
            "BUILDER_OUTPUT": str(output),
        }

    def _kill_group(self) -> None:
        if self._process is None:
            return
        # By session, not by group: timeout(1) puts what it runs into a group of its own.
        for pid in psutil.pids():
            with suppress(ProcessLookupError, PermissionError):
                if os.getsid(pid) == self._process.pid:
                    os.kill(pid, signal.SIGKILL)
        self._process.wait()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
