"""The page of a living run: where it is, what it waits for, what it costs, what comes next.

Rewritten at each transition and poll, so it is drawn without matplotlib; the report takes its
place when the run is closed. One self-contained HTML page as the report is; it asks its browser
to load it again, by an address of its own, only while the run lives.
"""

from __future__ import annotations

from collections.abc import Sequence

from lustrum import __version__
from lustrum.core.eta import seconds_left, step_seconds
from lustrum.core.failures import TABLE
from lustrum.core.history import phases
from lustrum.core.money import Account, account
from lustrum.core.record import Run
from lustrum.show.costs import split_rows
from lustrum.show.curve import Curve, curve
from lustrum.show.formatting import clock, dollars, duration, moment, size
from lustrum.show.gpus import gpu_line
from lustrum.show.page import template
from lustrum.show.waiting import waiting

REFRESH = 60  # seconds between two loads by the browser
MISHAPS_SHOWN = 10


def render_live(
    run: Run,
    now: float,
    *,
    said: str = "",
    address: str = "",
    index: str = "",
    more: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the page of a run that is not over.

    Args:
        run: the record.
        now: epoch seconds.
        said: what the last poll answered, in words; hostile text stays text.
        address: where the page can be loaded again; "": it is not loaded again.
        index: address of the page of all runs; "": no link.
        more: further sections, (title, safe SVG markup): curves that others draw.
    """
    waits, money = waiting(run), account(run, now)
    return template("live.html").render(
        run=run,
        plan=run.plan,
        version=__version__,
        refresh=REFRESH if address and not run.is_over else None,
        address=address,
        index=index,
        waits=waits,
        waited=waits and waits.how_long(now),
        said="" if run.reason else said,
        facts=_facts(run, now, money),
        curves=learning_curves(run),
        gpus=gpu_line(run),
        save=_last_save(run),
        share=_share(money.dollars, run.plan.cost_limit),
        split=split_rows(money),
        more=more,
        phases=[
            (state.value.replace("_", " ").lower(), duration(until - since), clock(since))
            for state, since, until in phases(run, now)
        ],
        mishaps=[
            (moment(one.at), one.failure.value, one.sentence, TABLE[one.failure].advice)
            for one in run.mishaps[-MISHAPS_SHOWN:]
        ][::-1],
        problems=run.teardown.problems if run.teardown else [],
        at=moment(now),
    )


def learning_curves(run: Run) -> list[Curve]:
    """Return the reward by step, and the loss where the training tells one (sft, dpo)."""
    saved = [one.step for one in run.saves]
    found = []
    for name in ("reward", "loss"):
        by_attempt: dict[int, list[tuple[int, float]]] = {}
        for one in sorted(run.series, key=lambda one: (one.attempt, one.step)):
            value = getattr(one, name)
            if value is not None:
                by_attempt.setdefault(one.attempt, []).append((one.step, value))
        drawn = curve(name, list(by_attempt.items()), saved, run.plan.max_num_steps)
        if drawn is not None:
            found.append(drawn)
    return found


def _facts(run: Run, now: float, money: Account) -> list[tuple[str, str, str]]:
    left, pace = seconds_left(run, now), step_seconds(run)
    until = run.deadline_at - now
    return [
        ("step", f"{run.progress.step}", f"of {run.plan.max_num_steps}"),
        (
            "training done in",
            "-" if left is None else duration(left),
            f"at {duration(pace)} a step" if left is not None and pace else "no pace known yet",
        ),
        ("cost, estimate", dollars(money.dollars), f"limit {dollars(run.plan.cost_limit)}"),
        ("costs now", f"{dollars(money.hourly)}/h", "of what is up"),
        (
            "age",
            duration(now - run.created_at),
            f"deadline in {duration(until)}" if until > 0 else "past its deadline",
        ),
        ("attempt", f"{run.attempt}", f"limit {run.plan.attempts}"),
    ]


def _last_save(run: Run) -> str:
    save = run.checkpoint
    if save is None:
        return "nothing is saved yet"
    safe = run.safe_export
    where = "on Lustre alone" if safe is None or safe.step < save.step else f"safe in {safe.uri}"
    return f"step {save.step}, {size(save.bytes)}, at {moment(save.at)}: {where}"


def _share(part: float, whole: float) -> int:
    return round(min(1.0, part / whole) * 100) if whole else 0
