"""The example under the supervisor, without Ray: started, killed, resumed, compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from lustrum.adapters.supervisor_archive import supervisor_archive

from examples.grpo_torch.config import read_config
from examples.grpo_torch.task import ANSWER

RUN = "rl-0000000001"
STEPS = 60
SMALL = (f"grpo.max_num_steps={STEPS}", "checkpointing.save_period=10")
Points = dict[int, dict[str, Any]]
Event = dict[str, Any]


def command(run: Path, *overrides: str) -> list[str]:
    """The training's command line, its folders below `run`."""
    return [
        *(sys.executable, "-u", "-m", "examples.grpo_torch.train"),
        f"checkpointing.checkpoint_dir={run}/checkpoints",
        f"logger.log_dir={run}/logs",
        *overrides,
    ]


def points(run: Path) -> Points:
    """Step -> its figures, as last written."""
    lines = (run / "logs/train_data.jsonl").read_text().splitlines()
    return {one["step"]: one for one in map(json.loads, lines)}


def difference(here: Points, whole: Points) -> float:
    """The largest difference of reward or loss between two trainings, step by step."""
    keys = ("reward", "loss")
    return float(max(abs(here[step][key] - whole[step][key]) for step in here for key in keys))


def events_of(text: str) -> list[Event]:
    """The supervisor's events in an output, oldest first."""
    return [json.loads(line[8:]) for line in text.splitlines() if line[:8] == "LUSTRUM "]


def supervise(
    folder: Path,
    argv: list[str],
    attempt: int = 1,
    disturb: Callable[[psutil.Process], None] | None = None,
    **spec: Any,
) -> tuple[int, list[Event]]:
    """One attempt of `argv` under the supervisor: exit code and events.

    `disturb` is called with the supervisor's process once it runs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / "supervisor.pyz"
    archive.write_bytes(supervisor_archive())
    told = {
        "run_id": RUN,
        "attempt": attempt,
        "lustre": str(folder),
        "command": argv,
        "workdir": os.getcwd(),
        "poll_seconds": 0.2,
        "heartbeat_seconds": 1,
        "gpu_seconds": 1,
        "metadata_wait_seconds": 0,
        "token": False,
        **spec,
    }
    out = folder / f"attempt-{attempt}.out"
    with out.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, str(archive), "train", "--spec", json.dumps(told)], stdout=file
        )
        if disturb is not None:
            disturb(psutil.Process(process.pid))
        code = process.wait(500)
    return code, events_of(out.read_text(errors="replace"))


def kill_training_at(path: Path) -> Callable[[psutil.Process], None]:
    """Kill -9 whatever the supervisor has started, once `path` exists."""

    def disturb(supervisor: psutil.Process) -> None:
        while not path.exists() and supervisor.is_running():
            time.sleep(0.02)
        for child in supervisor.children(recursive=True):
            if "examples.grpo_torch.train" in " ".join(child.cmdline()):
                child.kill()

    return disturb


def learning(folder: Path, *overrides: str) -> dict[str, Any]:
    """The learning curve of one whole training, and what the supervisor saw of the GPU."""
    run, began = folder / "runs" / RUN, time.monotonic()
    code, told = supervise(folder, command(run, *overrides))
    curve = [points(run)[step] for step in sorted(points(run))]
    steps = [sum(v for k, v in one["timing"].items() if k != "checkpointing") for one in curve]
    saves = [one["timing"].get("checkpointing", 0.0) for one in curve]
    half = sorted(steps)[len(steps) // 2]
    samples = read_config(list(overrides))["policy"]["train_global_batch_size"]
    gpus = [one["gpus"] for one in told if one["type"] == "job.progress" and one["gpus"]]
    return {
        "exit": code,
        "steps": len(curve),
        "seconds": time.monotonic() - began,
        "first_reward": curve[0]["reward"],
        "last_reward": curve[-1]["reward"],
        "median_step_seconds": half,
        "generated_tokens_per_second": samples * ANSWER / half,
        "save_seconds": sorted(save for save in saves if save),
        "percent_of_time_saving": 100 * sum(saves) / (sum(saves) + sum(steps)),
        "gpu": gpus[-1] if gpus else None,
        "watts_highest": max((one["watts"] or 0 for one in gpus), default=None),
        "utilisation_percent": 100 * gpus[-1]["busy_seconds"] / gpus[-1]["seen_seconds"]
        if gpus and gpus[-1]["seen_seconds"]
        else None,
    }


def killed(folder: Path, whole: Points, *overrides: str) -> dict[str, Any]:
    """Kill -9 the training, resume it, compare with the whole one."""
    run = folder / "runs" / RUN
    argv = command(run, *SMALL, *overrides)
    wound = kill_training_at(run / "checkpoints/step_20")
    first, told = supervise(folder, argv, 1, wound, max_steps=STEPS)
    second, more = supervise(folder, argv, 2, max_steps=STEPS)
    told += more
    here = points(run)
    return {
        "exits": [first, second],
        "resumed_at": [one["step"] for one in told if one["type"] == "attempt.started"],
        "classes": [one["class"] for one in told if one["type"] == "job.completed"],
        "save_seconds": [
            one["checkpoint"]["seconds"] for one in told if one["type"] == "checkpoint.saved"
        ],
        "steps_compared": len(here),
        "largest_difference": difference(here, whole),
    }


# Holds memory of the GPU and says that it trains, but does nothing.
IDLE = (
    'import time, torch; held = torch.ones(2**28, device="cuda"); '
    'print("=" * 25 + " Step 1/9 " + "=" * 25, flush=True); time.sleep(300)'
)


def idle(folder: Path) -> dict[str, Any]:
    """A training whose GPU does nothing, and whose request wants it ended then."""
    began = time.monotonic()
    argv = [sys.executable, "-c", IDLE]
    code, told = supervise(folder, argv, gpus_idle_seconds=10, end_idle_gpus=True)
    end = told[-1]
    return {
        "exit": code,
        "class": end["class"],
        "message": end["message"],
        "seconds": time.monotonic() - began,
        "told": [one["idle_seconds"] for one in told if one["type"] == "job.gpus_idle"],
    }
