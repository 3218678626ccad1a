"""Monitoring incidents from the Pub/Sub notification channel, and what each asks for. Pure.

Shape: version 1.2 of the notification. Values arrive as strings, labels may be null, the
console's test button sends ``version: test``; an unknown state is logged and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from lustrum.core import names
from lustrum.core.errors import MalformedEvent
from lustrum.core.plain_text import plain

ACTION_LABEL = "lustrum-action"  # user label of an alert policy; policies outlive runs


class AlertAction(StrEnum):
    """What an alert policy's label may ask for."""

    NOTIFY = "notify"
    PRUNE = "prune"  # remove old steps, never the newest complete one
    STOP = "stop"  # after the current save: export, destroy
    CHECK = "check"  # look at the run now
    PAGE = "page"  # people must look; nothing automatic helps


class Incident(BaseModel):
    """One incident's message. ``state`` is open, closed, test or unknown; ``at`` epoch seconds."""

    incident_id: str
    state: str
    run_id: str | None
    action: AlertAction
    policy: str
    summary: str
    observed: float | None
    at: float | None

    @property
    def run(self) -> str | None:
        """The run it speaks of: the Lustre instance's or the cluster's name."""
        return self.run_id

    @property
    def event_id(self) -> str:
        """At-least-once delivery: one incident acts once per state."""
        return f"alert-{self.incident_id}-{self.state}"


def read_incident(found: Mapping[str, Any]) -> Incident:
    """Read one notification.

    Raises:
        MalformedEvent: there is no incident in it, or it has no id.
    """
    body = found.get("incident")
    if not isinstance(body, Mapping):
        raise MalformedEvent("incident", "must be an object", repr(found).encode()[:500])
    identity = body.get("incident_id")
    if not isinstance(identity, str) or not identity:
        raise MalformedEvent("incident.incident_id", "must be text", repr(found).encode()[:500])
    return Incident(
        incident_id=_text(identity)[:200],
        state=_state(found, body),
        run_id=_run(body),
        action=_action(body),
        policy=_text(body.get("policy_name") or "")[:200],
        summary=_text(body.get("summary") or "")[:500],
        observed=_number(body.get("observed_value")),
        at=_number(body.get("ended_at")) or _number(body.get("started_at")),
    )


def _state(found: Mapping[str, Any], body: Mapping[str, Any]) -> str:
    if found.get("version") == "test" or body.get("started_at") == 0:
        return "test"
    state = body.get("state")
    return state if state in ("open", "closed") else "unknown"


def _action(body: Mapping[str, Any]) -> AlertAction:
    wanted = _map(body.get("policy_user_labels")).get(ACTION_LABEL)
    try:
        return AlertAction(str(wanted))
    except ValueError:
        return AlertAction.NOTIFY


def _run(body: Mapping[str, Any]) -> str | None:
    resource = _map(_map(body.get("resource")).get("labels"))
    metric = _map(_map(body.get("metric")).get("labels"))
    candidates = [
        resource.get("instance_id"),
        resource.get("cluster_name"),
        metric.get(names.LABEL_RUN.replace("-", "_")),
        _map(body.get("policy_user_labels")).get(names.LABEL_RUN),
    ]
    # instance_id may arrive as the full resource name
    short = (str(item).rsplit("/", 1)[-1] for item in candidates if item)
    return next((item for item in short if names.is_run_id(item)), None)


def _text(value: object) -> str:
    """Return a value as text that UTF-8 can hold (JSON may carry half a surrogate pair)."""
    return plain(str(value)).encode(errors="replace").decode()


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None
