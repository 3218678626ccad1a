"""The GPUs of a running training: what they did so far, and whether they idle."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from lustrum.head.gpu_counters import Reading
from lustrum.head.output import Event, Voice
from lustrum.head.spec import Spec

IDLE_BELOW = 5.0  # percent, mean over all GPUs
AGAIN = 60.0  # seconds until a sampler that ended is started again
FAULTS = 8  # named in a heartbeat
# The codes that NVIDIA's catalogue answers with a reset or an exchange of the GPU; 13, 31, 43 and
# 45 are the program's own faults. Source: NVIDIA's Xid catalogue.
BROKEN = frozenset((48, 64, 74, 79, 92, 94, 95, 110, 119, 120, 136, 140, 143, 144, 145, 149))


class GpuMeter:
    """Adds up readings. Seconds are GPU-seconds where two GPUs in one second are two."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._newest: list[Reading] = []
        self._ecc: dict[tuple[str, int], int] = {}
        self._sum = self._seen = 0.0  # since the last heartbeat
        self._mean: float | None = None
        self.busy_seconds = 0.0
        self.seen_seconds = 0.0
        self.idle_seconds = 0.0

    def add(self, readings: list[Reading], now: float, phase: str, period: float) -> None:
        """Take one round of readings; ``phase`` is the training's, ``period`` seconds.

        Idle time is counted while steps are made. A save neither counts nor ends it: NeMo-RL's
        blocks the step, and the GPUs with it.
        """
        known = [one for one in readings if one.get("utilisation") is not None]
        self._newest = readings or self._newest
        for one in readings:
            if one.get("ecc") is not None:
                self._ecc.setdefault((one["node"], one["index"]), one["ecc"])
        passed = period if self._last is None else min(now - self._last, 3 * period)
        self._last = now
        if not known:
            return
        total = sum(one["utilisation"] for one in known)
        self.busy_seconds += passed * total / 100
        self.seen_seconds += passed * len(known)
        self._sum, self._seen = self._sum + total, self._seen + len(known)
        if total / len(known) >= IDLE_BELOW or phase == "starting":
            self.idle_seconds = 0.0
        elif phase != "saving":
            self.idle_seconds += passed

    def faults(self) -> list[str]:
        """Return what GPUs have reported of themselves since the attempt began, newest reading."""
        found = []
        for one in self._newest:
            name = f"GPU {one['index']}" + (f" of node {one['node']}" if one["node"] else "")
            codes = sorted(set(one.get("xid") or ()))
            found += [f"{name}: Xid {code}" for code in codes]
            new = (one.get("ecc") or 0) - self._ecc.get((one["node"], one["index"]), 0)
            if new > 0:
                found.append(f"{name}: {new} uncorrectable ECC errors")
        return found

    def broken(self) -> str:
        """Return the first report that is the GPU's own failure, "" when there is none."""
        for fault in self.faults():
            if "ECC" in fault or int(fault.rsplit(" ", 1)[1]) in BROKEN:
                return fault
        return ""

    def report(self) -> Event | None:
        """Return what a heartbeat says; None when no GPU was seen."""
        newest = self._newest
        if not newest:
            return None
        used, total = _sum(newest, "memory_used"), _sum(newest, "memory_total")
        if self._seen:  # else nothing was read since: the mean before still holds
            self._mean = self._sum / self._seen
        mean = self._mean
        self._sum = self._seen = 0.0
        return {
            "count": len(newest),
            "nodes": len({one["node"] for one in newest}),
            "utilisation": None if mean is None else round(mean, 1),
            "lowest": min((one["utilisation"] or 0 for one in newest), default=None),
            "memory_percent": round(100 * used / total, 1) if used is not None and total else None,
            "watts": _sum(newest, "watts"),
            "ecc": _sum(newest, "ecc"),
            "xid": sum(len(one.get("xid") or ()) for one in newest),
            "busy_seconds": round(self.busy_seconds, 1),
            "seen_seconds": round(self.seen_seconds, 1),
            "idle_seconds": round(self.idle_seconds, 1),
            "faults": self.faults()[:FAULTS],
        }


def _sum(readings: list[Reading], key: str) -> Any:
    values = [one[key] for one in readings if one.get(key) is not None]
    return sum(values) if values else None


class GpuWatch(threading.Thread):
    """Keeps a sampler running and adds up what it says, in a thread of its own: whatever Ray or
    NVML do, the training and the rest of the supervisor go on.
    """

    def __init__(self, spec: Spec, voice: Voice) -> None:
        super().__init__(daemon=True, name="gpus")
        self._spec, self._voice = spec, voice
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._told = False
        self._idle = False
        self._phase = "starting"
        self.use = GpuMeter()

    def run(self) -> None:
        """Sample until `finish`; a sampler that ends is started again after a while."""
        while not self._ended.is_set():
            try:
                self._sample()
            except OSError as error:
                self._say(f"GPUs cannot be watched: {error}")
            self._ended.wait(AGAIN)

    def finish(self) -> None:
        """End the sampler."""
        self._ended.set()
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def look(self, phase: str, step: int) -> bool:
        """Say whether the GPUs have idled for as long as the spec allows, telling it once each
        time they do; ``phase`` and ``step`` are where the training is.
        """
        self._phase = phase
        seconds = self.use.idle_seconds
        idle = seconds >= self._spec.gpus_idle_seconds
        if idle and not self._idle:
            self._voice.event("job.gpus_idle", step, idle_seconds=round(seconds, 1))
        self._idle = idle
        return idle

    def _sample(self) -> None:
        with self._lock:
            if self._ended.is_set():
                return
            process = self._process = start_sampler(self._spec.gpu_seconds)
        assert process.stdout is not None
        for line in process.stdout:
            try:
                readings = json.loads(line)["gpus"]
            except (ValueError, KeyError, TypeError):
                continue  # Ray prints now and then
            now = time.monotonic()
            self.use.add(readings, now, self._phase, self._spec.gpu_seconds)
        code = process.wait()
        if not self._ended.is_set():
            self._say(f"the reading of the GPUs ended (exit {code}), trying again")

    def _say(self, text: str) -> None:
        if not self._told:
            self._voice.say(f"lustrum: {text}")
        self._told = True


def start_sampler(seconds: float) -> subprocess.Popen[bytes]:
    """Start `gpu_sampler` in a process group of its own that ends with this process."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = [root, os.environ.get("PYTHONPATH", "")]  # root: a folder, or our zip application
    path = os.pathsep.join(one for one in paths if one)
    libc = ctypes.CDLL(None)
    return subprocess.Popen(
        [sys.executable, "-m", "lustrum.head.gpu_sampler", str(seconds)],
        env=dict(os.environ, PYTHONPATH=path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: libc.prctl(1, signal.SIGKILL),  # PR_SET_PDEATHSIG
    )
