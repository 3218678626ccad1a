"""What the training will make of its command, known while no GPU is up: the image's own loader
reads it, the arithmetic is done on what it resolved, and its data sets are fetched.

Only what the loader or a rule refuses ends the staging, as CONFIG; an image whose loader cannot be
run here is no worse off than before.
"""

from __future__ import annotations

import collections
import json
import os
import time
from collections.abc import Mapping
from typing import Any

from lustrum.head.arithmetic import faults, working_nodes
from lustrum.head.code_archive import place_command
from lustrum.head.exits import JobFailed, Stopped
from lustrum.head.image_scripts import FETCH_DATA, LOAD_CONFIG
from lustrum.head.model import classify_fetch
from lustrum.head.output import Voice
from lustrum.head.process import Bell, Child, Signals
from lustrum.head.recipe_numbers import NODES, SETTINGS, Model, version
from lustrum.head.spec import Spec

ANSWER = "config.json"  # in the run's folder: the configuration as it was resolved
CHECK_SECONDS = 600.0  # of the loader; a cold `uv run` on Lustre may take minutes
DATA_SECONDS = 3600.0
SCHEDULE = "policy.megatron_cfg.scheduler.override_opt_param_scheduler"


def check_command(
    spec: Spec, voice: Voice, signals: Signals, folder: str | None, resumed: int | None
) -> None:
    """Let the image's loader read the training's command, and do the arithmetic on the result.

    ``folder`` is that of the run's own code, ``resumed`` the step it begins with, if any.

    Raises:
        JobFailed: CONFIG, with the loader's own sentence, or with every number that cannot work.
    """
    parts = _parts(spec, folder)
    if parts is None:
        return
    launcher, arguments = parts
    answer_file = os.path.join(spec.run_folder, ANSWER)
    if os.path.exists(answer_file):
        os.remove(answer_file)
    held = ""
    if resumed is not None:
        held = os.path.join(spec.checkpoints, spec.layout.folder(resumed), "config.yaml")
    words = [answer_file, spec.algorithm, held, *arguments]
    _run(spec, voice, signals, [*launcher, "-c", LOAD_CONFIG, *words], folder, CHECK_SECONDS)
    answer = read_answer(spec)
    if not answer:
        voice.say("lustrum: the image's loader could not be run here: its command is not checked")
        return
    if "refused" in answer:
        raise JobFailed("CONFIG", f"the image's loader refuses the command: {answer['refused']}")
    check_numbers(spec, answer["config"])
    _check_resumed(spec, answer["config"], answer.get("resumed"))
    voice.event("stage.progress", phase="config")


def check_shape(spec: Spec) -> None:
    """Do the arithmetic again once the model is there: its heads and layers are known now.

    Raises:
        JobFailed: CONFIG, as ``check_numbers``.
    """
    answer = read_answer(spec) if spec.release else {}
    if "config" in answer:
        check_numbers(spec, answer["config"])


def check_numbers(spec: Spec, config: Mapping[str, Any]) -> None:
    """Do the arithmetic on a resolved configuration, with the model's shape once it is there.

    Raises:
        JobFailed: CONFIG, naming every number that cannot work, and what would.
    """
    settings = _settings(config, spec.algorithm)
    release, model = version(spec.release), model_shape(spec)
    found = faults(spec.algorithm, release, settings, model)
    if not found:
        return
    told = [f"{one.key}: {one.value}: {one.reason}" for one in found]
    if any(one.key == NODES for one in found):
        work = working_nodes(spec.algorithm, release, settings, model)
        told.append("nodes that work: " + (", ".join(map(str, work)) or "none"))
    raise JobFailed("CONFIG", "; ".join(told))


def fetch_data(spec: Spec, voice: Voice, signals: Signals, folder: str | None) -> None:
    """Fill the data sets' cache with the image's own loaders; what is there is kept.

    Raises:
        JobFailed: ACCESS, CONFIG or LUSTRE_FULL: the training would end of the same.
    """
    parts = _parts(spec, folder)
    if parts is None or "config" not in read_answer(spec):
        return
    words = ["-c", FETCH_DATA, os.path.join(spec.run_folder, ANSWER), spec.algorithm]
    code, tail = _run(spec, voice, signals, [*parts[0], *words], folder, DATA_SECONDS)
    if code == 0:
        voice.event("stage.progress", phase="data")
        return
    failure = classify_fetch("\n".join(tail))
    last = tail[-1][:300] if tail else f"exit code {code}"
    if failure in ("ACCESS", "LUSTRE_FULL", "CONFIG"):
        raise JobFailed(failure, f"the data set could not be fetched: {last}")
    voice.say(f"lustrum: the data set is left to the training to fetch: {last}")


def read_answer(spec: Spec) -> dict[str, Any]:
    """Return what the loader said of the command; empty when it said nothing."""
    try:
        with open(os.path.join(spec.run_folder, ANSWER), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and {"config", "refused"} & set(found) else {}


def model_shape(spec: Spec) -> Model | None:
    """Return heads and layers of the model, None before it is there."""
    if not spec.model:
        return None
    places = [spec.model]
    if not os.path.isabs(spec.model):
        snapshots = os.path.join(
            spec.cache, "hub", "models--" + spec.model.replace("/", "--"), "snapshots"
        )
        names = sorted(os.listdir(snapshots)) if os.path.isdir(snapshots) else []
        places = [os.path.join(snapshots, name) for name in names]
    for place in reversed(places):
        try:
            with open(os.path.join(place, "config.json"), encoding="utf-8") as file:
                found = json.load(file)
            found = found.get("text_config") or found
            heads, layers = found["num_attention_heads"], found["num_hidden_layers"]
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            continue
        if isinstance(heads, int) and isinstance(layers, int) and heads > 0 and layers > 0:
            return Model(heads, layers)
    return None


def _parts(spec: Spec, folder: str | None) -> tuple[list[str], list[str]] | None:
    """Return what comes before the script, and --config's value with the overrides; None when the
    command is not one of NeMo-RL.
    """
    command = place_command(spec, folder)
    if not spec.release or "--config" not in command[1:-1]:
        return None
    at = command.index("--config")
    return command[: at - 1], command[at + 1 :]


def _run(
    spec: Spec,
    voice: Voice,
    signals: Signals,
    argv: list[str],
    folder: str | None,
    seconds: float,
) -> tuple[int, list[str]]:
    """Run one of the image's programs to its end, or to the end of its time."""
    paths = [folder, spec.workdir, os.environ.get("PYTHONPATH")]
    environment = dict(
        os.environ,
        HF_HOME=spec.cache,
        HF_HUB_DISABLE_PROGRESS_BARS="1",
        PYTHONPATH=os.pathsep.join(path for path in paths if path),
    )
    tail: collections.deque[str] = collections.deque(maxlen=200)
    try:
        child = Child(argv, folder or spec.workdir, environment, voice, tail.append)
    except JobFailed as refused:
        voice.say(f"lustrum: {refused}")
        return refused.exit_code, []
    signals.child, bell = child, Bell()
    until = time.monotonic() + seconds
    due = time.monotonic() + spec.heartbeat_seconds
    while child.process.poll() is None and time.monotonic() < until:
        bell.wait(spec.poll_seconds)
        if time.monotonic() >= due:
            due = time.monotonic() + spec.heartbeat_seconds
            voice.event("stage.progress", phase="config")
    code = child.end(3)
    signals.child = None
    if signals.received is not None:
        raise Stopped(signals.received)
    return code, list(tail)


def _check_resumed(
    spec: Spec, config: Mapping[str, Any], resumed: Mapping[str, Any] | None
) -> None:
    """Refuse an optimizer's state that Megatron would not load: its schedule is saved as goal x
    batch and compared (megatron-core, OptimizerParamScheduler).
    """
    settings = _settings(config, spec.algorithm)
    if not resumed or not settings.get("policy.megatron_cfg.enabled") or _at(config, SCHEDULE):
        return
    for key in (f"{spec.algorithm}.max_num_steps", "policy.train_global_batch_size"):
        held, wanted = _at(resumed, key), _at(config, key)
        if held is not None and held != wanted:
            raise JobFailed(
                "CONFIG",
                f"resume_from: it was saved with {key} {held}, this run has {wanted}, and "
                f"Megatron would not load its schedule: set +{SCHEDULE} to true",
            )


def _settings(config: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
    names = [one.replace("<algorithm>", algorithm) for one in SETTINGS]
    return {name: value for name in names if (value := _at(config, name)) is not None}


def _at(tree: Any, path: str) -> Any:
    for part in path.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree
