"""What a message on ``lustrum-requests`` may say: `StartRequest`, `CancelRequest`,
`ExtendRequest`.

Strict on purpose: an unknown key, a wrong type or a value outside the allow-list is a `BadRequest`
that names the field, the value and what is accepted. Nothing from a message reaches a shell, a
path or a project id unchecked; a project id is never taken from a message at all.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    field_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from lustrum.core import names
from lustrum.core import overrides as grammar
from lustrum.core.plain_text import NOT_SHOWN, looks_secret
from lustrum.core.trainer import TrainerRequest

MAX_HOURS = 168.0  # of a run, extensions included
MAX_AGE_HOURS = 744.0  # of a start: Pub/Sub keeps a message at most 31 days
MAX_FAULTS = 10  # named in one answer
MAX_BYTES = 64 * 1024  # of one request, unpacked

RunId = Annotated[str, StringConstraints(pattern=f"^{names.RUN_ID.pattern}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")]
Zone = Annotated[str, StringConstraints(pattern=r"^[a-z]+-[a-z]+[0-9]{1,2}-[a-z]$")]
BucketUri = Annotated[
    str,
    StringConstraints(
        pattern=r"^gs://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9](/[A-Za-z0-9][A-Za-z0-9._=-]*)*/?$",
        max_length=1024,
    ),
]
OverrideKey = Annotated[str, StringConstraints(pattern=grammar.KEY, max_length=grammar.MAX_KEY)]


class BadRequest(ValueError):
    """A request that cannot become a run.

    Attributes:
        field: dotted path of the field at fault, ``message`` for the message as a whole.
        value: what was found, shortened; never what looks like a secret.
        reason: what is accepted instead.
    """

    def __init__(self, field: str, value: object, reason: str) -> None:
        self.field = field
        self.value = shown(value, field)
        self.reason = reason
        super().__init__(f"{field}: {self.value}: {reason}")

    @classmethod
    def together(cls, faults: Sequence[BadRequest]) -> BadRequest:
        """Return all faults as one: the first's field and value, the others in its reason."""
        first, *others = faults
        reason = "; also ".join([first.reason, *map(str, others)])
        made = cls(first.field, None, reason)
        made.value = first.value
        made.args = (f"{first.field}: {first.value}: {reason}",)
        return made


def shown(value: object, field: str = "") -> str:
    """Return a value as a message may quote it: JSON, at most 80 characters.

    Of an object only its size is told: it may hold fields that nobody asked for.
    """
    if isinstance(value, dict) or (isinstance(value, list) and not all(map(_is_scalar, value))):
        return f"{type(value).__name__} of {len(value)}"
    try:
        text = json.dumps(value, default=str)
    except (ValueError, RecursionError):
        text = repr(type(value))
    if looks_secret(field, text):
        return NOT_SHOWN
    return text if len(text) <= 80 else text[:77] + "..."


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class LustreRequest(_Strict):
    """The file system: capacity and tier, checked against the table of Managed Lustre."""

    capacity_gib: int = Field(36_000, ge=9_000, le=10_008_000)
    throughput_mbps_per_tib: Literal[125, 250, 500, 1000] = 500


class CheckpointRequest(_Strict):
    """What is saved, kept and brought to safety.

    ``required``: destroy waits for a verified export until the hard deadline; else one try is
    enough.
    ``at_deadline``: what wins when an export is under way at the hard deadline; it may be extended
    once, by at most ``extend_hours`` and ``extend_cost_usd``.
    ``resume_from``: a ``gs://`` folder that holds ``step_N``, or the run id of an earlier run.
    """

    save_period: int = Field(2, ge=1, le=100_000)
    keep: int = Field(2, ge=1, le=100)
    export_to: BucketUri | None = None
    required: bool = True
    resume_from: RunId | BucketUri | None = None
    at_deadline: Literal["destroy_anyway", "extend_once"] = "extend_once"
    extend_hours: float = Field(2, gt=0, le=24)
    extend_cost_usd: float = Field(100, gt=0, le=100_000)


class LimitsRequest(_Strict):
    """What a run may use: hours, US dollars, attempts, minutes of waiting for accelerators.

    ``gpus_idle_minutes``: the run is ended when all GPUs idle that long while it trains; None:
    it is only told.
    ``start_within_hours``: how old the request may be when it arrives.
    """

    hours: float = Field(6, gt=0, le=MAX_HOURS)
    cost_usd: float = Field(2500, gt=0, le=1_000_000)
    attempts: int = Field(5, ge=1, le=100)
    capacity_wait_minutes: float = Field(60, gt=0, le=1440)
    gpus_idle_minutes: float | None = Field(None, ge=1, le=1440)
    start_within_hours: float = Field(6, gt=0, le=MAX_AGE_HOURS)


class StartRequest(_Strict):
    """Start one run. ``{}`` is the original recipe."""

    action: Literal["start"] = "start"
    name: Name = "run"
    profile: Name = "qwen2.5-72b-grpo"
    nodes: int | None = Field(None, ge=1, le=64)
    zones: list[Zone] | None = Field(None, min_length=1, max_length=20)
    capacity: (
        Literal["spot"]
        | Annotated[str, StringConstraints(pattern=r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")]
    ) = "spot"
    network: Literal["auto", "rdma", "tcp"] = "auto"
    gib: Annotated[str, StringConstraints(pattern=r"^v\d{1,3}\.\d{1,3}\.\d{1,3}$")] | None = None
    code: BucketUri | None = None
    image: (
        Annotated[
            str,
            StringConstraints(
                pattern=r"^[a-z0-9][a-z0-9._/-]*(:[A-Za-z0-9._-]+|@sha256:[0-9a-f]{64})$"
            ),
        ]
        | None
    ) = None
    ray_version: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+$")] | None = None
    lustre: LustreRequest | None = None
    recipe: (
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$")] | None
    ) = None
    overrides: dict[OverrideKey, JsonValue] = Field(
        default_factory=dict, max_length=grammar.MAX_KEYS
    )
    trainer: TrainerRequest | None = None
    checkpoints: CheckpointRequest = CheckpointRequest()
    limits: LimitsRequest = LimitsRequest()
    overlap: Literal["skip", "allow"] = "skip"
    priority: int = Field(0, ge=-100, le=100)
    submitter: Name | Literal[""] = ""

    @field_validator("code")
    @classmethod
    def _code_is_a_zip(cls, value: str | None) -> str | None:
        if value is not None and not value.endswith(".zip"):
            raise ValueError("must be a zip object, gs://bucket/path/code.zip")
        return value

    @field_validator("zones")
    @classmethod
    def _zones_once(cls, value: list[str] | None) -> list[str] | None:
        if value is not None and len(set(value)) != len(value):
            raise ValueError("names a zone twice")
        return value

    @field_validator("overrides")
    @classmethod
    def _bounded_values(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for key, item in value.items():
            try:
                grammar.check_value(key, item)
            except ValueError as error:
                raise PydanticCustomError(
                    "override", "{why}", {"key": key, "why": str(error)}
                ) from None
        grammar.check_together(value)
        return value


class CancelRequest(_Strict):
    """End a run early; ``export`` brings its newest checkpoint to safety first."""

    action: Literal["cancel"]
    run_id: RunId
    export: bool = True


class ExtendRequest(_Strict):
    """Give a run more hours."""

    action: Literal["extend"]
    run_id: RunId
    hours: float = Field(gt=0, le=MAX_HOURS)


Request = StartRequest | CancelRequest | ExtendRequest
_BY_ACTION: dict[str, TypeAdapter[Any]] = {
    "start": TypeAdapter(StartRequest),
    "cancel": TypeAdapter(CancelRequest),
    "extend": TypeAdapter(ExtendRequest),
}


def parse_request(data: bytes) -> Request:
    """Read a request from the bytes of a message, plain or gzip.

    Raises:
        BadRequest: naming the first field at fault.
    """
    text = _unpacked(data)
    try:
        found = json.loads(text or "{}", object_pairs_hook=_no_twins, parse_constant=_no_constant)
    except BadRequest:
        raise
    except (ValueError, RecursionError) as error:
        raise BadRequest("message", f"{len(data)} bytes", f"is not JSON: {error}") from None
    return read_request(found)


def read_request(found: object) -> Request:
    """Validate a decoded request.

    Raises:
        BadRequest: naming the first field at fault.
    """
    if not isinstance(found, dict):
        raise BadRequest("message", found, 'must be a JSON object such as {} or {"nodes": 8}')
    action = found.get("action", "start")
    adapter = _BY_ACTION.get(action) if isinstance(action, str) else None
    if adapter is None:
        raise BadRequest("action", action, "must be start, cancel or extend")
    try:
        request: Request = adapter.validate_python(found)
    except ValidationError as error:
        raise _named(error) from None
    return request


def _named(error: ValidationError) -> BadRequest:
    """Return all faults as one, the first first; a union tells one fault for each branch."""
    found: dict[str, BadRequest] = {}
    for one in error.errors(include_url=False):
        bad = _named_one(one)
        found.setdefault(bad.field, bad)
    return BadRequest.together(list(found.values())[:MAX_FAULTS])


def _named_one(first: ErrorDetails) -> BadRequest:
    path = [
        str(part) for part in first["loc"] if not str(part).startswith(("function-", "constr"))
    ]
    reason, value = first["msg"], first["input"]
    if first["type"] == "override":
        key = first["ctx"]["key"]
        path, value = [*path, key], value[key]
    # In a union pydantic adds the branch to the path; the field is what the user wrote.
    field = ".".join(part for part in path if not re.search(r"[(\[]", part)) or "message"
    field = re.sub(r"\.(str|literal|constrained-str|bool|int|float)$", "", field)
    if first["type"] == "extra_forbidden":
        value = _Unknown()  # nobody knows what it holds
        reason = "is not a known field; see docs/requests.md"
    elif first["type"] == "string_pattern_mismatch":
        reason = f"must match {first['ctx']['pattern']}"
    return BadRequest(field, value, reason)


class _Unknown:
    """The value of a field that is not known: never repeated."""

    def __str__(self) -> str:
        return NOT_SHOWN


def _unpacked(data: bytes) -> str:
    if data[:2] == b"\x1f\x8b":
        unpack = zlib.decompressobj(wbits=31)
        try:
            data = unpack.decompress(data, MAX_BYTES + 1)
            if not unpack.eof and len(data) <= MAX_BYTES:
                raise BadRequest("message", "gzip", "is cut short; send the whole gzip stream")
            if unpack.unused_data:
                raise BadRequest("message", "gzip", "holds more than one stream; send one")
        except zlib.error as error:
            raise BadRequest("message", "gzip", f"is not readable gzip: {error}") from None
    if len(data) > MAX_BYTES:
        raise BadRequest("message", f"{len(data)} bytes", f"must be at most {MAX_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(
            "message", f"{len(data)} bytes", f"is not UTF-8: {error.reason}"
        ) from None


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twin = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise BadRequest(twin, "given twice", "give each field once")
    return found


def _no_constant(text: str) -> float:
    raise BadRequest("message", text, "is not a JSON number")
