"""What `advance_run` may be asked: one model per step, as workflows/*.yaml send them.

Fields a step does not know are ignored: an execution that began before an upgrade goes on with
its own revision of the workflow.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from lustrum.core.errors import ServiceError
from lustrum.core.failures import Failure
from lustrum.core.record import State


class Transition(BaseModel):
    """A call of a workflow.

    Attributes:
        run_id: the run.
        execution: full name of the calling execution.
    """

    run_id: str
    execution: str


class Claim(Transition):
    """rl_run takes the run; `callback_url` ends a wait of its execution early."""

    step: Literal["claim"]
    callback_url: str | None = None


class Place(Transition):
    """Lease a network slot in the next zone."""

    step: Literal["place"]


class Enter(Transition):
    """Go to a state of a living run."""

    step: Literal["enter"]
    state: State


class Failed(Transition):
    """Classify what went wrong: a class, an error's sentence, or the failed deploy build."""

    step: Literal["failed"]
    failure: str | None = None
    why: str | None = None
    build: bool = False


class HandOver(Transition):
    """Note why the run ends, and ensure its final teardown."""

    step: Literal["hand_over"]
    failure: str | None = None
    why: str | None = None


class LeaveZone(Transition):
    """Ensure a teardown that is not final."""

    step: Literal["leave_zone"]


class BuildStatus(Transition):
    """Ask how a build of the present zone attempt is; `since` in epoch seconds."""

    step: Literal["build"]
    action: Literal["deploy", "destroy"]
    since: float = Field(default=0.0, allow_inf_nan=False)


class ClaimTeardown(Transition):
    """A teardown takes the run."""

    step: Literal["claim_teardown"]
    final: bool = True


class Note(Transition):
    """A teardown enters a state, or notes a problem that it met `at` a place."""

    step: Literal["teardown"]
    state: State | None = None
    problem: Any = None
    at: str | None = None


class Destroy(Transition):
    """Ask for the substitutions of the destroy build."""

    step: Literal["destroy"]


TransitionCall = Annotated[
    Claim
    | Place
    | Enter
    | Failed
    | HandOver
    | LeaveZone
    | BuildStatus
    | ClaimTeardown
    | Note
    | Destroy,
    Field(discriminator="step"),
]
_CALL: TypeAdapter[TransitionCall] = TypeAdapter(TransitionCall)


def read_transition(call: object) -> TransitionCall:
    """Return the call as its step's model.

    Raises:
        ServiceError: CONFIG, naming every field that is wrong and what is accepted.
    """
    try:
        return _CALL.validate_python(call)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(str(part) for part in fault['loc'][1:]) or 'step'}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_input=False)
        )
        raise ServiceError(Failure.CONFIG, faults) from None
