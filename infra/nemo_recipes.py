"""Reads what Lustrum knows of NeMo-RL's own recipes out of a checkout of NeMo-RL.

    python -m infra.nemo_recipes FOLDER    writes shared/lustrum/core/recipes.json

FOLDER is a clone of NVIDIA-NeMo/RL, bare or not, with the tags of the releases. Each configuration
is read by that release's own `load_config`; a script is the one that the release's test suite runs
the recipe with. Kept are the settings that decide whether a size of the cluster can work.
"""

from __future__ import annotations

import importlib.util
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from lustrum.head.recipe_numbers import SETTINGS
from omegaconf import OmegaConf

from infra.local.functions import ROOT

RELEASES = ("v0.4.0", "v0.5.0", "v0.6.0", "v0.7.0")
TARGET = ROOT / "shared" / "lustrum" / "core" / "recipes.json"
# Configuration's own section -> the script that reads it, the first that the release has.
SCRIPTS = {
    "grpo": ("run_grpo_math.py", "run_grpo.py"),
    "sft": ("run_sft.py",),
    "dpo": ("run_dpo.py",),
    "distillation": ("run_distillation_math.py", "run_distillation.py"),
    "ppo": ("run_ppo.py",),
}
FOLDERS = ("examples/configs", "examples/configs/recipes/llm")


@contextmanager
def release(checkout: Path, tag: str) -> Iterator[Path]:
    """Unpack one release's examples, loader and test suites into a folder for a while.

    Raises:
        FileNotFoundError: the folder is no clone with that tag.
    """
    made = subprocess.run(
        ["git", "-C", str(checkout), "archive", tag, "examples", "nemo_rl", "tests/test_suites"],
        capture_output=True,
    )
    if made.returncode:
        raise FileNotFoundError(f"{checkout}: {made.stderr.decode(errors='replace').strip()}")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


def loader(folder: Path) -> ModuleType:
    """Return the release's own `nemo_rl.utils.config`, alone: the package imports torch."""
    spec = importlib.util.spec_from_file_location(
        "nemo_config", folder / "nemo_rl" / "utils" / "config.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, call in (
        ("mul", lambda a, b: a * b),
        ("div", lambda a, b: a / b),
        ("max", lambda a, b: max(a, b)),
    ):
        if not OmegaConf.has_resolver(name):  # the scripts of v0.4.0 and v0.5.0 register them
            OmegaConf.register_new_resolver(name, call)
    return module


def recipes(folder: Path) -> dict[str, Any]:
    """Return path of a configuration -> algorithm, script and settings, of one release."""
    config = loader(folder)
    found = {}
    for place in FOLDERS:
        for path in sorted((folder / place).glob("*.yaml")):
            name = str(path.relative_to(folder))
            loaded: Any = OmegaConf.to_container(config.load_config(path), resolve=False)
            algorithm = next((one for one in SCRIPTS if one in loaded), None)
            script = algorithm and _script(folder, path.stem, algorithm)
            if script and _is_plain(loaded):
                found[name] = {
                    "algorithm": algorithm,
                    "script": script,
                    "settings": _settings(loaded, str(algorithm)),
                }
    return found


def _is_plain(loaded: Mapping[str, Any]) -> bool:
    """Say whether Lustrum can place it: 8 GPUs a node, no nodes of a gym, judge or teacher."""
    return (
        "policy" in loaded
        and _at(loaded, "cluster.gpus_per_node") in (1, 8)
        and not _at(loaded, "env.should_use_nemo_gym")
        and not _at(loaded, "env.reward_model.enabled")
        and not _at(loaded, "on_policy_distillation.enabled")
    )


def _script(folder: Path, stem: str, algorithm: str) -> str | None:
    suite = folder / "tests" / "test_suites" / "llm" / f"{stem}.sh"
    known = [f"examples/{one}" for one in SCRIPTS[algorithm]]
    if suite.exists():
        ran = re.search(r"\bexamples/[\w/]+\.py", suite.read_text())
        return ran.group(0) if ran and ran.group(0) in known else None
    return next((one for one in known if (folder / one).exists()), None)


def _settings(loaded: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
    settings = {}
    for setting, default in SETTINGS.items():
        name = setting.replace("<algorithm>", algorithm)
        value = _at(loaded, name)
        if value is not None and value != default:
            settings[name] = value
    return settings


def _at(tree: Any, path: str) -> Any:
    for part in path.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return "set" if isinstance(tree, Mapping | list) else tree


def gathered(checkout: Path) -> dict[str, Any]:
    """Return the whole of recipes.json."""
    found: dict[str, dict[str, Any]] = {}
    for tag in RELEASES:
        with release(checkout, tag) as folder:
            found[tag] = recipes(folder)
    return found


def text_of(found: Mapping[str, Any]) -> str:
    """Write recipes.json: one line a recipe; what a recipe shares with the release before it is
    said by that release's name.
    """
    lines = []
    before: Mapping[str, Any] = {}
    for tag, entries in found.items():
        lines.append(f'"{tag}": {{')
        rows = []
        for name, entry in entries.items():
            same = before.get(name) == entry
            value = "same" if same else entry
            rows.append(f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}")
        lines.append(",\n".join(rows))
        lines.append("},")
        before = entries
    body = "\n".join(lines).rstrip(",")
    return "{\n" + body + "\n}\n"


if __name__ == "__main__":
    TARGET.write_text(text_of(gathered(Path(sys.argv[1]))), encoding="utf-8")
    print(TARGET)
