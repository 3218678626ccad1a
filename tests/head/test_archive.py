"""The supervisor as one zip application, with nothing at hand but Python."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from lustrum.adapters.supervisor_archive import MODULES, supervisor_archive

from .conftest import ROOT, RUN

PACKAGE = ROOT / "shared/lustrum/head"


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, at its top or later."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "."


class TestArchive:
    def test_archive_is_the_same_when_built_twice(self) -> None:
        first = supervisor_archive()
        supervisor_archive.cache_clear()
        assert supervisor_archive() == first

    def test_archive_runs_where_no_package_is(self, supervisor: Path, tmp_path: Path) -> None:
        spec = json.dumps({"run_id": RUN, "lustre": str(tmp_path)})
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(supervisor), "list", "--spec", spec],
            cwd=tmp_path,
            env={},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout.removeprefix("LUSTRUM "))["checkpoints"] == []

    def test_archive_holds_what_the_supervisor_imports_and_no_more(self) -> None:
        wanted, found = ["supervisor", "gpu_sampler"], {"__init__"}  # the programs in it
        while wanted:
            module = wanted.pop()
            if module not in found:
                found.add(module)
                wanted += [
                    name.removeprefix("lustrum.head.")
                    for name in imports(PACKAGE / f"{module}.py")
                    if name.startswith("lustrum.head.")
                ]
        assert set(MODULES) == found
        names = zipfile.ZipFile(io.BytesIO(supervisor_archive())).namelist()
        modules = [f"lustrum/head/{module}.py" for module in sorted(MODULES)]
        assert names == ["__main__.py", "lustrum/__init__.py", *modules]

    def test_archive_imports_the_standard_library_alone(self) -> None:
        ours = {f"lustrum.head.{module}" for module in MODULES}
        for module in MODULES:
            for name in imports(PACKAGE / f"{module}.py"):
                if module == "gpu_sampler" and name.partition(".")[0] == "ray":
                    continue  # a program of its own: without Ray it reads its own machine
                assert name in ours or name.partition(".")[0] in sys.stdlib_module_names, name
