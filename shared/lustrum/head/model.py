"""The model: whose a checkpoint is, its conversion to Megatron's format, its download."""

from __future__ import annotations

import collections
import os
import re
import shutil
import sys
import time

from lustrum.head.checkpoint_files import file_sizes
from lustrum.head.exits import JobFailed, Stopped
from lustrum.head.output import Voice, now_text
from lustrum.head.process import Bell, Child, Signals
from lustrum.head.spec import Spec

FETCH_MODEL = "import sys; from huggingface_hub import snapshot_download as s; s(sys.argv[1])"


def model_in_config(path: str) -> str | None:
    """`policy.model_name` of a step's config.yaml; None when it cannot be told."""
    try:
        with open(os.path.join(path, "config.yaml"), encoding="utf-8") as file:
            policy = re.search(
                r"^policy:[ \t]*\n((?:[ \t]+.*\n|\s*\n)+)", file.read() + "\n", re.M
            )
    except (OSError, ValueError):
        return None
    found = policy and re.search(r"^  model_name:[ \t]*(\S.*?)[ \t]*$", policy.group(1), re.M)
    return found.group(1).strip("'\"") if found else None


def check_model(spec: Spec, path: str) -> None:
    """Refuse another model's checkpoint: NeMo-RL would load it without an error."""
    held = model_in_config(path)
    if spec.model and held and held != spec.model:
        raise JobFailed(
            "CONFIG",
            f"{os.path.basename(path)} was saved by model {held!r}, this run "
            f"trains {spec.model!r}: give the run its own checkpoints",
        )


def conversion_folder(spec: Spec) -> str | None:
    """Where NeMo-RL keeps the model converted to Megatron's format."""
    root = os.environ.get("NRL_MEGATRON_CHECKPOINT_DIR") or os.path.join(spec.cache, "nemo_rl")
    return os.path.join(root, spec.model) if spec.model and not os.path.isabs(spec.model) else None


def remove_half_conversion(spec: Spec, voice: Voice) -> None:
    """NeMo-RL takes a conversion for done as soon as its folder exists; ours has a marker."""
    folder = conversion_folder(spec)
    if folder and os.path.isdir(folder) and not os.path.exists(folder + "/lustrum-converted"):
        shutil.rmtree(folder)
        voice.say("lustrum: removed a model conversion that had not been finished")


def mark_conversion(spec: Spec) -> None:
    """Mark the conversion of the model as finished; no-op without one."""
    folder = conversion_folder(spec)
    if folder and os.path.isdir(folder):
        with open(folder + "/lustrum-converted", "w", encoding="utf-8") as file:
            file.write(now_text())


def fetch_model(spec: Spec, voice: Voice, signals: Signals) -> None:
    """Fill the model cache with the image's huggingface_hub; what is there is kept."""
    folder = os.path.join(spec.cache, "hub", "models--" + str(spec.model).replace("/", "--"))
    environment = dict(os.environ, HF_HOME=spec.cache, HF_HUB_DISABLE_PROGRESS_BARS="1")
    for attempt_number in range(1, 4):
        tail: collections.deque[str] = collections.deque(maxlen=200)
        child = Child(
            [sys.executable, "-c", FETCH_MODEL, str(spec.model)],
            None,
            environment,
            voice,
            tail.append,
        )
        signals.child, bell, due = child, Bell(), 0.0
        while child.process.poll() is None:
            bell.wait(spec.poll_seconds)
            if time.monotonic() >= due:
                due = time.monotonic() + spec.heartbeat_seconds
                size = sum(file_sizes(folder).values())
                voice.event("stage.progress", phase="model", bytes=size)
        code = child.end(3)
        signals.child = None
        if signals.received is not None:
            raise Stopped(signals.received)
        if code == 0:
            voice.event("stage.progress", phase="model", bytes=sum(file_sizes(folder).values()))
            return
        failure = classify_fetch("\n".join(tail))
        if failure != "INFRA_TRANSIENT" or attempt_number == 3:
            raise JobFailed(
                failure,
                f"model {spec.model} could not be fetched: "
                + (tail[-1][:300] if tail else f"exit code {code}"),
            )
        time.sleep(min(spec.poll_seconds * 5 * attempt_number, 30))


def classify_fetch(output: str) -> str:
    """The failure class of a failed model download."""
    for failure, pattern in (
        ("LUSTRE_FULL", r"No space left on device|Disk quota exceeded"),
        (
            "ACCESS",
            r"GatedRepo|gated dataset|401 Client Error|403 Client Error|Unauthorized|Forbidden",
        ),
        (
            "CONFIG",
            r"RepositoryNotFound|DatasetNotFound|404 Client Error|HFValidationError|"
            r"No module named 'huggingface_hub'",
        ),
    ):
        if re.search(pattern, output):
            return failure
    return "INFRA_TRANSIENT"
