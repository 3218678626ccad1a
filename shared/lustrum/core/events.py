"""Decoding of everything Pub/Sub can bring to `react_to_event` and `start_run`. Pure.

Sources of the shapes: Pub/Sub's push body and its emulator's, CloudEvents as a 2nd gen function
gets them, Cloud Build's notifications, GKE's notifications. Nothing here raises anything but
`MalformedEvent`: a message that cannot be read must be kept and acknowledged, never retried for
days.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from lustrum.core import names
from lustrum.core.alerts import Incident, read_incident
from lustrum.core.errors import MalformedEvent
from lustrum.core.gpu_use import GpuReport, readable
from lustrum.core.plain_text import plain
from lustrum.core.request import shown

MAX_MESSAGE = 2000  # characters kept of what a job says
MAX_NUMBER = 1e12  # of a reward, seconds: beyond it a number says nothing
MAX_AHEAD = 3600.0  # seconds an event may lie in the future before its clock is not believed


@dataclass(frozen=True)
class Message:
    """One Pub/Sub message: ``data`` decoded from base64, ``published`` aware or None if not
    given.
    """

    data: bytes
    attributes: Mapping[str, str] = field(default_factory=dict)
    message_id: str = ""
    published: datetime | None = None
    subscription: str = ""


def _shortened(text: object) -> object:
    """Cut a long message: the job's log has it whole."""
    return plain(text[: 2 * MAX_MESSAGE])[:MAX_MESSAGE] if isinstance(text, str) else text


def _believable(value: object) -> object:
    """Drop a number (or a time) that is not finite or beyond all measure; the event counts."""
    if isinstance(value, str) and len(value) > 100:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) if -MAX_NUMBER <= value <= MAX_NUMBER else None
    return value


Step = Annotated[int, Field(ge=0, le=10_000_000)]
Attempt = Annotated[int, Field(ge=0, le=10_000)]
Bytes = Annotated[int, Field(ge=0, le=2**60)]
Measure = Annotated[float | None, BeforeValidator(_believable)]


class SavedCheckpoint(BaseModel):
    """The checkpoint of a job event: step, bytes of all its files, seconds the save took."""

    step: Step
    bytes: Bytes = 0
    files: Bytes = 0
    seconds: Measure = None


class StepPoint(BaseModel):
    """One finished step of a heartbeat: its number, average reward and seconds."""

    step: Step
    reward: Measure = None
    seconds: Measure = None


class JobEvent(BaseModel):
    """What the supervisor says of a training attempt (topic ``lustrum-events``)."""

    model_config = ConfigDict(extra="ignore")

    type: str = Field(max_length=100)
    run_id: str = Field(pattern=f"^{names.RUN_ID.pattern}$")
    attempt: Attempt = 0
    step: Step | None = None
    max_steps: Step | None = None
    reward: Measure = None
    loss: Measure = None
    checkpoint: SavedCheckpoint | None = None
    exit_code: int | None = Field(None, ge=-(2**31), le=2**31)
    failure: str | None = Field(None, alias="class", max_length=100)
    message: Annotated[str, BeforeValidator(_shortened)] = ""
    ended: str | None = Field(None, max_length=100)  # goal, time_limit, data
    event_id: str = Field(min_length=1, max_length=200)
    at: Annotated[float | str | None, BeforeValidator(_believable)] = None
    steps: list[StepPoint] = Field(default_factory=list, max_length=1000)
    network: str | None = Field(None, pattern=r"^[A-Za-z_]{1,20}$")  # that NCCL chose
    gpus: Annotated[GpuReport | None, BeforeValidator(readable)] = None
    idle_seconds: Measure = None

    @property
    def run(self) -> str:
        """The run it speaks of."""
        return self.run_id

    def points(self) -> list[tuple[int, float | None]]:
        """Return step and reward of each step it tells of."""
        return [(point.step, point.reward) for point in self.steps]

    def moment(self, now: float) -> float:
        """Return when it happened, epoch seconds; ``now`` when its own clock cannot be
        believed.
        """
        at = _epoch(self.at)
        return at if at is not None and now - 31 * 86400 < at < now + MAX_AHEAD else now


class BuildNotice(BaseModel):
    """A build changed its status (topic ``cloud-builds``)."""

    build_id: str = Field(pattern=r"^[\w-]{1,100}$")
    status: str = Field(pattern=r"^[A-Z_]{1,50}$")
    run_id: str | None
    action: str | None = Field(max_length=100)
    event_id: str

    @property
    def run(self) -> str | None:
        """The run it speaks of, if the build is ours."""
        return self.run_id

    @property
    def is_over(self) -> bool:
        """Say whether the build has ended."""
        return self.status not in ("STATUS_UNKNOWN", "PENDING", "QUEUED", "WORKING")


class ClusterNotice(BaseModel):
    """GKE tells of an upgrade or a security bulletin; kept, never acted on."""

    run_id: str | None
    kind: str
    text: str
    event_id: str

    @property
    def run(self) -> str | None:
        """The run whose cluster it speaks of."""
        return self.run_id


Event = JobEvent | BuildNotice | ClusterNotice | Incident
# The push subscription, `<topic>-push`, that a kind must come through.
KINDS: dict[str, tuple[type, ...]] = {
    "lustrum-events-push": (JobEvent, ClusterNotice),
    "cloud-builds-push": (BuildNotice,),
    "lustrum-alerts-push": (Incident,),
}


def decode_push(body: bytes) -> Message:
    """Read the HTTP body of a push: Pub/Sub's own, the emulator's, or a CloudEvent's.

    Raises:
        MalformedEvent: it is not such a body, or its data is not base64.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedEvent("body", f"is not JSON: {error}", body) from None
    if isinstance(found, dict) and "message" not in found and isinstance(found.get("data"), dict):
        found = found["data"]  # a structured CloudEvent
    message = found.get("message") if isinstance(found, dict) else None
    if not isinstance(message, dict):
        raise MalformedEvent("message", "must be the object of a Pub/Sub push", body)
    attributes = message.get("attributes") or {}
    if not isinstance(attributes, dict):
        raise MalformedEvent("message.attributes", "must be an object of strings", body)
    return Message(
        data=_base64(message.get("data"), body),
        attributes={_text(key): _text(value) for key, value in attributes.items()},
        message_id=_text(message.get("messageId") or message.get("message_id") or ""),
        published=_time(message.get("publishTime") or message.get("publish_time")),
        subscription=str(found.get("subscription") or ""),
    )


def decode_event(message: Message) -> Event:
    """Tell what a message of the event topics is.

    Who may publish to a topic says what its messages may be: the job account of any run can write
    to ``lustrum-events``, so an alert that comes from there is none.

    Raises:
        MalformedEvent: it is none of the known kinds, came through another kind's subscription, or
            misses what its kind must have.
    """
    subscription = message.subscription.rsplit("/", 1)[-1]
    kinds = KINDS.get(subscription)
    if kinds is None:
        raise MalformedEvent(
            "subscription",
            f"{shown(subscription)} is none of {', '.join(KINDS)}",
            message.data,
        )
    try:
        event = _decoded(message)
        if not isinstance(event, kinds):
            raise MalformedEvent(
                "subscription",
                f"{subscription} brings no {type(event).__name__}; what it says was not believed",
                message.data,
            )
        return event
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(_text, first["loc"])) or "data"
        raise MalformedEvent(
            place, f"{shown(first['input'], place)}: {first['msg']}", message.data
        ) from None


def _decoded(message: Message) -> Event:
    attributes = message.attributes
    if "type_url" in attributes:
        return _cluster_notice(message)
    try:
        found = json.loads(message.data)
    except (ValueError, RecursionError) as error:
        raise MalformedEvent("data", f"is not JSON: {error}", message.data) from None
    if not isinstance(found, dict):
        raise MalformedEvent("data", "must be a JSON object", message.data)
    if "buildId" in attributes:
        return _build_notice(found, attributes)
    kind = found.get("type")
    if isinstance(kind, str) and kind.split(".")[0] in ("job", "checkpoint", "stage", "attempt"):
        return JobEvent.model_validate(found)
    if "incident" in found:
        return read_incident(found)
    if "steps" in found and "status" in found:  # a build whose attributes were lost
        return _build_notice(found, attributes)
    raise MalformedEvent("type", f"{shown(kind)} is not a kind of event known here", message.data)


def _build_notice(found: dict[str, Any], attributes: Mapping[str, str]) -> BuildNotice:
    substitutions = found.get("substitutions")
    tags = found.get("tags")
    run = substitutions.get("_RUN_ID") if isinstance(substitutions, dict) else None
    if run is None and isinstance(tags, list):
        run = next((tag for tag in tags if isinstance(tag, str) and names.is_run_id(tag)), None)
    build = _text(attributes.get("buildId") or found.get("id") or "")
    status = _text(attributes.get("status") or found.get("status") or "STATUS_UNKNOWN")
    if not build:
        raise MalformedEvent("id", "a build notice must name its build", b"")
    return BuildNotice(
        build_id=build,
        status=status,
        run_id=run if isinstance(run, str) and names.is_run_id(run) else None,
        action=substitutions.get("_ACTION") if isinstance(substitutions, dict) else None,
        event_id=f"build-{build}-{status}",
    )


def _cluster_notice(message: Message) -> ClusterNotice:
    name = message.attributes.get("cluster_name", "")
    return ClusterNotice(
        run_id=name if names.is_run_id(name) else None,
        kind=message.attributes["type_url"].rsplit(".", 1)[-1],
        text=message.data.decode(errors="replace")[:500],
        event_id="gke-" + message.message_id,
    )


def _text(value: object) -> str:
    """Return a value as text that UTF-8 can hold (JSON may carry half a surrogate pair)."""
    return str(value).encode(errors="replace").decode()


def _base64(data: object, body: bytes) -> bytes:
    if data is None or data == "":
        return b""
    if not isinstance(data, str):
        raise MalformedEvent("message.data", "must be base64 text", body)
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise MalformedEvent("message.data", f"is not base64: {error}", body) from None


def _time(text: object) -> datetime | None:
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _epoch(at: float | str | None) -> float | None:
    if isinstance(at, str):
        found = _time(at)
        return found.timestamp() if found else None
    return at
