"""`Run`: the record of one run, its states, and the transitions allowed between them. Pure values.

The record lives in the ledger; every change of it is a compare-and-set (`adapters.ledger`).
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, Field, ValidationError

from lustrum.core.cost import Usage
from lustrum.core.errors import UnreadableRecord
from lustrum.core.failures import Failure
from lustrum.core.gpu_use import GpuUse
from lustrum.core.plain_text import shorten
from lustrum.core.record_parts import (
    Cancel,
    Checkpoint,
    Export,
    Job,
    Placement,
    Progress,
    Teardown,
    Worked,
)
from lustrum.core.request import StartRequest
from lustrum.core.run_plan import RunPlan

KEPT_DAYS = 31  # Pub/Sub keeps a message at most 31 days: a late redelivery still finds its run
HISTORY = 200  # entries kept
TEARDOWN_LEASE = 1800.0  # seconds a teardown owns the run without a sign of life
SCHEMA_VERSION = 1  # of the record; raise it when a stored field changes its meaning


class State(StrEnum):
    """Where a run is in its life."""

    REQUESTED = "REQUESTED"
    QUEUED = "QUEUED"
    PROVISIONING = "PROVISIONING"
    STARTING_HEAD = "STARTING_HEAD"
    STAGING = "STAGING"
    WAITING_FOR_GPUS = "WAITING_FOR_GPUS"
    TRAINING = "TRAINING"
    RECOVERING = "RECOVERING"
    RELEASING = "RELEASING"
    EXPORTING = "EXPORTING"
    DESTROYING = "DESTROYING"
    VERIFYING = "VERIFYING"
    CLOSED = "CLOSED"
    REJECTED = "REJECTED"


class Outcome(StrEnum):
    """How a run ended."""

    SUCCEEDED = "SUCCEEDED"
    PARTIAL = "PARTIAL"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


_LIVE = {
    State.REQUESTED: {State.QUEUED, State.PROVISIONING},
    State.QUEUED: {State.PROVISIONING},
    State.PROVISIONING: {State.STARTING_HEAD},
    State.STARTING_HEAD: {State.STAGING},
    State.STAGING: {State.WAITING_FOR_GPUS, State.STARTING_HEAD},
    State.WAITING_FOR_GPUS: {State.TRAINING, State.STARTING_HEAD},
    State.TRAINING: {State.RECOVERING},
    State.RECOVERING: {State.TRAINING},
}
# What a teardown does, in its order; it may begin in any live state, and skip a step that failed.
TEARDOWN = (State.RELEASING, State.EXPORTING, State.DESTROYING, State.VERIFYING)

ALLOWED: dict[State, frozenset[State]] = {
    **{state: frozenset(after | set(TEARDOWN) | {State.CLOSED}) for state, after in _LIVE.items()},
    # After a teardown that is not final the next zone is tried.
    **{
        state: frozenset({*TEARDOWN, State.QUEUED, State.PROVISIONING, State.CLOSED})
        for state in TEARDOWN
    },
    State.CLOSED: frozenset(),
    State.REJECTED: frozenset(),
}
TERMINAL = frozenset({State.CLOSED, State.REJECTED})


class Stop(StrEnum):
    """Why a workflow must not go on; `workflows/*.yaml` compare answers with these words."""

    OVER = "over"  # the run is closed, or is ending
    TEARDOWN = "teardown"  # a teardown has begun
    OWNED = "owned"  # another rl_run execution owns the run
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    LOST = "lost"  # another teardown owns the run
    BUSY = "busy"  # another teardown is at work
    STATE = "state"  # the transition is not allowed from the present state
    HOURS = "hours"  # an extension beyond what a run may last
    COST = "cost"  # an extension beyond the limit of the request
    STOPPED = "stopped"  # the run has just been given up


class Refused(Exception):
    """A transition that the record does not allow now; ``stop`` is the reason as a keyword."""

    def __init__(self, stop: Stop, message: str) -> None:
        self.stop = stop
        super().__init__(message)


class Moment(BaseModel):
    """One entry of a run's history; ``at`` in epoch seconds."""

    state: State
    at: float
    note: str = ""


class Mishap(BaseModel):
    """One failure of a run: class, when, where, and one sentence."""

    failure: Failure
    at: float
    state: State
    sentence: str
    zone: str | None = None
    attempt: int = 0


class Run(BaseModel):
    """The record of one run. Times in epoch seconds."""

    schema_version: int = Field(default=SCHEMA_VERSION, ge=1, le=SCHEMA_VERSION)
    run_id: str
    lustrum_version: str = ""  # that made the record; empty: before records named it
    key: str
    message_id: str = ""
    schedule: str | None = None
    request: StartRequest
    plan: RunPlan
    state: State = State.REQUESTED
    outcome: Outcome | None = None
    failure: Failure | None = None
    reason: str = ""
    created_at: float
    deadline_at: float
    hard_deadline_at: float
    extended_by: list[str] = Field(default_factory=list)
    cancel: Cancel | None = None
    execution: str | None = None  # the rl_run execution that owns the run
    callback_url: str | None = None
    revivals: list[State] = Field(default_factory=list)  # where a dead rl_run was replaced
    revived_in: State | None = None  # a new rl_run is on its way to the state it died in
    placement: Placement | None = None
    asked_at: float = 0.0  # for a network slot, the last time in vain
    zone_attempts: int = 0
    zones_tried: list[str] = Field(default_factory=list)
    unfit: dict[str, str] | None = None  # zone -> why it cannot hold the run; None: not looked yet
    regions_closed: list[str] = Field(default_factory=list)
    event_key: str = ""  # signs the events of the run's jobs; empty: a record from before keys
    wandb: bool = False  # a Weights & Biases key was mounted
    attempt: int = 0
    job: Job | None = None
    progress: Progress = Progress()
    gpus: GpuUse = GpuUse()
    nccl_network: str = ""  # that NCCL said it uses: gIB is RDMA, Socket is TCP
    broken_nodes: list[str] = Field(default_factory=list)  # a GPU of each failed: not used again
    checkpoint: Checkpoint | None = None
    data_end: int | None = None  # the step at which the training's data were at their end
    crashes: int = 0  # in a row, see failures.CRASH_LOOP
    full_since: float | None = None  # Lustre is nearly full since (an alert said so)
    full_by: str | None = None  # the incident that said so
    filling_since: float | None = None  # an alert asked to prune, and nobody looked yet
    filling_by: str | None = None
    export: Export | None = None
    extended_at_deadline: bool = False  # its export got the one extension the request allows
    secured: Export | None = None  # an older verified one, while `export` is not verified
    whole_export: Export | None = None  # of all checkpoints, when nobody could list the disk
    teardown: Teardown | None = None
    mishaps: list[Mishap] = Field(default_factory=list)
    history: list[Moment] = Field(default_factory=list)
    usage: list[Usage] = Field(default_factory=list)
    series: list[Progress] = Field(default_factory=list)  # step and reward, for the report
    saves: list[Checkpoint] = Field(default_factory=list)
    worked: dict[int, Worked] = Field(default_factory=dict)  # by attempt, for the bill
    closed_at: float | None = None
    log_uri: str | None = None
    report_uri: str | None = None

    def public_json(self, indent: int | None = None) -> str:
        """Return the record as people may read it: without the key of its events."""
        return self.model_dump_json(indent=indent, exclude={"event_key"})

    @property
    def is_over(self) -> bool:
        """Say whether nothing can change any more."""
        return self.state in TERMINAL

    @property
    def goal(self) -> int:
        """The step at which the training is done: asked for, or where its data ended."""
        return self.plan.max_num_steps if self.data_end is None else self.data_end

    @property
    def rdma_network(self) -> str | None:
        """The RDMA network of its GPU nodes, empty for none; None: it has no zone now."""
        return None if self.placement is None else self.placement.rdma_network

    @property
    def safe_export(self) -> Export | None:
        """The newest checkpoint that is verified in the bucket, None if there is none."""
        if self.export is not None and self.export.verified_at is not None:
            return self.export
        return self.secured

    def times(self, failure: Failure) -> int:
        """Return how often a failure class happened in this run."""
        return sum(mishap.failure == failure for mishap in self.mishaps)


def read_record(text: str) -> Run:
    """Read a stored record, also one that an earlier release wrote.

    Every field added since has a default; ``tests/records`` holds one record of each release.

    Raises:
        UnreadableRecord: naming the run, the field and what is wrong with it.
    """
    try:
        return Run.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "record"
        raise UnreadableRecord(
            f"{field}: {first['msg']}; this release reads schema_version up to {SCHEMA_VERSION}"
        ) from None


def staging_tries(run: Run) -> int:
    """Return how often staging was begun in the present zone: once, and once for each failure."""
    since = run.placement.since if run.placement is not None else 0.0
    return 1 + sum(mishap.state is State.STAGING and mishap.at >= since for mishap in run.mishaps)


def check_live(run: Run, execution: str | None, now: float) -> None:
    """Refuse whatever rl_run wants to create when the run must end.

    Raises:
        Refused: over, torn down, owned by another execution, cancelled or past its deadline.
    """
    if run.is_over:
        raise Refused(Stop.OVER, f"{run.run_id} is {run.state}")
    if run.teardown is not None:
        raise Refused(Stop.TEARDOWN, f"a teardown of {run.run_id} has begun")
    if execution is not None and run.execution not in (None, execution):
        raise Refused(Stop.OWNED, f"{run.run_id} belongs to another execution")
    if run.cancel is not None:
        raise Refused(Stop.CANCELLED, f"{run.run_id} was cancelled")
    if now >= run.deadline_at:
        raise Refused(Stop.DEADLINE, f"{run.run_id} is past its deadline")


def check_owned(run: Run, execution: str) -> Teardown:
    """Return the teardown that is this execution's; refuse when the run is not its own.

    Raises:
        Refused: over, or torn down by another execution, or by none.
    """
    if run.is_over:
        raise Refused(Stop.OVER, f"{run.run_id} is {run.state}")
    if run.teardown is None or run.teardown.execution != execution:
        raise Refused(Stop.LOST, f"the teardown of {run.run_id} belongs to another execution")
    return run.teardown


def advance(run: Run, to: State, now: float, note: str = "") -> None:
    """Move a run to another state, in place.

    Raises:
        Refused: the transition is not allowed from the present state.
    """
    if to == run.state:
        return
    if to not in ALLOWED[run.state]:
        raise Refused(Stop.STATE, f"{run.run_id}: {run.state} cannot become {to}")
    run.state = to
    run.history = [*run.history[-HISTORY:], Moment(state=to, at=now, note=note)]


def add_mishap(run: Run, failure: Failure, sentence: str, now: float) -> int:
    """Note a failure, in place; return how often its class happened before."""
    before = run.times(failure)
    run.mishaps = [
        *run.mishaps[-HISTORY:],
        Mishap(
            failure=failure,
            at=now,
            state=run.state,
            sentence=shorten(sentence),
            zone=run.placement.zone if run.placement else None,
            attempt=run.attempt,
        ),
    ]
    return before


def conclude(run: Run, failure: Failure | None, reason: str) -> None:
    """Set the failure class and the sentence of a run that must end, once: the first cause
    stands.
    """
    if run.reason:
        return
    run.failure = failure
    run.reason = shorten(reason) or "no reason was given"


def final_outcome(run: Run) -> Outcome:
    """Return how the run ended, from what is recorded.

    A run that was stopped early has a usable checkpoint when one is verified in the bucket.
    """
    if _finished(run) and (not run.plan.export_required or _is_safe(run)):
        return Outcome.SUCCEEDED
    if run.cancel is not None:
        return Outcome.CANCELLED
    return Outcome.PARTIAL if run.safe_export is not None else Outcome.FAILED


def _finished(run: Run) -> bool:
    return run.checkpoint is not None and run.checkpoint.step >= run.goal


def _is_safe(run: Run) -> bool:
    """Say whether the last step itself is verified in the bucket."""
    safe = run.safe_export
    return safe is not None and safe.step >= run.goal
