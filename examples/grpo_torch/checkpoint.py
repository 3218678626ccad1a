"""NeMo-RL's checkpoint layout: written as `tmp_step_N`, committed by the rename to `step_N`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from examples.grpo_numpy.train import least, steps_in, to_yaml

WEIGHTS = Path("policy/weights/iter_0000000")
FRESH = {
    "consumed_samples": 0,
    "current_step": 0,
    "current_epoch": 0,
    "total_steps": 0,
    "total_valid_tokens": 0,
}


def begin(config: Mapping[str, Any], info: Mapping[str, Any]) -> Path:
    """Make `tmp_step_N` with all but the policy; return the folder of the weights."""
    step = info["total_steps"]
    print(f"Saving checkpoint for step {step}...", flush=True)
    temporary = Path(config["checkpointing"]["checkpoint_dir"]) / f"tmp_step_{step}"
    weights = temporary / WEIGHTS
    weights.mkdir(parents=True, exist_ok=True)
    (temporary / "training_info.json").write_text(json.dumps(info))
    (temporary / "config.yaml").write_text(to_yaml(config) + "\n")
    (temporary / "train_dataloader.pt").write_bytes(json.dumps({"next_step": step}).encode())
    (weights / "run_config.yaml").write_text(f"model_name: {config['policy']['model_name']}\n")
    (weights.parent / "latest_checkpointed_iteration.txt").write_text("0\n")
    (temporary / "policy/tokenizer").mkdir(exist_ok=True)
    (temporary / "policy/tokenizer/tokenizer.json").write_text('{"tokens": "0123456789+="}\n')
    return weights


def commit(config: Mapping[str, Any], step: int) -> None:
    """Rename `tmp_step_N` to `step_N` and drop what keep_top_k does not keep."""
    root = Path(config["checkpointing"]["checkpoint_dir"])
    final = root / f"step_{step}"
    if final.exists():
        shutil.rmtree(final)
    os.rename(root / f"tmp_step_{step}", final)
    print(f"Saved checkpoint to {final / 'policy/weights'}", flush=True)
    keep = config["checkpointing"]["keep_top_k"] or len(steps_in(root))
    for old in steps_in(root)[:-keep]:
        print(f"Removing checkpoint step_{old} due to being outside top-{keep}", flush=True)
        shutil.rmtree(root / f"step_{old}")


def newest(config: Mapping[str, Any]) -> tuple[Path | None, dict[str, Any]]:
    """The folder of the newest step's weights, None for a fresh start, and its info."""
    root = Path(config["checkpointing"]["checkpoint_dir"])
    steps = steps_in(root)
    if not steps:
        return None, dict(FRESH)
    folder = root / f"step_{steps[-1]}"
    print(f"Resuming from {folder}", flush=True)
    return folder / WEIGHTS, json.loads((folder / "training_info.json").read_text())


def write_policy(folder: Path, state: Mapping[str, Any], rank: int = 0) -> None:
    """Rank 0 writes weights (safetensors) and optimizer, each rank its random numbers."""
    import torch
    from safetensors.torch import save_file

    torch.save(state["random"], folder / f"random-{rank}.pt")
    if rank == 0:
        save_file(dict(state["model"]), folder / "model.safetensors")
        torch.save(state["optimizer"], folder / "optimizer.pt")


def read_policy(folder: Path, rank: int = 0) -> dict[str, Any]:
    """What `write_policy` wrote; nothing in it is unpickled but tensors and plain values."""
    import torch
    from safetensors.torch import load_file

    def read(name: str) -> Any:
        return torch.load(folder / name, map_location="cpu", weights_only=True)

    return {
        "model": load_file(folder / "model.safetensors"),
        "optimizer": read("optimizer.pt"),
        "random": read(f"random-{rank}.pt"),
    }


def is_sharded(folder: Path) -> bool:
    """Say whether the step was written by `Learner.write_shards`."""
    return (folder / ".metadata").exists()


def save(
    config: Mapping[str, Any], info: Mapping[str, Any], write: Callable[[Path], None]
) -> None:
    """One whole save by one process; `write` puts the policy into the folder it is given."""
    with least(config["local"]["save_seconds"]):
        write(begin(config, info))
    commit(config, info["total_steps"])
