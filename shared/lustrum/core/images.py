"""The one table of training images: which Ray, script, configuration and overrides go with each.

They must move together: KubeRay >= 1.6 probes an endpoint that Ray < 2.53 lacks, so a wrong
`rayVersion` leaves pods never Ready; v0.6.0 removed `run_grpo_math.py` and moved
`data.dataset_name`; v0.7.0 removed `converter_type`. NeMo-RL refuses an unknown key only after the
GPUs are up ("Could not override ... Key not in struct"). Source: NeMo-RL at each tag (uv.lock,
examples/, examples/configs/grpo_math_1B.yaml).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from lustrum.core.overrides import check_key, check_value, split_key

NEMO = "nvcr.io/nvidia/nemo-rl"
_GROUPS = ("grpo", "policy", "data", "logger", "checkpointing", "cluster", "env", "loss_fn")
# Sections of the configuration that an algorithm alone has.
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "grpo": ("grpo",),
    "sft": ("sft",),
    "dpo": ("dpo",),
    "distillation": ("distillation", "teacher"),
    "ppo": ("ppo", "value", "value_loss_fn"),
}
_MOVED = {
    "data.dataset_name": "moved in v0.6.0: use data.train.dataset_name",
    "data.prompt_file": "moved in v0.6.0: use data.default.prompt_file",
    "data.system_prompt_file": "moved in v0.6.0: use data.default.system_prompt_file",
}
# From v0.6.0 DeepScaler is a training split alone: what v0.4.0 validated with is named beside it.
_AIME: Mapping[str, JsonValue] = {"dataset_name": "AIME2024", "repeat": 16}
_NOT_YET = {"data.train.": "new in v0.6.0: use data.dataset_name"}


@dataclass(frozen=True)
class Image:
    """What Lustrum knows of a training image.

    Attributes:
        name: the reference, with its tag.
        ray_version: the Ray inside, which the RayCluster must state.
        script: the training script, relative to ``workdir``.
        config: its ``--config``, None when the script takes none.
        workdir: the image's own working directory, None when the pod's is used.
        launcher: what comes before the script.
        groups: first parts of the override keys it accepts.
        refused: override keys (or prefixes, ending in a dot) it has not, each with what to do.
        dataset_key: where the name of the training data goes, None when there is no choice.
        takes_converter: policy.megatron_cfg.converter_type exists.
        validation: what `data.validation` is set to, None when the training data brings its own
            validation split.
        gib: version of the NCCL plugin for RDMA that goes with the NCCL inside.
        release: of NeMo-RL, whose recipes it has; empty: it is none.
    """

    name: str
    ray_version: str
    script: str
    config: str | None = "examples/configs/grpo_math_70B_megatron.yaml"
    workdir: str | None = "/opt/nemo-rl"
    launcher: tuple[str, ...] = ("uv", "run", "python")
    groups: tuple[str, ...] = _GROUPS
    refused: Mapping[str, str] = field(default_factory=dict)
    dataset_key: str | None = "data.dataset_name"
    takes_converter: bool = True
    validation: Mapping[str, JsonValue] | None = None
    gib: str = "v1.1.0"  # NCCL 2.27 and later
    release: str = ""


TABLE: Mapping[str, Image] = {
    image.name: replace(image, release=image.name.rpartition(":")[2] if image.workdir else "")
    for image in (
        Image(
            f"{NEMO}:v0.4.0", "2.46.0", "examples/run_grpo_math.py", refused=_NOT_YET, gib="v1.0.6"
        ),
        # v1.0.6 is what Google's own sample runs with v0.5.0
        Image(
            f"{NEMO}:v0.5.0",
            "2.49.2",
            "examples/run_grpo_math.py",
            refused=_NOT_YET,
            gib="v1.0.6",
        ),
        Image(
            f"{NEMO}:v0.6.0",
            "2.54.0",
            "examples/run_grpo.py",
            refused=_MOVED,
            dataset_key="data.train.dataset_name",
            validation=_AIME,
        ),
        Image(
            f"{NEMO}:v0.7.0",
            "2.55.1",
            "examples/run_grpo.py",
            groups=(*_GROUPS, "data_plane", "on_policy_distillation"),
            refused={
                **_MOVED,
                "policy.megatron_cfg.converter_type": "removed in v0.7.0, had no effect: omit it",
            },
            dataset_key="data.train.dataset_name",
            takes_converter=False,
            validation=_AIME,
        ),
        Image(
            "local/grpo-numpy:1",
            "2.54.0",
            "examples/grpo_numpy/train.py",
            config=None,
            workdir=None,
            launcher=("python3",),
            groups=(*_GROUPS, "local"),
            dataset_key=None,
            takes_converter=False,
        ),
    )
}

# Keys that Lustrum sets itself, each with what a request says instead.
_OWNED: Mapping[str, str] = {
    "checkpointing.checkpoint_dir": "is always /lustre/runs/<run_id>/checkpoints; to begin with "
    "an earlier checkpoint use checkpoints.resume_from",
    "checkpointing.enabled": "is always true",
    "checkpointing.save_period": "use checkpoints.save_period",
    "checkpointing.keep_top_k": "use checkpoints.keep",
    "cluster.num_nodes": "use nodes",
    "cluster.gpus_per_node": "follows from the profile's machine",
    "logger.log_dir": "is always /lustre/runs/<run_id>/logs",
    "logger.wandb_enabled": "is on when the control plane holds a W&B key",
}
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)?")
_METRIC = re.compile(r"(train|val):[A-Za-z0-9_][A-Za-z0-9_./-]*")
_SAVE_BY = re.compile(r"\d{2}:\d{2}:\d{2}:\d{2}")


def resolve(image: str, ray_version: str | None = None) -> Image:
    """Return what is known of an image.

    An image that is not in the table is taken as built on the NeMo-RL release with that Ray, or
    the newest one with an older Ray; so its Ray version must be given.

    Raises:
        ValueError: the image is unknown and no usable Ray version is given, or the version
            contradicts the table; lists the known pairs.
    """
    known = TABLE.get(image)
    if known is not None:
        if ray_version not in (None, known.ray_version):
            raise ValueError(
                f"{image} holds Ray {known.ray_version}, not {ray_version}: omit ray_version"
            )
        return known
    if ray_version is None:
        raise ValueError(
            f"{image} is not a known image: give ray_version, the Ray inside it, or use one of "
            + known_pairs()
        )
    older = [entry for entry in _releases() if _version(entry) <= _numbers(ray_version)]
    if not older:
        raise ValueError(
            f"Ray {ray_version} in {image} is older than any known NeMo-RL release; known are "
            + known_pairs()
        )
    return replace(older[-1], name=image, ray_version=ray_version)


def known_pairs() -> str:
    """Return the table as text, for messages."""
    return ", ".join(f"{entry.name} (Ray {entry.ray_version})" for entry in TABLE.values())


def check_override(
    image: str,
    key: str,
    value: JsonValue,
    ray_version: str | None = None,
    algorithm: str = "grpo",
) -> None:
    """Check one Hydra override before anything is created; ``core.overrides`` has the grammar.

    ``algorithm`` is the recipe's: its sections of the configuration may be changed.

    Raises:
        ValueError: the key or its value cannot be used with this image; says what can.
    """
    entry = TABLE.get(image) or (resolve(image, ray_version) if ray_version else None)
    groups = entry.groups if entry else _GROUPS
    groups = (*SECTIONS[algorithm], *(one for one in groups if one != "grpo"))
    check_key(key)
    name = split_key(key)[1]
    if name.split(".")[0] not in groups:
        raise ValueError("must begin with one of " + ", ".join(group + "." for group in groups))
    owned = next((own for own in _OWNED if name == own or name.startswith(own + ".")), None)
    if owned:
        raise ValueError("is set by Lustrum: it " + _with_verb(_OWNED[owned]))
    for refused, advice in (entry.refused if entry else {}).items():
        if name == refused or (refused.endswith(".") and name.startswith(refused)):
            raise ValueError(f"is not a key of {image}: {advice}")
    check_value(key, value)
    if not key.startswith("~"):
        _check_known(name, value)


def _with_verb(advice: str) -> str:
    return "cannot be overridden, " + advice if advice.startswith("use ") else advice


def _check_known(name: str, value: JsonValue) -> None:
    if name == "checkpointing.metric_name" and not (
        value is None or (isinstance(value, str) and _METRIC.fullmatch(value))
    ):
        raise ValueError("must be null, or begin with train: or val: (val:accuracy)")
    if name == "checkpointing.checkpoint_must_save_by" and not (
        value is None or (isinstance(value, str) and _SAVE_BY.fullmatch(value))
    ):
        raise ValueError("must be null or DD:HH:MM:SS (00:03:45:00)")
    if name == "policy.model_name" and not (
        isinstance(value, str) and (value.startswith("/") or _MODEL.fullmatch(value))
    ):
        raise ValueError("must be a model of the hub, owner/name, or a path below /lustre/")


def _releases() -> list[Image]:
    """NeMo-RL releases, oldest first."""
    return sorted((entry for entry in TABLE.values() if entry.workdir), key=_version)


def _version(entry: Image) -> tuple[int, ...]:
    return _numbers(entry.ray_version)


def _numbers(version: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ValueError(f"ray_version {version!r} must look like 2.46.0")
    return tuple(int(part) for part in version.split("."))
