"""What is run on the Ray head for a run: the supervisor's specs, entrypoints, and what they
print. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from lustrum.core import checkpoints, images, names
from lustrum.core.checkpoints import Listing
from lustrum.core.errors import ServiceError
from lustrum.core.failures import Failure
from lustrum.core.kubernetes_objects import EVENT_KEY
from lustrum.core.plan import RunPlan, training_command
from lustrum.core.record import Run
from lustrum.core.settings import Settings
from lustrum.core.training_command import (
    entrypoint,
    supervisor_spec,
    training_argv,
)
from lustrum.head.names import EVENT_PREFIX

GPU_SECONDS = 10.0  # between two readings of all GPUs
IMPORTED = "imported"  # folder of a run on Lustre that receives an earlier checkpoint
_STEP = re.compile(r"step_(\d{1,8})")

__all__ = ["entrypoint", "training_command"]


def train_spec(run: Run, settings: Settings, attempt: int) -> dict[str, Any]:
    """Return the supervisor's spec of one training attempt."""
    plan = run.plan
    image = images.resolve(plan.image, plan.ray_version)
    return supervisor_spec(
        run.run_id,
        attempt,
        command=training_argv(training_command(plan, run.wandb)),
        workdir=image.workdir,
        max_steps=plan.max_num_steps,
        model=plan.model,
        code=plan.code,
        keep=plan.keep,
        stall_seconds=plan.timing.stall,
        heartbeat_seconds=min(30.0, plan.timing.poll),
        **_gpus(plan),
        **_publishing(run, settings),
    )


def stage_spec(run: Run, settings: Settings, step_folder: str | None) -> dict[str, Any]:
    """Return the spec of the staging job; ``step_folder`` is the imported ``step_N``, if any."""
    plan = run.plan
    resume = None if step_folder is None else f"runs/{run.run_id}/{IMPORTED}/{step_folder}"
    return supervisor_spec(
        run.run_id,
        0,
        model=plan.model,
        fetch_model=plan.fetch_model,
        code=plan.code,
        resume_from=resume,
        **_publishing(run, settings),
    )


def folders_spec(run: Run, settings: Settings, step_folder: str) -> dict[str, Any]:
    """Return the spec of the job that only makes folders: an import needs its target to exist."""
    return supervisor_spec(
        run.run_id, 0, folders=[f"{IMPORTED}/{step_folder}"], **_publishing(run, settings)
    )


def list_spec(run: Run) -> dict[str, Any]:
    """Return the spec of a listing of the checkpoints."""
    return supervisor_spec(run.run_id, run.attempt)


def prune_spec(run: Run) -> dict[str, Any]:
    """Return the spec that keeps the newest complete checkpoint alone."""
    return supervisor_spec(run.run_id, run.attempt, keep=1)


def job_environment(plan: RunPlan) -> dict[str, str]:
    """Return the environment of Ray jobs; visible to whoever reaches the dashboard, so no
    secret.
    """
    return {
        **plan.environment,
        "HF_HOME": names.model_cache(),
        # Without it the driver dies: "Failed to merge the Job's runtime env ... conflict".
        "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1",
        # Ray kills 3 s after its SIGTERM; the supervisor needs 20 s of grace and 10 s to be heard.
        "RAY_JOB_STOP_WAIT_TIME_S": "35",
    }


def read_listing(log: str, run_id: str) -> Listing | None:
    """Return the newest listing of a run in a job's log, None when it holds none."""
    for line in reversed(log.splitlines()):
        _, found, body = line.partition(EVENT_PREFIX)
        if found:
            with suppress(ValueError):  # the training may print such a line too
                event = json.loads(body)
                listing = checkpoints.read_listing(event)
                if event.get("run_id") == run_id:
                    return listing
    return None


def newest_step_folder(uris: Iterable[str], wanted: str) -> str:
    """Return the folder of the newest ``step_N`` right in ``wanted`` that has a
    training_info.json; ``wanted`` itself when it is such a step.

    Nothing deeper counts: the parent of all runs holds other runs' steps.

    Raises:
        ServiceError: CONFIG, there is none.
    """
    folder = wanted if wanted.endswith("/") else wanted + "/"
    infos = {uri for uri in uris if uri.endswith("/training_info.json")}
    if _STEP.fullmatch(folder.rstrip("/").rsplit("/", 1)[-1]) and (
        f"{folder}training_info.json" in infos
    ):
        return folder
    steps = {}
    for uri in infos:
        name = uri.removeprefix(folder).removesuffix("/training_info.json")
        if uri.startswith(folder) and (match := _STEP.fullmatch(name)):
            steps[int(match.group(1))] = f"{folder}{name}/"
    if not steps:
        raise ServiceError(
            Failure.CONFIG,
            f"checkpoints.resume_from: {folder} itself holds no step_N with a "
            "training_info.json; name the folder right above step_N, or one step_N",
        )
    return steps[max(steps)]


def _gpus(plan: RunPlan) -> dict[str, Any]:
    """Return how the supervisor watches the GPUs: what the request wants ended, or the default."""
    if plan.machine == "local" or plan.gpus == 0:
        return {}
    minutes = plan.gpus_idle_minutes
    if minutes is None:
        return {"gpu_seconds": GPU_SECONDS}
    return {
        "gpu_seconds": GPU_SECONDS,
        "gpus_idle_seconds": 60 * minutes,
        "end_idle_gpus": True,
    }


def _publishing(run: Run, settings: Settings) -> dict[str, Any]:
    where = {
        "project": settings.project,
        "topic": settings.events_topic,
        "event_key": EVENT_KEY if run.event_key else None,
    }
    if not settings.is_local:
        return where
    return {
        **where,
        "token": False,
        "pubsub_endpoint": settings.endpoints["pubsub"],
        "storage_endpoint": settings.endpoints["storage"],
        "metadata_wait_seconds": 0.0,
    }
