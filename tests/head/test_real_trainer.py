"""Hugging Face's real Trainer under the real supervisor: killed, resumed, its folders judged.

Not part of `make setup` (torch for Linux is several GB). It runs where the tests' own Python has
torch and transformers, or with the one that LUSTRUM_TRANSFORMERS_PYTHON names. Seen with
transformers 5.25 and torch 2.15 on CPU.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from lustrum.head.checkpoint_rule import LAYOUTS, judge

from .conftest import Head, wait_for

PYTHON = os.environ.get("LUSTRUM_TRANSFORMERS_PYTHON") or (
    sys.executable
    if all(importlib.util.find_spec(name) for name in ("torch", "transformers", "accelerate"))
    else ""
)
pytestmark = pytest.mark.skipif(not PYTHON, reason="needs torch, transformers and accelerate")
SCRIPT = """
import argparse, time
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
parser = argparse.ArgumentParser()
parser.add_argument("--output_dir"); parser.add_argument("--max_steps", type=int)
parser.add_argument("--resume_from_checkpoint")
options = parser.parse_args()
class Slow(TrainerCallback):
    def on_step_begin(self, *_, **__):
        time.sleep(0.3)
torch.set_num_threads(1)
sizes = dict(vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1)
model = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, **sizes))
data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(64)]
arguments = TrainingArguments(
    output_dir=options.output_dir, max_steps=options.max_steps, save_steps=2, logging_steps=1,
    per_device_train_batch_size=2, report_to=[], use_cpu=True,
)
trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Slow()])
trainer.train(resume_from_checkpoint=options.resume_from_checkpoint)
"""
GOAL = 12
SPEC: dict[str, Any] = {"checkpoint_layout": "huggingface", "max_steps": GOAL}


def command(head: Head) -> list[str]:
    script = head.lustre / "train.py"
    script.write_text(SCRIPT)
    return [
        PYTHON,
        str(script),
        f"--output_dir={head.checkpoints}",
        f"--max_steps={GOAL}",
        "--resume_from_checkpoint={resume_from}",
    ]


def trainer_of(process: subprocess.Popen[bytes]) -> psutil.Process:
    (child,) = psutil.Process(process.pid).children()
    return child


def test_trainer_killed_and_resumed_reaches_its_goal(head: Head) -> None:
    first = head.start("train", command=command(head), **SPEC)
    wait_for("a save", lambda: head.events("checkpoint.saved"), 120)
    trainer_of(first).send_signal(signal.SIGKILL)
    assert first.wait(60) == 137
    before = [one["checkpoint"]["step"] for one in head.events("checkpoint.saved")]

    second = head.start("train", command=command(head), attempt=2, **SPEC)
    assert second.wait(120) == 0
    done = head.last("job.completed")
    assert (done["step"], done["total_steps"], done["ended"]) == (GOAL, GOAL, "goal")
    steps = [step for event in head.events("job.progress") for step in event["steps"]]
    assert [one["step"] for one in steps] == list(range(before[-1] + 1, GOAL + 1))
    assert head.last("job.progress")["loss"] > 0


def test_trainer_s_folders_are_complete_only_with_their_last_file(head: Head) -> None:
    assert head.run("train", command=command(head), **SPEC | {"max_steps": GOAL}) == 0
    for folder in sorted(head.checkpoints.glob("checkpoint-*")):
        sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
        state = (folder / "trainer_state.json").read_text()
        step = json.loads(state)["global_step"]
        found = judge(LAYOUTS["huggingface"], folder.name, sizes, state)
        assert found is not None
        assert (found.step, found.total_steps, found.complete) == (step, step, True)
        newest = max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns).name
        assert newest in ("trainer_state.json", "training_args.bin", "lustrum-manifest.json")
        _check_half(folder, sizes)


def _check_half(folder: Path, sizes: dict[str, int]) -> None:
    without = {name: size for name, size in sizes.items() if name != "trainer_state.json"}
    half = judge(LAYOUTS["huggingface"], folder.name, without, None)
    assert half is not None
    assert not half.complete
