"""Real Ray processes: a head, or a worker's raylet, each as a child process on loopback addresses.

Every node has an address of its own in 127.0.0.0/8 (Ray replaces 127.0.0.1 by the machine's
outer address), every port is chosen free outside Ray's default worker range (10002-19999) and the
system's ephemeral range; workers' own ports are left to the system (`--min-worker-port=0`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from infra.local.cloud import reaper

OBJECT_STORE = 80_000_000  # bytes; Ray refuses less than 78,643,200
_PORTS = range(20_100, 32_000)
PARENT = "LUSTRUM_CLOUD_PARENT"  # read by ray_node.py, which imports nothing of ours
_RAY = Path(__file__).with_name("ray_node.py")
# Slow machines are slow, not broken: Ray gives up on its dashboard's parts after 30 s.
_PATIENCE = {
    "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": "180",
    "RAY_raylet_start_wait_time_s": "180",
    "RAY_enable_metrics_collection": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_worker_niceness": "0",
    "SPT_NOENV": "1",  # process titles must not overwrite the environment: it carries the mark
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@dataclass
class Raylet:
    """A running `ray start --block`."""

    process: subprocess.Popen[bytes]
    address: str
    gcs: str
    dashboard: int | None
    agent: int
    log: Path

    @property
    def alive(self) -> bool:
        """Say whether it still runs."""
        return self.process.poll() is None

    def end(self) -> None:
        """End it with all its descendants at once, like a machine that is switched off."""
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            parent = psutil.Process(self.process.pid)
            family = [parent, *parent.children(recursive=True)]
            parent.suspend()  # it must not report, nor restart, what ends below it
            for process in family:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=30)


@dataclass
class Raylets:
    """Starts Ray processes for one cloud, and ends all of them.

    `start_*` must be called from a thread that lives as long as the cloud: the kernel ends a child
    when the *thread* that made it ends (PR_SET_PDEATHSIG).

    Args:
        root: the cloud's folder, for logs.
        env: what every pod's environment has besides its template's.
        workdir: working folder of the containers; jobs start there.
    """

    root: Path
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: Path | None = None

    def __post_init__(self) -> None:
        self.mark = secrets.token_hex(12)
        self._hosts = itertools.count(1)
        self._used: set[int] = set()
        self._temp: Path | None = None
        self._reaper: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._net = random.SystemRandom().randrange(1, 250)

    def start_head(self, name: str, env: Mapping[str, str], cpus: int, home: Path) -> Raylet:
        """Start a head; it takes no GPU."""
        address, ports = self._address(), self._ports(10)
        gcs, dashboard, agent = ports[0], ports[1], ports[2]
        temp = self._temp_dir() / secrets.token_hex(3)
        arguments = [
            "--head",
            f"--port={gcs}",
            "--dashboard-host=127.0.0.1",
            f"--dashboard-port={dashboard}",
            f"--temp-dir={temp}",
            "--include-dashboard=true",
            f"--ray-client-server-port={ports[8]}",
            "--num-gpus=0",
            *_common(address, ports, cpus),
        ]
        more = {"DASHBOARD_METRIC_PORT": str(ports[9])}
        process, log = self._spawn(name, arguments, {**more, **env}, home)
        return Raylet(process, address, f"{address}:{gcs}", dashboard, agent, log)

    def start_worker(
        self, name: str, env: Mapping[str, str], cpus: int, gpus: int, gcs: str, home: Path
    ) -> Raylet:
        """Start a worker that joins the head at ``gcs``."""
        address, ports = self._address(), self._ports(9)
        arguments = [
            f"--address={gcs}",
            f"--num-gpus={gpus}",
            *_common(address, ports, cpus),
        ]
        process, log = self._spawn(name, arguments, env, home)
        return Raylet(process, address, gcs, None, ports[2], log)

    def stop(self) -> None:
        """End every process of this cloud and remove Ray's temporary folder."""
        reaper.end_all(self.mark)
        if self._reaper is not None:
            assert self._reaper.stdin is not None
            self._reaper.stdin.close()
            self._reaper.wait(timeout=30)
        if self._temp is not None:
            shutil.rmtree(self._temp, ignore_errors=True)

    def _spawn(
        self, name: str, arguments: list[str], env: Mapping[str, str], home: Path
    ) -> tuple[subprocess.Popen[bytes], Path]:
        self._watch()
        log = self.root / "logs" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        home.mkdir(parents=True, exist_ok=True)
        binaries = str(Path(sys.executable).parent)
        # Not the environment of this process: what is in it is not the pods' to see.
        basic = {
            "PATH": f"{binaries}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "VIRTUAL_ENV": sys.prefix,
        }
        complete = {**basic, **_PATIENCE, **self.env, **env, reaper.MARK: self.mark}
        complete[PARENT] = str(os.getpid())
        with log.open("ab") as file:
            process = subprocess.Popen(
                [sys.executable, str(_RAY), "start", *arguments],
                env=complete,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=self.workdir or home,
                start_new_session=True,
            )
        return process, log

    def _watch(self) -> None:
        if self._reaper is None:
            self._reaper = subprocess.Popen(
                [sys.executable, str(Path(reaper.__file__)), self.mark, str(self._temp_dir())],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )

    def _temp_dir(self) -> Path:
        # Sockets below it are 69 characters longer, and a socket's path may have 107.
        if self._temp is None:
            self._temp = Path(tempfile.mkdtemp(prefix="lr-", dir="/tmp"))
        return self._temp

    def _address(self) -> str:
        number = next(self._hosts)
        return f"127.{self._net}.{number // 250}.{number % 250 + 2}"

    def _ports(self, count: int) -> list[int]:
        found: list[int] = []
        with self._lock:
            while len(found) < count:
                port = random.SystemRandom().choice(_PORTS)
                if port not in self._used and _is_free(port):
                    self._used.add(port)
                    found.append(port)
        return found


def _common(address: str, ports: list[int], cpus: int) -> list[str]:
    return [
        "--block",
        "--disable-usage-stats",
        f"--node-ip-address={address}",
        f"--dashboard-agent-listen-port={ports[2]}",
        f"--dashboard-agent-grpc-port={ports[3]}",
        f"--runtime-env-agent-port={ports[4]}",
        f"--node-manager-port={ports[5]}",
        f"--object-manager-port={ports[6]}",
        f"--metrics-export-port={ports[7]}",
        "--min-worker-port=0",
        "--max-worker-port=0",
        f"--num-cpus={cpus}",
        f"--object-store-memory={OBJECT_STORE}",
        "--include-log-monitor=false",
    ]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True
