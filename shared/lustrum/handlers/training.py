"""`stage_data`, `submit_ray_job` and `check_ray_job`: the training, from the outside."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lustrum.core import names, supervisor_jobs
from lustrum.core.broken_nodes import MOST, broken_node
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.events import JobEvent
from lustrum.core.failures import Failure, classify_text, named
from lustrum.core.plain_text import shorten
from lustrum.core.progress import absorb, log_events
from lustrum.core.readiness import lost_nodes, worker_was_replaced
from lustrum.core.record import Run, State, add_mishap, check_live, conclude, staging_tries
from lustrum.core.record_parts import Job
from lustrum.core.reserve import stop_at
from lustrum.core.revival import is_behind
from lustrum.core.verdict import OVER, Action, Seen, Verdict, crashes_after, decide
from lustrum.handlers import evidence
from lustrum.wiring.http import Answer
from lustrum.wiring.services import Services

if TYPE_CHECKING:  # a function that needs neither does not load them
    from lustrum.adapters.kubernetes import Kubernetes
    from lustrum.adapters.ray_jobs import RayJobs

HURRY = 1.0  # seconds between looks once the end was told


def stage_data(services: Services, run_id: str, execution: str | None) -> Answer:
    """Bring folders, model cache and an earlier checkpoint onto Lustre, through the head.

    Returns:
        ``done``, ``why`` not yet, and ``failure`` when waiting cannot help.
    """
    run = services.ledger.load(run_id)
    check_live(run, execution, services.now())
    if is_behind(run, State.STAGING):
        return {"done": True, "why": "", "failure": None}  # it was, by the execution that died
    try:
        return _stage(services, run)
    except NotFound as error:  # the head's service, or the cluster, does not answer yet
        return _staging(str(error))
    except ServiceError as error:
        return _staging(str(error), None if error.retryable else error.failure)


def _stage(services: Services, run: Run) -> Answer:
    assert run.placement is not None
    run_id, number = run.run_id, run.placement.zone_attempt
    ray = services.ray(services.kubernetes(run_id), run_id)
    source = _resume_source(services, run)
    if source is not None:
        step = source.rstrip("/").rsplit("/", 1)[-1]
        folders = _stage_job(
            ray,
            run,
            f"{names.stage_id(run_id, number)}-folders",
            supervisor_jobs.folders_spec(run, services.settings, step),
        )
        if not folders["done"]:
            return folders
        imported = _import(services, run, source, step)
        if not imported["done"]:
            return imported
    spec = supervisor_jobs.stage_spec(run, services.settings, None if source is None else step)
    return _stage_job(ray, run, _stage_identity(ray, run), spec)


def _stage_identity(ray: RayJobs, run: Run) -> str:
    """Return the id of the staging job to look at: a failed one is followed by another for each
    time the run decided to try again. What still runs is never doubled.
    """
    assert run.placement is not None
    *earlier, last = names.stage_ids(run.run_id, run.placement.zone_attempt, staging_tries(run))
    for identity in earlier:
        try:
            job = ray.get(identity)
        except NotFound:
            return identity
        if not job.is_over or job.status == "SUCCEEDED":
            return identity
    return last


def submit_ray_job(services: Services, run_id: str, execution: str | None) -> Answer:
    """Submit the next attempt, or adopt it when it is there already.

    Raises:
        ServiceError: retryable while the attempt before it still runs.
    """
    now = services.now()
    run = services.ledger.load(run_id)
    check_live(run, execution, now)
    ray = services.ray(services.kubernetes(run_id), run_id)
    if run.job is not None and run.job.attempt == run.attempt and not _is_settled(run):
        attempt = run.attempt  # the answer to an earlier submission was lost
    else:
        attempt = run.attempt + 1
        _ensure_stopped(ray, run)
    began = run.checkpoint.step if run.checkpoint else 0
    identity = names.submission_id(run_id, attempt)

    def note(one: Run) -> None:
        check_live(one, execution, now)
        one.attempt = attempt
        one.job = Job(submission_id=identity, attempt=attempt, submitted_at=now, began_step=began)

    if attempt != run.attempt:
        services.ledger.change(run_id, note)
    spec = supervisor_jobs.train_spec(run, services.settings, attempt, now)
    ray.submit(identity, *supervisor_jobs.submission(run, "train", spec, attempt=str(attempt)))
    session = str(ray.version().get("session_name") or "")

    def remember(one: Run) -> None:
        if one.job is not None and one.job.session_name is None:
            one.job.session_name = session

    services.ledger.change(run_id, remember)
    return {"submission_id": identity, "attempt": attempt, "from_step": began}


def check_ray_job(services: Services, run_id: str, execution: str | None) -> Answer:
    """Look at the attempt and decide: wait, resume or stop.

    Returns:
        ``next``, ``failure``, ``why``, ``step``, and ``wait``: seconds until the next look.
    """
    now = services.now()
    run = services.ledger.load(run_id)
    check_execution(run, execution)
    if run.job is None:
        raise ServiceError(Failure.CONFIG, f"{run_id} has no submitted job to check")
    kubernetes, seen, events = look(services, run)
    disk = evidence.ask_what_decides(services, run, seen, events, now)

    def edit(one: Run) -> Verdict:
        check_execution(one, execution)
        assert one.job is not None
        if _is_settled(one):  # the answer was lost: one failure is never judged twice
            last = next(item for item in reversed(one.mishaps) if item.attempt == one.attempt)
            ended = Action.STOP if one.reason else Action.RESUME
            return Verdict(ended, last.failure, last.sentence)
        for event in events:
            absorb(one, event, now)
        _note_signs(one, seen, now)
        if disk.listing is not None:
            evidence.believe_the_disk(one, disk, now)
        full_since = evidence.follow_alerts(one, disk)
        if disk.is_awaited and seen.status in OVER:
            one.job.over_since = one.job.over_since or now
            return Verdict(Action.WAIT, None, "it is over; looking at what it saved")
        verdict = decide(one, seen, now, full_since)
        if verdict.failure is not None and _wait_for_evidence(one, seen, verdict, now):
            return Verdict(Action.WAIT, None, "it failed; checking whether a node was lost")
        if verdict.action is not Action.WAIT:
            if verdict.failure is not None:
                failure = verdict.failure
                one.crashes = crashes_after(one, failure)
                verdict = _avoid_broken(one, seen.broken, verdict)
                add_mishap(one, failure, verdict.sentence, now)
            if verdict.action is Action.STOP:
                if verdict.failure is None and seen.ended == "data" and one.checkpoint:
                    one.data_end = one.checkpoint.step
                conclude(one, verdict.failure, verdict.sentence)
        return verdict

    verdict = services.ledger.change(run_id, edit)
    run = services.ledger.load(run_id)
    if verdict.action is Action.RESUME and kubernetes is not None and run.job is not None:
        _stop_quietly(services.ray(kubernetes, run_id), run.job.submission_id)
    evidence.prune_if_filling(services, run, disk)
    timing = run.plan.timing
    pressing = (run.full_since or run.filling_since) is not None or (
        run.job is not None
        and (run.job.failed_since or run.job.alone_since or run.job.silent_since)
    )
    wait = timing.poll if pressing else timing.doorbell
    told = run.job.completed_at if run.job is not None else None
    if told is not None and now - told < evidence.RAY_LAG:  # its log is not visible yet
        wait = min(HURRY, wait)
    wait = HURRY if disk.is_awaited else max(HURRY, min(wait, stop_at(run) - now))
    return {
        "next": verdict.action,
        "failure": verdict.failure,
        "why": verdict.sentence,
        "step": run.checkpoint.step if run.checkpoint else 0,
        "wait": wait,
    }


def look(services: Services, run: Run) -> tuple[Kubernetes | None, Seen, list[JobEvent]]:
    """Return what Kubernetes and Ray show of the present attempt, and the events of its log."""
    assert run.job is not None
    try:
        kubernetes = services.kubernetes(run.run_id)
        since = _last_worked(run) - run.plan.timing.evidence
        pods = kubernetes.pods(run.run_id)
        lost = lost_nodes(pods, kubernetes.events(), run.run_id, since)
        if lost is None and worker_was_replaced(pods, max(since, run.job.submitted_at)):
            lost = Failure.NODE_LOST
    except NotFound:
        return None, Seen("MISSING", session_changed=True, message="the cluster is gone"), []
    except ServiceError as error:
        if not error.retryable:
            raise
        return None, Seen("UNREACHABLE", message=str(error)), []
    ray = services.ray(kubernetes, run.run_id)
    try:
        session = str(ray.version().get("session_name") or "")
        changed = run.job.session_name not in (None, session)
        job = ray.get(run.job.submission_id)
        nodes = ray.nodes()
        log = ray.tail(job)
    except NotFound:
        return kubernetes, Seen("MISSING", session_changed=changed, lost=lost), []
    except ServiceError as error:
        return kubernetes, Seen("UNREACHABLE", message=str(error), lost=lost), []
    events = list(log_events(log, run.run_id, run.job.attempt))
    workers = nodes.alive - 1
    if lost is None and job.is_over and workers < run.plan.nodes:
        lost = Failure.NODE_LOST
    seen = evidence.seen_of(run.job, job, events, services.now())
    seen = replace(seen, session_changed=changed, nodes=workers, lost=lost)
    if seen.failure is Failure.NODE_LOST:
        seen = replace(seen, broken=broken_node(seen.message, pods, run.plan.nodes))
    return kubernetes, seen, events


def _last_worked(run: Run) -> float:
    """Return until when the attempt surely had all its nodes, epoch seconds: its last finished
    step or save, else its submission. What was lost before does not explain how it ended.
    """
    assert run.job is not None
    worked = run.worked.get(run.attempt)
    return max(run.job.submitted_at, worked.until if worked is not None else 0.0)


def check_execution(run: Run, execution: str | None) -> None:
    """Like `check_live`, but a deadline or a cancel is not refused: the look itself concludes
    it.
    """
    check_live(run.model_copy(update={"cancel": None, "deadline_at": float("inf")}), execution, 0)


def _note_signs(run: Run, seen: Seen, now: float) -> None:
    """Keep since when the dashboard is silent, nodes are missing, the job is failed."""
    job = run.job
    assert job is not None
    silent = seen.status == "UNREACHABLE"
    alone = job.alone_since is not None  # as long as nobody can count them
    if seen.nodes is not None:
        alone = seen.nodes < run.plan.nodes
    failed = seen.status in ("FAILED", "STOPPED")
    job.silent_since = (job.silent_since or now) if silent else None
    job.alone_since = (job.alone_since or now) if alone else None
    job.failed_since = (job.failed_since or now) if failed else None


def _avoid_broken(run: Run, node: str | None, verdict: Verdict) -> Verdict:
    """Note, in place, the node whose GPU failed, if one did; return the verdict that says so."""
    if node is None:
        return verdict
    if node not in run.broken_nodes:
        run.broken_nodes = [*run.broken_nodes, node][-MOST:]
    return replace(verdict, sentence=f"{verdict.sentence}; node {node} is not used again")


def _wait_for_evidence(run: Run, seen: Seen, verdict: Verdict, now: float) -> bool:
    """A lost node shows some seconds after the job it killed: do not blame the program at once."""
    job = run.job
    assert job is not None
    return (
        seen.status == "FAILED"
        and seen.lost is None
        and verdict.failure in (Failure.USER_ERROR, Failure.JOB_LOST, Failure.USER_OOM)
        and job.failed_since is not None
        and now - job.failed_since < run.plan.timing.evidence
    )


def _is_settled(run: Run) -> bool:
    """Say whether the present attempt was judged: then the next one is due."""
    return any(mishap.attempt == run.attempt for mishap in run.mishaps)


def _ensure_stopped(ray: RayJobs, run: Run) -> None:
    if run.job is None:
        return
    try:
        job = ray.get(run.job.submission_id)
    except NotFound:
        return
    if not job.is_over:
        ray.stop(job.submission_id)
        raise ServiceError(
            Failure.INFRA_TRANSIENT, f"{job.submission_id} is still {job.status}", retryable=True
        )


def _stop_quietly(ray: RayJobs, submission_id: str) -> None:
    try:
        ray.stop(submission_id)
    except ServiceError:
        return  # submit_ray_job makes sure


def _resume_source(services: Services, run: Run) -> str | None:
    """Return the bucket folder of the step to begin with: this run's own export, or
    resume_from.
    """
    if run.safe_export is not None:
        return run.safe_export.uri
    wanted = run.plan.resume_from
    if wanted is None:
        return None
    if names.is_run_id(wanted):
        try:
            earlier = services.ledger.load(wanted)
        except NotFound:
            raise _nothing_to_resume(f"there is no run {wanted} any more") from None
        if earlier.safe_export is None:
            raise _nothing_to_resume(f"{wanted} has no verified export")
        return earlier.safe_export.uri
    try:
        uris = [one.uri for one in services.storage.list(wanted)]
    except NotFound as error:
        raise _nothing_to_resume(str(error)) from None
    return supervisor_jobs.newest_step_folder(run.plan.layout, uris, wanted)


def _nothing_to_resume(why: str) -> ServiceError:
    return ServiceError(Failure.CONFIG, f"checkpoints.resume_from: {why}")


def _stage_job(ray: RayJobs, run: Run, identity: str, spec: dict[str, Any]) -> Answer:
    job = ray.submit(identity, *supervisor_jobs.submission(run, "stage", spec))
    events = list(log_events(ray.tail(job), run.run_id, 0))
    if not job.is_over:
        return _staging(f"staging job {identity} is {job.status}")
    if job.status == "SUCCEEDED":
        return {"done": True, "why": "", "failure": None}
    failed = next((one for one in reversed(events) if one.type == "stage.failed"), None)
    failure = (named(failed.failure) if failed is not None else None) or Failure.UNKNOWN
    return _staging(failed.message if failed is not None else job.message, failure)


def _import(services: Services, run: Run, source: str, step: str) -> Answer:
    """Copy one step folder from the bucket onto Lustre; the operation is kept in the record."""
    assert run.placement is not None

    def remember(begun: str | None) -> None:
        def edit(one: Run) -> None:
            if one.placement is not None:
                one.placement.import_operation = begun

        services.ledger.change(run.run_id, edit)

    operation = run.placement.import_operation
    if operation is None:
        operation = services.lustre.import_(
            run.placement.zone,
            run.run_id,
            source,
            f"/runs/{run.run_id}/{supervisor_jobs.IMPORTED}/{step}",
        )

        remember(operation)
    transfer = services.lustre.transfer(operation)
    if not transfer.done:
        return _staging(f"import of {source}: {transfer.files} files so far")
    if transfer.problem:
        remember(None)  # a retry begins a new one
        failure = classify_text(transfer.problem, Failure.INFRA_TRANSIENT)
        return _staging(f"import of {source}: {transfer.problem}", failure)
    return {"done": True, "why": "", "failure": None}


def _staging(why: str, failure: Failure | None = None) -> Answer:
    return {"done": False, "why": shorten(why), "failure": failure}
