"""The settings of a NeMo-RL training that decide whether its numbers fit, and what follows from
them: GPUs that train and that generate, the size of a replica, the samples of a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NODES = "cluster.num_nodes"
BATCH = "policy.train_global_batch_size"
SAMPLED = ("grpo", "ppo", "distillation")  # a step's samples are generated, then trained on
# Every setting that a rule looks at -> what it is when the configuration is silent.
SETTINGS: Mapping[str, Any] = {
    "<algorithm>.num_prompts_per_step": None,
    "<algorithm>.num_generations_per_prompt": None,
    "<algorithm>.val_period": 0,
    "<algorithm>.val_at_start": False,
    "<algorithm>.val_at_end": False,
    "<algorithm>.max_num_steps": None,
    "loss_fn.force_on_policy_ratio": False,
    "cluster.num_nodes": 1,
    "cluster.gpus_per_node": 8,
    "data.dataset_name": None,
    "data.val_data_path": None,
    "data.train.dataset_name": None,
    "data.train.split_validation_size": 0,
    "data.validation": None,
    "env.reward_model.enabled": False,
    "policy.model_name": None,
    "policy.train_global_batch_size": None,
    "policy.train_micro_batch_size": 1,
    "policy.logprob_batch_size": None,
    "policy.sequence_packing.enabled": False,
    "policy.dynamic_batching.enabled": False,
    "policy.megatron_cfg.enabled": False,
    "policy.megatron_cfg.tensor_model_parallel_size": 1,
    "policy.megatron_cfg.pipeline_model_parallel_size": 1,
    "policy.megatron_cfg.context_parallel_size": 1,
    "policy.megatron_cfg.expert_model_parallel_size": 1,
    "policy.megatron_cfg.expert_tensor_parallel_size": 1,
    "policy.megatron_cfg.num_layers_in_first_pipeline_stage": None,
    "policy.megatron_cfg.num_layers_in_last_pipeline_stage": None,
    "policy.dtensor_cfg.enabled": False,
    "policy.dtensor_cfg.tensor_parallel_size": 1,
    "policy.dtensor_cfg.context_parallel_size": 1,
    "policy.generation.backend": None,
    "policy.generation.colocated.enabled": True,
    "policy.generation.colocated.resources.num_nodes": None,
    "policy.generation.colocated.resources.gpus_per_node": None,
    "policy.generation.vllm_cfg.tensor_parallel_size": 1,
    "policy.generation.vllm_cfg.pipeline_parallel_size": 1,
}
# From v0.6.0 a validation set is cut off the training data only by these (response_datasets/),
SPLITTING = frozenset(
    (
        "OpenMathInstruct-2",
        "ResponseDataset",
        "tulu3_sft_mixture",
        "open_assistant",
        "arrow_text",
    )
)
# and these have a training split alone. Of a data set that is in neither nothing is said.
TRAIN_ONLY = frozenset(
    (
        "DAPOMath17K",
        "DAPOMathAIME2024",
        "DeepScaler",
        "GSM8K",
        "HelpSteer3",
        "gsm8k",
        "squad",
    )
)


@dataclass(frozen=True)
class Model:
    """What decides how a model can be cut: attention heads and layers."""

    heads: int
    layers: int


@dataclass(frozen=True)
class Fault:
    """A setting that cannot work: its key, its value, and why, with what would."""

    key: str
    value: object
    reason: str


class Numbers:
    """The settings of one training, with what follows from them."""

    def __init__(self, algorithm: str, settings: Mapping[str, Any]) -> None:
        self.algorithm = algorithm
        self._settings = settings

    def __getitem__(self, setting: str) -> Any:
        """Return a setting by its name in SETTINGS."""
        found = self._settings.get(self.key(setting))
        return SETTINGS[setting] if found is None else found

    def key(self, setting: str) -> str:
        """Return the key as the configuration has it."""
        return setting.replace("<algorithm>", self.algorithm)

    @property
    def is_megatron(self) -> bool:
        """Say whether the policy trains with Megatron; else DTensor."""
        return self["policy.megatron_cfg.enabled"] is True

    def parallel(self) -> dict[str, int]:
        """Return TP, PP and CP of the policy."""
        if self.is_megatron:
            megatron = "policy.megatron_cfg."
            return {
                "TP": self[megatron + "tensor_model_parallel_size"],
                "PP": self[megatron + "pipeline_model_parallel_size"],
                "CP": self[megatron + "context_parallel_size"],
            }
        return {
            "TP": self["policy.dtensor_cfg.tensor_parallel_size"],
            "PP": 1,
            "CP": self["policy.dtensor_cfg.context_parallel_size"],
        }

    def replica(self) -> int:
        """Return the GPUs of one copy of the policy."""
        sizes = self.parallel()
        return sizes["TP"] * sizes["PP"] * sizes["CP"]

    def gpus(self) -> tuple[int, int]:
        """Return the GPUs that train and those that generate; the same ones when colocated."""
        nodes, each = self[NODES], self["cluster.gpus_per_node"]
        if self.algorithm not in SAMPLED or self["policy.generation.colocated.enabled"]:
            return nodes * each, nodes * each
        own = self["policy.generation.colocated.resources.gpus_per_node"] or 0
        if nodes == 1:
            return each - own, own
        given = self["policy.generation.colocated.resources.num_nodes"] or 0
        return (nodes - given) * each, given * own

    def samples(self) -> int | None:
        """Return the samples of a step: None when they are not generated."""
        prompts = self["<algorithm>.num_prompts_per_step"]
        each = self["<algorithm>.num_generations_per_prompt"]
        if self.algorithm not in SAMPLED or not (is_count(prompts) and is_count(each)):
            return None
        return int(prompts) * int(each)


def version(release: str) -> tuple[int, int]:
    """Return the two first numbers of a release of NeMo-RL: (0, 6) for v0.6.0."""
    major, minor, *_ = release.lstrip("v").split(".")
    return int(major), int(minor)


def is_count(value: object) -> bool:
    """Say whether a setting is a whole number, 1 or more."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
