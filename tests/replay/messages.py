"""Messages that the replays send: a cancel, a Lustre alert, an event."""

from __future__ import annotations

from typing import Any

from lustrum.handlers import reactions as event_steps

from testing.life import Life
from testing.services import push


def cancel(life: Life, run_id: str) -> Any:
    return life.publish({"action": "cancel", "run_id": run_id}, "cancel-1")


def tell(life: Life, body: bytes) -> dict[str, Any]:
    return event_steps.handle_push(life.services, body)


def alert(run_id: str, action: str, state: str = "open", incident: str = "i1") -> bytes:
    body = {
        "version": "1.2",
        "incident": {
            "incident_id": incident,
            "state": state,
            "started_at": 1767226000,
            "ended_at": None if state == "open" else 1767227000,
            "policy_name": "Lustre is full",
            "policy_user_labels": {"lustrum-action": action},
            "resource": {"type": "lustre", "labels": {"instance_id": run_id}},
            "summary": "capacity",
            "observed_value": "0.96",
            "threshold_value": "0.95",
        },
    }
    return push(body)
