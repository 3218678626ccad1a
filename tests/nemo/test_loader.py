"""NeMo-RL's own loader reads every profile's command, at each release: `make test-nemo`.

NEMO_RL names a clone of NVIDIA-NeMo/RL with the tags of the releases, bare or not. Nothing of it
is installed; the loader needs hydra-core and omegaconf alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lustrum.core import recipes
from lustrum.core.images import NEMO
from lustrum.core.plan import training_command
from lustrum.core.profiles import profiles
from lustrum.core.recipes import cut_of
from lustrum.core.request import BadRequest
from lustrum.core.run_plan import RunPlan
from lustrum.core.training_command import training_argv, training_numbers
from lustrum.head.arithmetic import faults
from lustrum.head.image_scripts import LOAD_CONFIG
from lustrum.head.recipe_numbers import SETTINGS

from infra import nemo_recipes
from testing.samples import plan

CHECKOUT = os.environ.get("NEMO_RL", "")
pytestmark = [
    pytest.mark.nemo,
    pytest.mark.skipif(not CHECKOUT, reason="NEMO_RL names no clone of NVIDIA-NeMo/RL"),
]
TRAINED = [name for name, profile in profiles().items() if profile.machine != "local"]


@pytest.fixture(scope="module", params=nemo_recipes.RELEASES)
def release(request: pytest.FixtureRequest) -> Iterator[tuple[str, Path]]:
    with nemo_recipes.release(Path(CHECKOUT), request.param) as folder:
        yield request.param, folder


def planned(profile: str, tag: str, **request: Any) -> RunPlan:
    """Return a profile's plan with that release's image."""
    limits = {"cost_usd": 1_000_000}
    try:
        return plan(profile=profile, image=f"{NEMO}:{tag}", limits=limits, **request)
    except BadRequest as bad:
        if bad.field == "image":
            pytest.skip(f"{tag} has no recipe for {profile}")
        raise


def loaded(made: RunPlan, folder: Path, answer: Path) -> dict[str, Any]:
    """Return what the release's loader says of a plan's command, as the staging asks it."""
    argv = training_argv(training_command(made))
    at = argv.index("--config")
    assert (folder / argv[at - 1]).is_file(), f"{argv[at - 1]} is not in the release"
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    words = [str(answer), made.algorithm, "", *argv[at + 1 :]]
    subprocess.run(
        [sys.executable, "-c", LOAD_CONFIG, *words], cwd=folder, env=environment, check=True
    )
    found: dict[str, Any] = json.loads(answer.read_text())
    return found


def at(tree: Any, path: str) -> Any:
    for part in path.split("."):
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


class TestProfiles:
    @pytest.mark.parametrize(
        ("profile", "resume"),
        [(name, None) for name in TRAINED] + [(TRAINED[0], "gs://bucket/old/")],
    )
    def test_the_loader_takes_the_command(
        self, release: tuple[str, Path], tmp_path: Path, profile: str, resume: str | None
    ) -> None:
        tag, folder = release
        made = planned(profile, tag, checkpoints={"resume_from": resume})
        answer = loaded(made, folder, tmp_path / "answer.json")
        assert "refused" not in answer, answer.get("refused")
        config = answer["config"]
        assert at(config, f"{made.algorithm}.max_num_steps") == made.max_num_steps
        assert at(config, "checkpointing.checkpoint_dir") == made.checkpoint_dir
        settings = {}
        door = training_numbers(training_command(made))
        for setting, default in SETTINGS.items():
            key = setting.replace("<algorithm>", made.algorithm)
            value = at(config, key)
            if value is not None:
                settings[key] = value
            said = door.get(key)
            if isinstance(value, dict | list):
                assert said is not None, f"the door does not know of {key}"
            else:
                found = default if value is None else value
                assert (default if said is None else said) == found, key
        version = (int(tag[1:].split(".")[0]), int(tag.split(".")[1]))
        assert not faults(made.algorithm, version, settings, cut_of(made.model))

    @pytest.mark.parametrize(
        ("overrides", "word"),
        (
            ({"grpo.max_num_step": 4}, "Could not override 'grpo.max_num_step'"),
            ({"~policy.no_such": None}, "no_such"),
        ),
    )
    def test_the_loader_refuses_a_typo(
        self,
        release: tuple[str, Path],
        tmp_path: Path,
        overrides: dict[str, Any],
        word: str,
    ) -> None:
        tag, folder = release
        made = planned("qwen2.5-72b-grpo", tag, overrides=overrides)
        answer = loaded(made, folder, tmp_path / "answer.json")
        assert word in answer["refused"]

    def test_lists_maps_and_marks_arrive(self, release: tuple[str, Path], tmp_path: Path) -> None:
        tag, folder = release
        overrides: dict[str, Any] = {
            "policy.generation.stop_strings": ["</answer>", "a, b: {c}", "it's", "", "null", "1"],
            "+policy.generation.vllm_kwargs.hf_overrides": {"rope_scaling": {"factor": 4.0}},
            "++policy.megatron_cfg.env_vars": {"A": "1"},
            "+data.own": [1, 1.5, True, None, "é", {"k": []}],
        }
        made = planned("qwen2.5-72b-grpo", tag, overrides=overrides)
        config = loaded(made, folder, tmp_path / "answer.json")["config"]
        for key, value in overrides.items():
            assert at(config, key.lstrip("+")) == value


class TestRecipes:
    def test_what_is_shipped_is_what_the_tags_say(self) -> None:
        text = nemo_recipes.text_of(nemo_recipes.gathered(Path(CHECKOUT)))
        assert nemo_recipes.TARGET.read_text() == text

    def test_each_recipe_s_script_is_there(self, release: tuple[str, Path]) -> None:
        tag, folder = release
        for name in recipes.names(tag):
            recipe = recipes.find(tag, name)
            assert (folder / recipe.script).is_file() and (folder / recipe.config).is_file()
