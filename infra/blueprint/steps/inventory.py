"""What of a run is still there, and how it is swept: by exact name, through gcloud. Standard
library only.

Every look has three answers, present, absent or unknown, and unknown is never taken for absent.

    python3 inventory.py look             exit 0 nothing is there, 1 something is, 2 unknown;
    prints JSON python3 inventory.py ready            exit 0 when cluster and instance are up
    python3 inventory.py sweep SECONDS    delete until nothing is there or the time is over; as
    ``look``
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

ABSENT, UNKNOWN, UNREADABLE = "ABSENT", "UNKNOWN", "UNREADABLE"
UP = frozenset({"RUNNING", "RECONCILING", "ACTIVE"})
# A create cannot be cancelled: it is awaited, then deleted. A delete is only awaited.
CREATING = frozenset({"PROVISIONING", "CREATING"})
DELETING = frozenset({"STOPPING", "DELETING"})

Gcloud = Callable[[Sequence[str]], tuple[int, str, str]]


@dataclass(frozen=True)
class Thing:
    """One resource of a run: how it is called in a report, and gcloud's words to see and delete
    it.
    """

    label: str
    describe: tuple[str, ...]
    delete: tuple[str, ...]


def things(env: Mapping[str, str]) -> tuple[Thing, Thing]:
    """Return the cluster and the instance of the run that the environment names."""
    project, run, zone = env["LUSTRUM_PROJECT"], env["LUSTRUM_RUN_ID"], env["LUSTRUM_ZONE"]
    region = zone.rsplit("-", 1)[0]
    cluster = ("--region", region, "--project", project)
    lustre = ("--location", zone, "--project", project)
    return (
        Thing(
            f"cluster projects/{project}/locations/{region}/clusters/{run}",
            ("container", "clusters", "describe", run, *cluster, "--format=value(status)"),
            ("container", "clusters", "delete", run, *cluster, "--quiet", "--async"),
        ),
        Thing(
            f"instance projects/{project}/locations/{zone}/instances/{run}",
            ("lustre", "instances", "describe", run, *lustre, "--format=value(state)"),
            ("lustre", "instances", "delete", run, *lustre, "--quiet", "--async"),
        ),
    )


def gcloud(words: Sequence[str]) -> tuple[int, str, str]:
    """Run gcloud; return exit code, output and error text. Two minutes at most."""
    try:
        done = subprocess.run(
            ["gcloud", *words], capture_output=True, text=True, timeout=120, check=False
        )
    except subprocess.TimeoutExpired:
        return 124, "", "gcloud gave no answer in 120 seconds"
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def state(thing: Thing, run: Gcloud) -> tuple[str, str]:
    """Return a resource's state, ABSENT or UNKNOWN, and what gcloud said of it."""
    code, out, err = run(thing.describe)
    if code == 0 and out:
        return out, ""
    # "code=404, message=Not found: ..." of GKE, "NOT_FOUND: Resource ... was not found" of
    # Lustre. A project or an account that is not found is another matter.
    gone = "code=404" in err or "NOT_FOUND" in err or "HTTPError 404" in err
    if code != 0 and gone and "roject not found" not in err:
        return ABSENT, ""
    # gcloud compares node versions of a cluster it has just read, and crashes where there is no
    # node.
    if "not a valid SemVer" in err:
        return UNREADABLE, "gcloud reads it, but cannot show it"
    return UNKNOWN, err[-300:] or "gcloud said nothing"


def look(found: Sequence[Thing], run: Gcloud) -> dict[str, str]:
    """Return label -> state of everything that is not certainly absent."""
    remaining = {}
    for thing in found:
        now, said = state(thing, run)
        if now != ABSENT:
            remaining[thing.label] = f"unknown: {said}" if now == UNKNOWN else now
    return remaining


def sweep(
    found: Sequence[Thing],
    run: Gcloud,
    seconds: float,
    *,
    pause: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, str]:
    """Delete what is there until nothing is, or the time is over; return what remains.

    A refused delete (the cluster is busy with another operation) is tried again in the next
    round. What cannot be seen is deleted as well: the name is ours, and where nothing is, nothing
    happens.
    """
    deadline = clock() + seconds
    while True:
        remaining = {}
        for thing in found:
            now, said = state(thing, run)
            if now == ABSENT:
                continue
            remaining[thing.label] = f"unknown: {said}" if now == UNKNOWN else now
            if now not in CREATING | DELETING:
                code, _, err = run(thing.delete)
                said = "delete begun" if code == 0 else f"delete refused: {err[-300:]}"
            print(f"sweep: {thing.label}: {now} {said}".rstrip(), file=sys.stderr, flush=True)
        if not remaining or clock() + pause > deadline:
            return remaining
        sleep(pause)


def main(argv: list[str]) -> int:
    """Run one of the commands in the module's first lines."""
    mine = things(os.environ)
    if argv[1] == "sweep":
        pause = float(os.environ.get("LUSTRUM_PAUSE_SECONDS", "20"))
        remaining = sweep(mine, gcloud, float(argv[2]), pause=pause)
    else:
        remaining = look(mine, gcloud)
    print(json.dumps([f"{label} ({said})" for label, said in remaining.items()]))
    if argv[1] == "ready":
        return 0 if len(remaining) == len(mine) and set(remaining.values()) <= UP else 1
    if not remaining:
        return 0
    return 2 if all(said.startswith("unknown") for said in remaining.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
