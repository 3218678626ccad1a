"""The supervisor and the training as a job of a real Ray cluster, which loses its worker node."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from lustrum.core.images import resolve
from lustrum.core.training_command import (
    TrainingCommand,
    entrypoint,
    supervisor_spec,
    training_argv,
)

from .conftest import ROOT, RUN, wait_for
from .google import Google

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]


STARTUP = 180  # seconds; Ray starts in 15 on two idle cores, and in minutes on busy ones


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cluster:
    """A head without accelerators and workers that claim one each, all on this machine."""

    def __init__(self) -> None:
        # A short path: Ray's sockets live in it, and their names are limited to 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="ljob-", dir="/tmp"))
        self.address = f"127.0.0.1:{free_port()}"
        self.dashboard = f"http://127.0.0.1:{free_port()}"
        self._nodes: list[subprocess.Popen[bytes]] = []
        _, dashboard_port = self.dashboard.rsplit(":", 1)
        self._dashboard_port = dashboard_port

    def start_head(self) -> None:
        self._start(
            "--head",
            f"--port={self.address.split(':')[1]}",
            "--num-cpus=1",
            "--num-gpus=0",
            f"--temp-dir={self.folder}",
            "--include-dashboard=true",
            "--dashboard-host=127.0.0.1",
            f"--dashboard-port={self._dashboard_port}",
            f"--ray-client-server-port={free_port()}",
        )
        wait_for("the dashboard", lambda: self.get("/api/version"), STARTUP)

    def add_worker(self, **environment: str) -> subprocess.Popen[bytes]:
        before = self.gpus()
        arguments = (f"--address={self.address}", "--num-cpus=1", "--num-gpus=1")
        node = self._start(*arguments, **environment)
        wait_for("the worker", lambda: self.gpus() > before, STARTUP)
        return node

    def lose(self, node: subprocess.Popen[bytes]) -> None:
        """End a node as a preemption does: everything at once, without a word."""
        tree = [psutil.Process(node.pid), *psutil.Process(node.pid).children(recursive=True)]
        for process in tree:
            with_signal(process, signal.SIGKILL)
        node.wait()
        self._nodes.remove(node)
        wait_for("the loss to be seen", lambda: self.gpus() == 0, STARTUP)

    def gpus(self) -> int:
        nodes = (self.get("/nodes?view=summary") or {}).get("data", {}).get("summary", [])
        alive = [node["raylet"] for node in nodes if node["raylet"].get("state") == "ALIVE"]
        return sum(int(node.get("resourcesTotal", {}).get("GPU", 0)) for node in alive)

    def get(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(self.dashboard + path, timeout=5) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return None

    def submit(self, identity: str, text: str) -> None:
        body = {"submission_id": identity, "entrypoint": text}
        request = urllib.request.Request(
            self.dashboard + "/api/jobs/",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )

        def accepted() -> bool:  # "No available agent" in the first moments of a head
            try:
                with urllib.request.urlopen(request, timeout=30):
                    return True
            except urllib.error.HTTPError as error:
                return b"already exists" in error.read()
            except OSError:
                return False

        wait_for("the submission", accepted, STARTUP)

    def job(self, identity: str) -> dict[str, Any]:
        return self.get(f"/api/jobs/{identity}") or {}

    def outcome(self, identity: str) -> dict[str, Any]:
        wait_for(
            "the end of the job",
            lambda: self.job(identity).get("status") in ("SUCCEEDED", "FAILED", "STOPPED"),
            STARTUP,
        )
        return self.job(identity)

    def close(self) -> None:
        tree = []
        for node in self._nodes:
            if psutil.pid_exists(node.pid):
                tree += [
                    psutil.Process(node.pid),
                    *psutil.Process(node.pid).children(recursive=True),
                ]
        for node in self._nodes:
            node.terminate()
        _, alive = psutil.wait_procs(tree, timeout=10)
        for process in alive:
            with_signal(process, signal.SIGKILL)
        for node in self._nodes:
            node.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
        environment = {key: value for key, value in os.environ.items() if key[:4] != "RAY_"}
        environment |= {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "RAY_USAGE_STATS_ENABLED": "0",
            **more,
        }
        command = [
            str(Path(sys.executable).parent / "ray"),
            "start",
            "--block",
            "--node-ip-address=127.0.0.1",
            "--object-store-memory=100000000",
            f"--dashboard-agent-listen-port={free_port()}",  # 52365 is another Ray's here
            *arguments,
        ]
        with (self.folder / "nodes.log").open("ab") as log:
            node = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)
        self._nodes.append(node)
        return node


def with_signal(process: psutil.Process, signum: int) -> None:
    try:
        process.send_signal(signum)
    except psutil.NoSuchProcess:
        return


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    try:
        cluster.start_head()
        yield cluster
    finally:
        cluster.close()


class TestOnRay:
    def test_training_survives_the_loss_of_its_worker_c1(
        self,
        cluster: Cluster,
        google: Google,
        cloud: dict[str, Any],
        supervisor: Path,
        tmp_path: Path,
    ) -> None:
        run = tmp_path / "runs" / RUN
        command = TrainingCommand(
            image=resolve("local/grpo-numpy:1"),
            model="local/arithmetic",
            nodes=1,
            gpus_per_node=1,
            checkpoint_dir=f"{run}/checkpoints",
            log_dir=f"{run}/logs",
            save_period=2,
            keep=2,
            max_num_steps=20,
            overrides={"local.step_seconds": 0.2},
        )

        def submit(attempt: int) -> str:
            spec = supervisor_spec(
                RUN,
                attempt,
                lustre=str(tmp_path),
                command=training_argv(command),
                workdir=str(ROOT),
                max_steps=20,
                model=command.model,
                gpu_seconds=0.5,
                heartbeat_seconds=0.5,
                **cloud,
            )
            identity = f"{RUN}-a{attempt}"
            cluster.submit(identity, entrypoint("train", spec, supervisor=str(supervisor)))
            return identity

        # NVML is on the workers alone, as the GPUs are: the head has to ask over there.
        figures = tmp_path / "nvml.json"
        gpu = {
            "utilisation": 80,
            "memory_used": 1,
            "memory_total": 4,
            "milliwatts": 9000,
            "xid": [31],
        }
        figures.write_text(json.dumps([gpu]))
        nvml = {"PYTHONPATH": str(ROOT / "testing/nvml"), "FAKE_NVML": str(figures)}
        worker = cluster.add_worker(**nvml)
        first = submit(1)
        wait_for("a checkpoint", (run / "checkpoints/step_4").exists, STARTUP)
        cluster.lose(worker)
        lost = cluster.outcome(first)
        assert (lost["status"], lost["driver_exit_code"]) == ("FAILED", 1)

        cluster.add_worker(**nvml)
        second = submit(2)
        done = cluster.outcome(second)
        assert (done["status"], done["driver_exit_code"]) == ("SUCCEEDED", 0)

        assert google.of("job.completed")[0]["exit_code"] == 1
        for attempt in (1, 2):
            told = [
                event["gpus"]
                for event in google.of("job.progress")
                if event["attempt"] == attempt and event["gpus"]
            ]
            assert told[-1]["count"] == told[-1]["nodes"] == 1
            assert (told[-1]["lowest"], told[-1]["memory_percent"]) == (80, 25.0)
            (fault,) = told[-1]["faults"]
            assert re.fullmatch(r"GPU 0 of node [0-9.]+: Xid 31", fault)
            assert told[-1]["busy_seconds"] > 0
        resumed = google.of("attempt.started")[1]["step"]
        assert 4 <= resumed < 20
        steps = {
            step["step"]: step["reward"]
            for event in google.of("job.progress")
            for step in event["steps"]
        }
        assert sorted(steps) == list(range(1, 21))
        assert steps[1] < 0.2 < 0.6 < steps[20]
        info = json.loads((run / "checkpoints/step_20/training_info.json").read_text())
        assert info["total_steps"] == 20
