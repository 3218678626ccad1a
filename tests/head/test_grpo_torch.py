"""GRPO in PyTorch: task and layout always; the training itself where torch is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from examples.grpo_torch import checkpoint, task
from examples.grpo_torch.config import read_config

ROOT = Path(__file__).parents[2]
# The python that has torch: the one that `make test-torch` made, or this one, or none.
OWN = ROOT / ".venv-torch/bin/python"
HERE = all(map(importlib.util.find_spec, ("torch", "safetensors")))
PYTHON = str(OWN) if OWN.exists() else sys.executable if HERE else ""
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
    "grpo.max_num_steps=12",
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
            "local.mode=ray local.sharded=true",
        ],
    )
    def test_read_config_refuses(self, wrong: str) -> None:
        with pytest.raises(SystemExit):
            read_config(wrong.split())


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


def training(folder: Path, *more: str) -> subprocess.Popen[str]:
    """Start a small training in a process of its own, as on a GPU."""
    command = [
        *(PYTHON, "-u", "-m", "examples.grpo_torch.train", *SMALL),
        f"checkpointing.checkpoint_dir={folder}/c",
        f"logger.log_dir={folder}/l",
        *more,
    ]
    path = f"{ROOT}:{ROOT / 'shared'}"
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=path)
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for its end, which must be a good one; what it printed."""
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 0, text
    return text


def kill_after(process: subprocess.Popen[str], line: str) -> None:
    """Kill -9 the training and its ranks when it has printed this line."""
    assert process.stdout is not None
    seen = []
    for text in process.stdout:
        seen.append(text)
        if text.startswith(line):
            os.killpg(process.pid, signal.SIGKILL)
            break
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, "".join(seen)


def curve(folder: Path) -> dict[int, tuple[float, float]]:
    """Step -> reward and loss, as last written: a step that was killed is done again."""
    lines = (folder / "l/train_data.jsonl").read_text().splitlines()
    return {one["step"]: (one["reward"], one["loss"]) for one in map(json.loads, lines)}


@pytest.mark.skipif(not PYTHON, reason="torch is not installed: make test-torch")
class TestTraining:
    @pytest.mark.parametrize(("processes", "sharded"), ((1, False), (2, True)))
    def test_it_learns_and_resumes_exactly_after_kill_9(
        self, tmp_path: Path, processes: int, sharded: bool
    ) -> None:
        whole, parts = tmp_path / "whole", tmp_path / "parts"
        more = (f"local.processes={processes}", f"local.sharded={str(sharded).lower()}")
        undisturbed, killed = training(whole, *more), training(parts, *more)
        kill_after(killed, "Saved checkpoint to " + str(parts / "c/step_8/"))
        finish(undisturbed)
        assert f"Resuming from {parts / 'c/step_8'}" in finish(training(parts, *more))
        expected, found = curve(whole), curve(parts)
        assert sorted(expected) == list(range(1, 13))
        assert expected[12][0] > expected[1][0] + 0.2
        # The line of step 8 is written after its save, and may have died with the training.
        assert set(found) >= set(expected) - {8}
        assert found == {step: expected[step] for step in found}
        weights = parts / "c/step_12" / checkpoint.WEIGHTS
        shards = sorted(path.name[:4] for path in weights.glob("__*.distcp"))
        assert set(shards) == ({f"__{rank}_" for rank in range(processes)} if sharded else set())
        assert (weights / "model.safetensors").exists() is not sharded
