"""What teardown does: stop what still runs, release the accelerators, bring the checkpoint to
safety, close.

Each step is idempotent and bounded; the workflow notes a failing one and goes on with the next.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lustrum.core import kubernetes_objects, names, supervisor_jobs
from lustrum.core.checkpoints import export_shortfall
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.failures import Failure
from lustrum.core.progress import absorb, log_events
from lustrum.core.record import (
    Checkpoint,
    Export,
    Run,
    check_owned,
    end_usage,
    shorten,
    staging_tries,
)
from lustrum.head.checkpoint_rule import MANIFEST, NEMO_RL, newest_complete
from lustrum.head.checkpoint_rule import Checkpoint as Seen
from lustrum.wiring.services import Services

if TYPE_CHECKING:  # a function that needs neither does not load them
    from lustrum.adapters.kubernetes import Kubernetes
    from lustrum.adapters.ray_jobs import RayJob, RayJobs

EXPORT_TRIES = 5  # of an export that is not required
LOG_LINES = 50_000  # about 10 MB
LISTINGS = 3  # of the checkpoints, when one fails
Answer = dict[str, Any]


def stop_ray_job(services: Services, run_id: str, execution: str) -> Answer:
    """Silence rl_run and the deploy build, stop the job, save its log. Best effort, never in
    the way.

    Returns:
        ``stopped``: nothing of the run can create or write any more.
    """
    run = _owned(services, run_id, execution)
    problems: list[str] = []
    assert run.teardown is not None
    if run.teardown.final and run.execution is not None:
        try:
            services.workflows.cancel(run.execution)
        except ServiceError as error:  # it can create nothing any more: every step refuses it
            problems.append(shorten(str(error), 200))
    building = _cancel_builds(services, run, problems)
    try:
        ray = services.ray(services.kubernetes(run_id), run_id)
        stopped = _stop_jobs(services, ray, run, problems)
    except (NotFound, ServiceError) as error:  # no cluster, or a head that does not answer
        stopped = True
        problems.append(shorten(str(error), 200))
    return {"stopped": stopped and not building, "building": building, "problems": problems}


def release_accelerators(services: Services, run_id: str, execution: str) -> Answer:
    """Scale the workers to 0 and delete the GPU node pool. Never waits for the training: it was
    stopped.
    """
    run = _owned(services, run_id, execution)
    try:
        cluster = services.gke.find(run_id)
    except NotFound:
        _end(services, run_id, "accelerators")
        return {"released": True, "left": []}
    if names.GPU_POOL in cluster.pools:
        services.gke.delete_pool(cluster, names.GPU_POOL)
    with suppress(NotFound, ServiceError):  # the pool goes anyway
        _no_workers(services.kubernetes(run_id), run)
    left = [one.name for one in services.compute.machines(run_id).items if one.gpus]
    if not left and names.GPU_POOL not in services.gke.find(run_id).pools:
        _end(services, run_id, "accelerators")
        return {"released": True, "left": []}
    return {"released": False, "left": left}


def export_checkpoints(services: Services, run_id: str, execution: str) -> Answer:
    """Export the newest complete step and verify it at the destination.

    Returns:
        ``done``: safe, or nothing to save, or given up; ``verified`` step or None; ``why`` not
        yet.
    """
    now = services.now()
    run = _owned(services, run_id, execution)
    if run.cancel is not None and not run.cancel.export:
        return _exported(None, "the cancel asked for no export")
    if run.placement is None:
        return _exported(None, "nothing was ever created")
    try:
        newest = _newest_checkpoint(services, run)
    except ServiceError as error:  # the listing is on its way
        return {"done": False, "verified": None, "why": str(error)}
    if newest is None:
        return _exported(None, "there is no complete checkpoint")
    if run.export is not None and run.export.step == newest.step and run.export.verified_at:
        return _exported(newest.step, "")
    try:
        return _export(services, run, newest, now)
    except ServiceError as error:
        if isinstance(error, NotFound) and _file_system_is_gone(services, run_id):
            return _exported(None, f"the file system is gone: {error}")
        if now >= run.hard_deadline_at:
            return _exported(None, f"the hard deadline has passed: {error}")
        return _try_again(services, run, newest, shorten(str(error), 300))


def close_run(services: Services, run_id: str, execution: str) -> Answer:
    """End the run: report, CLOSED, notification; or, after a teardown that is not final, give
    the slot back.
    """
    from lustrum.handlers.closing import close, finish, reopen

    run = services.ledger.load(run_id)
    if run.is_over and run.teardown is not None and run.teardown.execution == execution:
        return finish(services, run)  # the answer was lost, or the report's bucket was away
    run = _owned(services, run_id, execution)
    assert run.teardown is not None
    ends = run.teardown.final or run.cancel is not None or services.now() >= run.deadline_at
    if not ends and run.execution is not None:
        ends = not services.workflows.is_live(run.execution)  # nobody would try the next zone
    return close(services, run) if ends else reopen(services, run)


def _owned(services: Services, run_id: str, execution: str) -> Run:
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
    except ServiceError as error:
        problems.append(f"builds: {shorten(str(error), 200)}")
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
        folder = log_folder(services, run)
        services.storage.write(
            f"{folder}{identity}.log", text.encode(), "text/plain; charset=utf-8"
        )
    except ServiceError as error:
        problems.append(f"log of {identity}: {shorten(str(error), 200)}")
        return
    now = services.now()
    events = list(log_events(text, run.run_id, names.attempt_of(identity)))

    def edit(current: Run) -> None:
        current.log_uri = folder
        for event in events:
            absorb(current, event, now)

    services.ledger.change(run.run_id, edit)


def log_folder(services: Services, run: Run) -> str:
    """Return the bucket folder of a run's logs and report."""
    return f"gs://{services.settings.report_bucket}/runs/{run.run_id}/"


def _no_workers(kubernetes: Kubernetes, run: Run) -> None:
    kubernetes.get("RayCluster", run.run_id)  # NotFound: do not make one
    kubernetes.apply(kubernetes_objects.ray_cluster(run.plan, run.hard_deadline_at, 0))


def _newest_checkpoint(services: Services, run: Run) -> Checkpoint | None:
    """Ask the file system itself, through the head; else trust the record."""
    known = run.checkpoint
    if known is None and run.attempt == 0:
        return None  # nothing was ever trained
    try:
        ray = services.ray(services.kubernetes(run.run_id), run.run_id)
        listed = None
        for number in range(1, LISTINGS + 1):  # a listing that failed is repeated
            identity = names.list_id(run.run_id, f"t{run.zone_attempts}-a{run.attempt}-{number}")
            job = ray.submit(
                identity,
                supervisor_jobs.entrypoint("list", supervisor_jobs.list_spec(run)),
                supervisor_jobs.job_environment(run.plan),
                {"run_id": run.run_id},
            )
            if not job.is_over:
                raise ServiceError(
                    Failure.INFRA_TRANSIENT, f"listing {identity} is {job.status}", retryable=True
                )
            listed = supervisor_jobs.read_listing(ray.logs(identity), run.run_id)
            if listed is not None:
                break
    except NotFound:
        return known
    except ServiceError as error:
        if error.retryable and run.state == "EXPORTING" and _listing_may_come(services, run):
            raise
        return known
    if listed is None:
        return known
    newest = newest_complete(listed.checkpoints)
    if newest is None:
        return None
    if known is not None and known.step == newest.step:
        return known.model_copy(update={"bytes": newest.bytes, "files": newest.files})
    found = Checkpoint(step=newest.step, bytes=newest.bytes, files=newest.files, at=services.now())

    def edit(current: Run) -> None:
        current.checkpoint = found

    services.ledger.change(run.run_id, edit)
    return found


def _listing_may_come(services: Services, run: Run) -> bool:
    """A head that does not answer is waited for a while, not for ever."""
    began = next((one.at for one in reversed(run.history) if one.state == "EXPORTING"), 0.0)
    return services.now() - began < run.plan.timing.silence


def _export(services: Services, run: Run, newest: Checkpoint, now: float) -> Answer:
    assert run.placement is not None
    late = now >= run.hard_deadline_at
    export = _present_export(run, newest, now)
    if export.operation is None:
        if late:
            return _exported(None, f"the hard deadline has passed; {export.problem}")
        export.tries += 1  # stored first: a try that is refused counts too
        _store(services, run, export)
        folder = f"/runs/{run.run_id}/checkpoints/step_{newest.step}"
        export.operation = services.lustre.export(
            run.placement.zone, run.run_id, folder, export.uri
        )
        _store(services, run, export)
    transfer = services.lustre.transfer(export.operation)
    if not transfer.done:
        if late:
            return _exported(None, "the hard deadline has passed while it was being copied")
        return {"done": False, "verified": None, "why": f"{transfer.bytes} bytes copied"}
    problem = transfer.problem or _missing(services, export)
    if problem:
        return _try_again(services, run, newest, problem)
    export.verified_at = services.now()
    export.problem = ""
    _store(services, run, export)
    return _exported(export.step, "")


def _present_export(run: Run, newest: Checkpoint, now: float) -> Export:
    """Return the export of this step that was begun, or a new one."""
    if run.export is not None and run.export.step == newest.step:
        return run.export.model_copy(update={"bytes": newest.bytes, "files": newest.files})
    return Export(
        step=newest.step,
        uri=f"{run.plan.export_to}step_{newest.step}/",
        started_at=now,
        bytes=newest.bytes,
        files=newest.files,
    )


def _missing(services: Services, export: Export) -> str:
    """Compare the destination with the manifest: an operation's own status is not enough."""
    found = {
        one.uri.removeprefix(export.uri): one.size for one in services.storage.list(export.uri)
    }
    try:
        manifest_text = services.storage.read(export.uri + MANIFEST).decode(errors="replace")
    except NotFound:
        manifest_text = None
    seen = Seen(export.step, export.files, export.bytes, None, complete=True)
    shortfall = export_shortfall(NEMO_RL, seen, found, manifest_text)
    return f"{export.uri}: {shortfall}" if shortfall else ""


def _try_again(services: Services, run: Run, newest: Checkpoint, problem: str) -> Answer:
    """Note the problem; the next try begins a new operation, which skips what is copied."""
    export = _present_export(services.ledger.load(run.run_id), newest, services.now())
    export.problem = shorten(problem)
    export.operation = None
    _store(services, run, export)
    if not run.plan.export_required and export.tries >= EXPORT_TRIES:
        return _exported(None, f"given up after {export.tries} tries: {problem}")
    return {"done": False, "verified": None, "why": problem}


def _file_system_is_gone(services: Services, run_id: str) -> bool:
    """Say whether the instance is seen to be gone: a 404 may also be a bucket's or an
    operation's.
    """
    found = services.lustre.list()
    return not found.missing and all(one.name != run_id for one in found.items)


def _store(services: Services, run: Run, export: Export) -> None:
    def edit(current: Run) -> None:
        if (
            current.export is not None
            and current.export.verified_at
            and current.export.step != export.step
        ):
            current.secured = current.export  # what is safe already is not forgotten for a new try
        current.export = export.model_copy()

    services.ledger.change(run.run_id, edit)


def _end(services: Services, run_id: str, *resources: str) -> None:
    now = services.now()
    services.ledger.change(run_id, lambda one: end_usage(one, now, *resources))


def _exported(step: int | None, why: str) -> Answer:
    return {"done": True, "verified": step, "why": why}
