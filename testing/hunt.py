"""`python -m testing.hunt RUNS SEED KIND...`: tell of each life that breaks a promise, as it does.

The lives are those of `make simulate RUNS SEED`, no others and no more; those whose schedule has
faults of the named kinds come first. One JSON line for each broken life on stdout, and one, with
``lives`` alone, at the end. For `testing.mutants`, which ends it as soon as one line is enough.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Sequence

from testing.draw import draw
from testing.schedule import Schedule
from testing.simulation import BATCH, live


def in_order(runs: int, seed: int, kinds: Sequence[str]) -> list[Schedule]:
    """Return the schedules of these lives: first those with all of the kinds and few others."""
    wanted = set(kinds)
    schedules = [draw(one) for one in range(seed, seed + runs)]
    if not wanted:
        return schedules
    return sorted(schedules, key=lambda one: (len(wanted - set(one.kinds)), len(one.kinds)))


def main() -> int:
    """Live the lives and print the broken ones."""
    runs, seed, *kinds = sys.argv[1:]
    lives = 0
    gc.disable()  # a life is a circle of objects: collected once for many
    for schedule in in_order(int(runs), int(seed), kinds):
        lives += 1
        found = live(schedule).found
        if found:
            line = {"seed": schedule.seed, "lives": lives, "broken": list(found.values())}
            print(json.dumps(line), flush=True)
        if lives % BATCH == 0:
            gc.collect()
    print(json.dumps({"lives": lives}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
