"""Names and labels of everything a run creates.

Every name is derived from the run id and has a fixed width, so that none is part of another
(tools that match by substring would otherwise destroy a neighbour).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from lustrum.head.names import LUSTRE_MOUNT, MODEL_CACHE

RUN_ID = re.compile(r"rl-[0-9a-f]{10}")
NAMESPACE = "default"
CLAIM = "lustre-pvc"
JOB_ACCOUNT = "lustrum-job"
TOKENS_SECRET = "lustrum-tokens"
JOB_CONFIG = "lustrum-job"
GPU_POOL = "a4"
LABEL_RUN = "lustrum-run"
LABEL_EXPIRES = "lustrum-expires"
LABEL_OWNER = "managed-by"


def run_id(key: str) -> str:
    """Return the run id of an idempotency key: ``rl-`` and 10 hex digits, always 13 characters."""
    return "rl-" + fingerprint(key.encode())


def fingerprint(data: bytes) -> str:
    """Return 10 hex digits that tell one message or key from another."""
    return hashlib.sha256(data).hexdigest()[:10]


def is_run_id(text: str) -> bool:
    """Say whether the whole text is a run id."""
    return RUN_ID.fullmatch(text) is not None


def message_key(attributes: Mapping[str, str], message_id: str, published: datetime | None) -> str:
    """Return the idempotency key of a request message.

    The attribute ``idempotency_key`` wins. A scheduled message (static attributes ``schedule``,
    ``cron``, ``tz``; Cloud Scheduler sends nothing else) is keyed by its last tick at or before
    the
    publish time, so that a tick delivered or fired twice is one run. Anything else: the message
    id.

    Raises:
        ValueError: ``cron`` or ``tz`` is not usable, naming it.
    """
    if attributes.get("idempotency_key"):
        return "key:" + attributes["idempotency_key"]
    if attributes.get("schedule") and attributes.get("cron") and published is not None:
        tick = last_tick(attributes["cron"], attributes.get("tz") or "Etc/UTC", published)
        return f"schedule:{attributes['schedule']}:{int(tick.timestamp())}"
    return "message:" + message_id


def last_tick(cron: str, tz: str, at: datetime) -> datetime:
    """Return the last moment at or before ``at`` (aware) when the schedule fired.

    Raises:
        ValueError: an unknown time zone or a cron expression that cannot be read.
    """
    try:
        zone = ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"attribute tz: {tz!r} is not a time zone; use an IANA name such as Europe/Paris"
        ) from None
    try:
        local = at.astimezone(zone)
        # CronSim goes by the clock on the wall, which shows an hour twice when summer ends:
        # begin past it, and take the first tick that was not after the moment.
        start = datetime.fromtimestamp(local.timestamp() + 3 * 3600, zone)
        tick = next(one for one in CronSim(cron, start, reverse=True) if one <= at)
    except (CronSimError, StopIteration, OverflowError, ValueError):
        raise ValueError(
            f"attribute cron: {cron!r} is not a cron expression; use five fields: '0 3 * * *'"
        ) from None
    return tick.astimezone(UTC)


def labels(run: str, expires: float) -> dict[str, str]:
    """Return the labels of everything a run creates; ``expires`` is its hard deadline in epoch
    seconds, and what a reaper that cannot read the record goes by.
    """
    return {LABEL_RUN: run, LABEL_EXPIRES: str(int(expires)), LABEL_OWNER: "lustrum"}


DASHBOARD_PORT = 8265  # of the dashboard and the Jobs API in the Ray head


def head_service(run: str) -> str:
    """Return the name of the Kubernetes service that KubeRay makes for a run's Ray head."""
    return f"{run}-head-svc"


def submission_id(run: str, attempt: int) -> str:
    """Return the Ray submission id of one training attempt (counted from 1)."""
    return f"{run}-a{attempt}"


def attempt_of(submission: str) -> int:
    """Return the attempt that a Ray submission id names, 0 when it is no training."""
    found = re.fullmatch(r"rl-[0-9a-f]{10}-a(\d{1,5})", submission)
    return int(found.group(1)) if found else 0


def stage_id(run: str, zone_attempt: int) -> str:
    """Return the Ray submission id of the staging job of one zone attempt."""
    return f"{run}-stage-z{zone_attempt}"


def stage_ids(run: str, zone_attempt: int, tries: int) -> list[str]:
    """Return the ids of the staging jobs of one zone attempt: the first, then one for each try
    after a failed one.
    """
    first = stage_id(run, zone_attempt)
    return [first, *(f"{first}-{number}" for number in range(2, tries + 1))]


def list_id(run: str, number: str) -> str:
    """Return the Ray submission id of one listing of the checkpoints."""
    return f"{run}-list-{number}"


def build_tag(run: str, action: str, zone_attempt: int) -> str:
    """Return the tag that finds the one build of an action in a zone attempt."""
    return f"{run}-{action}-z{zone_attempt}"


def report_folder(bucket: str, run: str) -> str:
    """Return the bucket folder of a run's logs, record and report; it ends with a slash."""
    return f"gs://{bucket}/runs/{run}/"


def page_uri(bucket: str, run: str) -> str:
    """Return where the page of a run is: live while it lives, its report afterwards."""
    return report_folder(bucket, run) + "index.html"


def index_uri(bucket: str) -> str:
    """Return where the page of all runs is."""
    return f"gs://{bucket}/runs/index.html"


def model_cache() -> str:
    """Return the folder of the model cache on the mounted file system, HF_HOME of every job."""
    return f"{LUSTRE_MOUNT}/{MODEL_CACHE}"


def run_folder(run: str) -> str:
    """Return the folder of a run on the mounted Lustre file system."""
    return f"{LUSTRE_MOUNT}/runs/{run}"


def region_of(zone: str) -> str:
    """Return the region of a zone: ``us-east1-b`` is in ``us-east1``."""
    return zone.rsplit("-", 1)[0]
