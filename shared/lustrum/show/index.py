"""The page of all runs: how each ended, how long it took, what it cost, how much of it idled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lustrum import __version__
from lustrum.core import names
from lustrum.core.money import account
from lustrum.core.record import Outcome, Run, State
from lustrum.core.settings import Settings
from lustrum.show.costs import exact
from lustrum.show.formatting import duration, moment
from lustrum.show.page import template

TONES = {
    Outcome.SUCCEEDED: "good",
    Outcome.PARTIAL: "warn",
    Outcome.CANCELLED: "warn",
    Outcome.FAILED: "bad",
}


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
    rows, together = [], 0
    for run in sorted(runs, key=lambda one: -one.created_at):
        end = run.closed_at or now
        money = account(run, end)
        idle = money.idle_share
        together += money.total
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
                "cost": exact(money.total),
                "idle": "-" if idle is None else f"{idle:.0%}",
                "step": f"{run.checkpoint.step if run.checkpoint else 0}/{run.plan.max_num_steps}",
            }
        )
    alive = sum(not run.is_over for run in runs)
    return template("index.html").render(
        rows=rows,
        alive=alive,
        total=exact(together),
        unreadable=dict(unreadable or {}),
        version=__version__,
        at=moment(now),
    )
