"""What the training is told: NeMo-RL's keys, as overrides of DEFAULTS."""

from __future__ import annotations

import copy
from typing import Any

from examples.grpo_numpy.train import apply_override

DEFAULTS: dict[str, Any] = {
    "policy": {
        "model_name": "local/arithmetic-transformer",
        "hidden_size": 256,
        "num_layers": 4,
        "num_heads": 4,
        "train_global_batch_size": 8192,  # = prompts x generations, as NeMo-RL demands
        "precision": "bfloat16",  # of the matrix products; weights and Adam stay float32
        "optimizer": {"lr": 0.0005},
    },
    "data": {"dataset_name": "addition", "max_operand": 100},
    "grpo": {
        "num_prompts_per_step": 512,
        "num_generations_per_prompt": 16,
        "max_num_steps": 300,
        "seed": 42,
        "inner_epochs": 4,
    },
    "loss_fn": {"ratio_clip_min": 0.2, "ratio_clip_max": 0.2},
    "checkpointing": {
        "enabled": True,
        "checkpoint_dir": "results/grpo",
        "metric_name": None,
        "keep_top_k": 3,
        "save_period": 50,
        "checkpoint_must_save_by": None,
    },
    "cluster": {"num_nodes": 1, "gpus_per_node": 0},
    "logger": {"log_dir": "logs", "wandb_enabled": False, "wandb": {"name": None}},
    # Not NeMo-RL's. mode: "process" (one process a GPU) or "ray" (a rollout and a learner actor).
    # processes: null is one for each GPU seen, 1 without. save_seconds: the least a save
    # takes before its commit.
    # sharded: every process writes its share of weights and optimizer, with several threads.
    "local": {"mode": "process", "processes": None, "save_seconds": 0.0, "sharded": False},
}


def read_config(arguments: list[str]) -> dict[str, Any]:
    """Return DEFAULTS with the overrides applied.

    Raises:
        SystemExit: an unknown key, or a batch size that is not prompts times generations.
    """
    config = copy.deepcopy(DEFAULTS)
    for argument in arguments:
        apply_override(config, argument)
    grpo = config["grpo"]
    batch = grpo["num_prompts_per_step"] * grpo["num_generations_per_prompt"]
    if config["policy"]["train_global_batch_size"] != batch:
        raise SystemExit(
            "policy.train_global_batch_size must be num_prompts_per_step * "
            f"num_generations_per_prompt = {batch}"
        )
    if not 1 <= config["data"]["max_operand"] <= 100:
        raise SystemExit("data.max_operand must be 1 to 100: operands have two digits")
    if config["local"]["mode"] not in ("process", "ray"):
        raise SystemExit(f"local.mode: {config['local']['mode']!r} is not process or ray")
    if config["local"]["mode"] == "ray" and config["local"]["sharded"]:
        raise SystemExit("local.sharded: true needs local.mode=process; one actor alone saves")
    return config
