"""Build the programs of a rehearsal into the cache.

``python -m testing.rehearse.build [NAME...]`` builds what is missing; with ``--check`` it builds
nothing and exits 1 when something is. One program that cannot be built does not stop the others:
it is named at the end. Every compiler runs nice and alone: the google providers are 1.5 million
lines each.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testing.rehearse.programs import PROGRAMS, Program, clone_of, missing, root


class BuildError(Exception):
    """A program cannot be built; the text says which command refused and how to help it."""


def build(program: Program) -> float:
    """Build one program into its place and return the seconds it took.

    Raises:
        BuildError: go or git is missing, or refused; their own words were printed.
    """
    if shutil.which("go") is None:
        raise BuildError("go is not installed: install Go >= 1.25")
    started = time.monotonic()
    with _lock(program):
        if program.is_built:  # another process was building it while we waited for the lock
            return 0.0
        program.path.parent.mkdir(parents=True, exist_ok=True)
        # Not beside the program: Terraform reads what lies there.
        fresh = root() / f"{program.name}.partial"
        with tempfile.TemporaryDirectory(prefix=f"{program.name}-", dir=root()) as folder:
            _unpack(program, Path(folder))
            _compile(program, Path(folder), fresh)
        fresh.replace(program.path)
    return time.monotonic() - started


def _unpack(program: Program, folder: Path) -> None:
    clone = clone_of(program)
    if not clone.is_dir():
        clone.parent.mkdir(parents=True, exist_ok=True)
        address = f"https://github.com/{program.repository}.git"
        take = ["git", "clone", "--quiet", "--bare", "--depth", "1", "--branch", program.version]
        _run([*take, address, str(clone)], root())
    packed = folder / "source.tar"
    commit = f"{program.version}^{{commit}}"
    _run(["git", "-C", str(clone), "archive", "--output", str(packed), commit], folder)
    _run(["tar", "-xf", packed.name], folder)
    packed.unlink()


def _compile(program: Program, folder: Path, target: Path) -> None:
    command = ["nice", "-n", "10", "go", "build", "-p", "1", "-trimpath", "-mod=readonly"]
    _run([*command, "-ldflags", program.ldflags, "-o", str(target), "."], folder)


def _run(command: list[str], folder: Path) -> None:
    environment = os.environ | {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-buildvcs=false",
        "GOWORK": "off",
    }
    try:
        done = subprocess.run(command, cwd=folder, env=environment, check=False)
    except OSError as error:
        raise BuildError(f"`{command[0]}` cannot be run: {error}") from None
    if done.returncode != 0:
        raise BuildError(
            f"`{' '.join(command)}` ended with {done.returncode} (a clone of the repository can be"
            " given in REHEARSE_SOURCES, as <owner>/<repository>)"
        )


@contextmanager
def _lock(program: Program) -> Iterator[None]:
    """Let one process build a program; the others wait and then find it."""
    root().mkdir(parents=True, exist_ok=True)
    with (root() / f"{program.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main(argv: list[str] | None = None) -> int:
    """Build what is missing, or with ``--check`` say what is. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m testing.rehearse.build",
        description=(__doc__ or "").splitlines()[0],
    )
    parser.add_argument("--check", action="store_true", help="build nothing; exit 1 if needed")
    every = [one.name for one in PROGRAMS]
    parser.add_argument("names", nargs="*", help=f"of {', '.join(every)}; none means all")
    given = parser.parse_args(argv)
    unknown = sorted(set(given.names) - set(every))
    if unknown:
        parser.error(f"unknown program {unknown[0]!r}: one of {', '.join(every)}")
    todo = missing(tuple(given.names))
    if given.check:
        for program in todo:
            print(f"{program.name} {program.version}: not built ({program.path})")
        return 1 if todo else 0
    failed = []
    for program in todo:
        print(f"{program.name} {program.version}: building ...", flush=True)
        try:
            print(f"{program.name}: built in {build(program):.0f} s", flush=True)
        except BuildError as error:
            print(f"{program.name}: not built: {error}", file=sys.stderr, flush=True)
            failed.append(program.name)
    if failed:
        print(f"not built: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
