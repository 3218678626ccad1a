"""`reap_runs`: look at the cloud first, end what outlived its run. Needs no living workflow.

Ladder: start the teardown workflow; past the hard deadline and `PATIENCE` delete cluster and
instance itself. A run without a readable record is ended by its labels: from its expiry on the
GPU pool is deleted and its checkpoints are exported, then cluster and instance are deleted.
What Lustrum does not own is reported and never deleted. It fails loudly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lustrum.core import names
from lustrum.core.errors import NotFound, ServiceError, UnreadableRecord
from lustrum.core.failures import Failure
from lustrum.core.names import LABEL_EXPIRES, LABEL_OWNER, LABEL_RUN
from lustrum.core.plain_text import shorten
from lustrum.core.record import Run, State, conclude
from lustrum.core.revival import revive
from lustrum.handlers.closing import close
from lustrum.handlers.inventory import Inventory, delete_left, look_around, seen
from lustrum.handlers.once import once
from lustrum.handlers.pages import sweep_pages
from lustrum.handlers.remains import tell, tell_if_it_stays
from lustrum.handlers.start import relabel, store_expiry
from lustrum.handlers.telling import publish
from lustrum.wiring.http import Answer
from lustrum.wiring.services import Services

PATIENCE = 1800.0  # seconds after the hard deadline before the reaper deletes by itself
START_GRACE = 120.0  # seconds a new run may be without an execution
LABEL_SKEW = 60.0  # seconds a label may differ from the ledger


class ReapFailed(Exception):
    """Something is still there, or could not be seen: the alert on this function's failures
    pages.
    """

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        super().__init__("; ".join(answer["problems"]))


@dataclass
class Sighting:
    """What one sweep saw of one run in the cloud: things, and the latest expiry on their
    labels.
    """

    things: list[str] = field(default_factory=list)
    expires: float | None = None


def reap_runs(services: Services) -> Answer:
    """Sweep once.

    Returns:
        ``acted``: what was begun; ``strangers``: accelerators and file systems that are not ours.

    Raises:
        ReapFailed: something overdue is still there, or a place did not answer.
    """
    problems: list[str] = []
    acted: list[str] = []
    sightings, strangers = _look(services, problems)
    runs = _runs(services, problems)
    for run_id in sorted({*sightings, *runs}):
        try:
            act = _reap_one(services, run_id, runs.get(run_id), sightings.get(run_id))
        except Exception as error:  # one run's trouble must not save the others from the sweep
            problems.append(f"{run_id}: {shorten(f'{type(error).__name__}: {error}', 300)}")
            continue
        acted += act
    _free_slots(services, problems)
    sweep_pages(services)
    for thing in strangers:
        _tell_stranger(services, thing, problems)
    answer = {"acted": acted, "strangers": strangers, "problems": problems}
    if problems:
        raise ReapFailed(answer)
    return answer


def _tell_stranger(services: Services, thing: str, problems: list[str]) -> None:
    told = {"kind": "stranger", "run_id": None, "thing": thing}
    try:
        once(
            services,
            thing,
            lambda: publish(services, told),
            shelf="strangers",
            record={"thing": thing},
        )
    except Exception as error:  # the sweep was done; only the telling failed
        problems.append(f"{thing}: {shorten(f'{type(error).__name__}: {error}', 200)}")


def _look(services: Services, problems: list[str]) -> tuple[dict[str, Sighting], list[str]]:
    """Return what is seen by run, and what belongs to no run."""
    runs: dict[str, Sighting] = {}
    strangers: list[str] = []

    def note(kind: str, name: str, labels: Any) -> None:
        run_id = labels.get(LABEL_RUN) or (name if names.is_run_id(name) else None)
        if run_id is None or not names.is_run_id(run_id) or labels.get(LABEL_OWNER) != "lustrum":
            if kind == "Lustre" or run_id is not None:
                strangers.append(f"{kind} {name}")
            return
        sighting = runs.setdefault(run_id, Sighting())
        sighting.things.append(f"{kind} {name}")
        expires = _number(labels.get(LABEL_EXPIRES))
        if expires is not None:
            sighting.expires = max(expires, sighting.expires or 0)

    unknown: list[str] = []
    for cluster in seen("clusters", services.gke.list, unknown):
        note("cluster", cluster.name, cluster.labels)
    for instance in seen("Lustre", services.lustre.list, unknown):
        note("Lustre", instance.name, instance.labels)
    for machine in seen("machines", services.compute.machines, unknown):
        if machine.gpus and not names.is_run_id(machine.cluster):
            strangers.append(f"VM {machine.name} with {machine.gpus} GPUs in {machine.zone}")
        elif names.is_run_id(machine.cluster):
            runs.setdefault(machine.cluster, Sighting()).things.append(f"VM {machine.name}")
    problems += [f"could not be seen: {one}" for one in unknown]
    return runs, strangers


def _runs(services: Services, problems: list[str]) -> dict[str, Run]:
    try:
        found = services.ledger.unfinished()
        problems += [f"{run_id}: {why}" for run_id, why in found.unreadable.items()]
        return {run.run_id: run for run in found.runs}
    except Exception as error:  # an unreadable ledger leaves the labels: they carry the expiry
        problems.append(f"the ledger could not be read: {shorten(str(error), 200)}")
        return {}


def _reap_one(
    services: Services, run_id: str, run: Run | None, sighting: Sighting | None
) -> list[str]:
    now = services.now()
    if run is None:
        return _reap_unrecorded(services, run_id, sighting, now)
    acted = _end_or_repair(services, run, now)
    tell_if_it_stays(services, run, now)
    label = sighting.expires if sighting is not None else None
    if (
        label is not None
        and abs(label - run.hard_deadline_at) > LABEL_SKEW
        and (run.teardown is None or run.state in (State.RELEASING, State.EXPORTING))
    ):
        relabel(services, run)  # last: what fails here must not keep a run alive
    return acted


def _end_or_repair(services: Services, run: Run, now: float) -> list[str]:
    run_id = run.run_id
    if now >= run.hard_deadline_at + PATIENCE:
        return _delete_itself(services, run, now)
    if run.teardown is not None or run.cancel is not None or now >= run.deadline_at:
        if now >= run.deadline_at and run.teardown is None:
            services.ledger.change(run_id, _past_deadline)
        return _ensure_teardown(services, run)
    if run.execution is None:
        if now - run.created_at < START_GRACE:
            return []
        services.workflows.ensure(services.settings.life_workflow, run_id, {"run_id": run_id})
        return [f"{run_id}: started its workflow"]
    if not services.workflows.is_live(run.execution):
        if services.ledger.change(run_id, lambda one: revive(one, run.execution, now)):
            services.workflows.ensure(services.settings.life_workflow, run_id, {"run_id": run_id})
            told = {"kind": "run.revived", "run_id": run_id, "state": run.state}
            publish(services, told, run)
            return [f"{run_id}: started a new workflow in {run.state}"]
        services.ledger.change(run_id, _lost_workflow)
        return _ensure_teardown(services, run)
    return []


def _ensure_teardown(services: Services, run: Run) -> list[str]:
    teardown = services.settings.teardown_workflow
    if services.workflows.live(teardown, run.run_id):
        return []
    services.workflows.ensure(teardown, run.run_id, {"run_id": run.run_id, "final": True})
    return [f"{run.run_id}: started its teardown"]


def _delete_itself(services: Services, run: Run, now: float) -> list[str]:
    """The last resort: the workflows had their time."""
    found = look_around(services, run.run_id)
    if found.is_empty:
        close(services, run)
        return [f"{run.run_id}: closed"]
    problems = delete_left(services, found)
    _ensure_teardown(services, run)
    tell(services, run.run_id, run, found, now)
    left = ", ".join([*found.left, *found.unknown, *problems])
    raise ServiceError(
        run.failure or Failure.DEADLINE,
        f"{(now - run.hard_deadline_at) / 60:.0f} minutes past its hard deadline, "
        f"still there: {left}",
    )


def _reap_unrecorded(
    services: Services, run_id: str, sighting: Sighting | None, now: float
) -> list[str]:
    """A run that the ledger does not list as alive: closed, forgotten, or not readable."""
    if sighting is None:
        return []
    try:
        known = services.ledger.load(run_id)
    except NotFound:
        return _end_by_labels(services, run_id, sighting, now, "is in no record")
    except UnreadableRecord as error:
        is_due = sighting.expires is not None and sighting.expires <= now
        if not is_due and not _has_workflow(services, run_id):  # nothing else can end it
            sighting.expires = now
            store_expiry(services, run_id, now)
        return _end_by_labels(services, run_id, sighting, now, str(error))
    except Exception as error:
        if sighting.expires is None or now < sighting.expires:
            return []  # unreadable, and its label says it may live
        return _end_by_labels(services, run_id, sighting, now, shorten(str(error), 200))
    if not known.is_over:
        return _reap_one(services, run_id, known, sighting)  # only the list could not be read
    found = look_around(services, run_id)
    problems = delete_left(services, found)
    tell(services, run_id, known, found, now)
    raise _still_there("closed", found, problems)


def _end_by_labels(
    services: Services, run_id: str, sighting: Sighting, now: float, why: str
) -> list[str]:
    """End a run whose record says nothing, by its labels alone: from its expiry on the
    accelerators go and all its checkpoints are exported; the last rung deletes the rest.

    Raises:
        ServiceError: always: a person must know of such a run.
    """
    expires = sighting.expires
    if expires is not None and now < expires:
        raise ServiceError(
            Failure.DEADLINE, f"{why}; kept until its expiry: {', '.join(sighting.things)}"
        )
    found = look_around(services, run_id)
    # A name alone makes nothing ours.
    found.clusters = [one for one in found.clusters if _is_ours(one.labels)]
    found.instances = [one for one in found.instances if _is_ours(one.labels)]
    if expires is None or now >= expires + 2 * PATIENCE:
        problems = delete_left(services, found)
        tell(services, run_id, None, found, now)
        raise _still_there(why, found, problems)
    problems = _release(services, found)
    copying = _export_all(services, run_id, found, problems)
    if now >= expires + PATIENCE and not copying:
        raise _still_there(why, found, [*problems, *delete_left(services, found)])
    raise ServiceError(
        Failure.DEADLINE,
        f"{why}; its checkpoints are copied to {_rescue_folder(services, run_id)}, its cluster "
        "and instance are deleted later" + "".join(f"; {one}" for one in problems),
    )


def _still_there(why: str, found: Inventory, problems: list[str]) -> ServiceError:
    return ServiceError(
        Failure.DEADLINE,
        f"{why}, yet there: {', '.join(found.left) or 'nothing now'}; "
        "clusters and instances are being deleted" + "".join(f"; {one}" for one in problems),
    )


def _release(services: Services, found: Inventory) -> list[str]:
    """Delete the accelerators, which cost most; return what went wrong."""
    problems = []
    for cluster in found.clusters:
        if names.GPU_POOL in cluster.pools:
            try:
                services.gke.delete_pool(cluster, names.GPU_POOL)
            except ServiceError as error:
                problems.append(f"GPU pool of {cluster.name}: {shorten(str(error), 200)}")
    return problems


def _export_all(services: Services, run_id: str, found: Inventory, problems: list[str]) -> bool:
    """Copy the run's whole checkpoint folder to the bucket; say whether that still goes on.

    Each call begins a copy, or finds the one under way; a repeated copy skips what is there.
    """
    copying = False
    for instance in found.instances:
        try:
            operation = services.lustre.export(
                instance.zone,
                instance.name,
                f"/runs/{run_id}/checkpoints",
                _rescue_folder(services, run_id),
            )
            copying = copying or not services.lustre.transfer(operation).done
        except ServiceError as error:
            problems.append(f"export of {instance.name}: {shorten(str(error), 200)}")
    return copying


def _rescue_folder(services: Services, run_id: str) -> str:
    return f"gs://{services.settings.export_bucket}/rescued/{run_id}/"


def _has_workflow(services: Services, run_id: str) -> bool:
    settings = services.settings
    return any(
        services.workflows.live(workflow, run_id)
        for workflow in (settings.life_workflow, settings.teardown_workflow)
    )


def _is_ours(labels: Any) -> bool:
    return bool(labels.get(LABEL_OWNER) == "lustrum")


def _past_deadline(run: Run) -> None:
    conclude(run, Failure.DEADLINE, f"the deadline passed in {run.state}")


def _lost_workflow(run: Run) -> None:
    if run.state not in (State.CLOSED, State.REJECTED):
        conclude(
            run,
            Failure.INFRA_TRANSIENT,
            f"its workflow execution ended unexpectedly in {run.state}",
        )


def _free_slots(services: Services, problems: list[str]) -> None:
    try:
        for holder in services.ledger.slot_holders().values():
            try:
                over = services.ledger.load(holder).is_over
            except NotFound:
                over = True
            if over:
                services.ledger.release_slot(holder)
    except Exception as error:
        problems.append(f"network slots: {shorten(str(error), 200)}")


def _number(text: Any) -> float | None:
    try:
        return float(text)
    except (TypeError, ValueError):
        return None
