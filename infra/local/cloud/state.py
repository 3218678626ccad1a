"""What all parts of the stand-in cloud share: the lock, the clock, operations and errors.

Everything lives in memory behind one re-entrant lock; only file contents (buckets, Lustre) are on
disk. Work that takes time is put into `State.later` and done by the cloud's one controller thread,
so that a slow client never delays another.
"""

from __future__ import annotations

import heapq
import itertools
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.local.cloud.faults import Faults

# google.rpc.Code name -> HTTP status of Google's REST APIs (google/rpc/code.proto).
HTTP_STATUS = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "ALREADY_EXISTS": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "INTERNAL": 500,
    "UNKNOWN": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


class Problem(Exception):
    """A refusal of a Google API.

    Attributes:
        code: name of a google.rpc.Code.
        message: what the caller reads.
        status: HTTP status, by default the one that belongs to the code.
    """

    def __init__(self, code: str, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status or HTTP_STATUS[code]

    def body(self) -> dict[str, Any]:
        """Return the JSON error of Google's REST APIs."""
        return {"error": {"code": self.status, "message": self.message, "status": self.code}}


@dataclass
class Timings:
    """How long things take, in seconds. Real ones take minutes; the order is what matters."""

    cluster_create: float = 0.4
    cluster_delete: float = 0.3
    pool_create: float = 0.3
    pool_delete: float = 0.3
    update: float = 0.05
    operator: float = 0.3  # the RayCluster CRD appears so long after the cluster is RUNNING
    node_boot: float = 0.3  # from a pending pod to a node
    lustre_create: float = 0.3
    lustre_delete: float = 0.2
    transfer: float = 0.2  # the least time of an import or export
    recreate: float = 2.0  # a lost pod is made anew so long after (KubeRay requeues)


@dataclass(order=True)
class _Task:
    due: float
    order: int
    run: Callable[[], None] = field(compare=False)


class State:
    """The memory of the cloud.

    Attributes:
        root: folder of file contents, logs and process directories.
        project: the one project there is; other projects are refused.
        lock: held while anything here is read or changed.
        clusters: (location, name) -> `gke_messages.ClusterState`.
        instances: full resource name -> Lustre instance (REST shape).
        operations: full resource name -> operation, per service.
        series: values set by a test, see `monitoring`.
        acts_as: service accounts that makers of node pools may act as; None: as any.
    """

    def __init__(self, root: Path, project: str, timings: Timings, faults: Faults) -> None:
        self.root = root
        self.project = project
        self.number = "415104041262"
        self.timings = timings
        self.faults = faults
        self.lock = threading.RLock()
        self.clusters: dict[tuple[str, str], Any] = {}
        self.gke_operations: dict[str, Any] = {}
        self.instances: dict[str, dict[str, Any]] = {}
        self.lustre_operations: dict[str, dict[str, Any]] = {}
        self.written: dict[str, list[tuple[float, int]]] = {}
        self.series: dict[tuple[str, str], int] = {}
        self.vms: dict[str, dict[str, Any]] = {}  # machines that no cluster explains
        self.tokens: dict[str, float] = {}
        self.acts_as: frozenset[str] | None = None
        self.wake = threading.Event()
        self._tasks: list[_Task] = []
        self._order = itertools.count()
        self._log = root / "logs" / "cloud.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._log_lock = threading.Lock()

    def check_project(self, project: str) -> None:
        """Refuse a foreign project like the service does. Raises Problem."""
        if project not in (self.project, self.number):
            raise Problem(
                "PERMISSION_DENIED",
                f"Permission denied on resource project {project} (this cloud has only "
                f"{self.project}).",
            )

    def later(self, seconds: float, run: Callable[[], None]) -> None:
        """Do something so many seconds from now, with the lock held, in the controller thread."""
        with self.lock:
            task = _Task(time.monotonic() + seconds, next(self._order), run)
            heapq.heappush(self._tasks, task)
        self.wake.set()

    def run_due(self) -> None:
        """Do everything whose time has come."""
        with self.lock:
            while self._tasks and self._tasks[0].due <= time.monotonic():
                heapq.heappop(self._tasks).run()

    def next_due(self) -> float | None:
        """Return the seconds until the next task, or None."""
        with self.lock:
            return max(0.0, self._tasks[0].due - time.monotonic()) if self._tasks else None

    def log(self, service: str, what: str) -> None:
        """Write one line of `logs/cloud.log`: a change and on what. No bodies: secrets."""
        with self._log_lock, self._log.open("a") as file:
            file.write(f"{now()} {service} {what}\n")

    def seconds(self, operation: str, default: float) -> float:
        """Return how long an operation takes: its timing, or what a fault says."""
        return self.faults.delay_of(operation, default)

    def failure(self, operation: str) -> str | None:
        """Return the text with which an operation of this kind ends badly, or None."""
        return self.faults.end_of(operation)


def now() -> str:
    """Return the present moment as RFC 3339 text, in UTC with microseconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def unique(length: int = 8) -> str:
    """Return random hex digits."""
    return secrets.token_hex((length + 1) // 2)[:length]
