"""The run report: one self-contained HTML page. Pure; reads only the record and its events.

No script, no external resource, light and dark. All text is escaped by the template engine: names,
reasons and events come from messages and logs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from lustrum import __version__
from lustrum.core.failures import TABLE, Reaction
from lustrum.core.history import phases
from lustrum.core.money import account
from lustrum.core.plain_text import shorten
from lustrum.core.plan import worst_costs
from lustrum.core.record import TEARDOWN, Run, State
from lustrum.core.transport import told
from lustrum.show import plots
from lustrum.show.costs import cost_sentences, exact, split_rows
from lustrum.show.formatting import dollars, duration, moment, size
from lustrum.show.gpus import gpu_facts
from lustrum.show.index import TONES
from lustrum.show.page import template
from lustrum.show.timeline import spent

EVENTS_SHOWN = 40
SAVES_SHOWN = 100
_REACTIONS = {
    Reaction.RETRY: "tried again",
    Reaction.NEXT_ZONE: "next zone",
    Reaction.NEXT_REGION: "next region",
    Reaction.RESUME: "resume",
    Reaction.STOP: "stop",
}
Row = dict[str, Any]


def render(run: Run, events: Sequence[Mapping[str, Any]], now: float | None = None) -> str:
    """Return the report of a run as one HTML page.

    Args:
        run: the record; a run that is not over gives the report so far.
        events: its events, oldest first.
        now: epoch seconds, for a run that is not over; default its last sign of life.
    """
    at = run.closed_at or now or max((one.at for one in run.history), default=run.created_at)
    return template("report.html").render(
        run=run,
        version=__version__,
        plan=run.plan,
        tone=TONES[run.outcome] if run.outcome else "calm",
        badge=run.outcome or run.state,
        facts=_facts(run, at),
        timeline=_timeline(run, at),
        reward=_reward(run),
        saves_plot=_saves_plot(run),
        saves=_saves(run),
        export=_export(run),
        costs=_costs(run, at),
        gpus=gpu_facts(run, at),
        attempts=_attempts(run, at),
        mishaps=_mishaps(run),
        advice=_advice(run),
        problems=run.teardown.problems if run.teardown else [],
        zones=_zones(run),
        places=_places(run),
        request=json.dumps(run.request.model_dump(mode="json", exclude_unset=True), indent=2),
        choices=_choices(run),
        events=[_event(one) for one in events[-EVENTS_SHOWN:]][::-1],
        event_count=len(events),
        logs=run.log_uri,
        at=moment(at),
    )


def _advice(run: Run) -> str | None:
    """What the user can do, unless the sentence says it already."""
    advice = TABLE[run.failure].advice if run.failure else ""
    return advice if advice and advice not in run.reason else None


def _facts(run: Run, at: float) -> list[tuple[str, str, str]]:
    """The figures on top: name, value, what to set it beside."""
    plan = run.plan
    step = run.checkpoint.step if run.checkpoint else 0
    series = [one for one in run.series if one.reward is not None]
    facts = [
        ("saved step", f"{step}", f"of {plan.max_num_steps}"),
        ("lasted", duration(at - run.created_at), f"limit {plan.hours:g} h"),
        ("cost, estimate", dollars(spent(run, at)), f"worst case {dollars(plan.worst_cost)}"),
        ("attempts", f"{run.attempt}", f"limit {plan.attempts}"),
    ]
    if series:
        first, last = series[0], max(series, key=lambda one: (one.attempt, one.step))
        facts.append(("reward", f"{last.reward:.3f}", f"began at {first.reward:.3f}"))
    return facts


def _timeline(run: Run, at: float) -> str | None:
    found = phases(run, at)
    if not found or found[-1][2] - found[0][1] < 1:
        return None
    return plots.timeline(
        [(state.value, since, until, _phase_colour(state)) for state, since, until in found],
        [(one.at, one.failure.value) for one in run.mishaps],
    )


def _phase_colour(state: State) -> str:
    if state is State.TRAINING:
        return plots.GOOD
    if state is State.RECOVERING:
        return plots.WARN
    return plots.FAINT if state in TEARDOWN else plots.CALM


def _reward(run: Run) -> str | None:
    by_attempt: dict[int, list[tuple[int, float]]] = {}
    for one in sorted(run.series, key=lambda one: (one.attempt, one.step)):
        if one.reward is not None and isfinite(one.reward):
            by_attempt.setdefault(one.attempt, []).append((one.step, one.reward))
    if not by_attempt:
        return None
    saved = sorted(save.step for save in run.saves)
    return plots.reward(list(by_attempt.items()), saved, run.plan.max_num_steps)


def _saves_plot(run: Run) -> str | None:
    timed = [(one.step, one.seconds) for one in run.saves if one.seconds is not None]
    if len(timed) < 2:
        return None
    exported = run.safe_export.step if run.safe_export else None
    newest = sorted(timed)[-SAVES_SHOWN:]
    return plots.saves([(step, took, step == exported) for step, took in newest])


def _saves(run: Run) -> list[Row]:
    return [
        {
            "step": save.step,
            "at": moment(save.at),
            "size": size(save.bytes),
            "files": save.files,
            "seconds": "not measured" if save.seconds is None else duration(save.seconds),
            "rate": f"{size(save.bytes / save.seconds)}/s" if save.seconds else "",
            "exported": run.safe_export is not None and run.safe_export.step == save.step,
        }
        for save in sorted(run.saves, key=lambda one: one.step)[-SAVES_SHOWN:]
    ]


def _export(run: Run) -> Row | None:
    export = (
        run.safe_export or run.export
    )  # an older safe step counts more than a newer failed one
    if export is None:
        return None
    verified = export.verified_at
    return {
        "step": export.step,
        "uri": export.uri,
        "size": size(export.bytes),
        "files": export.files,
        "tries": export.tries,
        "verified": moment(verified) if verified else None,
        "took": duration(verified - export.started_at) if verified else None,
        "problem": run.export.problem if run.export is not None else "",
    }


def _costs(run: Run, at: float) -> Row:
    worst = worst_costs(run.plan, run.plan.hours)
    spent_on = account(run, at)
    actual = {name: cents / 100 for name, cents in spent_on.resources.items()}
    hours: dict[str, float] = {}
    for item in run.usage:
        end = at if item.until is None else item.until
        hours[item.resource] = hours.get(item.resource, 0) + max(0, end - item.since) / 3600
    rates = run.plan.rates()
    rows = [
        {
            "resource": name,
            "pieces": f"{rates[name][0]:g}" if name in rates else "",
            "rate": f"{dollars(rates[name][1])}/h" if name in rates else "",
            "hours": duration(hours[name] * 3600) if name in hours else "-",
            "cost": exact(spent_on.resources.get(name, 0))
            if name in rates or run.plan.extras is not None
            else "not counted",
            "worst": dollars(worst.get(name, 0)),
            "share": round(min(1.0, actual.get(name, 0) / worst[name]) * 100)
            if worst.get(name)
            else 0,
        }
        for name in dict.fromkeys([*worst, *actual])
    ]
    total = spent_on.dollars
    return {
        "rows": rows,
        "total": exact(spent_on.total),
        "split": split_rows(spent_on),
        "told": cost_sentences(run, at, spent_on),
        "hourly": spent_on.hourly if not run.is_over else 0.0,
        "worst": dollars(run.plan.worst_cost),
        "share": round(min(1.0, total / run.plan.worst_cost) * 100) if run.plan.worst_cost else 0,
        "limit": dollars(run.plan.cost_limit),
        "dated": run.plan.prices_dated,
    }


def _attempts(run: Run, at: float) -> list[Row]:
    """One row an attempt: what its points and its mishap tell."""
    trainings = [
        (since, until) for state, since, until in phases(run, at) if state is State.TRAINING
    ]
    rows = []
    for number in range(1, run.attempt + 1):
        steps = [one.step for one in run.series if one.attempt == number]
        ends = [one for one in run.mishaps if one.attempt == number and _ends_attempt(one.state)]
        last = number == run.attempt
        began, left = trainings[number - 1] if number <= len(trainings) else (None, None)
        until = ends[-1].at if ends else left
        if ends:
            ended = f"{ends[-1].failure.value}: {ends[-1].sentence}"
        elif last and run.outcome:
            ended = run.reason
        else:
            ended = "running" if last and not run.is_over else ""
        rows.append(
            {
                "number": number,
                "began": moment(began) if began else "",
                "steps": f"{min(steps)} to {max(steps)}" if steps else "none seen",
                "lasted": duration(until - began) if until and began and until > began else "",
                "ended": ended,
                "failed": bool(ends),
            }
        )
    return rows


def _ends_attempt(state: State) -> bool:
    return state in (State.TRAINING, State.RECOVERING)


def _mishaps(run: Run) -> list[Row]:
    return [
        {
            "at": moment(one.at),
            "failure": one.failure.value,
            "state": one.state.value,
            "zone": one.zone or "",
            "attempt": one.attempt or "",
            "sentence": one.sentence,
            "advice": TABLE[one.failure].advice,
            "reaction": _REACTIONS[TABLE[one.failure].reaction],
        }
        for one in run.mishaps
    ]


def _places(run: Run) -> list[Row]:
    """Each time a zone was entered: what the history noted, and what ended the stay."""
    entered = [one for one in run.history if one.state is State.PROVISIONING and one.note]
    rows = []
    for index, one in enumerate(entered):
        until = entered[index + 1].at if index + 1 < len(entered) else float("inf")
        why = [m for m in run.mishaps if one.at <= m.at < until and not _ends_attempt(m.state)]
        rows.append(
            {
                "number": index + 1,
                "at": moment(one.at),
                "where": one.note,
                "why": f"{why[-1].failure.value}: {why[-1].sentence}" if why else "",
            }
        )
    return rows


def _zones(run: Run) -> Row:
    unfit = run.unfit or {}
    left = [zone for zone in run.plan.zones if zone not in run.zones_tried and zone not in unfit]
    return {"left": left, "closed": run.regions_closed, "unfit": list(unfit.values())}


def _choices(run: Run) -> list[tuple[str, str]]:
    plan = run.plan
    return [
        ("profile", plan.profile),
        ("image", f"{plan.image} (Ray {plan.ray_version})"),
        ("model", plan.model),
        ("nodes", f"{plan.nodes} x {plan.gpus_per_node} {plan.accelerator} ({plan.machine})"),
        ("capacity", plan.capacity),
        ("zones", ", ".join(plan.zones)),
        ("network between nodes", told(plan.network, run.rdma_network, run.nccl_network)),
        ("Lustre", f"{plan.lustre_capacity_gib:,} GiB, {plan.lustre_throughput} MB/s per TiB"),
        ("steps", f"{plan.max_num_steps}, save every {plan.save_period}, keep {plan.keep}"),
        ("code", plan.code or "the image's own"),
        ("resumed from", plan.resume_from or "nothing"),
        ("export to", plan.export_to + ("" if plan.export_required else " (not required)")),
        ("deadline", moment(run.deadline_at)),
        ("hard deadline", moment(run.hard_deadline_at)),
        *((f"override {key}", json.dumps(value)) for key, value in plan.overrides.items()),
    ]


def _event(event: Mapping[str, Any]) -> Row:
    """One event on one line: its kind, and whatever else it says."""
    kind = event.get("type") or event.get("policy") or event.get("kind")
    if not kind:
        kind = f"build {event.get('action') or ''}".strip() if event.get("build_id") else "event"
    at = event.get("at")
    dull = ("type", "run_id", "event_id", "at", "kind", "policy")
    rest = {k: v for k, v in event.items() if k not in dull and v not in (None, "", [], {})}
    said = ", ".join(f"{key} {json.dumps(value)}" for key, value in rest.items())
    return {
        "at": _when(at),
        "kind": shorten(str(kind), 60),
        "said": shorten(said, 300),
    }


def _when(at: object) -> str:
    if isinstance(at, int | float):
        try:
            return moment(at)
        except (ValueError, OverflowError, OSError):
            return ""  # a clock that cannot be believed
    return shorten(str(at or ""), 40)
