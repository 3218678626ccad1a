"""What the screens show, as JSON objects for machines: documented in docs/commands.md. Pure.

Times are epoch seconds, money is US dollars.
"""

from __future__ import annotations

import json
from typing import Any

from lustrum.core.history import phases
from lustrum.core.money import account, recipe_order
from lustrum.core.record import Run
from lustrum.show.next_steps import next_steps
from lustrum.show.timeline import spent
from lustrum.show.waiting import waiting


def line_of(run: Run, now: float) -> dict[str, Any]:
    """Return a run in one line, as `watch --json` prints it at each change."""
    waits = waiting(run)
    return {
        "run_id": run.run_id,
        "state": run.state,
        "outcome": run.outcome,
        "failure": run.failure,
        "reason": run.reason,
        "attempt": run.attempt,
        "zone": run.zones_tried[-1] if run.zones_tried else None,
        "step": run.progress.step,
        "max_steps": run.plan.max_num_steps,
        "reward": run.progress.reward,
        "loss": run.progress.loss,
        "saved_step": run.checkpoint.step if run.checkpoint else None,
        "exported": run.safe_export.uri if run.safe_export else None,
        "mishaps": len(run.mishaps),
        "waits_for": None if waits is None else waits.what,
        "report_uri": run.report_uri,
        "at": now,
        "spent_usd": round(spent(run, now), 2),
    }


def screen_of(run: Run, now: float) -> dict[str, Any]:
    """Return a run's record with what `show` reckons of it."""
    waits = waiting(run)
    return {
        **json.loads(run.public_json()),
        "spent_usd": round(spent(run, now), 2),
        "waits_for": None if waits is None else waits.sentence(now),
        "next_steps": next_steps(run),
    }


def report_of(run: Run, now: float) -> dict[str, Any]:
    """Return a run's record with what its report reckons: phases, the bill in parts that sum to
    the whole, what the order of the original recipe would have idled.
    """
    found = account(run, now)
    recipe = recipe_order(run, now)
    return {
        **screen_of(run, now),
        "phases": [
            {"state": state, "since": since, "until": until}
            for state, since, until in phases(run, run.closed_at or now)
        ],
        "bill": {
            "total_usd": found.dollars,
            "resources_usd": {name: cents / 100 for name, cents in found.resources.items()},
            "accelerators": {
                part: {"usd": cents / 100, "node_seconds": found.seconds[part]}
                for part, cents in found.parts.items()
            },
            "idle_share": found.idle_share,
            "usd_per_hour": 0.0 if run.is_over else found.hourly,
            "export_usd_per_month": found.kept_month,
            "prices_dated": found.dated,
        },
        "original_recipe": None
        if recipe is None
        else {"idle_node_seconds": recipe.idle_seconds, "idle_usd": recipe.idle_dollars},
    }
