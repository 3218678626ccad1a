"""Which `step_N` is complete, what to export, what to prune, whether an export is whole. Pure.

The supervisor on the Ray head judges the same folders with the same rules and cannot import this;
`tests/job/test_agreement.py` holds the two to the same answers.

NeMo-RL writes `tmp_step_N` and renames it to `step_N`: the rename is the commit. A complete step
has a readable `training_info.json` and, once the supervisor has written its manifest, every file
the manifest names, in the size it names. An unreadable manifest counts as none: the rename is the
proof.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MANIFEST = "lustrum-manifest.json"
TRAINING_INFO = "training_info.json"
_STEP = re.compile(r"step_(\d+)")


@dataclass(frozen=True, order=True)
class Checkpoint:
    """A committed step: files and bytes without the manifest; ``total_steps`` None if unknown."""

    step: int
    files: int
    bytes: int
    total_steps: int | None
    complete: bool


@dataclass(frozen=True)
class Listing:
    """What a listing job saw on Lustre, ascending by step."""

    checkpoints: tuple[Checkpoint, ...]
    free_bytes: int
    capacity_bytes: int


def step_of(name: str) -> int | None:
    """Return N of a folder named ``step_N``; None for `tmp_step_N`, `old_step_N` and the rest."""
    match = _STEP.fullmatch(name)
    return int(match.group(1)) if match else None


def judge(
    name: str, sizes: Mapping[str, int], training_info: str | None, manifest: str | None
) -> Checkpoint | None:
    """Judge one folder; None when its name is not that of a committed step.

    Args:
        name: of the folder.
        sizes: relative path -> bytes of every regular file in it.
        training_info, manifest: text of these files, None when absent.
    """
    step = step_of(name)
    if step is None:
        return None
    found = {path: size for path, size in sizes.items() if not _is_manifest(path)}
    total = _object(training_info).get("total_steps")
    if not isinstance(total, int) or isinstance(total, bool) or total < 0:
        total = None
    promised = _object(manifest).get("sizes")
    intact = not isinstance(promised, dict) or all(
        found.get(path) == size for path, size in promised.items()
    )
    return Checkpoint(
        step, len(found), sum(found.values()), total, complete=total is not None and intact
    )


def read_listing(event: Mapping[str, Any]) -> Listing:
    """Read a ``checkpoint.list`` event of the supervisor.

    Raises:
        ValueError: it is not one, naming the field.
    """
    if not isinstance(event, Mapping) or event.get("type") != "checkpoint.list":
        raise ValueError("type: it is not checkpoint.list")
    try:
        checkpoints = tuple(
            sorted(
                Checkpoint(
                    int(item["step"]),
                    int(item["files"]),
                    int(item["bytes"]),
                    None if item["total_steps"] is None else int(item["total_steps"]),
                    item["complete"] is True,
                )
                for item in event["checkpoints"]
            )
        )
        return Listing(checkpoints, int(event["free_bytes"]), int(event["capacity_bytes"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"checkpoint.list: {type(error).__name__}: {error}") from None


def newest_complete(checkpoints: Iterable[Checkpoint]) -> Checkpoint | None:
    """Return the complete step with the highest number."""
    return max((one for one in checkpoints if one.complete), default=None)


def to_export(checkpoints: Iterable[Checkpoint], exported: int | None = None) -> Checkpoint | None:
    """Return the step to bring to safety: the newest complete one, None if it is there already.

    ``exported`` is the newest step whose export was verified.
    """
    newest = newest_complete(checkpoints)
    return None if newest is None or (exported is not None and newest.step <= exported) else newest


def to_prune(checkpoints: Iterable[Checkpoint], keep: int) -> tuple[int, ...]:
    """Return the steps to remove so that the newest ``keep`` complete ones stay, ascending.

    Never the newest complete one, and nothing newer than it: that may be a commit this instant.
    """
    every = sorted(checkpoints)
    kept = [one.step for one in every if one.complete][-max(keep, 1) :]
    if not kept:
        return ()
    return tuple(one.step for one in every if one.step < kept[-1] and one.step not in kept)


def is_finished(checkpoints: Iterable[Checkpoint], max_steps: int) -> bool:
    """Say whether the training is done: the job's own SUCCEEDED does not say so (exit 0 early)."""
    newest = newest_complete(checkpoints)
    return newest is not None and (newest.total_steps or 0) >= max_steps


def export_shortfall(
    checkpoint: Checkpoint, objects: Mapping[str, int], manifest: str | None = None
) -> str | None:
    """Say what an export misses, None when it is whole.

    Args:
        checkpoint: what was seen on Lustre.
        objects: path relative to the step's folder -> bytes, as listed at the destination.
        manifest: text of the step's manifest when it can be had; it names each file.
    """
    found = {path: size for path, size in objects.items() if not _is_manifest(path)}
    promised = _object(manifest).get("sizes")
    for path, size in promised.items() if isinstance(promised, dict) else ():
        if found.get(path) != size:
            return f"{path}: {found.get(path, 'no')} of {size} bytes"
    if len(found) < checkpoint.files:
        return f"{len(found)} of {checkpoint.files} files"
    total = sum(found.values())
    if total < checkpoint.bytes:
        return f"{total} of {checkpoint.bytes} bytes"
    if TRAINING_INFO not in found:
        return f"{TRAINING_INFO} is missing"
    return None


def _is_manifest(path: str) -> bool:
    return path in (MANIFEST, MANIFEST + ".tmp")


def _object(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text) if text is not None else None
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
