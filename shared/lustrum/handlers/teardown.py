"""What teardown does: stop what still runs, release the accelerators, bring the checkpoint to
safety, close.

Each step is idempotent and bounded; the workflow notes a failing one and goes on with the next.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lustrum.core import kubernetes_objects, names
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.plain_text import shorten
from lustrum.core.progress import absorb, log_events
from lustrum.core.record import Run, check_owned, staging_tries
from lustrum.core.usage import end_usage
from lustrum.wiring.http import Answer
from lustrum.wiring.services import Services

if TYPE_CHECKING:  # a function that needs neither does not load them
    from lustrum.adapters.kubernetes import Kubernetes
    from lustrum.adapters.ray_jobs import RayJob, RayJobs

LOG_LINES = 50_000  # about 10 MB
STOP_PATIENCE = 120.0  # seconds of paid accelerators for a head that does not answer


def stop_ray_job(services: Services, run_id: str, execution: str) -> Answer:
    """Silence rl_run and the deploy build, stop the job, save its log. Best effort, never in
    the way.

    Returns:
        ``stopped``: nothing of the run can create or write any more.
    """
    run = owned(services, run_id, execution)
    problems: list[str] = []
    assert run.teardown is not None
    if run.teardown.final and run.execution is not None:
        try:
            services.workflows.cancel(run.execution)
        except Exception as error:  # it can create nothing any more: every step refuses it
            problems.append(told(error))
    building = _cancel_builds(services, run, problems)
    try:
        ray = services.ray(services.kubernetes(run_id), run_id)
        stopped = _stop_jobs(services, ray, run, problems)
    except NotFound as error:  # no cluster, no head
        stopped = True
        problems.append(told(error))
    except Exception as error:  # tried for a while: what still trains may save once more
        patience = min(STOP_PATIENCE, run.plan.timing.silence)
        stopped = services.now() - run.teardown.claimed_at >= patience
        problems.append(told(error))
    return {"stopped": stopped and not building, "building": building, "problems": problems}


def release_accelerators(services: Services, run_id: str, execution: str) -> Answer:
    """Scale the workers to 0 and delete the GPU node pool. Never waits for the training: it was
    stopped.
    """
    run = owned(services, run_id, execution)
    try:
        cluster = services.gke.find(run_id)
    except NotFound:
        _end(services, run_id, "accelerators")
        return {"released": True, "left": []}
    if names.GPU_POOL in cluster.pools:
        services.gke.delete_pool(cluster, names.GPU_POOL)
    with suppress(Exception):  # the pool goes anyway
        _no_workers(services.kubernetes(run_id), run)
    left = [one.name for one in services.compute.machines(run_id).items if one.gpus]
    if not left and names.GPU_POOL not in services.gke.find(run_id).pools:
        _end(services, run_id, "accelerators")
        return {"released": True, "left": []}
    return {"released": False, "left": left}


def close_run(services: Services, run_id: str, execution: str) -> Answer:
    """End the run: report, CLOSED, notification; or, after a teardown that is not final, give
    the slot back.
    """
    from lustrum.handlers.closing import close, finish, reopen

    run = services.ledger.load(run_id)
    if run.is_over and run.teardown is not None and run.teardown.execution == execution:
        return finish(services, run)  # the answer was lost, or the report's bucket was away
    run = owned(services, run_id, execution)
    assert run.teardown is not None
    ends = run.teardown.final or run.cancel is not None or services.now() >= run.deadline_at
    if not ends and run.execution is not None:
        ends = not services.workflows.is_live(run.execution)  # nobody would try the next zone
    return close(services, run) if ends else reopen(services, run)


def owned(services: Services, run_id: str, execution: str) -> Run:
    """Return a run that this teardown owns.

    Raises:
        Refused: it is over, or another's.
    """
    run = services.ledger.load(run_id)
    check_owned(run, execution)
    return run


def _cancel_builds(services: Services, run: Run, problems: list[str]) -> list[str]:
    """Cancel the deploy builds and return those that are still alive.

    Trouble with Cloud Build must not keep the job from being stopped; the sweep of the inventory
    cancels what is missed here.
    """
    alive = []
    try:
        for build in services.builds.tagged(run.run_id):
            if build.is_live and build.creates:
                alive.append(build.build_id)
                services.builds.cancel(build.build_id)
    except Exception as error:
        problems.append(f"builds: {told(error)}")
    return alive


def _stop_jobs(services: Services, ray: RayJobs, run: Run, problems: list[str]) -> bool:
    stopped = True
    for identity in jobs_of(run):
        try:
            job = ray.get(identity)
        except NotFound:
            continue
        if not job.is_over:
            ray.stop(identity)
            job = ray.get(identity)
            stopped = stopped and job.is_over
        if job.is_over:
            _save_log(services, ray, run, job, problems)
    return stopped


def jobs_of(run: Run) -> list[str]:
    """Return the ids of every job of a run in its present zone: attempts and stagings."""
    found = [names.submission_id(run.run_id, number) for number in range(1, run.attempt + 1)]
    if run.placement is not None:
        found += names.stage_ids(run.run_id, run.placement.zone_attempt, staging_tries(run))
    return found


def _save_log(
    services: Services, ray: RayJobs, run: Run, job: RayJob, problems: list[str]
) -> None:
    """Bring the log and what it says into safety; the head that keeps it is about to die.

    At most its last `LOG_LINES` lines: the whole log of a long training is more than a function
    can hold, and one that dies of it would leave the accelerators waiting.
    """
    identity = job.submission_id
    try:
        text = ray.tail(job, LOG_LINES) or ray.logs(identity)
        if text.count("\n") >= LOG_LINES - 1:
            text = f"(the last {LOG_LINES} lines)\n{text}"
        folder = names.report_folder(services.settings.report_bucket, run.run_id)
        services.storage.write(
            f"{folder}{identity}.log", text.encode(), "text/plain; charset=utf-8"
        )
    except Exception as error:
        problems.append(f"log of {identity}: {told(error)}")
        return
    now = services.now()
    events = list(log_events(text, run.run_id, names.attempt_of(identity)))

    def edit(current: Run) -> None:
        current.log_uri = folder
        for event in events:
            absorb(current, event, now)

    services.ledger.change(run.run_id, edit)


def told(error: Exception) -> str:
    """Return an error as one short line; what nobody expected with its type."""
    text = str(error) if isinstance(error, ServiceError) else f"{type(error).__name__}: {error}"
    return shorten(text, 200)


def _no_workers(kubernetes: Kubernetes, run: Run) -> None:
    kubernetes.get("RayCluster", run.run_id)  # NotFound: do not make one
    kubernetes.apply(kubernetes_objects.ray_cluster(run.plan, run.hard_deadline_at, 0))


def _end(services: Services, run_id: str, *resources: str) -> None:
    now = services.now()
    services.ledger.change(run_id, lambda one: end_usage(one, now, *resources))
