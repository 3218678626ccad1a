"""Where the scripts are, importable although they are no package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
BLUEPRINT = ROOT / "infra" / "blueprint"
STEPS = BLUEPRINT / "steps"


def load(name: str) -> ModuleType:
    """Return one of the scripts' Python files as a module."""
    spec = importlib.util.spec_from_file_location(f"steps_{name}", STEPS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
