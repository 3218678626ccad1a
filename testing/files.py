"""Checkpoint folders as values: what a file system and a bucket hold of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

PROOFS = {"training_info.json": "total_steps", "trainer_state.json": "global_step"}
MANIFEST = "lustrum-manifest.json"


@dataclass
class Folder:
    """One ``step_N``: relative path -> content (text) or size in bytes."""

    files: dict[str, str | int] = field(default_factory=dict)
    tracked: int | None = None  # the file beside it names this step (verl)

    def size(self, path: str) -> int:
        content = self.files[path]
        return content if isinstance(content, int) else len(content.encode())

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes without the manifest."""
        return {path: self.size(path) for path in self.files if path != MANIFEST}

    @property
    def total_steps(self) -> int | None:
        for proof, key in PROOFS.items():
            text = self.files.get(proof)
            if isinstance(text, str):
                return int(json.loads(text)[key])
        return self.tracked

    @property
    def listed(self) -> dict[str, object]:
        """What the supervisor's listing says, but for the step."""
        total = self.total_steps
        return {
            "files": len(self.sizes),
            "bytes": sum(self.sizes.values()),
            "total_steps": total,
            "complete": total is not None,
        }


def checkpoint(step: int, weights: int = 5_000_000, layout: str = "nemo-rl") -> Folder:
    """Return a complete step folder with its manifest, as the trainer of a layout leaves it."""
    if layout == "verl":
        shards: dict[str, str | int] = {
            f"actor/model_world_size_2_rank_{rank}.pt": weights for rank in (0, 1)
        }
        folder = Folder({**shards, "data.pt": 10}, tracked=step)
    elif layout == "huggingface":
        state = json.dumps({"global_step": step, "max_steps": 20})
        folder = Folder({"model.safetensors": weights, "trainer_state.json": state})
    else:
        folder = Folder(
            {
                "training_info.json": json.dumps({"total_steps": step}),
                "config.yaml": "policy: {}\n",
                "policy/weights/shard_0.bin": weights,
                "policy/weights/shard_1.bin": weights,
            }
        )
    sizes = folder.sizes
    folder.files[MANIFEST] = json.dumps(
        {"step": step, "files": len(sizes), "bytes": sum(sizes.values()), "sizes": sizes}
    )
    return folder


@dataclass
class LustreFiles:
    """What is on one Lustre instance."""

    checkpoints: dict[int, Folder] = field(default_factory=dict)
    imported: dict[str, Folder] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    capacity: int = 4 * 10**13  # bytes
    used: float = 0.75  # share of it
    reached: int = 0  # the last step that any training finished here

    def tear(self) -> None:
        """Leave a step folder that was being written when its program died."""
        step = self.newest + 1
        self.checkpoints.setdefault(step, Folder({"policy/weights/shard_0.bin": 1_000_000}))

    @property
    def newest(self) -> int:
        """The newest complete step, 0 if none."""
        return max(
            (step for step, one in self.checkpoints.items() if one.total_steps is not None),
            default=0,
        )
