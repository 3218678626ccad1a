"""A staged function must import in a fresh interpreter that holds only its own requirements."""

import collections
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from lustrum.adapters.supervisor_archive import MODULES

from infra.staging import ROOT, stage

FUNCTIONS = sorted(path.parent.name for path in (ROOT / "functions").glob("*/main.py"))
UV = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
# What each function reaches lazily, beyond what importing main.py shows.
TOUCHES = {
    "google-cloud-firestore": "from google.cloud import firestore",
    "google-cloud-pubsub": "import lustrum.adapters.pubsub; from google.cloud import pubsub_v1",
    "google-cloud-workflows": "from google.cloud.workflows import executions_v1",
    "google-cloud-container": "from google.cloud import container_v1",
    "kubernetes": "import lustrum.adapters.kubernetes",
    "matplotlib": "import lustrum.show.report; lustrum.show.report.render",
    "requests": "import google.auth.transport.requests",
}


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("staged")
    stage(target)
    return target


@pytest.fixture(scope="module")
def interpreters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One fresh environment for each distinct set of requirements."""
    groups = collections.defaultdict(list)
    for name in FUNCTIONS:
        groups[(ROOT / "functions" / name / "requirements.txt").read_text()].append(name)
    found = {}
    for number, (requirements, names) in enumerate(groups.items()):
        folder = tmp_path_factory.mktemp(f"env{number}")
        (folder / "requirements.txt").write_text(requirements)
        _uv("venv", "--quiet", "--python", sys.executable, str(folder / "venv"))
        python = folder / "venv" / "bin" / "python"
        _uv(
            "pip",
            "install",
            "--quiet",
            "--python",
            str(python),
            "-r",
            str(folder / "requirements.txt"),
        )
        found |= dict.fromkeys(names, python)
    return found


def _uv(*arguments: str) -> None:
    subprocess.run([UV, *arguments], check=True, timeout=300)


class TestStaging:
    def test_stage_every_function_has_the_library_beside_it(self, staged: Path) -> None:
        for name in FUNCTIONS:
            assert (staged / name / "main.py").exists()
            assert (staged / name / "requirements.txt").exists()
            for module in MODULES:  # what the function puts into the supervisor's archive
                assert (staged / name / "lustrum" / "head" / f"{module}.py").exists()
            assert (staged / name / "lustrum" / "core" / "profiles.yaml").exists()

    @pytest.mark.parametrize("name", FUNCTIONS)
    def test_staged_function_imports_with_its_requirements_alone(
        self, name: str, staged: Path, interpreters: dict[str, Path]
    ) -> None:
        requirements = (ROOT / "functions" / name / "requirements.txt").read_text()
        touches = [code for package, code in TOUCHES.items() if f"\n{package}==" in requirements]
        program = "; ".join(["import main", f"assert callable(main.{name})", *touches])
        clean = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
        done = subprocess.run(
            [str(interpreters[name]), "-c", program],
            cwd=staged / name,
            env=clean,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr[-2000:]

    @pytest.mark.parametrize("name", ["start_run", "advance_run", "react_to_event"])
    def test_cold_start_loads_no_package_before_it_is_needed(
        self, name: str, staged: Path, interpreters: dict[str, Path]
    ) -> None:
        program = (
            "import main, sys; heavy = {'grpc', 'kubernetes', 'matplotlib', 'ray', "
            "'google.api_core', 'httpx'} & set(sys.modules); assert not heavy, heavy"
        )
        done = subprocess.run(
            [str(interpreters[name]), "-c", program],
            cwd=staged / name,
            env={"PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr[-2000:]

    @pytest.mark.parametrize("name", FUNCTIONS)
    def test_requirements_are_those_of_the_lock(self, name: str) -> None:
        lock = (ROOT / "uv.lock").read_text()
        for line in (ROOT / "functions" / name / "requirements.txt").read_text().splitlines():
            if line and not line.startswith("#"):
                package, _, version = line.partition("==")
                assert f'name = "{package}"\nversion = "{version}"' in lock, line
