"""The tour of the README: its files, its commands, and what they print, to the letter."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOUR = (
    (ROOT / "README.md")
    .read_text(encoding="utf-8")
    .split("## A tour of five minutes\n")[1]
    .split("\n## ")[0]
)
FILES = dict(re.findall(r"```yaml\n# (\S+)\n(.*?)```", TOUR, re.DOTALL))
BLOCKS = re.findall(r"```console\n(.*?)```", TOUR, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tour's files and the command on its own path."""
    made = tmp_path_factory.mktemp("tour")
    for name, text in FILES.items():
        (made / name).write_text(f"# {name}\n{text}", encoding="utf-8")
    command = made / "bin" / "workflows-engine"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m workflows_engine "$@"\n')
    command.chmod(0o755)
    return made


def environment(folder: Path) -> dict[str, str]:
    """The environment of a reader of the tour."""
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src")}


def commands() -> Iterator[tuple[str, str]]:
    """Each command of the tour with what it prints."""
    for block in BLOCKS:
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, printed = part.partition("\n")
            yield line, printed


class TestTour:
    def test_every_command_prints_what_the_tour_says(self, folder: Path) -> None:
        seen = set()
        for line, printed in commands():
            done = subprocess.run(
                ["bash", "-c", line],
                cwd=folder,
                env=environment(folder),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
                check=False,
            )
            assert sorted(done.stdout.splitlines()) == sorted(printed.splitlines()), line
            seen |= set(re.findall(r"workflows-engine (\S+)", line))
        assert seen == {"check", "run", "coverage", "graph"}

    def test_the_server_answers_the_tours_request(self, folder: Path) -> None:
        line = next(one for one in TOUR.splitlines() if one.startswith("workflows-engine serve"))
        argv = line.removesuffix(" &").replace("--port 8787", "--port 0").split()
        request = next(one for one in TOUR.splitlines() if one.startswith("curl"))
        path = re.search(r":8787(\S+)", request)
        body = re.search(r"-d '(.*)'", request)
        assert path is not None and body is not None
        server = subprocess.Popen(
            [shutil.which("workflows-engine", path=str(folder / "bin")) or "", *argv[1:]],
            cwd=folder,
            env=environment(folder),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            with urllib.request.urlopen(url + path[1], body[1].encode(), timeout=30) as answer:
                execution = json.load(answer)
        finally:
            server.terminate()
            server.wait(timeout=30)
        assert json.loads(execution["argument"]) == {"item": "cup"}
        assert execution["state"] == "ACTIVE"


class TestTheWheel:
    @pytest.mark.slow
    def test_a_fresh_environment_runs_every_command(self, folder: Path, tmp_path: Path) -> None:
        """Build the wheel, install it alone, and take the tour there."""
        uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
        dist, made = tmp_path / "dist", tmp_path / "venv"
        for argv in (
            [uv, "build", "--quiet", "--wheel", "--out-dir", str(dist), str(ROOT)],
            [uv, "venv", "--quiet", "--python", sys.executable, str(made)],
        ):
            subprocess.run(argv, check=True, timeout=300)
        (wheel,) = dist.glob("*.whl")
        python = str(made / "bin" / "python")
        subprocess.run(
            [uv, "pip", "install", "--quiet", "--python", python, str(wheel)],
            check=True,
            timeout=300,
        )
        clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        clean["PATH"] = f"{made / 'bin'}:{os.environ['PATH']}"
        for line, printed in commands():
            done = subprocess.run(
                ["bash", "-c", line],
                cwd=folder,
                env=clean,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
                check=False,
            )
            assert sorted(done.stdout.splitlines()) == sorted(printed.splitlines()), line
        schema = subprocess.run(
            [str(made / "bin" / "workflows-engine"), "mock-schema"],
            env=clean,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert "mocks" in json.loads(schema.stdout)["properties"]
