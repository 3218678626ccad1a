"""Which steps and branches of workflows have run: counted while they run, merged over runs.

Targets are the named steps, every condition of a switch and the way past all of them, each
except block and each retry. They are found when a workflow is compiled; see ``Workflow``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
VERSION = 1
STEP = "step"


@dataclass
class Target:
    """A step or a branch, and how often it was reached."""

    kind: str  # step, condition, no condition, except, retry
    routine: str
    step: str
    line: int
    number: int = 0  # of a condition, from 1
    hits: int = 0

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes it the same target in another run."""
        return (self.kind, self.routine, self.step, self.line, self.number)

    def __str__(self) -> str:
        told = f"{self.kind} {self.number}" if self.number else self.kind
        name = f"{self.routine}.{self.step}"
        return f"line {self.line}: {name}" + ("" if self.kind == STEP else f": {told}")


@dataclass
class Coverage:
    """The targets of one workflow."""

    path: str
    sha256: str
    targets: dict[tuple[Any, ...], Target] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str, path: str) -> Coverage:
        """The coverage of a source, without targets yet."""
        return cls(path, hashlib.sha256(text.encode("utf-8", "replace")).hexdigest())

    def target(self, kind: str, routine: str, step: str, line: int, number: int = 0) -> Target:
        """Add a target, or give the one that is there."""
        fresh = Target(kind, routine, step, line, number)
        return self.targets.setdefault(fresh.key, fresh)

    def count(self, steps: bool) -> tuple[int, int]:
        """How many steps (or branches) were reached, and how many there are."""
        chosen = [one for one in self.targets.values() if (one.kind == STEP) is steps]
        return sum(1 for one in chosen if one.hits), len(chosen)

    def to_json(self) -> Json:
        """The JSON form, targets in the source's order."""
        return {
            "path": self.path,
            "sha256": self.sha256,
            "targets": [
                {
                    "kind": one.kind,
                    "routine": one.routine,
                    "step": one.step,
                    "line": one.line,
                    "number": one.number,
                    "hits": one.hits,
                }
                for one in self._ordered()
            ],
        }

    def _ordered(self) -> list[Target]:
        return sorted(
            self.targets.values(), key=lambda one: (one.line, one.kind != STEP, one.number)
        )

    def lines(self) -> list[str]:
        """The report: a line with the figures, then one for each target not reached."""
        steps, branches = self.count(steps=True), self.count(steps=False)
        told = [f"{self.path}: steps {_share(*steps)}, branches {_share(*branches)}"]
        told += [f"  not reached: {one}" for one in self._ordered() if not one.hits]
        return told


def _share(reached: int, total: int) -> str:
    percent = 100.0 if total == 0 else 100.0 * reached / total
    return f"{reached} of {total} ({percent:.0f} %)"


def share(found: Iterable[Coverage]) -> float:
    """Steps and branches of all workflows that were reached, in percent."""
    counts = [one.count(steps) for one in found for steps in (True, False)]
    total = sum(most for _, most in counts)
    return 100.0 if total == 0 else 100.0 * sum(reached for reached, _ in counts) / total


def dump(found: Iterable[Coverage]) -> str:
    """The file of one or more workflows' coverage."""
    return json.dumps(
        {"version": VERSION, "workflows": [one.to_json() for one in found]}, indent=1
    )


def load(text: str, path: str) -> list[Coverage]:
    """Read such a file. Raises ValueError that names the file and what is wrong in it."""
    try:
        value = json.loads(text)
        if value["version"] != VERSION:
            raise ValueError(f"version is {value['version']!r}, only {VERSION} is known")
        return [_loaded(one) for one in value["workflows"]]
    except KeyError as exc:
        raise ValueError(f"{path} is no coverage of workflows: it has no {exc}") from None
    except (TypeError, ValueError) as exc:
        raise ValueError(f"{path} is no coverage of workflows: {exc}") from None


def _loaded(value: Json) -> Coverage:
    one = Coverage(value["path"], value["sha256"])
    for item in value["targets"]:
        target = Target(**item)
        if type(target.hits) is not int or target.hits < 0:
            raise ValueError(f"hits is {target.hits!r}, not a count")
        one.targets[target.key] = target
    return one


def merge(found: Iterable[Coverage]) -> list[Coverage]:
    """Add the hits of runs of the same source; a file that changed in between is an error.

    Raises ValueError with the path of a workflow that appears with two different sources.
    """
    merged: dict[str, Coverage] = {}
    for one in found:
        known = merged.setdefault(one.path, Coverage(one.path, one.sha256))
        if known.sha256 != one.sha256:
            raise ValueError(f"{one.path} changed between the runs: begin a new coverage file")
        for target in one.targets.values():
            mine = known.target(*target.key)
            mine.hits += target.hits
    return list(merged.values())
