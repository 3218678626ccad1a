"""One simulated life as data: what is asked for, what goes wrong, and when.

Everything is decided before the life begins, so that a schedule can be printed, stored, shrunk
and played again. `testing.draw.draw` makes one from a seed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from testing.dashboard import Script

LIVE = (
    "REQUESTED",
    "QUEUED",
    "PROVISIONING",
    "STARTING_HEAD",
    "STAGING",
    "WAITING_FOR_GPUS",
    "TRAINING",
    "RECOVERING",
)
ENDING = ("RELEASING", "EXPORTING", "DESTROYING", "VERIFYING")
# Where a fault is drawn: most often in the training, and at times in the hour before the deadline.
MOMENTS = (*LIVE[:-1], "TRAINING", "TRAINING", LIVE[-1], *ENDING, "LAST_HOUR")
SECONDS = {"TRAINING": 1500, "LAST_HOUR": 3600, "PROVISIONING": 900}
LIFE_FUNCTIONS = (
    "advance_run",
    "apply_ray_cluster",
    "stage_data",
    "submit_ray_job",
    "check_ray_job",
)
END_FUNCTIONS = (
    "advance_run",
    "stop_ray_job",
    "release_accelerators",
    "export_checkpoints",
    "delete_ray_cluster",
    "take_inventory",
    "close_run",
)
LISTED = {
    "gke": "list",
    "lustre": "list",
    "compute": "machines",
    "builds": "tagged",
    "workflows": "is_live",
}
SERVICES = (
    "ledger",
    "workflows",
    "builds",
    "gke",
    "lustre",
    "compute",
    "storage",
    "kubernetes",
    "publisher",
    "project",
)
KINDS = (
    "call",
    "list",
    "shape",
    "denied",
    "kill",
    "lose",
    "execution",
    "second teardown",
    "meanwhile",
    "away",
    "contention",
    "preempt",
    "head",
    "room",
    "deploys",
    "destroys",
    "exports",
    "script",
    "events",
    "forged",
    "alert",
    "reaper",
    "skew",
    "old record",
    "things",
    "linger",
    "user",
    "twice",
    "limits",
    "slots",
)


@dataclass
class Fault:
    """One thing that goes wrong ``after`` seconds in a state (entered for the ``nth`` time)."""

    kind: str
    state: str
    after: float
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass
class Thing:
    """A cluster or instance that belongs to no run of the ledger."""

    kind: str  # cluster, Lustre
    name: str
    labels: dict[str, str]
    expires: float = 0.0


@dataclass
class World:
    """How the cloud is in this life, whatever happens."""

    deploys: list[dict[str, Any]] = field(default_factory=list)
    destroys: list[str] = field(default_factory=list)
    exports: list[str] = field(default_factory=list)
    export_seconds: float = 120.0
    scripts: dict[str, dict[str, Any]] = field(default_factory=dict)
    step_seconds: float = 60.0
    deliver_events: bool = True
    event_delay: float = 1.0
    skew: float = 0.0
    old_record: bool = False
    strangers: list[Thing] = field(default_factory=list)
    orphans: list[Thing] = field(default_factory=list)
    linger: float = 0.0
    slow_calls: bool = False
    slots: bool = False  # every network slot of the first region is taken
    steps_before: int = 0

    def script(self, attempt: int) -> Script:
        """Return how an attempt goes."""
        return Script(**{"step_seconds": self.step_seconds, **self.scripts.get(str(attempt), {})})


@dataclass
class Schedule:
    """One life."""

    seed: int
    kinds: list[str] = field(default_factory=list)
    request: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    world: World = field(default_factory=World)
    faults: list[Fault] = field(default_factory=list)

    @property
    def faulty(self) -> bool:
        """Say whether anything at all is out of the ordinary."""
        return bool(self.kinds)

    def text(self) -> str:
        """Return it as JSON, readable: defaults are left out."""
        plain, usual = asdict(self), asdict(Schedule(self.seed))
        plain["world"] = {k: v for k, v in plain["world"].items() if v != usual["world"][k]}
        return json.dumps({k: v for k, v in plain.items() if v}, indent=1)


def read(text: str) -> Schedule:
    """Read what `Schedule.text` wrote."""
    found = json.loads(text)
    world = found.get("world", {})
    for kind in ("strangers", "orphans"):
        world[kind] = [Thing(**one) for one in world.get(kind, [])]
    found["world"] = World(**world)
    found["faults"] = [Fault(**one) for one in found.get("faults", [])]
    return Schedule(**{"seed": 0, **found})
