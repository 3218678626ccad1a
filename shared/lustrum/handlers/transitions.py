"""`advance_run`: every transition of a run, for the two workflows. Each is a compare-and-set.

A workflow asks `step`; the answer says ``go`` (carry on) or ``stop`` (why it must end).
Failures come here to be classified, so that the policy is in one table and not in YAML.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lustrum.core import names
from lustrum.core.record import Refused, check_live, check_owned
from lustrum.handlers.life import claim, enter, failed, hand_over, leave_zone, place
from lustrum.handlers.teardown_claims import claim_teardown, destroy, note
from lustrum.handlers.transition_calls import BuildStatus, read_transition
from lustrum.wiring.http import Answer
from lustrum.wiring.services import Services


def advance_run(services: Services, call: Mapping[str, Any]) -> Answer:
    """Do one transition.

    Args:
        call: ``run_id``, ``execution`` (full name), ``step``, and what the step needs.

    Raises:
        ServiceError: CONFIG for a call of the wrong shape; otherwise what the services raise.
    """
    asked = read_transition(dict(call))
    try:
        return {"go": True, **_STEPS[asked.step](services, asked)}
    except Refused as refused:
        return {"go": False, "stop": refused.stop, "why": str(refused)}


def build_status(services: Services, call: BuildStatus) -> Answer:
    """Say how a build of the present zone attempt is: none, live, done or failed."""
    run = services.ledger.load(call.run_id)
    if call.action == "deploy":
        check_live(run, call.execution, services.now())
    else:
        check_owned(run, call.execution)
    if run.placement is None:
        return {"status": "none"}
    tag = names.build_tag(run.run_id, call.action, run.placement.zone_attempt)
    builds = [build for build in services.builds.tagged(tag) if not build.is_duplicate]
    builds = [build for build in builds if build.is_live or build.created_at >= call.since]
    if any(build.is_live for build in builds):
        return {"status": "live"}
    if not builds:
        return {"status": "none"}
    newest = builds[0]
    return {
        "status": "done" if newest.status == "SUCCESS" else "failed",
        "why": str(newest.output.get("message") or newest.detail),
    }


# Any: the discriminator of `read_transition` pairs each step with its own model.
_STEPS: dict[str, Callable[[Services, Any], Answer]] = {
    "claim": claim,
    "place": place,
    "enter": enter,
    "failed": failed,
    "hand_over": hand_over,
    "leave_zone": leave_zone,
    "build": build_status,
    "claim_teardown": claim_teardown,
    "teardown": note,
    "destroy": destroy,
}
