"""What a listing of the checkpoints says, and whether an export of one is whole. Pure.

Which folder is a step, and when it is complete, is `head.checkpoint_rule`'s to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lustrum.head.checkpoint_rule import Layout, StepFolder, is_manifest, json_object


@dataclass(frozen=True)
class Listing:
    """What a listing job saw on Lustre, ascending by step."""

    checkpoints: tuple[StepFolder, ...]
    free_bytes: int
    capacity_bytes: int


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
                StepFolder(
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


def export_shortfall(
    layout: Layout,
    checkpoint: StepFolder,
    objects: Mapping[str, int],
    manifest: str | None = None,
) -> str | None:
    """Say what an export misses, None when it is whole.

    Args:
        layout: of the trainer that wrote it.
        checkpoint: what was seen on Lustre.
        objects: path relative to the step's folder -> bytes, as listed at the destination.
        manifest: text of the step's manifest when it can be had; it names each file.
    """
    found = {path: size for path, size in objects.items() if not is_manifest(path)}
    promised = json_object(manifest).get("sizes")
    for path, size in promised.items() if isinstance(promised, dict) else ():
        if found.get(path) != size:
            return f"{path}: {found.get(path, 'no')} of {size} bytes"
    if len(found) < checkpoint.files:
        return f"{len(found)} of {checkpoint.files} files"
    total = sum(found.values())
    if total < checkpoint.bytes:
        return f"{total} of {checkpoint.bytes} bytes"
    if layout.proof is not None and layout.proof not in found:
        return f"{layout.proof} is missing"
    return None
