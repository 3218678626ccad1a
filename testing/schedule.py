"""One simulated life as data: what is asked for, what goes wrong, and when.

Everything is decided before the life begins, so that a schedule can be printed, stored, shrunk
and played again. `draw` makes one from a seed: each life first draws which kinds of faults are
on at all (swarm testing), so that some lives see one kind alone and some see none.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, field
from typing import Any

from testing.dashboard import Script

STATES = (
    "REQUESTED",
    "QUEUED",
    "PROVISIONING",
    "STARTING_HEAD",
    "STAGING",
    "WAITING_FOR_GPUS",
    "TRAINING",
    "TRAINING",
    "TRAINING",
    "RECOVERING",
    "RELEASING",
    "EXPORTING",
    "DESTROYING",
    "VERIFYING",
    "LAST_HOUR",
)
ENDING = ("RELEASING", "EXPORTING", "DESTROYING", "VERIFYING")
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


def draw(seed: int) -> Schedule:
    """Make the schedule of a seed."""
    chance = random.Random(f"life {seed}")
    plan = Schedule(seed, request={"zones": ["us-east1-b", "us-east1-c", "us-central1-a"]})
    if chance.random() > 0.1:
        share = chance.choice([0.04, 0.1, 0.2, 0.35])
        plan.kinds = [kind for kind in KINDS if chance.random() < share]
        plan.kinds = plan.kinds or [chance.choice(KINDS)]
    for kind in plan.kinds:
        _add(plan, kind, chance)
    return plan


def _when(chance: random.Random, states: tuple[str, ...] = STATES) -> tuple[str, float]:
    state = chance.choice(states)
    most = SECONDS.get(state, 200)
    return state, round(chance.choice([0.0, 1.0, chance.uniform(0, most)]), 1)


def _add(plan: Schedule, kind: str, chance: random.Random) -> None:
    world = plan.world
    if kind in _WORLD:
        _WORLD[kind](world, chance, plan)
        return
    if kind in ("preempt", "head") and chance.random() < 0.5:
        # Each attempt loses it before it could save: that is nobody's crash loop.
        for entry in range(1, chance.choice([3, 4, 6])):
            detail = {**_DETAIL[kind](chance, "TRAINING"), "entry": entry}
            plan.faults.append(Fault(kind, "TRAINING", chance.choice([20.0, 50.0]), detail))
        return
    if kind == "room" and chance.random() < 0.5:
        # A node is lost and none comes: what was saved goes on in the next zone.
        plan.request["limits"] = {"capacity_wait_minutes": 5.0}
        plan.faults.append(Fault("room", "TRAINING", 500.0, {"room": 0}))
        plan.faults.append(Fault("preempt", "TRAINING", 501.0, {"count": 1, "events": True}))
        return
    for _ in range(chance.choice([1, 1, 2, 3])):
        state, after = _when(chance, ENDING if kind in _LATE and chance.random() < 0.6 else STATES)
        if kind == "meanwhile" and chance.random() < 0.6:
            after = 0.0  # what a state begins with
        plan.faults.append(Fault(kind, state, after, _DETAIL[kind](chance, state)))
    if kind == "list" and chance.random() < 0.6:
        world.destroys = ["lies"]
    if kind == "call":
        world.slow_calls = any(one.detail.get("mode") == "slow" for one in plan.faults)


_LATE = ("list", "kill", "execution", "second teardown", "meanwhile", "call", "lose")


def _function(chance: random.Random, state: str) -> str:
    return chance.choice(END_FUNCTIONS if state in ENDING else LIFE_FUNCTIONS)


def _call(chance: random.Random, state: str) -> dict[str, Any]:
    mode = chance.choice(["before", "before", "after", "after", "slow"])
    return {
        "mode": mode,
        "service": chance.choice(SERVICES),
        "function": chance.choice(["*", _function(chance, state)]),
        "skip": chance.choice([0, 0, 1, 2, 5]),
        "count": chance.choice([1, 1, 2, 4]),
        "seconds": chance.choice([5.0, 70.0, 280.0]),
    }


def _list(chance: random.Random, state: str) -> dict[str, Any]:
    service = chance.choice(["gke", "lustre", "compute", "builds", "*", "workflows"])
    mode = chance.choice(["hide", "hide", "stale", "partial", "partial"])
    if mode == "hide" and chance.random() < 0.4:  # every list at once, for one look or two
        return {"mode": mode, "count": chance.choice([4, 8]), "function": "take_inventory"}
    if mode == "partial":  # a zone does not answer
        return {"mode": mode, "count": 10_000, "lasting": chance.choice([300.0, 900.0, 1800.0])}
    return {
        "mode": mode,
        "service": service if service != "workflows" or mode != "hide" else "*",
        "method": LISTED.get(service, "*"),
        "function": chance.choice(["*", "take_inventory", "close_run", "reap_runs"]),
        "skip": chance.choice([0, 0, 1, 2, 3]),
        "count": chance.choice([1, 2, 2]) if mode == "hide" else chance.choice([1, 3, 10]),
    }


def _shape(chance: random.Random, state: str) -> dict[str, Any]:
    return {
        "mode": "shape",
        "service": chance.choice(SERVICES),
        "method": "*",
        "function": _function(chance, state),
        "skip": chance.choice([0, 1, 3]),
        "count": chance.choice([1, 2, 5]),
    }


def _denied(chance: random.Random, state: str) -> dict[str, Any]:
    return {
        "mode": "denied",
        "service": chance.choice(SERVICES[2:8]),
        "count": 10_000,
        "lasting": chance.choice([60.0, 900.0, 3600.0]),
    }


def _kill(chance: random.Random, state: str) -> dict[str, Any]:
    return {
        "mode": "kill",
        "function": chance.choice([_function(chance, state), "*"]),
        "skip": chance.choice([0, 1, 2, 3, 4, 6]),
        "count": 1,
    }


def _lose(chance: random.Random, state: str) -> dict[str, Any]:
    return {
        "function": _function(chance, state),
        "side": chance.choice(["before", "after"]),
        "times": chance.choice([1, 2, 4]),
    }


def _meanwhile(chance: random.Random, state: str) -> dict[str, Any]:
    """Mostly between what a function looked at and what it writes."""
    function = "submit_ray_job" if state == "TRAINING" else _function(chance, state)
    if chance.random() < 0.6:
        place: dict[str, Any] = {"service": "ledger", "method": "change"}
        place["skip"] = chance.choice([0, 0, 1])
    else:
        place = {"service": chance.choice(["*", "gke"]), "skip": chance.choice([0, 1, 2, 3])}
    act = chance.choice(["cancel", "cancel", "takeover", "reap", "extend"])
    return {"mode": "meanwhile", "function": function, "count": 1, "act": act, **place}


def _user(chance: random.Random, state: str) -> dict[str, Any]:
    what = chance.choice(
        ["cancel", "cancel", "discard", "extend", "extend much", "again", "garbage", "costly"]
    )
    return {"what": what, "number": chance.randrange(1000), "twice": chance.random() < 0.4}


def _forged(chance: random.Random, state: str) -> dict[str, Any]:
    return {
        "what": chance.choice(
            ["other run", "later attempt", "earlier attempt", "replay", "junk", "build", "no end"]
        ),
        "step": chance.choice([1, 20, 5000]),
    }


_DETAIL: dict[str, Any] = {
    "call": _call,
    "list": _list,
    "shape": _shape,
    "denied": _denied,
    "kill": _kill,
    "lose": _lose,
    "meanwhile": _meanwhile,
    "user": _user,
    "forged": _forged,
    "execution": lambda chance, state: {
        "workflow": "teardown" if state in ENDING else chance.choice(["rl-run", "teardown"])
    },
    "second teardown": lambda chance, state: {"final": chance.random() < 0.7},
    "away": lambda chance, state: {"seconds": chance.choice([30.0, 600.0, 3600.0])},
    "contention": lambda chance, state: {"conflicts": chance.choice([1, 3, 40])},
    "preempt": lambda chance, state: {
        "count": chance.choice([1, 1, 4]),
        "events": chance.random() < 0.6,
    },
    "head": lambda chance, state: {"seconds": chance.choice([30.0, 300.0, 900.0])},
    "room": lambda chance, state: {"room": chance.choice([0, 4, 8])},
    "alert": lambda chance, state: {
        "action": chance.choice(["notify", "prune", "stop", "check"]),
        "twice": chance.random() < 0.5,
        "number": chance.randrange(1000),
    },
    "reaper": lambda chance, state: {
        "mode": chance.choice(["kill", "before", "shape"]),
        "function": "reap_runs",
        "skip": chance.choice([0, 1, 3, 5]),
        "count": chance.choice([1, 20]),
    },
}


def _deploys(world: World, chance: random.Random, plan: Schedule) -> None:
    if chance.random() < 0.3:  # a build that outlives the wish to end it
        world.deploys.append({"seconds": 4000.0, "stubborn": True})
        detail = {"what": "cancel", "number": 0, "twice": False}
        plan.faults.append(Fault("user", "PROVISIONING", 300.0, detail))
        return
    for _ in range(chance.choice([1, 1, 2, 3])):
        world.deploys.append(
            {
                "failure": chance.choice(["STOCKOUT", "QUOTA", "BUILD_ERROR", "INFRA_TRANSIENT"]),
                "message": "told",
                "makes": chance.random() < 0.7,
                "seconds": chance.choice([30.0, 400.0, 900.0]),
                "status": chance.choice([None, None, None, "TIMEOUT", "INTERNAL_ERROR"]),
                "output": chance.random() < 0.8,
                "late": chance.random() < 0.3,
                "locks": chance.random() < 0.2,
            }
        )


def _destroys(world: World, chance: random.Random, plan: Schedule) -> None:
    world.destroys = chance.choices(["ok", "fails", "lies"], k=chance.randrange(1, 4))


def _exports(world: World, chance: random.Random, plan: Schedule) -> None:
    world.exports = chance.choices(["partial", "ok", "internal error"], k=chance.randrange(1, 5))
    world.export_seconds = chance.choice([120.0, 120.0, 1500.0])


def _scripts(world: World, chance: random.Random, plan: Schedule) -> None:
    """One of: the same step kills it again and again; it dies at ever later steps; it hangs each
    time; it runs out of memory; or each attempt has its own fate.
    """
    fate = chance.choice(["loop", "later", "hang", "memory", "mute", "any", "any"])
    first = chance.choice([1, 2, 3])
    for number in range(1, 9):
        script: dict[str, Any] = {"torn": chance.random() < 0.5}
        if fate == "loop":
            script["fail_at"] = first
        elif fate == "later":
            script["fail_at"] = 2 * number + 1
        elif fate == "hang":
            script["hang_at"] = 2 * number + 1
        elif fate == "mute":
            script["mute"] = True
        elif fate == "memory":
            script.update(fail_at=2 * number + 1, exit_code=137)
        else:
            script.update(_any_fate(chance))
        world.scripts[str(number)] = script
    if fate == "later" and chance.random() < 0.7:
        plan.request["limits"] = {"attempts": chance.choice([1, 2, 3])}
    if fate == "hang":
        plan.request["limits"] = {"hours": 10.0, "cost_usd": 100_000.0}


def _any_fate(chance: random.Random) -> dict[str, Any]:
    return {
        "fail_at": chance.choice([None, None, 3, 9, 15]),
        "hang_at": chance.choice([None, None, None, 7]),
        "leave_at": chance.choice([None, None, None, None, 5]),
        "silent": chance.random() < 0.2,
        "mute": chance.random() < 0.1,
        "exit_code": chance.choice([1, 1, 137]),
        "lag": chance.choice([0.0, 0.0, 20.0]),
    }


def _events(world: World, chance: random.Random, plan: Schedule) -> None:
    world.deliver_events = chance.random() < 0.5
    world.event_delay = chance.choice([1.0, 40.0, 600.0])


def _skew(world: World, chance: random.Random, plan: Schedule) -> None:
    world.skew = chance.choice([-60.0, -20.0, 20.0, 60.0])


def _old_record(world: World, chance: random.Random, plan: Schedule) -> None:
    world.old_record = True


def _things(world: World, chance: random.Random, plan: Schedule) -> None:
    from testing.agenda import EPOCH

    owner = {"managed-by": "lustrum"}
    if chance.random() < 0.7:
        kind, name = chance.choice(
            [("cluster", "rl-0000000000"), ("Lustre", "someones"), ("Lustre", "rl-0000000001")]
        )
        labels: dict[str, str] = chance.choice(
            [{}, {"lustrum-run": "rl-0000000000", "lustrum-expires": str(int(EPOCH))}]
        )
        world.strangers.append(Thing(kind, name, labels))
    if chance.random() < 0.6:
        expires = EPOCH + chance.choice([-7200.0, 1800.0, 7200.0])
        name = "rl-00000000aa"
        labels = {**owner, "lustrum-run": name, "lustrum-expires": str(int(expires))}
        for kind in chance.choice([["cluster"], ["Lustre"], ["cluster", "Lustre"]]):
            world.orphans.append(Thing(kind, name, labels, expires))


def _linger(world: World, chance: random.Random, plan: Schedule) -> None:
    world.linger = chance.choice([300.0, 2000.0])


def _twice(world: World, chance: random.Random, plan: Schedule) -> None:
    plan.attributes = chance.choice(
        [{"schedule": "nightly", "cron": "0 0 * * *", "tz": "Etc/UTC"}, {"idempotency_key": "k"}]
    )


def _slots(world: World, chance: random.Random, plan: Schedule) -> None:
    world.slots = True


def _limits(world: World, chance: random.Random, plan: Schedule) -> None:
    limits: dict[str, Any] = dict(plan.request.get("limits", {}))
    if chance.random() < 0.7:
        limits["hours"] = chance.choice([1.0, 1.2, 1.5, 2.5])
        world.step_seconds = chance.choice([60.0, 300.0, 300.0, 900.0])
    if chance.random() < 0.3:
        limits["attempts"] = chance.choice([1, 2, 3])
    if chance.random() < 0.3:
        limits["capacity_wait_minutes"] = chance.choice([5.0, 20.0])
    plan.request["limits"] = limits
    if chance.random() < 0.3:
        plan.request["checkpoints"] = {"required": False}


_WORLD: dict[str, Any] = {
    "deploys": _deploys,
    "destroys": _destroys,
    "exports": _exports,
    "script": _scripts,
    "events": _events,
    "skew": _skew,
    "old record": _old_record,
    "things": _things,
    "linger": _linger,
    "twice": _twice,
    "slots": _slots,
    "limits": _limits,
}
WHOLE_LIFE = frozenset(_WORLD)  # kinds that are no moment of a life
