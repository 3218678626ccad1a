"""What a run costs, in words: what its accelerators did for the money, and the order of the
original recipe beside it. Pure.
"""

from __future__ import annotations

from lustrum.core.money import (
    PARTS,
    WAITING,
    Account,
    RecipeOrder,
    account,
    minute_of_waiting,
    recipe_order,
    saves_cost,
)
from lustrum.core.record import Run
from lustrum.core.reserve import planned_rate
from lustrum.core.run_plan import RunPlan
from lustrum.show.formatting import dollars, duration

Row = tuple[str, str, str, int]


def exact(cents: int) -> str:
    """Return an amount in whole cents as people read it."""
    return dollars(cents / 100)


def split_line(run: Run, now: float) -> str:
    """Return what the accelerators did so far on one line, "" while none were up."""
    found = account(run, now)
    if not sum(found.seconds.values()):
        return ""
    return (
        f"training {exact(found.parts['training'])}, saving {exact(found.parts['saving'])}, "
        f"waiting for us {exact(found.waiting)}"
    )


def hourly_line(run: Run, now: float) -> str:
    """Return what is up costs an hour, "" when nothing is."""
    rate = account(run, now).hourly
    return f"{dollars(rate)}/h" if rate and not run.is_over else ""


def split_rows(found: Account) -> list[Row]:
    """Return (what the accelerators did, time of all of them together, cost, percent), none when
    none were up.
    """
    whole = sum(found.seconds.values())
    if not whole:
        return []
    return [
        (
            _label(part),
            duration(found.seconds[part]),
            exact(found.parts[part]),
            round(100 * found.seconds[part] / whole),
        )
        for part in PARTS
    ]


def cost_sentences(run: Run, now: float, found: Account) -> list[str]:
    """Return what stands under the table of costs."""
    recipe: RecipeOrder | None = recipe_order(run, now)
    told = []
    if recipe is not None:
        told.append(recipe.sentence[:1].upper() + recipe.sentence[1:] + ".")
    if found.kept_month:
        told.append(f"The export costs {dollars(found.kept_month)} a month as long as it is kept.")
    return told


def planned_costs(plan: RunPlan) -> list[str]:
    """Return what the accelerators of a plan cost while they train, save and wait."""
    minute = minute_of_waiting(plan)
    if not minute:
        return []
    told = [f"accelerators {dollars(minute * 60)}/h training; a minute waiting {dollars(minute)}"]
    if plan.checkpoint_gib:
        count, each, cost = saves_cost(plan, planned_rate(plan))
        told.append(
            f"saving: {count} saves of about {duration(each)} at {planned_rate(plan) / 1e9:.1f} "
            f"GB/s, {dollars(cost)} of accelerators in all"
        )
    return told


def _label(part: str) -> str:
    return f"waiting for us, {part}" if part in WAITING else part
