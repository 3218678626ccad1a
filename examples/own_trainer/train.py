"""A person's own training: nothing of NeMo-RL, nothing of Lustrum, the standard library alone.

It fits a line to points by gradient descent. What Lustrum is told of it is in
examples/requests/own-trainer.json: folders `ckpt-N`, complete once `done.txt` is there, and lines
such as `iter 3 of 20 | loss 0.512 | reward -0.512`.

    python3 train.py --steps=20 --save-every=5 --out=/lustre/runs/R/checkpoints [--resume=FOLDER]
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

POINTS = [(x / 10, 3 * x / 10 + 1) for x in range(-10, 11)]
RATE = 0.1


def save(folder: Path, step: int, state: dict[str, float]) -> None:
    """Write a step in its place; its last file says that it is whole."""
    target = folder / f"ckpt-{step}"
    target.mkdir(parents=True, exist_ok=True)
    (target / "state.json").write_text(json.dumps({"step": step, **state}))
    (target / "weights.bin").write_bytes(random.Random(step).randbytes(100_000))
    (target / "done.txt").write_text("")


def main() -> None:
    """Train to the last step, from the step it is told to resume from."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--save-every", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--seconds", type=float, default=1.0, help="the least a step takes")
    options = parser.parse_args()
    state, first = {"slope": 0.0, "offset": 0.0}, 1
    if options.resume:
        state = json.loads((options.resume / "state.json").read_text())
        first = int(state.pop("step")) + 1
        print(f"resumed from {options.resume.name}", flush=True)
    for step in range(first, options.steps + 1):
        began = time.monotonic()
        errors = [(state["slope"] * x + state["offset"] - y, x) for x, y in POINTS]
        loss = sum(error * error for error, _ in errors) / len(errors)
        state["slope"] -= RATE * sum(2 * error * x for error, x in errors) / len(errors)
        state["offset"] -= RATE * sum(2 * error for error, _ in errors) / len(errors)
        time.sleep(max(0.0, options.seconds - (time.monotonic() - began)))
        print(f"iter {step} of {options.steps} | loss {loss:.4f} | reward {-loss:.4f}", flush=True)
        if step % options.save_every == 0 or step == options.steps:
            save(options.out, step, state)


if __name__ == "__main__":
    main()
