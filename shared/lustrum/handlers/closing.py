"""The end of a run: report, record, one notification."""

from __future__ import annotations

from typing import Any

from lustrum import __version__
from lustrum.core import money, names
from lustrum.core.errors import ServiceError
from lustrum.core.failures import Failure, classify_text
from lustrum.core.plain_text import shorten
from lustrum.core.record import Outcome, Run, State, advance, conclude, final_outcome
from lustrum.core.record_parts import Checkpoint
from lustrum.core.usage import end_usage
from lustrum.handlers.inventory import look_around
from lustrum.handlers.once import once
from lustrum.handlers.pages import close_page
from lustrum.handlers.telling import publish
from lustrum.wiring.http import Answer
from lustrum.wiring.services import Services


def close(services: Services, run: Run) -> Answer:
    """Close a run whose inventory is empty, once; the report and the notification never stop it.

    Raises:
        ServiceError: INFRA_TRANSIENT, something is still there.
    """
    found = look_around(services, run.run_id)
    if not found.is_empty:
        raise ServiceError(
            Failure.INFRA_TRANSIENT,
            f"{run.run_id} is not empty: {', '.join([*found.left, *found.unknown])}",
            retryable=True,
        )
    now = services.now()

    def edit(one: Run) -> bool:
        if one.is_over:
            return False
        end_usage(one, now)
        if one.cancel is not None:
            conclude(one, Failure.CANCELLED, "cancelled on request")
        one.outcome = final_outcome(one)
        _explain(one)
        advance(one, State.CLOSED, now, one.reason)
        one.closed_at = now
        return True

    services.ledger.change(run.run_id, edit)
    return finish(services, services.ledger.load(run.run_id))


def finish(services: Services, run: Run) -> Answer:
    """Do what follows once a run is CLOSED: slot, report, one notification. Safe to repeat."""
    services.ledger.release_slot(run.run_id)
    problem = _write_report(services, run) if run.report_uri is None else None
    run = services.ledger.load(run.run_id)
    close_page(services, run)
    now = services.now()
    once(
        services,
        f"{run.run_id}-closed",
        lambda: publish(services, {**summary(run, now), "report_problem": problem}, run),
    )
    return {"closed": True, "outcome": run.outcome, "report": run.report_uri}


def reopen(services: Services, run: Run) -> Answer:
    """Give the slot back and the run to rl_run, for its next zone."""
    services.ledger.release_slot(run.run_id)
    now = services.now()

    def edit(one: Run) -> None:
        end_usage(one, now)
        one.teardown = None
        one.placement = None
        one.job = None
        # The next zone has a file system of its own.
        one.full_since = one.full_by = one.filling_since = one.whole_export = None
        safe = one.safe_export  # what was not exported is gone with this one's
        if safe is None:
            one.checkpoint = None
        elif one.checkpoint is None or one.checkpoint.step != safe.step:
            one.checkpoint = Checkpoint(
                step=safe.step, bytes=safe.bytes, files=safe.files, at=safe.started_at
            )

    services.ledger.change(run.run_id, edit)
    return {"closed": False, "outcome": None}


def summary(run: Run, now: float) -> dict[str, Any]:
    """Return the notification of a closed run."""
    spent = money.account(run, now)
    recipe = money.recipe_order(run, now)
    return {
        "kind": "run.closed",
        "run_id": run.run_id,
        "lustrum_version": __version__,
        "name": run.request.name,
        "outcome": run.outcome,
        "failure": run.failure,
        "reason": run.reason,
        "step": run.checkpoint.step if run.checkpoint else 0,
        "max_steps": run.plan.max_num_steps,
        "attempts": run.attempt,
        "exported": run.safe_export.uri if run.safe_export else None,
        "cost_usd_estimate": spent.dollars,
        "costs_usd": {name: cents / 100 for name, cents in spent.resources.items()},
        "accelerators_usd": {name: cents / 100 for name, cents in spent.parts.items()},
        "original_order": recipe.sentence if recipe is not None else None,
        "prices_dated": run.plan.prices_dated,
        "report": run.report_uri,
        "problems": run.teardown.problems if run.teardown else [],
    }


def _explain(run: Run) -> None:
    """Bring failure and reason in line with the outcome: the inventory of what is safe decides."""
    if run.outcome is Outcome.SUCCEEDED:
        ended = ", where the data ended," if run.data_end is not None else ""
        run.failure, run.reason = None, f"{_sentence(run)}{ended} is saved"
    elif run.failure is None:
        # The training was fine, so it is the export that failed, or nothing ever said why.
        problem = run.export.problem if run.export is not None else ""
        run.failure = classify_text(problem)
        run.reason = shorten(
            f"{run.reason or _sentence(run)}; not exported: {problem or 'nothing was verified'}"
        )
    conclude(run, run.failure, _sentence(run))


def _sentence(run: Run) -> str:
    step = run.checkpoint.step if run.checkpoint else 0
    return f"step {step} of {run.plan.max_num_steps}"


def _write_report(services: Services, run: Run) -> str | None:
    from lustrum.show.report import render

    folder = names.report_folder(services.settings.report_bucket, run.run_id)
    uri, problem = folder + "report.html", None
    try:
        record = run.public_json(2).encode()
        services.storage.write(folder + "run.json", record, "application/json")
        try:
            page = render(run, services.ledger.events(run.run_id))
        except Exception as error:  # what cannot be drawn costs the drawing, not the report
            problem = shorten(f"{type(error).__name__}: {error}")
            page = _plain_page(run, problem)
        services.storage.write(uri, page.encode(errors="replace"), "text/html; charset=utf-8")
    except Exception as error:  # a report must never keep a run from closing
        return shorten(f"{type(error).__name__}: {error}")

    def edit(one: Run) -> None:
        one.report_uri = uri

    services.ledger.change(run.run_id, edit)
    return problem


def _plain_page(run: Run, problem: str) -> str:
    """Return a report without plots: how it ended and the whole record, as text."""
    from html import escape

    title = escape(f"{run.run_id} {run.outcome}: {run.reason}")
    record = escape(run.public_json(2))
    return (
        f'<!doctype html><meta charset="utf-8"><title>{title}</title><h1>{title}</h1>'
        f"<p>The report could not be drawn ({escape(problem)}). This is the record:</p>"
        f"<pre>{record}</pre>"
    )
