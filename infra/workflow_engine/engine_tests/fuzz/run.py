"""Runs made workflows to their end and tells what must not be.

The command: ``python -m engine_tests.fuzz.run --count 100000``.

For each seed: the source is refused (FaultySource) or it runs in virtual time, against a web that
answers anything, with callbacks from outside, to SUCCEEDED, FAILED or CANCELLED. Anything else is
a finding: another exception, an engine fault, an error without a documented tag that no step
raised, a run over its budget of seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import yaml
from workflows_engine import Engine, FaultySource, Workflow, limits, virtual
from workflows_engine.errors import HttpConnectionBroken, HttpConnectionFailed

from engine_tests.fuzz.grammar import Grammar
from engine_tests.fuzz.values import text

PIECE = 500  # workflows between two lines of progress
STEPS = 1000  # of one execution, in place of 100,000: loops without end are common here
SECONDS = 5.0  # of one core for one workflow; a usual one takes some milliseconds
TAGS = {
    "AuthError",
    "ConnectionError",
    "ConnectionFailedError",
    "HttpError",
    "IndexError",
    "KeyError",
    "OperationError",
    "ParallelNestingError",
    "RecursionError",
    "ResourceLimitError",
    "ResponseTypeError",
    "TimeoutError",
    "TypeError",
    "UnhandledBranchError",
    "ValueError",
    "ZeroDivisionError",
    "FailedJobError",
}
BODIES: list[Any] = [
    None,
    "text",
    b"\x00\xff",
    {"k": 1},
    [1, {"a": None}],
    7,
    True,
    10**30,
    "x" * 5000,
    {"done": True},
    {"name": "operations/1", "done": False},
    {"done": True, "error": {"code": 5}},
    {"name": "projects/p/o", "done": True, "response": {"k": [1]}},
    {"status": "DONE"},
    {"name": "operations/1", "done": True, "error": "text"},
    {"name": 5, "done": True},
    {"name": "operations/1", "done": True, "error": {"message": "no"}},
    {"name": None},
    {"name": "o", "status": "DONE", "error": [1]},
    {"name": "o", "status": "RUNNING"},
    {"selfLink": "https://compute.googleapis.com/o", "status": "RUNNING"},
    {"selfLink": 3, "status": "RUNNING"},
    {"status": "DONE", "error": {"errors": [3]}},
    {"status": "DONE", "error": "text"},
    {"status": "DONE", "statusMessage": "failed"},
    {"status": {"state": "DONE"}, "jobReference": {"projectId": "p", "jobId": "j"}},
    {"status": {"state": "RUNNING"}, "jobReference": {"projectId": "p"}},
    {"status": {"state": "RUNNING"}, "jobReference": "text"},
    {"status": {"state": "DONE"}},
    {"payload": {"data": "aGk="}},
    {"payload": {"data": "*"}},
    {"payload": 3},
    {"status": None},
    {"status": {"conditions": [{"type": "Complete", "status": "True"}]}},
    {"status": {"conditions": [{"type": "Failed", "status": "True"}]}},
    {"status": {"conditions": "text"}},
    {"status": {"conditions": [1]}},
    {"status": "text"},
    {"endpoint": "10.0.0.1"},
    {"controlPlaneEndpointsConfig": [1]},
    {"metadata": [1]},
    {"controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"endpoint": "c.example"}}},
]
DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
CHILD = Workflow("main: {params: [a], steps: [{s: {return: '${a}'}}]}")


@dataclass
class Tally:
    """What became of the workflows, and the findings as (seed, what)."""

    ends: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[int, str]] = field(default_factory=list)
    slowest: float = 0.0

    def add(self, other: Tally) -> None:
        """Count another tally's workflows as well."""
        self.ends += other.ends
        self.findings += other.findings
        self.slowest = max(self.slowest, other.slowest)


class AnyWeb:
    """Answers a request with anything a web may answer, by chance."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def __call__(self, *_: Any) -> tuple[int, dict[str, str], Any]:
        """An answer, an error of the connection, or a long wait."""
        roll = self._chance.random()
        await asyncio.sleep(self._chance.choice([0, 0.1, 1, 400]))
        if roll < 0.05:
            raise HttpConnectionFailed("nobody listens")
        if roll < 0.1:
            raise HttpConnectionBroken("reset")
        status = self._chance.choice([200, 200, 200, 201, 204, 400, 404, 409, 429, 500, 503])
        body = self._chance.choice(BODIES)
        return status, {"Content-Type": "application/json"}, body


def mutated(source: str, chance: random.Random) -> str:
    """A source with a few characters lost, doubled or changed."""
    characters = list(source)
    for _ in range(1 + chance.randrange(3)):
        at = chance.randrange(len(characters))
        change = chance.choice(
            ["", characters[at] * 2, "{", "}", "[", ":", '"', "$", "\n", "é", "*"]
        )
        characters[at] = change
    return "".join(characters)


def run_one(seed: int, tally: Tally) -> None:
    """Make, check and run the workflow of a seed; writes down what must not be."""
    chance = random.Random(f"run {seed}")
    source = text(Grammar(seed).source())
    if chance.random() < 0.05:  # as YAML of another style: plain text, blocks, wrapped lines
        source = yaml.dump(json.loads(source), Dumper=DUMPER, allow_unicode=True, width=60)
    if chance.random() < 0.1:
        source = mutated(source, chance)
    begin = time.process_time()
    try:
        end = finish(source, chance, seed)
    except Exception:
        end = "crashed"
        tally.findings.append((seed, traceback.format_exc(limit=-4)))
    if end.startswith("bad:"):
        tally.findings.append((seed, end))
    seconds = time.process_time() - begin
    if seconds > SECONDS:
        tally.findings.append((seed, f"took {seconds:.1f} s"))
    tally.slowest = max(tally.slowest, seconds)
    tally.ends[end.split(":")[0]] += 1


def finish(source: str, chance: random.Random, seed: int) -> str:
    """Run a source to its end: how it ended, or "bad:" and why that must not be."""
    try:
        compiled = Workflow(source)
    except FaultySource as exc:
        return "refused" if exc.faults and all(f.line >= 1 for f in exc.faults) else "bad: no line"

    async def main() -> str:
        engine = Engine(
            http=AnyWeb(chance),
            seed=seed,
            history=chance.choice([0, 5]),
            max_concurrent=3,  # so that some children wait in the queue and some get a 429
            max_backlog=1,
        )
        engine.deploy("w", compiled)
        engine.deploy("child", CHILD)
        argument = chance.choice([None, {"k": 1}, [1], "text", 7, {"k": {"k": [True, None]}}])
        execution = engine.create("w", argument)
        ringing = asyncio.ensure_future(ring(engine, execution, chance))
        await execution.wait()
        ringing.cancel()
        if engine.faults:
            return f"bad: {engine.faults[0][1]!r}"
        return judged(execution)

    with mock.patch.object(limits, "STEPS", STEPS):
        return virtual.run(main)


async def ring(engine: Engine, execution: Any, chance: random.Random) -> None:
    """The world outside: payloads for callbacks, and now and then a cancellation."""
    for _ in range(20):
        await asyncio.sleep(chance.choice([0.1, 1, 5]))
        for callback in list(execution.callbacks):
            body = chance.choice([None, {"k": 1}, "text", b"\xff", 10**30])
            url = f"{execution.name}/callbacks/{callback.id}"
            engine.callback(f"https://x/v1/{url}", body, callback.method)
        if chance.random() < 0.002:
            execution.cancel()


def judged(execution: Any) -> str:
    """The state of an ended execution, or what is wrong with it."""
    if execution.memory < 0:
        return f"bad: memory {execution.memory}"
    if execution.steps > STEPS + 50:  # each strand may count one more
        return f"bad: {execution.steps} steps"
    if execution.state == "SUCCEEDED":
        json.loads(execution.result)
        return "SUCCEEDED"
    if execution.state == "FAILED":
        payload = execution.failure
        tags = payload.get("tags") if isinstance(payload, dict) else None
        message = payload.get("message") if isinstance(payload, dict) else None
        if tags == ["SystemError"] and "does not know the connector" not in str(message):
            return f"bad: {payload}"
        if isinstance(message, str) and ("Traceback" in message or "object has no" in message):
            return f"bad: {message}"
        known = isinstance(tags, list) and bool(tags) and str(tags[0]) in TAGS  # any value
        return "FAILED with a documented tag" if known else "FAILED with its own error"
    return str(execution.state) if execution.state == "CANCELLED" else f"bad: {execution.state}"


def fuzz(first: int, count: int, seconds: float = float("inf")) -> tuple[Tally, int]:
    """Run the seeds from ``first`` on, for at most ``seconds``; gives the next seed as well."""
    tally = Tally()
    stop = time.monotonic() + seconds
    seed = first
    while seed < first + count and time.monotonic() < stop:
        run_one(seed, tally)
        seed += 1
    return tally, seed


def main() -> int:
    """The command: exit status 1 when there is a finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after these")
    given = parser.parse_args()
    begin = time.monotonic()
    all_of_it, after, last = Tally(), given.first, given.first + given.count
    while after < last and (left := given.seconds - (time.monotonic() - begin)) > 0:
        tally, after = fuzz(after, min(PIECE, last - after), left)
        for seed, what in tally.findings:
            print(f"seed {seed}: {what}", flush=True)
        all_of_it.add(tally)
        print(f"{after - given.first} of {given.count}", end="\r", file=sys.stderr, flush=True)
    print(
        f"{after - given.first} workflows (seeds {given.first} to {after - 1}) in "
        f"{time.monotonic() - begin:.0f} s, {len(all_of_it.findings)} findings, slowest "
        f"{all_of_it.slowest:.2f} s: {dict(all_of_it.ends)}"
    )
    return 1 if all_of_it.findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
