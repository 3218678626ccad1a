"""The command line of a training, and how the supervisor is told of it. Pure.

Everything is an argument list: nothing a request says is ever read by a shell. Ray's Jobs API
takes one string and gives it to `/bin/sh -c`; `entrypoint` quotes for that, in one place.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import JsonValue

from lustrum.core.images import Image, check_override
from lustrum.core.overrides import by_name, merged, split_key, written
from lustrum.head.exits import Refused
from lustrum.head.names import LUSTRE_MOUNT
from lustrum.head.spec import read_spec

Mode = Literal["stage", "train", "list", "prune"]

SUPERVISOR = "/etc/lustrum/supervisor.pyz"  # where the ConfigMap is mounted in the head
PROMPTS, GENERATIONS = 32, 8  # per step, the original recipe
_BATCH = "policy.train_global_batch_size"


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
        resumes: it begins with a checkpoint of another run, whose goal or batch may differ.
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
    resumes: bool = False


def training_settings(command: TrainingCommand) -> dict[str, JsonValue]:
    """Return every override in the order given: the recipe, the request's, Lustrum's own.

    Raises:
        ValueError: the image does not accept an override (``core.images.check_override``).
    """
    image, overrides = command.image, command.overrides
    for key, value in overrides.items():
        check_override(image.name, key, value, image.ray_version)
    settings: dict[str, JsonValue] = {"policy.model_name": command.model}
    if image.takes_converter and "/Qwen2" in command.model:
        settings["policy.megatron_cfg.converter_type"] = "Qwen2ForCausalLM"
    if image.dataset_key:
        settings[image.dataset_key] = "DeepScaler"
    settings |= {
        "grpo.num_prompts_per_step": PROMPTS,
        "grpo.num_generations_per_prompt": GENERATIONS,
        "checkpointing.metric_name": None,  # keep the newest; a metric could drop the newest step
    }
    settings = merged(settings, overrides)
    # NeMo-RL asserts this after the model is loaded, on 64 GPUs.
    given = by_name(settings)
    prompts = given.get("grpo.num_prompts_per_step")
    each = given.get("grpo.num_generations_per_prompt")
    if isinstance(prompts, int) and isinstance(each, int) and _BATCH not in given:
        settings[_BATCH] = prompts * each
    settings |= {
        "grpo.max_num_steps": command.max_num_steps,
        "checkpointing.enabled": True,
        "checkpointing.save_period": command.save_period,
        "checkpointing.keep_top_k": command.keep,
        "checkpointing.checkpoint_dir": command.checkpoint_dir,
        "logger.log_dir": command.log_dir,
        "logger.wandb_enabled": command.wandb,
        "cluster.num_nodes": command.nodes,
        "cluster.gpus_per_node": command.gpus_per_node,
    }
    if command.wandb and command.name:
        settings.setdefault("logger.wandb.name", command.name)
    return settings


def training_argv(command: TrainingCommand) -> list[str]:
    """Return the training command, relative to the image's working directory."""
    image = command.image
    config = ["--config", image.config] if image.config else []
    settings = training_settings(command)
    return [
        *image.launcher,
        image.script,
        *config,
        *(written(key, value) for key, value in settings.items()),
        *_additions(command, settings),
    ]


def _additions(command: TrainingCommand, settings: Mapping[str, JsonValue]) -> list[str]:
    """Return what the recipe lacks and setup would end without, each as a Hydra ``+key=value``.

    From v0.6.0 on, setup asserts a validation set while grpo.val_period is not 0. Megatron refuses
    the optimizer's state of a run with another goal or batch unless it may override it. Both were
    seen with NeMo-RL's own loader and megatron-core's scheduler; both end on all GPUs.
    """
    image, added = command.image, []
    own_set = any(split_key(key)[1].startswith("data.validation") for key in settings)
    if image.validation and not own_set and by_name(settings).get("grpo.val_period") != 0:
        added.append(f"+data.validation={image.validation}")
    if command.resumes and image.is_megatron:
        added.append("+policy.megatron_cfg.scheduler.override_opt_param_scheduler=true")
    return added


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
    except Refused as error:
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
