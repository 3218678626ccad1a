"""The command line of a training, and how the supervisor is told of it. Pure.

Everything is an argument list: nothing a request says is ever read by a shell. Ray's Jobs API
takes one string and gives it to `/bin/sh -c`; `entrypoint` quotes for that, in one place.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import JsonValue

from lustrum.core.images import Image, check_override
from lustrum.core.overrides import by_name, merged, split_key, written
from lustrum.core.recipes import Recipe, find, numbers
from lustrum.head.exits import JobFailed
from lustrum.head.names import LUSTRE_MOUNT
from lustrum.head.recipe_numbers import BATCH, NODES
from lustrum.head.spec import read_spec

Mode = Literal["stage", "train", "list", "prune"]

SUPERVISOR = "/etc/lustrum/supervisor.pyz"  # where the ConfigMap is mounted in the head
DATASET = "DeepScaler"  # of the original recipe
ORIGINAL: Mapping[str, JsonValue] = {
    "grpo.num_prompts_per_step": 32,
    "grpo.num_generations_per_prompt": 8,
}
_SAVE_BY = "checkpointing.checkpoint_must_save_by"
_DURATION = re.compile(r"(\d{2}):(\d{2}):(\d{2}):(\d{2})")


@dataclass(frozen=True)
class TrainingCommand:
    """What decides the command line of one training.

    Attributes:
        image: what is known of the image.
        model: model of the hub, or a path on Lustre.
        nodes, gpus_per_node: size of the cluster.
        checkpoint_dir, log_dir: folders on Lustre.
        save_period: steps between saves; keep: complete steps kept; max_num_steps: the last step.
        overrides: what the request adds or changes, key -> JSON value.
        wandb: metrics go to Weights & Biases (a key is mounted in the pods).
        name: how the run is called there.
        train_seconds: what the train loop may take until it saves and ends by itself.
        resumes: it begins with a checkpoint of another run, whose goal or batch may differ.
        recipe: what is trained; None: the image's own, in NeMo-RL the original recipe.
        settings: what the profile changes of the recipe; None: as the original recipe does.
        dataset: the training data; None: the recipe's own.
    """

    image: Image
    model: str
    nodes: int
    gpus_per_node: int
    checkpoint_dir: str
    log_dir: str
    save_period: int
    keep: int
    max_num_steps: int
    overrides: Mapping[str, JsonValue] = field(default_factory=dict)
    wandb: bool = False
    name: str = ""
    train_seconds: float | None = None
    resumes: bool = False
    recipe: Recipe | None = None
    settings: Mapping[str, JsonValue] | None = None
    dataset: str | None = DATASET

    @property
    def any_recipe(self) -> Recipe | None:
        """What is trained; None when the image is no release of NeMo-RL."""
        if self.recipe is None and self.image.release:
            return find(self.image.release, str(self.image.config))
        return self.recipe

    @property
    def algorithm(self) -> str:
        """The section of the configuration that holds the last step."""
        return self.recipe.algorithm if self.recipe else "grpo"


def training_settings(command: TrainingCommand) -> dict[str, JsonValue]:
    """Return every override in the order given: the recipe, the request's, Lustrum's own.

    Raises:
        ValueError: the image does not accept an override (``core.images.check_override``).
    """
    image, overrides = command.image, command.overrides
    for key, value in overrides.items():
        check_override(image.name, key, value, image.ray_version, command.algorithm)
    settings: dict[str, JsonValue] = {"policy.model_name": command.model}
    if image.takes_converter and "/Qwen2" in command.model and command.settings is None:
        settings["policy.megatron_cfg.converter_type"] = "Qwen2ForCausalLM"
    if image.dataset_key and command.dataset:
        settings[image.dataset_key] = command.dataset
    settings |= ORIGINAL if command.settings is None else command.settings
    settings["checkpointing.metric_name"] = None  # keep the newest; a metric could drop it
    settings = merged(settings, overrides)
    settings |= _batch(command, settings)
    settings |= {
        f"{command.algorithm}.max_num_steps": command.max_num_steps,
        "checkpointing.enabled": True,
        "checkpointing.save_period": command.save_period,
        "checkpointing.keep_top_k": command.keep,
        "checkpointing.checkpoint_dir": command.checkpoint_dir,
        "logger.log_dir": command.log_dir,
        "logger.wandb_enabled": command.wandb,
        NODES: command.nodes,
        "cluster.gpus_per_node": command.gpus_per_node,
    }
    if command.wandb and command.name:
        settings.setdefault("logger.wandb.name", command.name)
    return merged(settings, _additions(command, settings))


def training_numbers(command: TrainingCommand) -> dict[str, Any]:
    """Return the settings that the rules of ``head.arithmetic`` look at, as the training will have
    them.
    """
    return _numbers(command, training_settings(command))


def is_megatron(command: TrainingCommand) -> bool:
    """Say whether the policy trains with Megatron."""
    return training_numbers(command).get("policy.megatron_cfg.enabled") is True


def training_argv(command: TrainingCommand) -> list[str]:
    """Return the training command, relative to the image's working directory."""
    image, recipe = command.image, command.recipe
    config = recipe.config if recipe else image.config
    return [
        *image.launcher,
        recipe.script if recipe else image.script,
        *(["--config", config] if config else []),
        *(written(key, value) for key, value in training_settings(command).items()),
    ]


def _numbers(command: TrainingCommand, settings: Mapping[str, JsonValue]) -> dict[str, Any]:
    recipe = command.any_recipe
    if recipe is None:
        return by_name(settings)
    return numbers(recipe, settings, command.nodes, command.gpus_per_node)


def _batch(command: TrainingCommand, settings: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the batch that follows from prompts and generations, when one of them was changed and
    the batch was not: NeMo-RL asserts that they fit after the model is loaded, on all GPUs.
    """
    given, of = by_name(settings), f"{command.algorithm}."
    keys = (of + "num_prompts_per_step", of + "num_generations_per_prompt")
    if BATCH in given or not any(key in given for key in keys):
        return {}
    known = _numbers(command, settings)
    prompts, each = (known.get(key) for key in keys)
    return {BATCH: prompts * each} if isinstance(prompts, int) and isinstance(each, int) else {}


def _additions(
    command: TrainingCommand, settings: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    """Return what the recipe lacks and setup would end without.

    From v0.6.0 on, setup asserts a validation set while grpo.val_period is not 0. Megatron refuses
    the optimizer's state of a run with another goal or batch unless it may override it. Both were
    seen with NeMo-RL's own loader and megatron-core's scheduler; both end on all GPUs.
    """
    image, added = command.image, dict[str, JsonValue]()
    given = by_name(settings)
    own_set = any(split_key(key)[1].startswith("data.validation") for key in settings)
    validates = given.get(f"{command.algorithm}.val_period") != 0
    if image.validation and command.dataset == DATASET and not own_set and validates:
        added["+data.validation"] = dict(image.validation)
    if command.train_seconds is not None:
        own = read_duration(given.get(_SAVE_BY))
        seconds = min(command.train_seconds, own or command.train_seconds)
        added[f"++{_SAVE_BY}"] = duration(seconds)
    megatron = _numbers(command, settings).get("policy.megatron_cfg.enabled") is True
    if command.resumes and megatron:
        added["+policy.megatron_cfg.scheduler.override_opt_param_scheduler"] = True
    return added


def duration(seconds: float) -> str:
    """Write seconds as NeMo-RL's DD:HH:MM:SS."""
    minutes, second = divmod(max(int(seconds), 1), 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{min(day, 99):02d}:{hour:02d}:{minute:02d}:{second:02d}"


def read_duration(text: object) -> float | None:
    """Return the seconds of a DD:HH:MM:SS, None if it is none."""
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds


def supervisor_spec(
    run_id: str,
    attempt: int,
    *,
    lustre: str = LUSTRE_MOUNT,
    command: Sequence[str] = (),
    **more: Any,
) -> dict[str, Any]:
    """Return the supervisor's spec; ``more`` are keys of ``lustrum.head.spec.Spec``.

    None means "the supervisor's default". No secret belongs in it: Ray shows it to anyone who can
    reach the dashboard.

    Raises:
        ValueError: a key the supervisor does not know.
    """
    spec = {"run_id": run_id, "attempt": attempt, "lustre": lustre, "command": list(command)}
    spec |= {key: value for key, value in more.items() if value is not None}
    try:
        read_spec(json.dumps(spec))
    except JobFailed as error:
        raise ValueError(str(error)) from None
    return spec


def entrypoint(
    mode: Mode, spec: Mapping[str, Any], supervisor: str = SUPERVISOR, python: str = "python3"
) -> str:
    """Return the Ray job's entrypoint, quoted for the one shell that reads it.

    The shell becomes the supervisor (`exec`): one that stayed could die alone, and Ray would call
    a job over whose training goes on writing.
    """
    text = json.dumps(spec, separators=(",", ":"), sort_keys=True)
    return "exec " + shlex.join([python, supervisor, mode, "--spec", text])
