"""Draws the learning curve: `python -m examples.grpo_torch.plot curve.jsonl curve.png`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot


def draw(curve: Path, picture: Path) -> None:
    """Reward by step, each step's and the mean of the 10 around it."""
    lines = [json.loads(line) for line in curve.read_text().splitlines()]
    steps = [one["step"] for one in lines]
    rewards = [one["reward"] for one in lines]
    near = [rewards[max(0, i - 5) : i + 5] for i in range(len(rewards))]
    figure, axes = pyplot.subplots(figsize=(7, 3), dpi=110, layout="constrained")
    axes.plot(steps, rewards, color="#9ec5e8", linewidth=0.8, label="of the step")
    axes.plot(steps, [sum(some) / len(some) for some in near], color="#2f6fb5", label="mean of 10")
    axes.set(xlabel="step", ylabel="reward", ylim=(0, 1), xlim=(0, max(steps)))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(picture)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
