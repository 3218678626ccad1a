"""The run on Lustre: its folders, and the checkpoints its trainer leaves in them."""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
from collections.abc import Iterator

from lustrum.head.checkpoint_rule import (
    MANIFEST,
    Layout,
    StepFolder,
    is_manifest,
    judge,
    newest_complete,
    to_prune,
)
from lustrum.head.exits import JobFailed
from lustrum.head.output import Event, Voice, now_text
from lustrum.head.spec import Spec

BROKEN, PRUNED = "broken_", "pruned_"  # before the name of a step set aside, or being removed
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
        raise JobFailed("INFRA_TRANSIENT", f"attempt {before} has begun: this one ends")
    path = os.path.join(spec.run_folder, ATTEMPT)
    with open(path + ".tmp", "w", encoding="ascii") as file:
        file.write(str(spec.attempt))
    os.replace(path + ".tmp", path)
    if 0 < before < spec.attempt:
        time.sleep(3 * spec.poll_seconds)  # until its supervisor has looked, and ended it


def entries(spec: Spec, prefix: str = "") -> Iterator[tuple[int, str]]:
    """(N, path) of each folder of a step, its name after ``prefix``, ascending."""
    found = []
    try:
        names = os.listdir(spec.checkpoints)
    except FileNotFoundError:
        names = []
    for name in names:
        step, path = spec.layout.step_of(name, prefix), os.path.join(spec.checkpoints, name)
        if step is not None and os.path.isdir(path):
            found.append((step, path))
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
            if stat.S_ISREG(status.st_mode) and not is_manifest(relative):
                sizes[relative] = status.st_size
    return sizes


def read_text(path: str) -> str | None:
    """The text of a small file, None when it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError):
        return None


def inspect(spec: Spec, step: int, path: str, sizes: dict[str, int] | None = None) -> StepFolder:
    """Judge the folder of a step by the rule of its trainer's layout, whatever it is called;
    ``sizes`` as `file_sizes` has just found them, or they are looked at here.
    """
    layout = spec.layout
    tracker = layout.tracker and read_text(os.path.join(os.path.dirname(path), layout.tracker))
    proof = layout.total_key and layout.proof and read_text(os.path.join(path, layout.proof))
    found = judge(
        layout,
        layout.folder(step),
        file_sizes(path) if sizes is None else sizes,
        proof,
        read_text(os.path.join(path, MANIFEST)),
        tracker,
    )
    assert found is not None, "a layout reads the names it makes"
    return found


def all_steps(spec: Spec) -> list[StepFolder]:
    """Return what every step of a run holds, oldest first."""
    return [inspect(spec, step, path) for step, path in entries(spec)]


def write_manifest(spec: Spec, step: int, path: str) -> Event:
    """Measure a committed step and write its manifest, atomically; raises OSError."""
    sizes = file_sizes(path)
    manifest = {
        "step": step,
        "files": len(sizes),
        "bytes": sum(sizes.values()),
        "sizes": sizes,
        "total_steps": inspect(spec, step, path, sizes).total_steps,
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
    if not name.startswith(("tmp", "old_", PRUNED, BROKEN)):
        doomed = os.path.join(parent, PRUNED + name)
        shutil.rmtree(doomed, ignore_errors=True)
        os.rename(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def clean_leftovers(spec: Spec, voice: Voice) -> None:
    """Before an attempt: remove interrupted saves and removals.

    NeMo-RL replaces an existing step in two renames; if it died between them `old_step_N` is the
    only copy and gets its name back.
    """
    layout = spec.layout
    present = {step for step, _ in entries(spec)}
    for step, path in entries(spec, layout.replaced) if layout.replaced else ():
        if step not in present and inspect(spec, step, path).complete:
            name = layout.folder(step)
            os.rename(path, os.path.join(spec.checkpoints, name))
            voice.say(f"lustrum: {name} restored from {layout.replaced}{name}")
    for prefix in _leftovers(layout):
        for _, path in entries(spec, prefix):
            remove(path)
            voice.say(f"lustrum: removed stale {os.path.basename(path)}")


def _leftovers(layout: Layout) -> list[str]:
    """Prefixes of the folders that an interrupted save or removal leaves."""
    return [*layout.renamed, *([layout.replaced] if layout.replaced else []), PRUNED]


def set_aside_broken(spec: Spec, steps: list[StepFolder], voice: Voice) -> None:
    """A trainer loads the highest step, whatever it holds: rename incomplete ones.

    verl loads the step that its tracker names, and begins anew without a word when that one is
    not there: the tracker is made to name the newest complete step.
    """
    broken = [one.step for one in steps if not one.complete]
    for step in broken:
        name = spec.layout.folder(step)
        target = os.path.join(spec.checkpoints, BROKEN + name)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(os.path.join(spec.checkpoints, name), target)
    if broken:
        voice.event("checkpoint.set_aside", steps=broken)
    newest = newest_complete(steps)
    if spec.layout.tracker and newest:
        tracker = os.path.join(spec.checkpoints, spec.layout.tracker)
        with open(tracker + ".tmp", "w", encoding="ascii") as file:
            file.write(str(newest.step))
        os.replace(tracker + ".tmp", tracker)


def prune(spec: Spec, voice: Voice) -> None:
    """Keep the newest `keep` complete steps and whatever may still be in the making."""
    layout = spec.layout
    steps = all_steps(spec)
    gone = to_prune(steps, spec.keep)
    kept = [one.step for one in steps if one.complete and one.step not in gone]
    newest = kept[-1] if kept else -1
    doomed = [layout.folder(step) for step in gone]
    for prefix in (*_leftovers(layout), BROKEN):
        for step, path in entries(spec, prefix):
            idle = time.time() - newest_change(path)
            if prefix == PRUNED or (kept and step <= newest) or idle > spec.stale_tmp_seconds:
                doomed.append(os.path.basename(path))
    for name in doomed:
        try:
            remove(os.path.join(spec.checkpoints, name))
        except FileNotFoundError:
            continue  # the trainer removed it first
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
