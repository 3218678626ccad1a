"""Which states met which faults, and the shortest schedule that still breaks a promise."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import Any

from testing.draw_worlds import WHOLE_LIFE
from testing.schedule import ENDING, KINDS, LIVE, Schedule, World

STATES = (*LIVE, *ENDING)
UNREACHABLE = {  # kind of fault -> states that it cannot meet, for want of what it strikes
    "preempt": STATES[:5],
    "head": STATES[:3],
    "room": STATES[:2],
}
WHY = {  # kind of fault -> why it cannot meet those states
    "preempt": "no accelerator is asked for before the data are staged",
    "head": "the head is made after the deploy build",
    "room": "there is no cluster yet, or none any more",
}
PLAYS = 80  # lives that shortening may cost


def coverage(cells: Mapping[tuple[str, str, str], int]) -> dict[str, Any]:
    """Return the table state x fault x outcome, how much of it was visited, and what was not."""
    table: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for (state, kind, outcome), count in sorted(cells.items()):
        table[kind][state][outcome] = count
    struck = [kind for kind in KINDS if kind not in WHOLE_LIFE]
    wanted = [
        (kind, state)
        for kind in struck
        for state in STATES
        if state not in UNREACHABLE.get(kind, ())
    ]
    empty = [f"{kind} in {state}" for kind, state in wanted if state not in table.get(kind, {})]
    empty += [kind for kind in sorted(WHOLE_LIFE) if kind not in table]
    total = len(wanted) + len(WHOLE_LIFE)
    return {
        "visited": f"{total - len(empty)} of {total}",
        "empty": empty,
        "contradicted": sorted(
            {
                f"{kind} in {state}"
                for state, kind, _ in cells
                if state in UNREACHABLE.get(kind, ())
            }
        ),
        "unreachable": {
            kind: {"states": list(states), "why": WHY[kind]}
            for kind, states in UNREACHABLE.items()
        },
        "table": {kind: dict(states) for kind, states in table.items()},
    }


def as_markdown(table: Mapping[str, Mapping[str, Mapping[str, int]]]) -> str:
    """Return the table for the documents: a cell counts lives, and names the ends they came to
    (S succeeded, P partial, F failed, C cancelled).
    """
    short = [
        state.replace("WAITING_FOR_GPUS", "GPUS").replace("_", " ").lower() for state in STATES
    ]
    lines = ["| fault | " + " | ".join(short) + " |", "|---" * (len(STATES) + 1) + "|"]
    for kind in KINDS:
        if kind in WHOLE_LIFE:
            continue
        row = []
        for state in STATES:
            ends = Counter(table.get(kind, {}).get(state, {}))
            letters = "".join(sorted({end[0] for end in ends}))
            never = "-" if state in UNREACHABLE.get(kind, ()) else "0"
            row.append(f"{ends.total()} {letters}" if ends else never)
        lines.append(f"| {kind} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def shortest(plan: Schedule, breaks: Callable[[Schedule], bool]) -> Schedule:
    """Leave out of a schedule whatever is not needed to break the promise."""
    best, plays = deepcopy(plan), 0

    def keep(other: Schedule) -> bool:
        nonlocal best, plays
        plays += 1
        if plays > PLAYS or not breaks(other):
            return False
        best = other
        return True

    at = 0
    while at < len(best.faults):
        other = deepcopy(best)
        del other.faults[at]
        if not keep(other):
            at += 1
    for one in fields(World):
        usual = getattr(World(), one.name)
        if getattr(best.world, one.name) != usual:
            other = deepcopy(best)
            setattr(other.world, one.name, usual)
            keep(other)
    for name in list(best.request):
        if name != "zones":
            other = deepcopy(best)
            del other.request[name]
            keep(other)
    other = deepcopy(best)
    other.attributes = {}
    keep(other)
    return best


def main() -> int:
    """Write the table of build/simulation.json into docs/simulation.md."""
    import json

    found = json.loads(Path("build/simulation.json").read_text())
    path = Path("docs/simulation.md")
    before, mark, _ = path.read_text().partition("<!-- table -->\n")
    text = as_markdown(found["coverage"]["table"])
    text += "\n\n" + "\n".join(f"* `{kind}` `-`: {why}." for kind, why in WHY.items())
    empty = found["coverage"]["empty"]
    text += f"\n* `0`: reachable, not met by these lives: {', '.join(empty) or 'none'}."
    told = f"{found['runs']} lives, {found['coverage']['visited']} cells visited.\n"
    path.write_text(before + mark + "\n" + told + "\n" + text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
