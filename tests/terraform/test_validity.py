"""Terraform's own checks: format always, schema and a mocked plan where the providers can be had.

The providers come from a folder made by ``terraform providers mirror FOLDER``, named by
TERRAFORM_PROVIDER_MIRROR; tests reach no registry.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .configuration import BOOTSTRAP, ROOT, TERRAFORM

MIRROR = os.environ.get("TERRAFORM_PROVIDER_MIRROR", "")

needs_terraform = pytest.mark.skipif(
    shutil.which("terraform") is None, reason="terraform is not installed"
)
needs_providers = pytest.mark.skipif(
    not MIRROR or shutil.which("terraform") is None,
    reason="TERRAFORM_PROVIDER_MIRROR is not set: make a folder with"
    " `terraform -chdir=infra/terraform providers mirror FOLDER` and name it there",
)


@needs_terraform
class TestFormat:
    def test_files_are_formatted(self, tmp_path: Path) -> None:
        done = _terraform(["fmt", "-check", "-recursive", "-diff", str(TERRAFORM)], tmp_path)
        assert done.returncode == 0, done.stdout


@needs_providers
class TestSchema:
    def test_bootstrap_is_valid(self, tmp_path: Path) -> None:
        folder = tmp_path / "bootstrap"
        shutil.copytree(BOOTSTRAP, folder)
        _initialized(folder, tmp_path)
        done = _terraform(["validate", "-no-color"], tmp_path, folder)
        assert done.returncode == 0, done.stderr

    def test_control_plane_is_valid_and_keeps_its_plan(self, tmp_path: Path) -> None:
        """``validate`` and ``terraform test`` in a copy that holds staged functions."""
        for name in ("infra/terraform", "infra/blueprint", "workflows", "functions"):
            shutil.copytree(
                ROOT / name,
                tmp_path / name,
                ignore=shutil.ignore_patterns(".terraform*", "__pycache__", "build"),
            )
        shutil.copy(ROOT / "cloudbuild.yaml", tmp_path)
        shutil.copytree(tmp_path / "functions", tmp_path / "build" / "functions")
        folder = tmp_path / "infra" / "terraform"
        _initialized(folder, tmp_path)
        for arguments in (["validate", "-no-color"], ["test", "-no-color"]):
            done = _terraform(arguments, tmp_path, folder)
            assert done.returncode == 0, done.stdout + done.stderr


def _initialized(folder: Path, home: Path) -> None:
    done = _terraform(["init", "-backend=false", "-input=false", "-no-color"], home, folder)
    assert done.returncode == 0, done.stderr


def _terraform(
    arguments: list[str], home: Path, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run terraform with no other source of providers than the mirror."""
    config = home / "terraform.rc"
    config.write_text(
        "disable_checkpoint = true\nprovider_installation {\n  filesystem_mirror {\n"
        f'    path = "{MIRROR or home}"\n  }}\n}}\n'
    )
    return subprocess.run(
        ["terraform", *arguments],
        cwd=folder or home,
        env={**os.environ, "TF_CLI_CONFIG_FILE": str(config), "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
