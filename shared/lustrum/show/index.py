"""The page of all runs: how each ended, how long it took, what it cost, how much of it idled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lustrum import __version__
from lustrum.core import names
from lustrum.core.history import phases
from lustrum.core.record import Outcome, Run, State
from lustrum.core.settings import Settings
from lustrum.show.formatting import dollars, duration, moment
from lustrum.show.page import template
from lustrum.show.timeline import spent

TONES = {
    Outcome.SUCCEEDED: "good",
    Outcome.PARTIAL: "warn",
    Outcome.CANCELLED: "warn",
    Outcome.FAILED: "bad",
}


def idle_share(run: Run, now: float) -> float | None:
    """Return the part of the paid accelerator time in which nothing trained, 0 to 1; None when
    no accelerator was paid for.
    """
    paid = sum(
        (now if one.until is None else one.until) - one.since
        for one in run.usage
        if one.resource == "accelerators"
    )
    if paid <= 0:
        return None
    trained = sum(
        until - since for state, since, until in phases(run, now) if state is State.TRAINING
    )
    return min(max(1 - trained / paid, 0.0), 1.0)


def page_links(runs: Iterable[Run], settings: Settings) -> dict[str, str]:
    """Return run id -> address of its page, of the runs that have one."""
    bucket = settings.report_bucket
    return {
        run.run_id: settings.link(names.page_uri(bucket, run.run_id))
        for run in runs
        if bucket and run.state is not State.REJECTED
    }


def render_index(
    runs: Sequence[Run],
    now: float,
    links: Mapping[str, str],
    unreadable: Mapping[str, str] | None = None,
) -> str:
    """Return the page of these runs, newest first.

    Args:
        runs: the records.
        now: epoch seconds.
        links: run id -> address of its page; a run without one is not linked.
        unreadable: run id -> why its record cannot be read.
    """
    rows, together = [], 0.0
    for run in sorted(runs, key=lambda one: -one.created_at):
        end = run.closed_at or now
        idle, cost = idle_share(run, end), spent(run, end)
        together += cost
        rows.append(
            {
                "run_id": run.run_id,
                "link": links.get(run.run_id, ""),
                "name": run.plan.name,
                "badge": run.outcome or run.state,
                "tone": TONES[run.outcome] if run.outcome else "calm",
                "why": run.reason,
                "began": moment(run.created_at),
                "lasted": duration(end - run.created_at),
                "cost": dollars(cost),
                "idle": "-" if idle is None else f"{idle:.0%}",
                "step": f"{run.checkpoint.step if run.checkpoint else 0}/{run.plan.max_num_steps}",
            }
        )
    alive = sum(not run.is_over for run in runs)
    return template("index.html").render(
        rows=rows,
        alive=alive,
        total=dollars(together),
        unreadable=dict(unreadable or {}),
        version=__version__,
        at=moment(now),
    )
