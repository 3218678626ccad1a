"""Mode stage: what is brought onto Lustre before any GPU is up."""

from __future__ import annotations

import os
import shutil

from lustrum.head.checkpoint_files import all_steps, inspect, make_folders
from lustrum.head.checkpoint_rule import MANIFEST, newest_complete
from lustrum.head.code_archive import fetch_code
from lustrum.head.exits import EXITS, JobFailed, failure_of
from lustrum.head.model import check_model, fetch_model, remove_half_conversion
from lustrum.head.network import AccessToken
from lustrum.head.output import Voice
from lustrum.head.process import Signals
from lustrum.head.spec import Spec
from lustrum.head.training_config import check_command, check_shape, fetch_data


def stage(spec: Spec, voice: Voice, token: AccessToken, signals: Signals) -> int:
    """Everything that can be brought onto Lustre before a GPU is paid for. Safe to repeat."""
    try:
        make_folders(spec)
        if spec.folders:
            for name in spec.folders:
                os.makedirs(below(spec.run_folder, name), exist_ok=True)
            voice.event("stage.done")
            return 0
        remove_half_conversion(spec, voice)
        resumed = adopt_checkpoint(spec, voice)
        folder = fetch_code(spec, token, voice)
        check_command(spec, voice, signals, folder, resumed)
        if spec.fetch_model and spec.model:
            fetch_model(spec, voice, signals)
            check_shape(spec)
            fetch_data(spec, voice, signals, folder)
        usage = shutil.disk_usage(spec.lustre)
        voice.event(
            "stage.done", resume_step=resumed, free_bytes=usage.free, capacity_bytes=usage.total
        )
        return 0
    except (JobFailed, OSError) as error:
        failure = error.failure if isinstance(error, JobFailed) else failure_of(error)
        voice.event("stage.failed", message=str(error), failure=failure)
        return EXITS[failure]


def below(root: str, path: str) -> str:
    """The real path of `path` seen from `root`; JobFailed when it leads out of it."""
    base, real = os.path.realpath(root), os.path.realpath(os.path.join(root, path))
    if os.path.commonpath([base, real]) != base:
        raise JobFailed("CONFIG", f"{path!r} is not below {root}")
    return real


def adopt_checkpoint(spec: Spec, voice: Voice) -> int | None:
    """Move the imported step of an earlier run among this run's checkpoints; its number."""
    if spec.resume_from is None:
        return None
    source = below(spec.lustre, spec.resume_from)
    existing = newest_complete(all_steps(spec))
    if not os.path.isdir(source):
        if existing:  # staged before
            return existing.step
        raise JobFailed("CONFIG", f"resume_from: there is no folder {source}")
    named = spec.layout.step_of(os.path.basename(source))
    found = inspect(spec, named or 0, source)
    if not found.complete:
        raise JobFailed(
            "CONFIG",
            f"resume_from: {source} is not a complete checkpoint "
            f"({found.files} files, {spec.layout.proof or MANIFEST}"
            f"{f' {spec.layout.total_key}' if spec.layout.total_key else ''}: "
            f"{found.total_steps})",
        )
    check_model(spec, source)
    step = named if named is not None else int(found.total_steps or 0)
    target = os.path.join(spec.checkpoints, spec.layout.folder(step))
    if source != target:
        if existing and existing.step >= step:
            return existing.step
        shutil.rmtree(target, ignore_errors=True)  # an incomplete one
        os.rename(source, target)
    voice.event("stage.progress", step, phase="checkpoint", bytes=found.bytes)
    return step
