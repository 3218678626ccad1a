"""One submission to a Ray head, as the stand-in dashboard keeps it."""

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
