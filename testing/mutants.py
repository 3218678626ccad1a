"""`make mutants`: plausible bugs, one at a time: a test and the simulation must catch each.

`tests/mutants/*.yaml` hold them as (file, find, replace): unlike a patch that survives moved
lines. Each is applied to a copy of the tree, where its named test and the simulation run. A life
counts as caught only if it breaks a promise there and breaks none on the tree as it is. Prints
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
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "mutants"
PATHS = ("shared", "infra/workflow_engine/src", ".")
LEFT_OUT = (".git", ".venv", ".uv", "build", "dist", ".*cache*", ".lustrum", ".hypothesis")
PATIENCE = 900.0  # seconds for the lives of one mutant
MIXES: dict[str, tuple[str, ...]] = {  # class of bug -> the kinds of faults that reach it first
    "bounds": ("limits",),
    "guards": ("meanwhile",),
    "empty": ("destroys",),
    "reaper": ("execution",),
    "telling": ("user",),
}


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
        faults: kinds of faults that reach it: lives with them are lived first.
        simulation: why the simulation cannot see it; empty: it does.
    """

    name: str
    kind: str
    file: str
    find: str
    replace: str
    why: str
    test: str
    faults: tuple[str, ...] = ()
    simulation: str = ""

    @property
    def mix(self) -> tuple[str, ...]:
        """The kinds of faults with which the hunt for it begins."""
        return tuple(self.faults) or MIXES.get(self.kind, ())

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


@dataclass
class Fate:
    """What became of one mutant.

    Attributes:
        tested: its test fails; None: not asked.
        broken: the first promise that one of ``lives`` lives broke, empty when none did; None:
            not asked.
        error: why nothing can be said.
    """

    mutant: Mutant
    tested: bool | None = None
    broken: str | None = None
    lives: int = 0
    error: str = ""

    @property
    def survives(self) -> bool:
        """Say whether one of those that were asked did not notice the bug."""
        unseen = self.broken == "" and not self.mutant.simulation
        return bool(self.error) or self.tested is False or unseen

    def line(self) -> str:
        """Return it for people."""
        told = [self.error] if self.error else []
        if self.tested is not None and not self.error:
            told.append(f"test {'caught' if self.tested else 'SURVIVED'}")
        if self.broken:
            told.append(f"simulation caught in life {self.lives}: {self.broken}")
        elif self.broken is not None and not self.error:
            beyond = self.mutant.simulation
            told.append(f"simulation {f'does not see: {beyond}' if beyond else 'SURVIVED'}")
        return f"{self.mutant.kind}/{self.mutant.name}: {', '.join(told)}"


def mutants(folder: Path = FOLDER) -> list[Mutant]:
    """Read every mutant, in the order of files and of their lines."""
    found = []
    for path in sorted(folder.glob("*.yaml")):
        found += [Mutant(kind=path.stem, **one) for one in yaml.safe_load(path.read_text())]
    return found


@contextmanager
def mutated(mutant: Mutant) -> Iterator[Path]:
    """Give a tree with the bug in it: its other files are the same ones, by hard links."""
    text = mutant.applied()
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mutant-", dir=ROOT / "build") as folder:
        root = Path(folder)
        shutil.copytree(
            ROOT,
            root,
            ignore=shutil.ignore_patterns(*LEFT_OUT),
            copy_function=os.link,
            dirs_exist_ok=True,
        )
        (root / mutant.file).unlink()
        (root / mutant.file).write_text(text)
        yield root


def is_caught_by_test(root: Path, mutant: Mutant) -> bool:
    """Say whether the named test fails.

    Raises:
        RuntimeError: it cannot be run.
    """
    words = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", mutant.test)
    done = subprocess.run(
        [sys.executable, *words],
        cwd=root,
        env=_environment(root),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{mutant.test} cannot run: {done.stdout[-500:]}")
    return done.returncode == 1


@dataclass
class Healthy:
    """Says which lives break a promise on the tree as it is: they catch nothing.

    They are lived only when asked for: a broken life of a mutant is.
    """

    pool: ProcessPoolExecutor
    known: dict[int, bool] = field(default_factory=dict)

    def is_healthy(self, seed: int) -> bool:
        """Say whether the life of this seed keeps every promise on the tree as it is."""
        if seed not in self.known:
            self.known[seed] = self.pool.submit(_is_healthy, seed).result()
        return self.known[seed]


def _is_healthy(seed: int) -> bool:
    from testing.draw import draw
    from testing.simulation import live

    return not live(draw(seed)).found


def hunt(root: Path, mutant: Mutant, runs: int, seed: int, healthy: Healthy) -> tuple[str, int]:
    """Return the first promise that a simulated life breaks (empty when none does), and how many
    lives that took.

    Raises:
        RuntimeError: the simulation itself broke.
    """
    words = (sys.executable, "-m", "testing.hunt", str(runs), str(seed), *mutant.mix)
    lives, began = 0, time.monotonic()
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(
            words,
            cwd=root,
            env=_environment(root),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        watch = threading.Timer(PATIENCE, child.kill)
        watch.start()
        assert child.stdout is not None
        try:
            for text in child.stdout:
                found = json.loads(text)
                lives = found["lives"]
                if found.get("broken") and healthy.is_healthy(found["seed"]):
                    return f"seed {found['seed']}: {found['broken'][0]}", lives
        finally:
            watch.cancel()
            child.kill()
            child.stdout.close()
            child.wait()
        if time.monotonic() - began > PATIENCE:
            return f"it does not end within {PATIENCE:.0f} s", lives
        if lives < runs:
            errors.seek(0)
            raise RuntimeError(f"the simulation broke: {errors.read()[-500:]}")
    return "", lives


def _environment(root: Path) -> dict[str, str]:
    path = os.pathsep.join(str(root / one) for one in PATHS)
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def fate(mutant: Mutant, options: argparse.Namespace, healthy: Healthy) -> Fate:
    """Try one mutant."""
    found = Fate(mutant)
    try:
        with mutated(mutant) as root:
            if not options.no_tests:
                found.tested = is_caught_by_test(root, mutant)
            if not options.no_simulation:
                found.broken, found.lives = hunt(root, mutant, options.runs, options.seed, healthy)
    except (DoesNotApply, RuntimeError, subprocess.TimeoutExpired) as error:
        found.error = str(error)
    return found


def main() -> int:
    """Try every mutant and print what came of it."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", help="mutants of these names or classes, with commas")
    parser.add_argument("--runs", type=int, default=2000, help="simulated lives at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=min(os.cpu_count() or 1, 8))
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the YAML files")
    parser.add_argument("--no-tests", action="store_true", help="the simulation alone")
    parser.add_argument("--no-simulation", action="store_true", help="the named tests alone")
    options = parser.parse_args()
    wanted = set(options.only.split(",")) if options.only else None
    every = mutants(options.folder)
    chosen = [one for one in every if wanted is None or {one.name, one.kind} & wanted]
    if not chosen:
        print(f"error: no mutant {options.only}", file=sys.stderr)
        return 2
    began, fates = time.monotonic(), []
    with ProcessPoolExecutor(1) as pool, ThreadPoolExecutor(options.workers) as threads:
        healthy = Healthy(pool)
        for done in as_completed([threads.submit(fate, one, options, healthy) for one in chosen]):
            found = done.result()
            fates.append(found)
            print(f"{len(fates)}/{len(chosen)} {found.line()}", file=sys.stderr, flush=True)
    survivors = [one.mutant.name for one in fates if one.survives]
    figures = {
        "mutants": len(chosen),
        "caught_by_simulation": sum(bool(one.broken) for one in fates),
        "caught_by_tests": sum(bool(one.tested) for one in fates),
        "beyond_the_simulation": sum(bool(one.mutant.simulation) for one in fates),
        "survivors": survivors,
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(figures))
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
