"""One submission to a Ray head, as the stand-in dashboard keeps it, and how a training goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Job:
    """One submission."""

    identity: str
    entrypoint: str
    env: Mapping[str, str]
    metadata: Mapping[str, str]
    mode: str
    spec: dict[str, Any]
    began: float
    status: str = "RUNNING"
    exit_code: int | None = None
    message: str = ""
    log: list[str] = field(default_factory=list)
    cause: str = ""  # what really ended it: program, node, head, goal, limit; empty: nothing did
    ended: float | None = None
    moved: float = 0.0  # when it last finished a step
    told: bool = False  # its end was published


@dataclass
class Script:
    """How one training attempt goes; steps are of the whole training. None: it does not happen."""

    fail_at: int | None = None  # the program dies instead of finishing this step
    exit_code: int | None = 1
    message: str = "Traceback: boom"
    failure: str | None = None
    hang_at: int | None = None  # no step after this one, the status stays RUNNING
    watched: bool = False  # its heartbeats are printed, and the watchdog ends a hang
    idle_from: int | None = None  # the GPUs do nothing after this step; no other follows
    leave_at: int | None = None  # NeMo-RL's own time limit: exits 0 early
    data_end_at: int | None = None  # the data are at their end: exits 0 early
    step_seconds: float = 60.0
    save_seconds: float = 12.0  # that a save is told to have taken
    silent: bool = False  # not one event is published
    mute: bool = False  # and nothing is in the log either
    lag: float = 0.0  # seconds from the supervisor's last word until Ray knows of the end
    nccl: str = "h:1:2 [0] NCCL INFO Using network gIB"  # its line on the network, with RDMA
    torn: bool = False  # what ends it leaves the folder of a step whose save was not finished
