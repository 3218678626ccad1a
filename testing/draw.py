"""Make the schedule of a seed.

Each life first draws which kinds of faults are on at all (swarm testing), so that some lives see
one kind alone and some see none.
"""

from __future__ import annotations

import random

from testing.draw_moments import DETAILS
from testing.draw_worlds import WORLDS
from testing.schedule import ENDING, KINDS, MOMENTS, SECONDS, Fault, Schedule


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


def _when(chance: random.Random, states: tuple[str, ...] = MOMENTS) -> tuple[str, float]:
    state = chance.choice(states)
    most = SECONDS.get(state, 200)
    return state, round(chance.choice([0.0, 1.0, chance.uniform(0, most)]), 1)


def _add(plan: Schedule, kind: str, chance: random.Random) -> None:
    world = plan.world
    if kind in WORLDS:
        WORLDS[kind](world, chance, plan)
        return
    if kind in ("preempt", "head") and chance.random() < 0.5:
        # Each attempt loses it before it could save: that is nobody's crash loop.
        for entry in range(1, chance.choice([3, 4, 6])):
            detail = {**DETAILS[kind](chance, "TRAINING"), "entry": entry}
            plan.faults.append(Fault(kind, "TRAINING", chance.choice([20.0, 50.0]), detail))
        return
    if kind == "room" and chance.random() < 0.5:
        # A node is lost and none comes: what was saved goes on in the next zone.
        plan.request["limits"] = {"capacity_wait_minutes": 5.0}
        plan.faults.append(Fault("room", "TRAINING", 500.0, {"room": 0}))
        plan.faults.append(Fault("preempt", "TRAINING", 501.0, {"count": 1, "events": True}))
        return
    for _ in range(chance.choice([1, 1, 2, 3])):
        state, after = _when(
            chance, ENDING if kind in _LATE and chance.random() < 0.6 else MOMENTS
        )
        if kind == "meanwhile" and chance.random() < 0.6:
            after = 0.0  # what a state begins with
        plan.faults.append(Fault(kind, state, after, DETAILS[kind](chance, state)))
        if kind == "meanwhile" and state == "RECOVERING":  # so that there is something to recover
            lost = {"count": 1, "events": True}
            plan.faults.append(Fault("preempt", "TRAINING", 200.0, lost))
    if kind == "list" and chance.random() < 0.6:
        world.destroys = ["lies"]
    if kind == "call":
        world.slow_calls = any(one.detail.get("mode") == "slow" for one in plan.faults)


_LATE = ("list", "kill", "execution", "second teardown", "meanwhile", "call", "lose")
