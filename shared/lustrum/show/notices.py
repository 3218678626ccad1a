"""What people are told of a run, in words: the news in its record, and a line for each kind. Pure.

Every notification has a ``text`` that chat and e-mail relays show as it is, and beside it the same
as fields: the page, what it costs an hour now, the command to act, whether a person is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lustrum.core.money import hourly
from lustrum.core.plain_text import shorten
from lustrum.core.record import TEARDOWN, Run, State
from lustrum.show.formatting import dollars, size

AT_MOST_EVERY = 900.0  # seconds: of what may repeat, one of a kind and run in so long
FRESH = 7200.0  # seconds after which news are none
_PERSON = frozenset({"run.remains", "stranger"})  # nothing automatic ends these


@dataclass(frozen=True)
class News:
    """One thing to tell of a run, once under its ``mark``."""

    kind: str
    mark: str
    at: float
    says: str


def news(run: Run, now: float) -> list[News]:
    """Return what of a run's record people should know, oldest first: GPUs up, degraded,
    recovered, saved and safe.
    """
    found = [*_trainings(run), *_mishaps(run)]
    safe = run.safe_export
    if safe is not None and safe.verified_at is not None:
        says = f"step {safe.step} is saved and safe: {size(safe.bytes)} in {safe.uri}"
        found.append(News("run.safe", f"safe-{safe.step}", safe.verified_at, says))
    fresh = {one.mark: one for one in reversed(found) if now - one.at < FRESH}
    return sorted(fresh.values(), key=lambda one: one.at)


def _trainings(run: Run) -> list[News]:
    found = []
    for before, one in zip(run.history, run.history[1:], strict=False):
        if one.state is not State.TRAINING or before.state is State.TRAINING:
            continue
        if before.state is State.RECOVERING:
            mark = f"recovered-{one.at // AT_MOST_EVERY:.0f}"
            says = f"it trains again, attempt {run.attempt} of at most {run.plan.attempts}"
            found.append(News("run.recovered", mark, one.at, says))
        else:
            plan = run.plan
            gpus = f"{plan.nodes} x {plan.gpus_per_node} {plan.accelerator}"
            zone = f" in {run.placement.zone}" if run.placement is not None else ""
            says = f"the GPUs are up, {gpus}{zone}, and the training begins"
            found.append(News("run.gpus_up", f"gpus-up-{one.at:.0f}", one.at, says))
    return found


def _mishaps(run: Run) -> list[News]:
    return [
        News(
            "run.degraded",
            f"degraded-{one.at // AT_MOST_EVERY:.0f}",
            one.at,
            f"degraded, {one.failure.value} in {one.state}: {one.sentence}",
        )
        for one in run.mishaps
        if one.state not in TEARDOWN
    ]


def notice(
    message: Mapping[str, Any], run: Run | None = None, page: str = "", says: str = ""
) -> dict[str, Any]:
    """Return a notification with what relays and readers need beside its own fields.

    Args:
        message: its ``kind``, ``run_id`` and own fields; they are kept.
        run: the record, for name, price and command.
        page: address of the run's page.
        says: what happened; default: a line of the kind.
    """
    kind = str(message.get("kind", ""))
    says = says or _line(kind, message)
    person = (
        kind in _PERSON
        or message.get("action") == "page"
        or (kind == "run.closed" and message.get("outcome") == "FAILED")
    )
    rate = 0.0 if run is None else hourly(run)
    command = _command(kind, message, run)
    name = f" ({run.plan.name})" if run is not None else ""
    who = f"{message['run_id']}{name}: " if message.get("run_id") else ""
    parts = [f"{'A person is needed. ' if person else ''}{who}{says}."]
    if run is not None:
        parts.append(f"Costs {dollars(rate)}/h now.")
    if command:
        parts.append(f"To act: {command}")
    if page:
        parts.append(f"Page: {page}")
    return {
        **message,
        "text": _quiet(" ".join(parts)),
        "page": page,
        "usd_per_hour": round(rate, 2),
        "command": command,
        "needs_person": person,
    }


def _line(kind: str, message: Mapping[str, Any]) -> str:
    """Return what happened, of the kinds that come with fields alone."""
    said = {key: shorten(str(value), 200) for key, value in message.items()}
    lines = {
        "run.requested": "started, at most ${worst_cost_usd}",
        "run.cancelling": "it is being cancelled",
        "run.extended": "it was given more hours",
        "run.skipped": "not started: {reason}",
        "run.alert": "alert {policy}: {summary}",
        "run.gpus_idle": "its GPUs have been idle for {idle_seconds} s at step {step}",
        "run.revived": "its workflow had died and was started again in {state}",
        "run.remains": "it left behind what still costs money",
        "run.closed": "finished, {outcome}: {reason}; ${cost_usd_estimate} together",
        "request.rejected": "a request was refused, {field}: {reason}",
        "event.rejected": "an event was refused, {field}: {reason}",
        "stranger": "not of any run, and it costs money: {thing}",
        "alert": "alert {policy}: {summary}",
    }
    try:
        return lines[kind].format_map(said)
    except (KeyError, ValueError):
        return kind or "a notification"


def _command(kind: str, message: Mapping[str, Any], run: Run | None) -> str:
    things = message.get("things")
    if kind == "run.remains" and things:
        return " && ".join(str(one["command"]) for one in things)
    if run is None:
        return ""
    if run.is_over:
        return f"lustrum report {run.run_id} --open"
    return f"lustrum cancel {run.run_id}"


def _quiet(text: str) -> str:
    """Return a text that no chat takes for a mention or a link with another name: those are
    written in angle brackets.
    """
    return " ".join(text.replace("<", "(").replace(">", ")").split())
