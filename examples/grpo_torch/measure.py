"""`make gpu`: the example under the supervisor on this machine's GPU, with a table at the end.

    python -m examples.grpo_torch.measure FOLDER [PART ...]

Parts: learning, killed, two_ranks, saves, idle, faults, life (only where Ray is installed);
default all. With parts named, what FOLDER holds of the others is kept. FOLDER gets `figures.json`,
`curve.jsonl` and a text of each provoked failure. Exit code 1 when something is not as it must
be, see `wrong`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from lustrum.head.training_log import TrainingLog

from examples.grpo_torch.faults import FAULTS
from examples.grpo_torch.saves import LARGE, measure_saves
from examples.grpo_torch.supervised import (
    RUN,
    SMALL,
    command,
    idle,
    killed,
    learning,
    points,
    supervise,
)

PARTS = ("learning", "killed", "two_ranks", "saves", "idle", "faults", "life")
RANKS = ("local.processes=2", "local.sharded=true")
# A file system of its own for each fault that needs a full one; only root may mount it.
PREPARED = {
    "full_disk": "FAULT_DISK",
    "full_disk_safetensors": "FAULT_DISK",
    "full_disk_shards": "FAULT_DISK",
    "full_shared_memory": "/dev/shm",
    "full_shared_memory_loader": "/dev/shm",
}
MOUNT = 'mount -t tmpfs -o size=16m tmpfs "$0" && exec "$@"'
Figures = dict[str, Any]


def two_ranks(folder: Path) -> Figures:
    """Two ranks (NCCL with a GPU, also where they share one), sharded saves, one kill -9."""
    run = folder / "whole/runs" / RUN
    supervise(folder / "whole", command(run, *SMALL, *RANKS))
    here = points(run)
    steps = sorted(sum(one["timing"].values()) for one in here.values())
    return {
        "gpus": torch.cuda.device_count(),
        "median_step_seconds": steps[len(steps) // 2],
        **killed(folder / "killed", here, *RANKS),
    }


def provoked(out: Path, folder: Path) -> Figures:
    """Exit code and class of each provoked failure; its text goes to `out`."""
    seen: Figures = {}
    for name in FAULTS:
        argv = [sys.executable, "-m", "examples.grpo_torch.faults", name]
        where = PREPARED.get(name)
        if where is not None:
            place = str(folder / "disk") if where == "FAULT_DISK" else where
            Path(place).mkdir(parents=True, exist_ok=True)
            argv = ["unshare", "--mount", "sh", "-c", MOUNT, place, *argv]
        done = subprocess.run(
            argv,
            env=dict(os.environ, FAULT_DISK=str(folder / "disk")),
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
        (out / f"fault-{name}.txt").write_text(done.stdout[-8000:])
        seen[name] = {"exit": done.returncode, "class": log.hint, "message": log.why().message}
    return seen


def wrong(figures: Figures) -> Iterator[str]:
    """What is not as it must be."""
    if "learning" in figures and figures["learning"]["last_reward"] < 0.6:
        yield "learning: the reward did not reach 0.6"
    for part in ("killed", "two_ranks"):
        if part in figures and figures[part]["largest_difference"] != 0:
            yield f"{part}: the resumed training is not the whole one"
    if "idle" in figures and figures["idle"]["class"] != "GPUS_IDLE":
        yield "idle: the training was not ended for its idle GPU"
    life = figures.get("life")
    if life:
        if life["largest_difference"] or life["stop"]["largest_difference"]:
            yield "life: the resumed training is not the whole one"
        if not life["ended_well"] or life["export"]["shortfall"]:
            yield "life: the run did not end whole"
        if not life["export"]["shortfall_of_a_damaged_copy"]:
            yield "life: a damaged export passed"


def rows(figures: Figures, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every figure on a line of its own: its path and its value."""
    for name, value in figures.items():
        if isinstance(value, dict):
            yield from rows(value, f"{prefix}{name}.")
        elif isinstance(value, float):
            yield f"{prefix}{name}", f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
        else:
            yield f"{prefix}{name}", str(value)


def main(out: Path, parts: list[str]) -> int:
    """Measure the parts; 0 when all is as it must be."""
    unknown = set(parts) - set(PARTS)
    if unknown:
        raise SystemExit(f"{', '.join(sorted(unknown))}: unknown; parts are {', '.join(PARTS)}")
    if not torch.cuda.is_available():
        raise SystemExit("this Python's torch sees no GPU: set GPU_PYTHON to one that does")
    out.mkdir(parents=True, exist_ok=True)
    kept = out / "figures.json"
    figures: Figures = json.loads(kept.read_text()) if parts and kept.exists() else {}
    figures |= {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    lived = all(map(importlib.util.find_spec, ("ray", "httpx", "pydantic")))
    wanted = parts or [part for part in PARTS if part != "life" or lived]
    with tempfile.TemporaryDirectory(dir=os.environ.get("GPU_FOLDER")) as name:
        folder = Path(name)
        for part in wanted:
            print(f"{part} ...", flush=True)
            figures[part] = measure(part, out, folder / part)
            kept.write_text(json.dumps(figures, indent=1))
    width = max(len(name) for name, _ in rows(figures))
    print()
    for name, value in rows(figures):
        print(f"{name:{width}}  {value}")
    problems = list(wrong(figures))
    for problem in problems:
        print(f"NOT AS IT MUST BE: {problem}")
    return 1 if problems else 0


def measure(part: str, out: Path, folder: Path) -> Figures:
    """The figures of one part."""
    if part == "learning":
        found = learning(folder, "checkpointing.save_period=100")
        shutil.copy(folder / "runs" / RUN / "logs/train_data.jsonl", out / "curve.jsonl")
        return found
    if part == "killed":
        short = learning(folder / "whole", *SMALL)
        return {"whole": short, **killed(folder / "parts", points(folder / "whole/runs" / RUN))}
    if part == "two_ranks":
        return two_ranks(folder)
    if part == "saves":
        return measure_saves(folder, *LARGE)
    if part == "idle":
        return idle(folder)
    if part == "faults":
        return provoked(out, folder)
    from examples.grpo_torch.ray_life import live  # needs more than torch

    return live(folder, torch.cuda.device_count())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
