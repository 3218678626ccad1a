"""Generated faults of one simulated life: arranged before it, or struck while it runs."""

from __future__ import annotations

import random

from testing.cloud import Deploy, unavailable
from testing.dashboard import Script
from testing.life import Life, lose_answer

FUNCTION_NAMES = (
    "advance_run",
    "apply_ray_cluster",
    "check_ray_job",
    "close_run",
    "delete_ray_cluster",
    "export_checkpoints",
    "release_accelerators",
    "stage_data",
    "stop_ray_job",
    "submit_ray_job",
    "take_inventory",
)


def misfortune(life: Life, chance: random.Random) -> None:
    """Arrange what goes wrong in one life."""
    for _ in range(chance.randrange(3)):
        life.after.append(lose_answer(chance.choice(FUNCTION_NAMES), chance.randrange(1, 4)))
    life.cloud.deploys = [
        Deploy(
            chance.choice(["STOCKOUT", "QUOTA", "BUILD_ERROR", "INFRA_TRANSIENT"]),
            "told",
            makes=chance.random() < 0.7,
            seconds=chance.choice([30, 400, 900]),
        )
        for _ in range(chance.randrange(3))
    ]
    life.cloud.destroys = chance.choices(["ok", "fails", "lies"], k=chance.randrange(4))
    life.cloud.exports = chance.choices(["partial", "ok", "internal error"], k=chance.randrange(3))
    life.cloud.scripts = {
        n: Script(
            fail_at=chance.choice([None, None, None, 3, 9]),
            hang_at=chance.choice([None, None, None, 7]),
            silent=chance.random() < 0.3,
            mute=chance.random() < 0.1,
        )
        for n in range(1, 10)
    }
    life.deliver_events = chance.random() < 0.8
    flaky = chance.choice([None, None, "gke", "lustre", "builds", "compute", "storage"])
    if flaky:
        life.cloud.hooks.append(
            lambda service, method: (
                _raise(service) if service == flaky and chance.random() < 0.2 else None
            )
        )


def _raise(service: str) -> None:
    raise unavailable(service)


def blow(life: Life, run_id: str, chance: random.Random) -> None:
    """Let one thing break now."""
    what = chance.choice(["preempt", "preempt", "head", "kill rl_run", "kill teardown", "room"])
    clusters = [one for one in life.cloud.clusters if one.name == run_id]
    if what == "kill rl_run":
        life.kill("rl-run")
    elif what == "kill teardown":
        life.kill("teardown")
    elif clusters and what == "preempt":
        clusters[0].kubernetes.preempt(chance.randrange(1, 4), leaves_events=chance.random() < 0.5)
    elif clusters and what == "head" and clusters[0].kubernetes.head is not None:
        clusters[0].kubernetes.lose_head(chance.choice([30, 600]))
    elif clusters and what == "room":
        clusters[0].kubernetes.room = chance.choice([0, 4, 8])
