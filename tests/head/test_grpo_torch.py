"""GRPO in PyTorch: task and layout always; the training itself where torch is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from examples.grpo_torch import checkpoint, task
from examples.grpo_torch.config import read_config

ROOT = Path(__file__).parents[2]
SMALL = (
    "policy.hidden_size=16",
    "policy.num_layers=1",
    "policy.num_heads=2",
    "policy.train_global_batch_size=128",
    "grpo.num_prompts_per_step=16",
    "grpo.num_generations_per_prompt=8",
    "data.max_operand=5",
    "policy.optimizer.lr=0.01",
    "checkpointing.save_period=4",
    "local.processes=1",
)


class TestTask:
    def test_answers_are_the_digits_of_the_sum(self) -> None:
        prompts = np.array([[4, 7, task.PLUS, 8, 5, task.EQUALS], [0, 2, 10, 0, 3, 11]])
        assert task.answers(prompts).tolist() == [[1, 3, 2], [0, 0, 5]]

    def test_new_prompts_stay_below_the_operand_and_follow_the_seed(self) -> None:
        prompts = task.new_prompts(500, 20, (1, 2))
        operands = 10 * prompts[:, [0, 3]] + prompts[:, [1, 4]]
        assert (operands.min(), operands.max()) == (0, 19)
        assert (prompts == task.new_prompts(500, 20, (1, 2))).all()
        assert (prompts != task.new_prompts(500, 20, (1, 3))).any()

    def test_rewards_are_given_for_each_digit(self) -> None:
        prompts = np.array([[4, 7, task.PLUS, 8, 5, task.EQUALS]])
        assert task.rewards(prompts, np.array([[1, 0, 2]])).tolist() == [[1, 0, 1]]

    def test_advantages_are_relative_to_group_and_digit(self) -> None:
        scores = np.array([[0, 1], [1, 1], [1, 0], [1, 0]], dtype=np.float32)
        found = task.group_advantages(scores, 2)
        assert found == pytest.approx(np.array([[-1, 0], [1, 0], [0, 0], [0, 0]]), abs=1e-4)


class TestConfig:
    @pytest.mark.parametrize(
        "wrong",
        [
            "grpo.max_steps=3",
            "grpo.num_prompts_per_step=8",
            "data.max_operand=101",
            "local.mode=threads",
        ],
    )
    def test_read_config_refuses(self, wrong: str) -> None:
        with pytest.raises(SystemExit):
            read_config([wrong])


class TestLayout:
    def test_save_commits_by_rename_and_keeps_the_newest(self, tmp_path: Path) -> None:
        config = read_config([f"checkpointing.checkpoint_dir={tmp_path}"])
        config["checkpointing"]["keep_top_k"] = 2
        for step in (1, 2, 3):
            info = dict(checkpoint.FRESH, total_steps=step)

            def write(folder: Path, step: int = step) -> None:
                assert folder == tmp_path / f"tmp_step_{step}" / checkpoint.WEIGHTS
                (folder / "model.safetensors").write_bytes(b"w")

            checkpoint.save(config, info, write)
        assert sorted(os.listdir(tmp_path)) == ["step_2", "step_3"]
        folder, info = checkpoint.newest(config)
        assert folder == tmp_path / "step_3" / checkpoint.WEIGHTS
        assert (folder / "model.safetensors").read_bytes() == b"w"
        assert info["total_steps"] == 3


def curve(folder: Path, *more: str) -> list[tuple[float, float]]:
    """Train; reward and loss of every step so far."""
    command = [
        sys.executable,
        "-m",
        "examples.grpo_torch.train",
        *SMALL,
        f"checkpointing.checkpoint_dir={folder}/c",
        f"logger.log_dir={folder}/l",
        *more,
    ]
    path = f"{ROOT}:{ROOT / 'shared'}"
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=path)
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    lines = (folder / "l/train_data.jsonl").read_text().splitlines()
    return [(one["reward"], one["loss"]) for one in map(json.loads, lines)]


class TestTraining:
    def test_it_learns_and_resumes_exactly(self, tmp_path: Path) -> None:
        pytest.importorskip("torch", reason="torch is not installed: uv sync --group gpu")
        pytest.importorskip("safetensors")
        whole = curve(tmp_path / "whole", "grpo.max_num_steps=12")
        assert whole[-1][0] > whole[0][0] + 0.2
        curve(tmp_path / "parts", "grpo.max_num_steps=8")
        assert curve(tmp_path / "parts", "grpo.max_num_steps=12") == whole
