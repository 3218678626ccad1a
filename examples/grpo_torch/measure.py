"""`make gpu`: the example under the supervisor on this machine's GPU, with a table at the end.

    python -m examples.grpo_torch.measure FOLDER

FOLDER gets `figures.json`, `curve.jsonl` and a text of each provoked failure.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import torch
from lustrum.adapters.supervisor_archive import supervisor_archive
from lustrum.head.training_log import TrainingLog

from examples.grpo_torch import checkpoint
from examples.grpo_torch.config import read_config
from examples.grpo_torch.faults import FAULTS
from examples.grpo_torch.learner import Learner

RUN = "rl-gpu0000001"
SMALL = ("grpo.max_num_steps=60", "checkpointing.save_period=10")


def command(run: Path, *overrides: str) -> list[str]:
    """The training's command line, its folders below `run`."""
    return [
        sys.executable,
        "-u",
        "-m",
        "examples.grpo_torch.train",
        f"checkpointing.checkpoint_dir={run}/checkpoints",
        f"logger.log_dir={run}/logs",
        *overrides,
    ]


def points(run: Path) -> dict[int, dict[str, Any]]:
    """Each step's figures as last written."""
    lines = (run / "logs/train_data.jsonl").read_text().splitlines()
    return {one["step"]: one for one in map(json.loads, lines)}


def utilisation(process: subprocess.Popen[bytes]) -> list[float]:
    """GPU utilisation in percent, twice a second until the process ends; [] without NVML."""
    try:
        import pynvml
    except ImportError:
        process.wait()
        return []
    pynvml.nvmlInit()
    handle, seen = pynvml.nvmlDeviceGetHandleByIndex(0), []
    while process.poll() is None:
        seen.append(float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu))
        time.sleep(0.5)
    return seen


def learning(folder: Path, *overrides: str) -> dict[str, Any]:
    """The learning curve of one whole training."""
    began = time.monotonic()
    process = subprocess.Popen(command(folder, *overrides), stdout=subprocess.DEVNULL)
    seen = utilisation(process)
    curve = [points(folder)[step] for step in sorted(points(folder))]
    steps = [sum(v for k, v in one["timing"].items() if k != "checkpointing") for one in curve]
    half = sorted(steps)[len(steps) // 2]
    samples = read_config(list(overrides))["policy"]["train_global_batch_size"]
    return {
        "exit": process.returncode,
        "steps": len(curve),
        "seconds": time.monotonic() - began,
        "first_reward": curve[0]["reward"],
        "last_reward": curve[-1]["reward"],
        "median_step_seconds": half,
        "generated_tokens_per_second": samples * 3 / half,
        "utilisation_percent": sum(seen) / max(1, len(seen)),
    }


def killed(folder: Path, whole: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Kill -9 the training under the supervisor, resume it, compare with the whole training."""
    folder.mkdir()
    archive, run = folder / "supervisor.pyz", folder / "runs" / RUN
    archive.write_bytes(supervisor_archive())
    exits, events = [], ""
    for attempt in (1, 2):
        spec = {
            "run_id": RUN,
            "attempt": attempt,
            "lustre": str(folder),
            "max_steps": 60,
            "command": command(run, *SMALL),
            "workdir": os.getcwd(),
            "poll_seconds": 0.2,
            "metadata_wait_seconds": 0,
            "token": False,
        }
        with (folder / f"attempt-{attempt}.out").open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, str(archive), "train", "--spec", json.dumps(spec)], stdout=out
            )
            if attempt == 1:
                while not (run / "checkpoints/step_20").exists() and process.poll() is None:
                    time.sleep(0.02)
                for child in psutil.Process(process.pid).children():
                    child.kill()
            exits.append(process.wait(120))
        events += (folder / f"attempt-{attempt}.out").read_text(errors="replace")
    found = [json.loads(line[8:]) for line in events.splitlines() if line[:8] == "LUSTRUM "]
    here = points(run)
    return {
        "exits": exits,
        "resumed_at": [one["step"] for one in found if one["type"] == "attempt.started"],
        "classes": [one["class"] for one in found if one["type"] == "job.completed"],
        "save_seconds": [
            one["checkpoint"]["seconds"] for one in found if one["type"] == "checkpoint.saved"
        ],
        "steps_compared": len(here),
        "largest_difference": max(
            abs(here[step][key] - whole[step][key]) for step in here for key in ("reward", "loss")
        ),
    }


def saving(folder: Path) -> dict[str, Any]:
    """Seconds and bytes of a save of a larger model (about 0.8 G parameters, Adam)."""
    config = read_config(
        [
            "policy.hidden_size=2048",
            "policy.num_layers=16",
            "grpo.inner_epochs=1",
            f"checkpointing.checkpoint_dir={folder}",
        ]
    )
    learner = Learner(config)
    for step in (1, 2):
        result = learner.step(step)
    torch.cuda.synchronize()
    began = time.monotonic()
    info = dict(checkpoint.FRESH, total_steps=1)
    checkpoint.save(config, info, lambda path: checkpoint.write_policy(path, learner.state()))
    written = time.monotonic() - began
    os.sync()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    shutil.rmtree(folder)
    return {
        "parameters": sum(one.numel() for one in learner.model.parameters()),
        "bytes": size,
        "seconds": written,
        "seconds_with_sync": time.monotonic() - began,
        "step_seconds": sum(result["timing"].values()),
    }


def provoked(out: Path, folder: Path) -> dict[str, Any]:
    """Exit code and class of each provoked failure; its text goes to `out`."""
    disk, seen = folder / "disk", {}
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)]
    mounted = subprocess.run(mount, check=False).returncode == 0
    for name in FAULTS:
        if name == "full_disk" and not mounted:
            seen[name] = {"not_run": "no right to mount a small file system"}
            continue
        done = subprocess.run(
            [sys.executable, "-m", "examples.grpo_torch.faults", name],
            env=dict(os.environ, FAULT_DISK=str(disk)),
            timeout=120,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        log = TrainingLog(0)
        for line in done.stdout.splitlines():
            log.feed(line, 0.0)
        (out / f"fault-{name}.txt").write_text(done.stdout[-6000:])
        seen[name] = {"exit": done.returncode, "class": log.hint}
    if mounted:
        subprocess.run(["umount", str(disk)], check=False)
    return seen


def main(out: Path) -> int:
    """Measure everything; 0 when the resumed training is the whole one and it learned."""
    out.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}

    def keep(name: str, value: Any) -> None:
        figures[name] = value
        print(f"{name}: {json.dumps(value)}", flush=True)
        (out / "figures.json").write_text(json.dumps(figures, indent=1))

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keep("short", learning(folder / "whole", *SMALL))
        keep("killed", killed(folder / "killed", points(folder / "whole")))
        keep("learning", learning(folder / "curve", "checkpointing.save_period=100"))
        shutil.copy(folder / "curve/logs/train_data.jsonl", out / "curve.jsonl")
        keep("saving", saving(folder / "large"))
        keep("faults", provoked(out, folder))
    return 0 if figures["killed"]["largest_difference"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
