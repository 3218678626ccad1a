"""Accelerators that are paid for while no training runs, against the order of the original recipe.

Whole runs in virtual time over the cloud of `testing` (head 90 s, staging 300 s, a node 240 s, an
export 120 s, a deletion 240 s). The recipe makes the accelerators with the cluster and destroys
them with it: from the same run, its nodes are those that trained, from the cluster's creation to
its end. What is lost to a preemption while others wait is idle in both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from lustrum.core.record import Run

from testing.life import Life

EVERY = 10.0  # seconds between two looks at the nodes


def run() -> dict[str, float | str]:
    """Return idle node-minutes per run, ours and the recipe's, and their ratio."""
    figures: dict[str, float | str] = {}
    for name, happen in (("quiet", None), ("preempted", _preempt)):
        ours, recipe = _measure(happen)
        figures[f"{name}_idle_node_minutes"] = round(ours, 1)
        figures[f"{name}_idle_node_minutes_of_the_recipe"] = round(recipe, 1)
        figures[f"{name}_idle_ratio"] = round(ours / recipe, 3)
    return figures


async def _preempt(life: Life, run_id: str) -> None:
    await life.until_state(run_id, "TRAINING")
    await life.pass_time(400)
    life.cloud.kubernetes(run_id).preempt(1)


def _measure(happen: Callable[[Life, str], Awaitable[None]] | None) -> tuple[float, float]:
    ours, existed, busy = [0.0], [0.0], [0.0]

    async def watch(life: Life) -> None:
        while True:
            await asyncio.sleep(EVERY)
            for cluster in life.cloud.clusters:
                nodes = len(cluster.kubernetes.nodes)
                trains = any(
                    job.mode == "train" and job.status == "RUNNING" and not job.cause
                    for job in life.cloud.jobs
                )
                existed[0] += EVERY
                busy[0] += EVERY * trains
                ours[0] += EVERY * nodes * (not trains)

    async def story(life: Life) -> Run:
        run_id = await life.start()
        life._spawn(watch(life))
        if happen is not None:
            await happen(life, run_id)
        return await life.until_closed(run_id)

    run_ = Life().run(story)
    assert run_.outcome == "SUCCEEDED", run_.reason
    return ours[0] / 60, (existed[0] - busy[0]) * run_.plan.nodes / 60
