"""`make simulate RUNS=1000 SEED=1`: whole lives under generated faults, in virtual time.

The real workflows and functions over a cloud that plays false; each life is decided by its seed
alone, so `python -m testing.simulation 1 SEED` repeats one that failed. Prints one JSON line;
exit 1, with the seed of each violation on stderr, when a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from dataclasses import dataclass, field

from lustrum.core.record import Run

from testing.life import Life
from testing.misfortune import blow, misfortune

ZONES = {"zones": ["us-east1-b", "us-east1-c", "us-central1-a"]}
PAUSES = (20, 300, 900, 1500)  # seconds between two blows


@dataclass
class Tally:
    """What the lives came to."""

    faults: int = 0
    leaked: int = 0
    lost_checkpoints: int = 0
    duplicate_starts: int = 0
    violations: list[str] = field(default_factory=list)


def main() -> int:
    """Simulate and print the tally."""
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("runs", nargs="?", type=int, default=1000)
    parser.add_argument("seed", nargs="?", type=int, default=1, help="of the first life")
    options = parser.parse_args()
    tally, began = Tally(), time.monotonic()
    for number in range(options.runs):
        one_life(options.seed + number, tally)
        if sys.stderr.isatty():
            print(f"\r{number + 1}/{options.runs} lives", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    for text in tally.violations:
        print(text, file=sys.stderr)
    print(
        json.dumps(
            {
                "runs": options.runs,
                "faults": tally.faults,
                "leaked": tally.leaked,
                "lost_checkpoints": tally.lost_checkpoints,
                "duplicate_starts": tally.duplicate_starts,
                "violations": len(tally.violations),
                "seconds": round(time.monotonic() - began, 1),
            }
        )
    )
    return 1 if tally.violations else 0


def one_life(seed: int, tally: Tally) -> None:
    """Live one life and judge it."""
    chance = random.Random(seed)
    life = Life()
    misfortune(life, chance)
    arranged = len(life.after) + len(life.cloud.deploys) + len(life.cloud.hooks)
    arranged += sum(one != "ok" for one in (*life.cloud.destroys, *life.cloud.exports))
    tally.faults += arranged + (not life.deliver_events)

    async def story(life: Life) -> Run:
        run_id = await life.start(ZONES)
        for _ in range(chance.randrange(5)):
            await life.pass_time(chance.choice(PAUSES))
            if chance.random() < 0.2:  # the message comes again, at any moment
                await life.start(ZONES)
            if chance.random() < 0.1:
                await life.publish({"action": "cancel", "run_id": run_id}, "cancel")
            if life.record(run_id).is_over:
                break
            blow(life, run_id, chance)
            tally.faults += 1
        return await life.until_closed(run_id)

    try:
        run = life.run(story)
    except AssertionError as error:
        tally.leaked += bool(life.cloud.left())
        tally.violations.append(f"seed {seed}: it did not end: {str(error).splitlines()[0]}")
        return
    for broken in judge(life, run, tally):
        tally.violations.append(f"seed {seed}: {broken}")


def judge(life: Life, run: Run, tally: Tally) -> list[str]:
    """Return the promises that a life broke, and count them."""
    broken = []
    if life.cloud.left() or life.living() or life.services.memory.slot_holders():
        tally.leaked += 1
        broken.append(f"left: {life.cloud.left()} {life.living()}")
    if run.checkpoint is not None and run.safe_export is None and not _given_up(run):
        tally.lost_checkpoints += 1
        broken.append(f"step {run.checkpoint.step} is not in the bucket")
    if len(life.services.memory.run_ids()) != 1 or life.cloud.most_alive > 1:
        tally.duplicate_starts += 1
        broken.append(
            f"{life.services.memory.run_ids()}, {life.cloud.most_alive} clusters at once"
        )
    if run.state != "CLOSED" or run.outcome is None:
        broken.append(f"it ended {run.state} {run.outcome}")
    if len(life.services.outbox.kinds("run.closed")) != 1:
        broken.append("its end was not told exactly once")
    if life.engine.faults:
        broken.append(f"the engine failed: {life.engine.faults[0]}")
    return broken


def _given_up(run: Run) -> bool:
    """Say whether the export was tried until the hard deadline: the request said which wins."""
    tried = run.export is not None and bool(run.export.problem)
    return tried and run.closed_at is not None and run.closed_at >= run.hard_deadline_at


if __name__ == "__main__":
    sys.exit(main())
