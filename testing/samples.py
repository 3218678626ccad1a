"""Records that the tests of the core begin with."""

from __future__ import annotations

from typing import Any

from lustrum.core.plan import make_plan
from lustrum.core.record import Moment, Run, State
from lustrum.core.record_parts import Checkpoint, Job, Placement
from lustrum.core.request import StartRequest
from lustrum.core.run_plan import RunPlan

RUN_ID = "rl-0123456789"
NOW = 1_767_225_600.0


def plan(**request: Any) -> RunPlan:
    """Return a plan."""
    return make_plan(StartRequest.model_validate(request), RUN_ID, "bucket")


def run(state: State = State.TRAINING, **fields: Any) -> Run:
    """Return a run in its first attempt, an hour old."""
    request = StartRequest()
    made = make_plan(request, RUN_ID, "bucket")
    base: dict[str, Any] = {
        "run_id": RUN_ID,
        "key": "message:1",
        "request": request,
        "plan": made,
        "state": state,
        "created_at": NOW - 3600,
        "deadline_at": NOW + 5 * 3600,
        "hard_deadline_at": NOW + 6 * 3600,
        "execution": "life",
        "attempt": 1,
        "history": [Moment(state=state, at=NOW - 900)],
        "placement": Placement(zone_attempt=1, zone="us-east1-b", slot="a", since=NOW - 3000),
        "job": Job(submission_id=f"{RUN_ID}-a1", attempt=1, submitted_at=NOW - 900),
    }
    return Run(**{**base, **fields})


def saved(step: int, at: float = NOW - 60) -> Checkpoint:
    """Return a checkpoint."""
    return Checkpoint(step=step, bytes=1000, files=4, at=at)
