"""The small GRPO: it learns, resumes exactly, and keeps NeMo-RL's contracts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from lustrum.core.images import resolve
from lustrum.core.training_command import TrainingCommand, training_argv

from examples.grpo_numpy import train as grpo

from .conftest import ROOT, Head, wait_for

SCRIPT = ROOT / "examples/grpo_numpy/train.py"


def overrides(folder: Path, *more: str) -> list[str]:
    return [
        "local.ray=false",
        f"checkpointing.checkpoint_dir={folder}/checkpoints",
        f"logger.log_dir={folder}/logs",
        "checkpointing.save_period=2",
        "checkpointing.keep_top_k=2",
        *more,
    ]


def run(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *overrides(folder, *more)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def rewards(output: str) -> list[float]:
    return [float(value) for value in re.findall(r"^  • Avg Reward: ([\d.]+)$", output, re.M)]


class TestLearning:
    def test_reward_rises_within_twenty_steps(self, tmp_path: Path) -> None:
        found = rewards(run(tmp_path).stdout)
        assert len(found) == 20
        assert found[0] < 0.2
        assert np.mean(found[-5:]) > 0.7

    @pytest.mark.parametrize("seed", [1, 2, 3])
    def test_reward_rises_whatever_the_seed(self, tmp_path: Path, seed: int) -> None:
        found = rewards(run(tmp_path, f"grpo.seed={seed}").stdout)
        assert np.mean(found[-5:]) > np.mean(found[:2]) + 0.4

    def test_reward_does_not_rise_without_advantages(self, tmp_path: Path) -> None:
        found = rewards(run(tmp_path, "policy.optimizer.lr=0").stdout)
        assert max(found) < 0.3

    def test_gradient_is_that_of_the_loss(self) -> None:
        config = json.loads(json.dumps(grpo.DEFAULTS))
        params = grpo.new_params(config)
        rng = np.random.default_rng(0)
        batch = grpo.rollout(params, rng.integers(0, 5, (6, 2)), 4, 5, (1, 2, 3))
        batch["logprobs"] = batch["logprobs"] + rng.normal(0, 0.15, batch["logprobs"].shape)
        advantages = grpo.group_advantages(batch["rewards"], 4)
        _, gradient = grpo.loss_and_gradient(params, batch, advantages, config)
        for name in ("w1", "b1", "w2", "b2"):
            index = tuple(rng.integers(0, size) for size in params[name].shape)
            shifted = []
            for shift in (1e-6, -1e-6):
                moved = {**params, name: params[name].copy()}
                moved[name][index] += shift
                shifted.append(grpo.loss_and_gradient(moved, batch, advantages, config)[0])
            assert gradient[name][index] == pytest.approx(
                (shifted[0] - shifted[1]) / 2e-6, abs=1e-6
            )

    def test_advantages_are_relative_to_their_group(self) -> None:
        advantages = grpo.group_advantages(np.array([0, 0, 1, 1, 1, 1, 1, 1.0]), 4)
        assert advantages[:4] == pytest.approx([-1, -1, 1, 1], abs=1e-4)
        assert advantages[4:] == pytest.approx([0, 0, 0, 0])


class TestContract:
    def test_checkpoint_has_nemo_s_layout(self, tmp_path: Path) -> None:
        assert run(tmp_path).returncode == 0
        root = tmp_path / "checkpoints"
        assert sorted(os.listdir(root)) == ["step_18", "step_20"]
        newest = root / "step_20"
        info = json.loads((newest / "training_info.json").read_text())
        assert info["total_steps"] == info["current_step"] == 20
        assert info["consumed_samples"] == 20 * 256
        for name in (
            "config.yaml",
            "train_dataloader.pt",
            "policy/tokenizer/tokenizer.json",
            "policy/weights/iter_0000000/run_config.yaml",
        ):
            assert (newest / name).is_file()

    def test_config_yaml_is_yaml_and_names_the_model(self, tmp_path: Path) -> None:
        yaml = pytest.importorskip("yaml")
        run(tmp_path, "grpo.max_num_steps=2")
        config = yaml.safe_load((tmp_path / "checkpoints/step_2/config.yaml").read_text())
        assert config["policy"]["model_name"] == "local/arithmetic"
        assert config["checkpointing"]["metric_name"] is None

    def test_resume_is_the_uninterrupted_training(self, tmp_path: Path) -> None:
        whole = rewards(run(tmp_path / "whole").stdout)
        first = run(tmp_path / "parts", "grpo.max_num_steps=10")
        second = run(tmp_path / "parts")
        assert f"Resuming from {tmp_path}/parts/checkpoints/step_10" in second.stdout
        assert rewards(first.stdout) + rewards(second.stdout) == whole

    def test_finished_training_trains_nothing(self, tmp_path: Path) -> None:
        run(tmp_path, "grpo.max_num_steps=4")
        again = run(tmp_path, "grpo.max_num_steps=4")
        assert again.returncode == 0
        assert rewards(again.stdout) == []

    def test_time_limit_saves_and_exits_0_c12(self, tmp_path: Path) -> None:
        done = run(
            tmp_path, "checkpointing.checkpoint_must_save_by=00:00:00:01", "local.step_seconds=0.3"
        )
        assert done.returncode == 0
        assert "Timeout has been reached, stopping training early" in done.stdout
        steps = grpo.steps_in(tmp_path / "checkpoints")
        assert 0 < steps[-1] < 20

    def test_unknown_key_is_refused_as_by_nemo(self, tmp_path: Path) -> None:
        done = run(tmp_path, "grpo.max_steps=20")
        assert done.returncode != 0
        assert "Key 'max_steps' is not in struct" in done.stderr

    def test_batch_that_does_not_fit_is_refused(self, tmp_path: Path) -> None:
        assert run(tmp_path, "grpo.num_prompts_per_step=16").returncode != 0

    def test_every_key_of_lustrum_s_command_is_known_here(self, tmp_path: Path) -> None:
        command = TrainingCommand(
            resolve("local/grpo-numpy:1"),
            "local/arithmetic",
            2,
            1,
            str(tmp_path / "c"),
            str(tmp_path / "l"),
            2,
            2,
            4,
            {"local.ray": False},
            wandb=True,
            name="n",
        )
        argv = training_argv(command)
        assert argv[:2] == ["python3", "examples/grpo_numpy/train.py"]
        done = subprocess.run([sys.executable, *argv[1:]], cwd=ROOT, capture_output=True)
        assert done.returncode == 0, done.stderr
        assert grpo.steps_in(tmp_path / "c") == [2, 4]


class TestUnderTheSupervisor:
    def command(self, head: Head, *more: str) -> list[str]:
        folder = head.checkpoints.parent
        return [sys.executable, str(SCRIPT), *overrides(folder, *more)]

    def test_killed_in_a_save_it_resumes_and_finishes_c11(self, head: Head) -> None:
        spec = {"max_steps": 12, "model": "local/arithmetic"}
        slow = self.command(head, "grpo.max_num_steps=12", "local.save_seconds=0.4")
        process = head.start("train", command=slow, **spec)
        wait_for("a second save", (head.checkpoints / "tmp_step_4").exists)
        process.terminate()
        assert process.wait(10) == 143
        assert head.last("job.completed")["total_steps"] == 2
        left = [path.name for path in head.checkpoints.iterdir()]
        assert "tmp_step_4" in left
        assert (
            head.run(
                "train", command=self.command(head, "grpo.max_num_steps=12"), attempt=2, **spec
            )
            == 0
        )
        assert head.last("attempt.started")["step"] == 2
        assert head.last("job.completed")["total_steps"] == 12
        steps = [step for event in head.events("job.progress") for step in event["steps"]]
        assert [step["step"] for step in steps] == list(range(3, 13))
        assert sorted(path.name for path in head.checkpoints.iterdir()) == ["step_10", "step_12"]

    def test_save_seconds_are_measured(self, head: Head) -> None:
        command = self.command(head, "grpo.max_num_steps=2", "local.save_seconds=0.5")
        assert head.run("train", command=command, max_steps=2) == 0
        seconds = head.last("checkpoint.saved")["checkpoint"]["seconds"]
        assert 0.5 <= seconds < 2
        assert head.last("job.progress")["save_seconds"] == pytest.approx(seconds, abs=0.1)
