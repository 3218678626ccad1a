"""What a run record is made of: where it is placed, its job, its checkpoints and their export."""

from __future__ import annotations

from pydantic import BaseModel, Field


class Cancel(BaseModel):
    """The wish to end a run early."""

    at: float
    export: bool
    event_id: str


class Placement(BaseModel):
    """One zone attempt: where, with which network slot, which build."""

    zone_attempt: int
    zone: str
    slot: str
    since: float
    import_operation: str | None = None  # of an earlier checkpoint onto this zone's Lustre
    rdma_network: str = ""  # that its GPU nodes are attached to; empty: they talk over TCP
    attempts_before: int = 0  # those of earlier zones: their checkpoints are not on this Lustre
    scripts: str = ""  # gs:// zip of what builds it; "" in records of older releases
    gcluster_sha256: str = ""  # of the toolkit that those scripts pin


class Job(BaseModel):
    """The training attempt that was submitted last; ``began_step`` is the step it resumed from."""

    submission_id: str
    attempt: int
    submitted_at: float
    session_name: str | None = None
    began_step: int = 0
    completed_at: float | None = None  # the supervisor told its end
    silent_since: float | None = None  # the dashboard has not answered since
    alone_since: float | None = None  # nodes are missing since
    over_since: float | None = None  # Ray calls it over, and the disk is asked whether it is done
    failed_since: float | None = None  # it failed, and evidence of a lost node is looked for since


class Progress(BaseModel):
    """The newest the training said of itself."""

    step: int = 0
    max_steps: int = 0
    reward: float | None = None
    loss: float | None = None
    at: float = 0
    attempt: int = 0


class Worked(BaseModel):
    """From when to when an attempt was seen to work: its first step's beginning (as far as its
    duration was told), its last step's or save's end. Epoch seconds.
    """

    since: float
    until: float


class Checkpoint(BaseModel):
    """The newest complete checkpoint on Lustre; bytes and seconds of its save."""

    step: int
    bytes: int = 0
    files: int = 0
    seconds: float | None = None
    at: float = 0


class Export(BaseModel):
    """The export of one checkpoint to the bucket."""

    step: int
    uri: str
    operation: str | None = None
    started_at: float = 0
    tries: int = 0
    bytes: int = 0
    files: int = 0
    verified_at: float | None = None
    problem: str = ""


class Teardown(BaseModel):
    """The teardown that owns the run; single-flight by ``lease_until`` (epoch seconds)."""

    execution: str
    final: bool
    claimed_at: float
    lease_until: float
    problems: list[str] = Field(default_factory=list)
    inventories: int = 0
