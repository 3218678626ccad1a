"""Checkpoint folders as values: what a file system and a bucket hold of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

MANIFEST = "lustrum-manifest.json"


@dataclass
class Folder:
    """One ``step_N``: relative path -> content (text) or size in bytes."""

    files: dict[str, str | int] = field(default_factory=dict)

    def size(self, path: str) -> int:
        content = self.files[path]
        return content if isinstance(content, int) else len(content.encode())

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes without the manifest."""
        return {path: self.size(path) for path in self.files if path != MANIFEST}

    @property
    def total_steps(self) -> int | None:
        text = self.files.get("training_info.json")
        return json.loads(text)["total_steps"] if isinstance(text, str) else None

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


def checkpoint(step: int, weights: int = 5_000_000) -> Folder:
    """Return a complete step folder with its manifest."""
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
