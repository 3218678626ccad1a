"""`make mutants`: plausible bugs, one at a time: a test and the simulation must catch each.

`tests/mutants/*.yaml` hold them as (file, find, replace): unlike a patch that survives moved
lines. Each is applied to a copy of the tree, where its named test and the simulation run. Prints
one JSON line; exit 1 when one survives or no longer applies.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "mutants"
PATHS = ("shared", "infra/workflow_engine/src", ".")
LEFT_OUT = (".git", ".venv", ".uv", "build", "dist", "*cache*", ".lustrum", ".hypothesis")
PATIENCE = 900.0  # seconds for the simulation of one mutant


class DoesNotApply(ValueError):
    """The text a mutant replaces is not found exactly once in its file: the code has moved on."""


@dataclass(frozen=True)
class Mutant:
    """One bug.

    Attributes:
        find, replace: text of ``file``; ``find`` must occur exactly once.
        why: how a person might come to write it.
        test: the test that fails on it, as pytest names it.
        kind: name of the file it is in: the class of the bug.
        simulation: why the simulation cannot see it; empty: it does.
    """

    name: str
    kind: str
    file: str
    find: str
    replace: str
    why: str
    test: str
    simulation: str = ""

    def applied(self, root: Path = ROOT) -> str:
        """Return the text of the file with the bug in it.

        Raises:
            DoesNotApply: naming mutant and file.
        """
        path = root / self.file
        text = path.read_text() if path.is_file() else ""
        count = text.count(self.find)
        if count != 1:
            raise DoesNotApply(
                f"{self.kind}/{self.name}: {self.file}: `find` occurs {count} times, must occur "
                "once; bring tests/mutants up to date with the code"
            )
        return text.replace(self.find, self.replace)


def mutants(folder: Path = FOLDER) -> list[Mutant]:
    """Read every mutant, in the order of files and of their lines."""
    found = []
    for path in sorted(folder.glob("*.yaml")):
        found += [Mutant(kind=path.stem, **one) for one in yaml.safe_load(path.read_text())]
    return found


@contextmanager
def mutated(mutant: Mutant) -> Iterator[Path]:
    """Give a copy of the tree with the bug in it."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        root = Path(folder)
        shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True)
        (root / mutant.file).write_text(mutant.applied())
        yield root


def is_caught_by_test(root: Path, mutant: Mutant) -> bool:
    """Say whether the named test fails."""
    done = _python(root, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", mutant.test)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{mutant.name}: {mutant.test} cannot run: {done.stdout[-500:]}")
    return done.returncode == 1


def caught_by_simulation(root: Path, runs: int, seed: int) -> str:
    """Return the first promise that a simulated life breaks, empty when none does."""
    try:
        done = _python(
            root, "-m", "testing.simulation", str(runs), str(seed), "--first", "--no-shrink"
        )
    except subprocess.TimeoutExpired:
        return f"it does not end within {PATIENCE:.0f} s"
    if done.returncode not in (0, 1) or not done.stdout.strip():
        raise RuntimeError(f"the simulation broke: {done.stderr[-500:]}")
    broken = [line for line in done.stderr.splitlines() if line.startswith("seed ")]
    return broken[0] if done.returncode and broken else ""


def _python(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(root / one) for one in PATHS)
    return subprocess.run(
        [sys.executable, *words],
        cwd=root,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def main() -> int:
    """Try every mutant and print what came of it."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", help="the mutant of this name, or those of this class")
    parser.add_argument("--runs", type=int, default=2000, help="simulated lives at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-tests", action="store_true", help="the simulation alone")
    parser.add_argument("--no-simulation", action="store_true", help="the named tests alone")
    options = parser.parse_args()
    chosen = [one for one in mutants() if options.only in (None, one.name, one.kind)]
    if not chosen:
        print(f"error: no mutant {options.only}", file=sys.stderr)
        return 2
    began, by_test, by_simulation, survivors, blind = time.monotonic(), 0, 0, [], 0
    for number, mutant in enumerate(chosen, 1):
        try:
            with mutated(mutant) as root:
                tested = options.no_tests or is_caught_by_test(root, mutant)
                seen = (
                    ""
                    if options.no_simulation
                    else (caught_by_simulation(root, options.runs, options.seed))
                )
        except (DoesNotApply, RuntimeError) as error:
            print(f"error: {error}", file=sys.stderr)
            survivors.append(mutant.name)
            continue
        by_test += tested
        by_simulation += bool(seen)
        blind += bool(mutant.simulation)
        seen = seen or (mutant.simulation and f"not seen: {mutant.simulation}")
        if not tested or not (seen or options.no_simulation):
            survivors.append(mutant.name)
        print(
            f"{number}/{len(chosen)} {mutant.kind}/{mutant.name}: "
            f"test {'caught' if tested else 'SURVIVED'}, simulation {seen or 'SURVIVED'}",
            file=sys.stderr,
            flush=True,
        )
    figures = {
        "mutants": len(chosen),
        "caught_by_simulation": by_simulation,
        "caught_by_tests": by_test,
        "beyond_the_simulation": blind,
        "survivors": survivors,
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(figures))
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
