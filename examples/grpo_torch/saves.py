"""What a save costs: a model with Adam's state written whole and in shards, timed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from examples.grpo_torch import checkpoint
from examples.grpo_torch.config import read_config
from examples.grpo_torch.learner import Learner

LARGE = ("policy.hidden_size=2048", "policy.num_layers=16")  # 0.8 G parameters
PERIODS = (10, 50)  # steps between saves, for the share of time


def measure_saves(folder: Path, *overrides: str) -> dict[str, Any]:
    """Seconds, bytes and rate of each kind of save, and what share of the time it would take.

    A rate is bytes by the seconds until the save returned; with sync, until the kernel says that
    all is on the disk. Each kind is done twice, the second time counts: the first grows memory.
    """
    config = read_config(
        ["grpo.inner_epochs=1", f"checkpointing.checkpoint_dir={folder}", *overrides]
    )
    learner = Learner(config)
    for step in (1, 2):
        timing = learner.step(step)["timing"]
    step_seconds = sum(timing.values())
    kinds: dict[str, Callable[[Path], None]] = {
        "whole": lambda path: checkpoint.write_policy(path, learner.state()),
        "sharded": learner.write_shards,
    }
    found: dict[str, Any] = {
        "parameters": sum(one.numel() for one in learner.model.parameters()),
        "step_seconds": step_seconds,
    }
    for kind, write in kinds.items():
        for _ in range(2):
            found[kind] = _timed(config, folder, write)
        seconds = found[kind]["seconds"]
        for period in PERIODS:
            share = seconds / (period * step_seconds + seconds)
            found[kind][f"percent_of_time_every_{period}_steps"] = 100 * share
    return found


def _timed(config: dict[str, Any], folder: Path, write: Callable[[Path], None]) -> dict[str, Any]:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    os.sync()
    began = time.monotonic()
    checkpoint.save(config, dict(checkpoint.FRESH, total_steps=1), write)
    seconds = time.monotonic() - began
    os.sync()
    synced = time.monotonic() - began
    files = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    shutil.rmtree(folder)
    return {
        "bytes": size,
        "files": len(files),
        "seconds": seconds,
        "gb_per_second": size / seconds / 1e9,
        "seconds_with_sync": synced,
        "gb_per_second_with_sync": size / synced / 1e9,
    }
