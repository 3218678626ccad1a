"""`make check` refuses what would wear the house down: each contract is broken once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("shared/lustrum", "infra", "testing", "bench")
ENGINE = "infra/workflow_engine/src"
BROKEN = {
    "a module in no layer": ("shared/lustrum/fresh.py", "", "lustrum"),
    "the engine imports lustrum": (
        f"{ENGINE}/workflows_engine/fresh.py",
        "import lustrum.core.record\n",
        "workflow engine",
    ),
    "a module of the engine in no layer": (
        f"{ENGINE}/workflows_engine/fresh.py",
        "",
        "The workflow engine's modules",
    ),
    "a circle in the engine, of types only": (
        f"{ENGINE}/workflows_engine/ports.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
        "    from workflows_engine.execution import Execution\n",
        "The workflow engine's modules",
    ),
    "the core imports httpx": ("shared/lustrum/core/fresh.py", "import httpx\n", "pure"),
    "the core imports an adapter": (
        "shared/lustrum/core/fresh.py",
        "import lustrum.adapters.gke\n",
        "layers",
    ),
    "a harness imports a test": ("testing/fresh.py", "import tests.conftest\n", "no test"),
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources and of the contracts."""
    copy = tmp_path_factory.mktemp("tree")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "tests").mkdir()
    for name in ("__init__.py", "conftest.py"):
        (copy / "tests" / name).write_text("")
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    """Run lint-imports in a tree as `make check` does."""
    path = ":".join(str(tree / folder) for folder in ("shared", ENGINE, "."))
    return subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


class TestLayers:
    def test_the_tree_keeps_its_contracts(self, tree: Path) -> None:
        done = lint(tree)
        assert done.returncode == 0, done.stdout + done.stderr

    @pytest.mark.parametrize("what", BROKEN)
    def test_a_broken_contract_fails(self, tree: Path, what: str) -> None:
        path, text, contract = BROKEN[what]
        broken = tree / path
        before = broken.read_text() if broken.exists() else None
        broken.write_text((before or "") + text)
        try:
            done = lint(tree)
        finally:
            broken.unlink() if before is None else broken.write_text(before)
        assert done.returncode != 0
        assert broken.stem in done.stdout + done.stderr
        assert contract in done.stdout + done.stderr


LONGEST = 400  # lines; a longer module holds two things


def test_no_module_is_longer_than_a_reader_takes_in() -> None:
    """Examples are exempt: each is one file that a person copies."""
    tracked = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    modules = [ROOT / name for name in tracked if not name.startswith("examples/")]
    too_long = {
        str(path.relative_to(ROOT)): lines
        for path in modules
        if path.exists() and (lines := len(path.read_text().splitlines())) > LONGEST
    }

    assert modules
    assert not too_long
