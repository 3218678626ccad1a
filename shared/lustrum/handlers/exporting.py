"""`export_checkpoints`: bring the newest complete step to the bucket and prove it there.

The disk is asked first, through the head. When nobody can list it (the head is gone, the cluster
does not answer), the step that the record knows is exported, and then the whole checkpoint
folder: an export needs only Managed Lustre's API. No exception of any service ends it before the
hard deadline.
"""

from __future__ import annotations

from dataclasses import dataclass

from lustrum.core.checkpoints import export_shortfall
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.failures import Failure
from lustrum.core.history import entered_at
from lustrum.core.plain_text import shorten
from lustrum.core.record import Moment, Run, State
from lustrum.core.record_parts import Checkpoint, Export
from lustrum.core.reserve import extension_hours
from lustrum.handlers.disk import list_disk
from lustrum.handlers.teardown import owned, told
from lustrum.head.checkpoint_rule import MANIFEST, Layout, StepFolder, judge, newest_complete
from lustrum.wiring.http import Answer
from lustrum.wiring.services import Services

EXPORT_TRIES = 5  # of an export that is not required, and of a folder that may hold nothing
BLIND_TRIES = 2  # of the recorded step, when nobody could list the disk


@dataclass(frozen=True)
class Newest:
    """The step to export, None: there is none; and whether the disk itself said so."""

    checkpoint: Checkpoint | None
    is_seen: bool


def export_checkpoints(services: Services, run_id: str, execution: str) -> Answer:
    """Export the newest complete step and verify it at the destination.

    Returns:
        ``done``: safe, or nothing to save, or given up; ``verified`` step or None; ``why`` not
        yet.
    """
    now = services.now()
    run = _with_time(services, owned(services, run_id, execution), now)
    if run.cancel is not None and not run.cancel.export:
        return _exported(None, "the cancel asked for no export")
    if run.placement is None:
        return _exported(None, "nothing was ever created")
    try:
        newest = _find_newest(services, run)
    except ServiceError as error:  # the listing is on its way
        return _not_yet(str(error))
    wanted = newest.checkpoint
    if newest.is_seen:
        if wanted is None:
            return _exported(None, "there is no complete checkpoint")
        return _one_step(services, run, wanted, now)
    if wanted is not None and _deserves_another_try(run, wanted):
        answer = _one_step(services, run, wanted, now)
        if answer["verified"] is None:
            return answer
        run = services.ledger.load(run_id)
    return _whole_folder(services, run, now)


def _with_time(services: Services, run: Run, now: float) -> Run:
    """Give an export that is under way at the hard deadline the one extension the request allows:
    a checkpoint is not destroyed while it is being exported.
    """
    going = [one for one in (run.export, run.whole_export) if one is not None]
    copying = any(one.operation is not None and one.verified_at is None for one in going)
    hours = extension_hours(run.plan)
    if now < run.hard_deadline_at or run.extended_at_deadline or not hours or not copying:
        return run

    def edit(one: Run) -> Run:
        if not one.extended_at_deadline:
            one.extended_at_deadline = True
            one.hard_deadline_at += hours * 3600
            one.plan.hard_hours += hours
            note = f"its export is under way: extended once by {hours:g} h"
            one.history = [*one.history, Moment(state=one.state, at=now, note=note)]
        return one

    return services.ledger.change(run.run_id, edit)


def _find_newest(services: Services, run: Run) -> Newest:
    """Ask the disk; after a bounded wait the record must do.

    Raises:
        ServiceError: wait.
    """
    known = run.checkpoint
    if known is None and run.attempt == 0:
        return Newest(None, is_seen=True)  # nothing was ever trained
    try:
        listed = list_disk(services, run, f"t{run.zone_attempts}-a{run.attempt}")
    except NotFound:
        return Newest(known, is_seen=False)
    except Exception as error:
        if _listing_may_come(services, run):  # a refusal too: rights may come back
            raise ServiceError(Failure.INFRA_TRANSIENT, told(error), retryable=True) from error
        return Newest(known, is_seen=False)
    if listed is None:
        return Newest(known, is_seen=False)
    newest = newest_complete(listed.checkpoints)
    if newest is None:
        return Newest(None, is_seen=True)
    if known is not None and known.step == newest.step:
        found = known.model_copy(update={"bytes": newest.bytes, "files": newest.files})
        return Newest(found, is_seen=True)
    return Newest(_remember(services, run, newest), is_seen=True)


def _remember(services: Services, run: Run, seen: StepFolder) -> Checkpoint:
    """Correct the record's newest checkpoint by what was seen."""
    found = Checkpoint(step=seen.step, bytes=seen.bytes, files=seen.files, at=services.now())

    def edit(current: Run) -> None:
        current.checkpoint = found

    services.ledger.change(run.run_id, edit)
    return found


def _listing_may_come(services: Services, run: Run) -> bool:
    """A head that does not answer is waited for a while, not for ever."""
    claimed = run.teardown.claimed_at if run.teardown is not None else 0.0
    began = max(claimed, entered_at(run, State.EXPORTING, 0.0))
    return services.now() - began < run.plan.timing.silence


def _deserves_another_try(run: Run, known: Checkpoint) -> bool:
    """Say whether the recorded step is still to be exported by itself: the record may be wrong,
    and the whole folder holds it too.
    """
    export = run.export
    if export is None or export.step != known.step:
        return True
    return export.verified_at is None and (export.tries < BLIND_TRIES or bool(export.operation))


def _one_step(services: Services, run: Run, newest: Checkpoint, now: float) -> Answer:
    if run.export is not None and run.export.step == newest.step and run.export.verified_at:
        return _exported(newest.step, "")
    try:
        return _export(services, run, newest, now)
    except Exception as error:
        if isinstance(error, NotFound) and _file_system_is_gone(services, run.run_id):
            return _exported(None, f"the file system is gone: {error}")
        if now >= run.hard_deadline_at:
            return _exported(None, f"the hard deadline has passed: {told(error)}")
        return _try_again(services, run, newest, told(error))


def _export(services: Services, run: Run, newest: Checkpoint, now: float) -> Answer:
    assert run.placement is not None
    late = now >= run.hard_deadline_at
    export = _present_export(run, newest, now)
    if export.operation is None:
        if late:
            return _exported(None, f"the hard deadline has passed; {export.problem}")
        export.tries += 1  # stored first: a try that is refused counts too
        _store(services, run, export)
        folder = f"/runs/{run.run_id}/checkpoints/{run.plan.layout.folder(newest.step)}"
        export.operation = services.lustre.export(
            run.placement.zone, run.run_id, folder, export.uri
        )
        _store(services, run, export)
    transfer = services.lustre.transfer(export.operation)
    if not transfer.done:
        if late:
            return _exported(None, "the hard deadline has passed while it was being copied")
        return _not_yet(f"{transfer.bytes} bytes copied")
    problem = transfer.problem or _missing(services, run.plan.layout, export)
    if problem:
        return _try_again(services, run, newest, problem)
    export.verified_at = services.now()
    export.problem = ""
    _store(services, run, export)
    return _exported(export.step, "")


def _whole_folder(services: Services, run: Run, now: float) -> Answer:
    """Nobody can say what is on the disk: copy all of the run's checkpoints. What arrived whole
    counts, told of or not; a repeated copy skips what is there.
    """
    assert run.placement is not None
    safe = run.safe_export.step if run.safe_export is not None else None
    if run.attempt <= run.placement.attempts_before:
        return _exported(safe, "nothing was trained on this file system")
    if safe is not None and safe >= run.goal:
        return _exported(safe, "")
    late = now >= run.hard_deadline_at
    sweep = run.whole_export
    if sweep is None or (sweep.verified_at is not None and _trained_since(run, sweep.started_at)):
        sweep = Export(step=0, uri=run.plan.export_to, started_at=now)
    if sweep.verified_at is not None:
        return _exported(safe, sweep.problem)
    try:
        if sweep.operation is None and not late:
            sweep.tries += 1
            _store_whole(services, run, sweep)
            folder = f"/runs/{run.run_id}/checkpoints"
            sweep.operation = services.lustre.export(
                run.placement.zone, run.run_id, folder, sweep.uri
            )
            _store_whole(services, run, sweep)
        if sweep.operation is None:
            return _exported(safe, f"the hard deadline has passed; {sweep.problem}")
        transfer = services.lustre.transfer(sweep.operation)
        if not transfer.done:
            if late:
                return _exported(safe, "the hard deadline has passed while all was being copied")
            return _not_yet(f"{transfer.bytes} bytes of all checkpoints copied")
        if not transfer.problem:
            return _take_what_arrived(services, run, sweep)
        problem = transfer.problem
    except Exception as error:
        if isinstance(error, NotFound) and _file_system_is_gone(services, run.run_id):
            return _exported(safe, f"the file system is gone: {error}")
        problem = told(error)
    sweep.operation, sweep.problem = None, shorten(problem)
    _store_whole(services, run, sweep)
    # Without a step that anybody told of, the folder may not even be there.
    awaited = run.plan.export_required and run.checkpoint is not None and safe is None
    if late or (not awaited and sweep.tries >= EXPORT_TRIES):
        return _exported(safe, f"given up after {sweep.tries} tries: {problem}")
    return _not_yet(problem)


def _trained_since(run: Run, moment: float) -> bool:
    """Say whether the accelerators were released only after a moment (epoch s): what was copied
    then may not be the newest.
    """
    return any(
        one.resource == "accelerators" and one.until is not None and one.until > moment
        for one in run.usage
    )


def _take_what_arrived(services: Services, run: Run, sweep: Export) -> Answer:
    """Find the newest complete step at the destination and note it as this run's."""
    safe = run.safe_export
    newest = _newest_arrived(services, run.plan.layout, sweep.uri)
    now = sweep.verified_at = services.now()
    sweep.problem = "" if newest is not None else "no complete checkpoint was in the folder"
    if newest is not None and (safe is None or safe.step < newest.step):
        uri = f"{sweep.uri}{run.plan.layout.folder(newest.step)}/"
        export = sweep.model_copy(
            update={"step": newest.step, "uri": uri, "bytes": newest.bytes, "files": newest.files}
        )
        export.verified_at = now
        _store(services, run, export)
    if newest is not None and (run.checkpoint is None or run.checkpoint.step != newest.step):
        _remember(services, run, newest)
    _store_whole(services, run, sweep)
    steps = [one.step for one in (newest, safe) if one is not None]
    return _exported(max(steps, default=None), sweep.problem)


def _newest_arrived(services: Services, layout: Layout, uri: str) -> StepFolder | None:
    """Judge the step folders below a bucket folder, from the highest down."""
    folders: dict[str, dict[str, int]] = {}
    for one in services.storage.list(uri):
        name, _, path = one.uri.removeprefix(uri).partition("/")
        if path and layout.step_of(name) is not None:
            folders.setdefault(name, {})[path] = one.size
    tracker = _text(services, f"{uri}{layout.tracker}") if layout.tracker else None
    for name in sorted(folders, key=lambda one: -(layout.step_of(one) or 0)):
        seen = judge(
            layout,
            name,
            folders[name],
            _text(services, f"{uri}{name}/{layout.proof}") if layout.proof else None,
            _text(services, f"{uri}{name}/{MANIFEST}"),
            tracker,
        )
        if seen is not None and seen.complete:
            return seen
    return None


def _present_export(run: Run, newest: Checkpoint, now: float) -> Export:
    """Return the export of this step that was begun, or a new one."""
    if run.export is not None and run.export.step == newest.step:
        return run.export.model_copy(update={"bytes": newest.bytes, "files": newest.files})
    return Export(
        step=newest.step,
        uri=f"{run.plan.export_to}{run.plan.layout.folder(newest.step)}/",
        started_at=now,
        bytes=newest.bytes,
        files=newest.files,
    )


def _missing(services: Services, layout: Layout, export: Export) -> str:
    """Compare the destination with the manifest: an operation's own status is not enough."""
    found = {
        one.uri.removeprefix(export.uri): one.size for one in services.storage.list(export.uri)
    }
    seen = StepFolder(export.step, export.files, export.bytes, None, complete=True)
    shortfall = export_shortfall(layout, seen, found, _text(services, export.uri + MANIFEST))
    return f"{export.uri}: {shortfall}" if shortfall else ""


def _text(services: Services, uri: str) -> str | None:
    try:
        return services.storage.read(uri).decode(errors="replace")
    except NotFound:
        return None


def _try_again(services: Services, run: Run, newest: Checkpoint, problem: str) -> Answer:
    """Note the problem; the next try begins a new operation, which skips what is copied."""
    export = _present_export(services.ledger.load(run.run_id), newest, services.now())
    export.problem = shorten(problem)
    export.operation = None
    _store(services, run, export)
    if not run.plan.export_required and export.tries >= EXPORT_TRIES:
        return _exported(None, f"given up after {export.tries} tries: {problem}")
    return _not_yet(problem)


def _file_system_is_gone(services: Services, run_id: str) -> bool:
    """Say whether the instance is seen to be gone: a 404 may also be a bucket's or an
    operation's.
    """
    try:
        found = services.lustre.list()
    except Exception:
        return False
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


def _store_whole(services: Services, run: Run, sweep: Export) -> None:
    def edit(current: Run) -> None:
        current.whole_export = sweep.model_copy()

    services.ledger.change(run.run_id, edit)


def _exported(step: int | None, why: str) -> Answer:
    return {"done": True, "verified": step, "why": why}


def _not_yet(why: str) -> Answer:
    return {"done": False, "verified": None, "why": why}
