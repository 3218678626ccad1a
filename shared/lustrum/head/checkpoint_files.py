"""The run on Lustre: its folders, and the checkpoints NeMo-RL leaves in them."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from typing import Any

from lustrum.head.exits import Refused
from lustrum.head.output import Event, Voice, now_text
from lustrum.head.spec import Spec

MANIFEST = "lustrum-manifest.json"
ATTEMPT = "attempt"  # in a run's folder: number of the attempt that may write its checkpoints


def make_folders(spec: Spec) -> None:
    """Make the folders of a run and the model cache on Lustre; raises OSError."""
    for name in ("checkpoints", "logs", "code"):
        os.makedirs(os.path.join(spec.run_folder, name), exist_ok=True)
    os.makedirs(spec.cache, exist_ok=True)


def writing_attempt(spec: Spec) -> int:
    """The attempt that may write the run's checkpoints, 0 before any."""
    try:
        with open(os.path.join(spec.run_folder, ATTEMPT), encoding="ascii") as file:
            return int(file.read() or 0)
    except (FileNotFoundError, ValueError):
        return 0


def take_over(spec: Spec) -> None:
    """Let this attempt alone write from now on.

    An earlier one can still be there although Ray calls it over (its head was cut off, its shell
    was killed): its supervisor sees this and ends it before two write into one folder.
    """
    before = writing_attempt(spec)
    if before > spec.attempt:
        raise Refused("INFRA_TRANSIENT", f"attempt {before} has begun: this one ends")
    path = os.path.join(spec.run_folder, ATTEMPT)
    with open(path + ".tmp", "w", encoding="ascii") as file:
        file.write(str(spec.attempt))
    os.replace(path + ".tmp", path)
    if 0 < before < spec.attempt:
        time.sleep(3 * spec.poll_seconds)  # until its supervisor has looked, and ended it


def entries(folder: str, prefix: str = "") -> Iterator[tuple[int, str]]:
    """(N, path) of each `<prefix>step_N` folder, ascending."""
    found = []
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        names = []
    for name in names:
        match = re.fullmatch(re.escape(prefix) + r"step_(\d+)", name)
        if match and os.path.isdir(os.path.join(folder, name)):
            found.append((int(match.group(1)), os.path.join(folder, name)))
    return iter(sorted(found))


def file_sizes(folder: str) -> dict[str, int]:
    """Relative path -> bytes of every regular file but the manifest; what vanishes is skipped."""
    sizes: dict[str, int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            relative = os.path.relpath(path, folder).replace(os.sep, "/")
            try:
                status = os.lstat(path)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode) and relative not in (MANIFEST, MANIFEST + ".tmp"):
                sizes[relative] = status.st_size
    return sizes


def read_json(path: str) -> dict[str, Any]:
    """The object in a JSON file; {} when there is none or it is something else."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def inspect_step(step: int, path: str) -> Event:
    """Judge one step folder as `core.checkpoints.judge` does (a test compares them)."""
    sizes = file_sizes(path)
    total = read_json(os.path.join(path, "training_info.json")).get("total_steps")
    if not isinstance(total, int) or isinstance(total, bool) or total < 0:
        total = None
    promised = read_json(os.path.join(path, MANIFEST)).get("sizes")
    intact = not isinstance(promised, dict) or all(
        sizes.get(name) == size for name, size in promised.items()
    )
    return {
        "step": step,
        "files": len(sizes),
        "bytes": sum(sizes.values()),
        "total_steps": total,
        "complete": total is not None and intact,
    }


def all_steps(folder: str) -> list[Event]:
    """Return what every ``step_N`` of a folder holds, oldest first."""
    return [inspect_step(step, path) for step, path in entries(folder)]


def newest_complete(steps: list[Event]) -> Event | None:
    """Return the last complete one of some steps, None if none is."""
    complete = [item for item in steps if item["complete"]]
    return complete[-1] if complete else None


def write_manifest(spec: Spec, step: int, path: str) -> Event:
    """Measure a committed step and write its manifest, atomically; raises OSError."""
    sizes = file_sizes(path)
    total = read_json(os.path.join(path, "training_info.json")).get("total_steps")
    manifest = {
        "step": step,
        "files": len(sizes),
        "bytes": sum(sizes.values()),
        "sizes": sizes,
        "total_steps": total,
        "run_id": spec.run_id,
        "attempt": spec.attempt,
        "written_at": now_text(),
    }
    temporary = os.path.join(path, MANIFEST + ".tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(manifest, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, os.path.join(path, MANIFEST))
    return manifest


def remove(path: str) -> None:
    """Remove a folder; renamed first, so that half a removal is never taken for a step."""
    parent, name = os.path.split(path)
    doomed = path
    if re.match(r"step_\d", name):
        doomed = os.path.join(parent, "pruned_" + name)
        shutil.rmtree(doomed, ignore_errors=True)
        os.rename(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def clean_leftovers(folder: str, voice: Voice) -> None:
    """Before an attempt: remove interrupted saves and removals.

    NeMo-RL replaces an existing step in two renames; if it died between them `old_step_N` is the
    only copy and gets its name back.
    """
    present = {step for step, _ in entries(folder)}
    for step, path in entries(folder, "old_"):
        if step not in present and inspect_step(step, path)["complete"]:
            os.rename(path, os.path.join(folder, f"step_{step}"))
            voice.say(f"lustrum: step_{step} restored from old_step_{step}")
    for prefix in ("tmp_", "old_", "pruned_"):
        for _, path in entries(folder, prefix):
            remove(path)
            voice.say(f"lustrum: removed stale {os.path.basename(path)}")


def set_aside_broken(folder: str, steps: list[Event], voice: Voice) -> None:
    """NeMo-RL loads the highest step_N, whatever it holds: rename incomplete ones."""
    broken = [item["step"] for item in steps if not item["complete"]]
    for step in broken:
        target = os.path.join(folder, f"broken_step_{step}")
        shutil.rmtree(target, ignore_errors=True)
        os.rename(os.path.join(folder, f"step_{step}"), target)
    if broken:
        voice.event("checkpoint.set_aside", steps=broken)


def prune(spec: Spec, voice: Voice) -> None:
    """Keep the newest `keep` complete steps and whatever may still be in the making."""
    folder = spec.checkpoints
    steps = all_steps(folder)
    complete = [item["step"] for item in steps if item["complete"]]
    kept = complete[-max(spec.keep, 1) :]
    newest = kept[-1] if kept else -1
    # An incomplete step newer than the newest complete one may be a commit this instant.
    doomed = [
        f"step_{item['step']}"
        for item in steps
        if kept and item["step"] < newest and item["step"] not in kept
    ]
    for prefix in ("tmp_", "old_", "pruned_", "broken_"):
        for step, path in entries(folder, prefix):
            idle = time.time() - newest_change(path)
            if prefix == "pruned_" or (kept and step <= newest) or idle > spec.stale_tmp_seconds:
                doomed.append(os.path.basename(path))
    for name in doomed:
        try:
            remove(os.path.join(folder, name))
        except FileNotFoundError:
            continue  # NeMo-RL removed it first
    voice.event("checkpoint.pruned", steps=kept, removed=doomed)


def newest_change(folder: str) -> float:
    """Return when anything below a folder changed last, in epoch seconds."""
    newest = 0.0
    for parent, _, names in os.walk(folder):
        for path in [parent, *(os.path.join(parent, name) for name in names)]:
            try:
                newest = max(newest, os.lstat(path).st_mtime)
            except OSError:
                continue
    return newest
