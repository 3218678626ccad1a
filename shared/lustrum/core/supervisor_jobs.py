"""What is run on the Ray head for a run: the supervisor's specs, entrypoints, and what they
print. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from lustrum.core import checkpoints, images, names, time_limit, trainer, transport
from lustrum.core.checkpoints import Listing
from lustrum.core.errors import ServiceError
from lustrum.core.failures import Failure
from lustrum.core.kubernetes_objects import EVENT_KEY
from lustrum.core.plan import training_command
from lustrum.core.record import Run
from lustrum.core.run_plan import RunPlan
from lustrum.core.settings import Settings
from lustrum.core.training_command import (
    Mode,
    entrypoint,
    supervisor_spec,
    training_argv,
)
from lustrum.head.checkpoint_rule import MANIFEST, Layout
from lustrum.head.fabric import RDMA_NETWORK
from lustrum.head.names import EVENT_PREFIX

GPU_SECONDS = 10.0  # between two readings of all GPUs
IMPORTED = "imported"  # folder of a run on Lustre that receives an earlier checkpoint


def training_arguments(
    plan: RunPlan, wandb: bool, train_seconds: float | None = None
) -> list[str]:
    """Return the training's command: the request's own trainer, else NeMo-RL's recipe."""
    if plan.trainer is None:
        command = training_command(plan, wandb)
        return training_argv(replace(command, train_seconds=train_seconds))
    return trainer.filled(plan.trainer, _trainer_values(plan))


def workdir(plan: RunPlan) -> str | None:
    """Return the image's own working directory; None where a trainer's image is not known."""
    if plan.trainer is not None and plan.image not in images.TABLE:
        return None
    return images.resolve(plan.image, plan.ray_version).workdir


def _trainer_values(plan: RunPlan) -> dict[str, object]:
    return {
        "checkpoint_dir": plan.checkpoint_dir,
        "log_dir": plan.log_dir,
        "model": plan.model,
        "max_steps": plan.max_num_steps,
        "save_period": plan.save_period,
        "keep": plan.keep,
        "nodes": plan.nodes,
        "gpus_per_node": plan.gpus_per_node,
        "gpus": plan.gpus,
        "run_id": plan.run_id,
    }


def _of_trainer(run: Run) -> dict[str, Any]:
    """Return the keys of a training that is not the recipe's; it may not remove old steps."""
    plan = run.plan
    if plan.trainer is None:
        return {}
    save_by = time_limit.must_save_by(run)
    return {
        **trainer.layout_keys(plan.trainer),
        "progress": trainer.progress_texts(plan.trainer),
        "environment": trainer.environment(
            {**_trainer_values(plan), "must_save_by": int(save_by)}
        ),
        "must_save_by": save_by,
        "prune": True,
    }


def train_spec(run: Run, settings: Settings, attempt: int, now: float) -> dict[str, Any]:
    """Return the supervisor's spec of one training attempt that is submitted now."""
    plan = run.plan
    return supervisor_spec(
        run.run_id,
        attempt,
        command=training_arguments(plan, run.wandb, time_limit.train_loop_seconds(run, now)),
        workdir=workdir(plan),
        max_steps=plan.max_num_steps,
        model=plan.model,
        code=plan.code,
        keep=plan.keep,
        stall_seconds=plan.timing.stall,
        heartbeat_seconds=min(30.0, plan.timing.poll),
        network=RDMA_NETWORK if run.rdma_network else None,
        **_gpus(plan),
        **_of_trainer(run),
        **_publishing(run, settings),
    )


def stage_spec(run: Run, settings: Settings, step_folder: str | None) -> dict[str, Any]:
    """Return the spec of the staging job; ``step_folder`` is the imported ``step_N``, if any."""
    plan = run.plan
    release = "" if plan.trainer else images.resolve(plan.image, plan.ray_version).release
    resume = None if step_folder is None else f"runs/{run.run_id}/{IMPORTED}/{step_folder}"
    return supervisor_spec(
        run.run_id,
        0,
        command=training_argv(training_command(plan, run.wandb)) if release else [],
        release=release or None,
        algorithm=plan.algorithm,
        workdir=workdir(plan),
        model=plan.model,
        fetch_model=plan.fetch_model,
        code=plan.code,
        resume_from=resume,
        **trainer.layout_keys(plan.trainer),
        **_publishing(run, settings),
    )


def folders_spec(run: Run, settings: Settings, step_folder: str) -> dict[str, Any]:
    """Return the spec of the job that only makes folders: an import needs its target to exist."""
    return supervisor_spec(
        run.run_id, 0, folders=[f"{IMPORTED}/{step_folder}"], **_publishing(run, settings)
    )


def list_spec(run: Run) -> dict[str, Any]:
    """Return the spec of a listing of the checkpoints."""
    return supervisor_spec(run.run_id, run.attempt, **trainer.layout_keys(run.plan.trainer))


def prune_spec(run: Run) -> dict[str, Any]:
    """Return the spec that keeps the newest complete checkpoint alone."""
    layout = trainer.layout_keys(run.plan.trainer)
    return supervisor_spec(run.run_id, run.attempt, keep=1, **layout)


def submission(
    run: Run, mode: Mode, spec: dict[str, Any], **metadata: str
) -> tuple[str, dict[str, str], dict[str, str]]:
    """Return entrypoint, environment and metadata of a Ray job of a run."""
    about = {"run_id": run.run_id, **metadata}
    environment = job_environment(run.plan)
    if mode == "train" and run.rdma_network:
        environment |= transport.environment(spec["attempt"])
    return entrypoint(mode, spec), environment, about


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


def newest_step_folder(layout: Layout, uris: Iterable[str], wanted: str) -> str:
    """Return the folder of the newest complete step right in ``wanted``; ``wanted`` itself when it
    is such a step.

    Complete is a step with the file that proves it (`training_info.json`), or, where only a file
    beside it would, with Lustrum's manifest. Nothing deeper counts: the parent of all runs holds
    other runs' steps.

    Raises:
        ServiceError: CONFIG, there is none.
    """
    folder = wanted if wanted.endswith("/") else wanted + "/"
    proof = layout.proof or MANIFEST
    proofs = {uri for uri in uris if uri.endswith(f"/{proof}")}
    if layout.step_of(folder.rstrip("/").rsplit("/", 1)[-1]) is not None and (
        f"{folder}{proof}" in proofs
    ):
        return folder
    steps = {}
    for uri in proofs:
        name = uri.removeprefix(folder).removesuffix(f"/{proof}")
        step = layout.step_of(name) if uri.startswith(folder) else None
        if step is not None:
            steps[step] = f"{folder}{name}/"
    if not steps:
        name = layout.pattern.replace("{step}", "N")
        raise ServiceError(
            Failure.CONFIG,
            f"checkpoints.resume_from: {folder} itself holds no {name} with a "
            f"{proof}; name the folder right above {name}, or one {name}",
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
