"""Programs that the command line calls: one place, so that a test can put its own on the PATH."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lustrum.core.setup_steps import Command


@dataclass(frozen=True)
class Ran:
    """How a program ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def reason(self) -> str:
        """The lines that say why it failed; Terraform prints them in frames."""
        lines = [line.strip(" \t│╷╵") for line in (self.err or self.out).splitlines()]
        lines = [line for line in lines if line]
        start = next((i for i, line in enumerate(lines) if line.startswith("Error")), 0)
        return " ".join(lines[start : start + 6])[:600] or f"exit code {self.code}"


@dataclass
class Programs:
    """Runs programs in the repository; their output goes to a log that only its owner reads."""

    root: Path
    env: Mapping[str, str]
    log: Path
    on_line: Callable[[str], None] = lambda line: None

    def run(self, command: Command, stdin: str = "") -> Ran:
        """Run a command to its end.

        Ctrl-C is passed on once and its end awaited: Terraform then stores its state and gives
        back the lock. Raises KeyboardInterrupt.
        """
        argv = list(command.argv)
        if argv[0] == "python":
            argv[0] = sys.executable
        with tempfile.TemporaryFile("w+") as errors:
            try:
                process = subprocess.Popen(
                    argv,
                    cwd=self.root,
                    env={
                        **self.env,
                        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
                        "TF_IN_AUTOMATION": "1",
                    },
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    start_new_session=True,  # the terminal's Ctrl-C reaches us alone
                )
            except OSError as error:
                return Ran(127, "", f"{argv[0]}: {error.strerror}")
            assert process.stdin is not None and process.stdout is not None
            lines = []
            try:
                process.stdin.write(stdin)
                process.stdin.close()
                for line in process.stdout:
                    lines.append(line)
                    if not command.private:
                        self.on_line(line.rstrip())
                code = process.wait()
            except BrokenPipeError:
                code = process.wait()
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT)
                process.wait()
                raise
            errors.seek(0)
            ran = Ran(code, "".join(lines), errors.read())
        self._write(command, ran)
        return ran

    def _write(self, command: Command, ran: Ran) -> None:
        shown = "" if command.private else ran.out
        text = f"$ {shlex.join(command.argv)}\n{shown}{ran.err}exit code {ran.code}\n"
        with os.fdopen(
            os.open(self.log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600), "a"
        ) as to:
            to.write(text)
