"""What is deployed: the workflows and functions of this repository, loaded from their files."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

from workflows_engine.workflow import Workflow

ROOT = Path(__file__).parents[1]
FUNCTIONS = (
    "advance_run",
    "apply_ray_cluster",
    "check_ray_job",
    "close_run",
    "delete_ray_cluster",
    "export_checkpoints",
    "reap_runs",
    "release_accelerators",
    "stage_data",
    "stop_ray_job",
    "submit_ray_job",
    "take_inventory",
)


@cache
def workflow(name: str) -> Workflow:
    """Return a compiled workflow of this repository."""
    return Workflow.from_file(ROOT / "workflows" / f"{name}.yaml")


def function(name: str) -> Any:
    """Return a fresh module of one function's main.py."""
    spec = importlib.util.spec_from_file_location(
        f"main_of_{name}", ROOT / "functions" / name / "main.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
