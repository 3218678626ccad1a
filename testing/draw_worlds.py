"""How the cloud may be in a whole simulated life: one function for each kind."""

from __future__ import annotations

import random
from typing import Any

from testing.schedule import Fault, Schedule, Thing, World


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
    if fate == "mute" and chance.random() < 0.6:  # only the disk knows what was saved
        detail = {"what": "cancel", "number": 0, "twice": False}
        plan.faults.append(Fault("user", "TRAINING", 400.0, detail))
        plan.faults.append(Fault("head", "RELEASING", 0.0, {"seconds": 200.0}))
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


WORLDS: dict[str, Any] = {
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
WHOLE_LIFE = frozenset(WORLDS)  # kinds that are no moment of a life
