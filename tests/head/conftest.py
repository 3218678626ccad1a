"""A Ray head without Ray: the real supervisor, a fake training, a folder as Lustre."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lustrum.adapters.supervisor_archive import supervisor_archive

from .google import Google, serving

ROOT = Path(__file__).parents[2]
RUN = "rl-0123456789"
DEADLINE = 30  # seconds any single wait of a test may take


def wait_for(what: str, condition: Callable[[], Any], seconds: float = DEADLINE) -> Any:
    """Poll until the condition holds and return its value."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"{what}: not within {seconds} s")


class Head:
    """Runs the supervisor and keeps what it prints."""

    def __init__(self, folder: Path, supervisor: Path) -> None:
        self.supervisor = supervisor
        self.lustre = folder / "lustre"
        self.lustre.mkdir()
        self.checkpoints = self.lustre / "runs" / RUN / "checkpoints"
        self.logs = self.lustre / "runs" / RUN / "logs"
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []
        self.output = folder / "driver.log"
        self.environment: dict[str, str] = {}
        self.python = sys.executable

    def spec(self, **more: Any) -> dict[str, Any]:
        quick = {"poll_seconds": 0.05, "heartbeat_seconds": 0.2, "grace_seconds": 5}
        quick |= {"metadata_wait_seconds": 0, "flush_seconds": 5}
        return {"run_id": RUN, "attempt": 1, "lustre": str(self.lustre)} | quick | more

    def start(self, mode: str, **more: Any) -> subprocess.Popen[bytes]:
        environment = {"PATH": os.environ["PATH"], **self.environment}
        with self.output.open("wb") as file:
            process = subprocess.Popen(
                [self.python, str(self.supervisor), mode, "--spec", json.dumps(self.spec(**more))],
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=environment,
            )
        self._started.append(process)
        return process

    def run(self, mode: str, **more: Any) -> int:
        return self.start(mode, **more).wait(DEADLINE)

    def train(self, script: str, **more: Any) -> int:
        return self.run("train", command=self.command(script), **more)

    def command(self, script: str) -> list[str]:
        """A training written in this language: it has `save(n)`, `step(n)` and `say(text)`."""
        path = self._folder / "training.py"
        path.write_text(PRELUDE.format(root=str(self.checkpoints)) + script)
        return [sys.executable, str(path)]

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        found = [
            json.loads(line[8:]) for line in self.text().splitlines() if line[:8] == "LUSTRUM "
        ]
        return [event for event in found if kind in (None, event["type"])]

    def last(self, kind: str) -> dict[str, Any]:
        return self.events(kind)[-1]

    def checkpoint(self, name: str, total: int | None = None, model: str | None = None) -> Path:
        """Make a step folder by hand, with four files when `total` is given, else without info."""
        folder = self.checkpoints / name
        (folder / "policy/weights").mkdir(parents=True)
        (folder / "policy/weights/model.bin").write_bytes(b"w" * 100)
        (folder / "train_dataloader.pt").write_bytes(b"d" * 10)
        if model:
            (folder / "config.yaml").write_text(f'policy:\n  model_name: "{model}"\n  x: 1\n')
        if total is not None:
            (folder / "training_info.json").write_text(json.dumps({"total_steps": total}))
        return folder

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


PRELUDE = '''
import json, os, pathlib, signal, sys, time
root = pathlib.Path("{root}")
def say(text):
    print(text, flush=True)
def banner(n, last=20):
    say("=" * 25 + f" Step {{n}}/{{last}} " + "=" * 25)
def results(n):
    say("📊 Training Results:")
    say(f"  • Loss: 0.1000\\n  • Avg Reward: 0.{{n:02d}}00")
    say("⏱️  Timing:\\n  • Total step time: 1.50s\\n  • checkpointing: 0.25s (16.7%)")
def write(n, commit=True):
    say(f"Saving checkpoint for step {{n}}...")
    tmp = root / f"tmp_step_{{n}}"
    (tmp / "policy/weights").mkdir(parents=True)
    (tmp / "policy/weights/model.bin").write_bytes(b"w" * 1000)
    (tmp / "training_info.json").write_text(json.dumps({{"total_steps": n}}))
    (tmp / "config.yaml").write_text("policy:\\n  model_name: local/arithmetic\\n")
    if commit:
        tmp.rename(root / f"step_{{n}}")
def train(first, last, period=2):
    for n in range(first, last + 1):
        banner(n)
        if n % period == 0:
            write(n)
        results(n)
def hold(path):
    """Wait until the test makes this file."""
    while not pathlib.Path(path).exists():
        time.sleep(0.01)
'''


@pytest.fixture(scope="session")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the ConfigMap brings to a head."""
    path = tmp_path_factory.mktemp("etc") / "supervisor.pyz"
    path.write_bytes(supervisor_archive())
    return path


@pytest.fixture
def head(tmp_path: Path, supervisor: Path) -> Iterator[Head]:
    head = Head(tmp_path, supervisor)
    yield head
    head.close()


@pytest.fixture
def google() -> Iterator[Google]:
    with serving() as google:
        yield google


@pytest.fixture
def cloud(google: Google) -> dict[str, Any]:
    """The spec's keys that lead to the Google of this test."""
    return {
        "project": "test-project",
        "pubsub_endpoint": google.url,
        "storage_endpoint": google.url,
        "metadata_endpoint": google.url,
    }
