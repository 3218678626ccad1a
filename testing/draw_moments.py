"""What may go wrong at one moment of a simulated life: the detail of each kind of fault."""

from __future__ import annotations

import random
from typing import Any

from testing.schedule import END_FUNCTIONS, ENDING, LIFE_FUNCTIONS, LISTED, SERVICES


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


_BUSY: dict[str, list[str]] = {  # state -> the functions that write in it
    "REQUESTED": ["advance_run"],
    "QUEUED": ["advance_run"],
    "PROVISIONING": ["advance_run"],
    "STARTING_HEAD": ["advance_run", "apply_ray_cluster"],
    "STAGING": ["advance_run", "stage_data"],
    "WAITING_FOR_GPUS": ["advance_run", "apply_ray_cluster"],
    "TRAINING": ["submit_ray_job"],
    "RECOVERING": ["advance_run", "advance_run", "submit_ray_job"],
}


def _meanwhile(chance: random.Random, state: str) -> dict[str, Any]:
    """Mostly between what a function looked at and what it writes."""
    function = chance.choice(_BUSY.get(state) or [_function(chance, state)])
    if chance.random() < 0.6:
        place: dict[str, Any] = {"service": "ledger", "method": "change"}
        place["skip"] = chance.choice([0, 0, 1, 2])
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


DETAILS: dict[str, Any] = {
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
    "second teardown": lambda chance, state: {
        "final": chance.random() < 0.7,
        "workflow": "teardown" if state in ENDING else chance.choice(["teardown", "rl-run"]),
    },
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
