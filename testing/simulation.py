"""`make simulate RUNS=1000 SEED=1`: whole lives under generated faults, in virtual time.

The real workflows and functions over a cloud that plays false. A life is decided by its seed
alone: `python -m testing.simulation 1 SEED` repeats it, and `--schedule FILE` plays one that was
stored. What must hold is checked at every write, call and sweep (`testing.checks`). Prints one
JSON line and writes the coverage table; exit 1, with the shortest schedule that still breaks the
promise on stderr, when one was broken.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from lustrum.core.record import Run

from testing.agenda import Agenda
from testing.checks.calls import Calls
from testing.checks.effects import Effects
from testing.checks.ending import Ending
from testing.checks.trial import Trial
from testing.checks.writes import Writes
from testing.coverage import coverage, shortest
from testing.draw import draw
from testing.draw_worlds import WHOLE_LIFE
from testing.life import Life
from testing.misfortune import Misfortune, age_record, arrange
from testing.schedule import Schedule, read
from testing.seam import Seam
from testing.services import FakeServices

SHRUNK = 3  # broken promises whose schedule is made short
SWEEPS = 1800.0  # seconds: what is due was swept then, by a reaper that nothing hinders
BATCH = 20  # lives per piece of work
RESULT = Path("build/simulation.json")


@dataclass
class Result:
    """How one life went. ``cells`` are (state, kind of fault, outcome)."""

    seed: int
    found: dict[str, str] = field(default_factory=dict)
    faults: int = 0
    leaked: bool = False
    outcome: str = ""
    cells: list[tuple[str, str, str]] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)


@dataclass
class Tally:
    """What the lives came to."""

    runs: int = 0
    faults: int = 0
    leaked: int = 0
    lost_checkpoints: int = 0
    duplicate_starts: int = 0
    violations: list[str] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)  # of the lives that broke a promise
    cells: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        """Count one life."""
        self.runs += 1
        self.faults += result.faults
        self.leaked += result.leaked
        self.lost_checkpoints += any("exported" in name for name in result.found)
        self.duplicate_starts += any(name.startswith("doubled") for name in result.found)
        self.violations += [f"seed {result.seed}: {text}" for text in result.found.values()]
        if result.found:
            self.seeds.append(result.seed)
        self.cells.update(result.cells)
        self.seen.update(result.seen)


def live(schedule: Schedule) -> Result:
    """Live one life and judge it."""
    logging.getLogger("lustrum").setLevel(logging.CRITICAL)  # a fault's traceback is no news
    services = FakeServices(Agenda())
    seam = Seam(services.agenda)
    life = Life(services=services, seam=seam)
    trial = Trial(life, seam, schedule)
    services.memory.shares = True
    arrange(life, schedule)
    misfortune = Misfortune(trial)
    _listen(trial, misfortune)

    async def story(life: Life) -> Run:
        for number in range(2 if schedule.attributes else 1):
            await misfortune.deliver(schedule.request, str(number + 1), **schedule.attributes)
        (trial.run_id, *_) = life.services.memory.run_ids()
        if schedule.world.old_record:
            age_record(life, trial.run_id)
        misfortune.begin()
        run = await life.until_closed(trial.run_id)
        misfortune.end()
        services.memory.broken = None
        seam.strikes.clear()
        if schedule.world.orphans:
            await life.pass_time(max(0.0, trial.orphans_due() + SWEEPS - trial.now))
        return run

    result = Result(schedule.seed)
    try:
        run = life.run(story)
        Ending(trial).see(life.record(trial.run_id))
        result.outcome = str(run.outcome)
    except AssertionError as error:
        trial.expect("end: it ends", False, (str(error).splitlines() or ["an assertion"])[0])
        result.outcome = "ENDLESS"
    except Exception as error:
        trial.expect("end: it lives", False, f"{type(error).__name__}: {error}")
        result.outcome = "ENDLESS"
    result.found = trial.found
    result.leaked = bool(trial.left() or life.living())
    result.faults = len(seam.struck) + sum(
        kind not in ("user", "twice", "limits") for kind in schedule.kinds
    )
    struck = {(one.state, one.fault) for one in seam.struck} | misfortune.cells
    struck |= {("whole life", kind) for kind in schedule.kinds if kind in WHOLE_LIFE}
    result.cells = sorted((state, kind, result.outcome) for state, kind in struck)
    result.seen = sorted(trial.seen)
    return result


def _listen(trial: Trial, misfortune: Misfortune) -> None:
    life, cloud = trial.life, trial.life.cloud
    writes, effects, calls = Writes(trial), Effects(trial), Calls(trial)
    life.services.memory.watch = writes.see
    trial.seam.watchers.append(effects.see)
    life.on_trigger, cloud.losing = effects.triggered, effects.losing
    cloud.created = effects.created
    life.on_call, life.on_reply, life.on_sweep = calls.called, calls.replied, calls.swept
    life.watchers.append(misfortune.watch)


def one_life(seed: int, tally: Tally) -> None:
    """Live the life of a seed and count it."""
    tally.add(live(draw(seed)))


def _batch(seeds: list[int]) -> list[Result]:
    gc.disable()  # a life is a circle of objects: collected once for all of the batch
    try:
        return [live(draw(seed)) for seed in seeds]
    finally:
        gc.enable()
        gc.collect()


def lives(seeds: Iterable[int], workers: int) -> Iterator[Result]:
    """Live the lives of many seeds, in several processes when there are many."""
    every = list(seeds)
    batches = [every[at : at + BATCH] for at in range(0, len(every), BATCH)]
    if workers < 2 or len(batches) == 1:
        for batch in batches:
            yield from _batch(batch)
        return
    with ProcessPoolExecutor(workers, max_tasks_per_child=None) as pool:
        for found in pool.map(_batch, batches):
            yield from found


def main() -> int:
    """Simulate and print the tally."""
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("runs", nargs="?", type=int, default=1000)
    parser.add_argument("seed", nargs="?", type=int, default=1, help="of the first life")
    parser.add_argument("--schedule", type=Path, help="play a stored schedule instead")
    parser.add_argument("--print", action="store_true", help="print the schedule of the seed")
    parser.add_argument("--workers", type=int, default=min(os.cpu_count() or 1, 8))
    parser.add_argument("--first", action="store_true", help="stop at the first violation")
    parser.add_argument(
        "--no-shrink", action="store_true", help="leave a failing schedule as it is"
    )
    options = parser.parse_args()
    if options.print:
        print(draw(options.seed).text())
        return 0
    tally, began = Tally(), time.monotonic()
    if options.schedule:
        tally.add(live(read(options.schedule.read_text())))
    else:
        seeds = range(options.seed, options.seed + options.runs)
        for result in lives(seeds, options.workers):
            tally.add(result)
            if sys.stderr.isatty() and tally.runs % BATCH == 0:
                print(f"\r{tally.runs}/{options.runs} lives", end="", file=sys.stderr, flush=True)
            if options.first and tally.violations:
                break
    seconds = time.monotonic() - began
    for text in tally.violations:
        print(text, file=sys.stderr)
    if not options.no_shrink:
        _show_shortest(tally, options.schedule)
    table = coverage(tally.cells)
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    figures = {**_figures(tally, seconds), "cells_visited": table["visited"]}
    RESULT.write_text(
        json.dumps(
            {**figures, "coverage": table, "checks": dict(sorted(tally.seen.items()))}, indent=1
        )
    )
    print(json.dumps(figures))
    return 1 if tally.violations else 0


def _show_shortest(tally: Tally, stored: Path | None) -> None:
    """Print the shortest schedule of each promise that was broken, and keep it."""
    told: set[str] = set()
    for text in tally.violations:
        seed, name = text.split(": ", 1)
        name = name.split(" (after")[0]
        if name in told or len(told) >= SHRUNK:
            continue
        told.add(name)
        plan = read(stored.read_text()) if stored else draw(int(seed.removeprefix("seed ")))
        small = shortest(plan, lambda one, name=name: name in live(one).found)  # type: ignore[misc]
        path = RESULT.parent / "schedules" / f"{name.replace(':', '').replace(' ', '-')}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(small.text() + "\n")
        print(f"{name}: the shortest schedule is {path}\n{small.text()}", file=sys.stderr)


def _figures(tally: Tally, seconds: float) -> dict[str, object]:
    return {
        "runs": tally.runs,
        "faults": tally.faults,
        "leaked": tally.leaked,
        "lost_checkpoints": tally.lost_checkpoints,
        "duplicate_starts": tally.duplicate_starts,
        "violations": len(tally.violations),
        "seconds": round(seconds, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
