"""Failure classes and the one table that says what Lustrum does about each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Failure(StrEnum):
    """Why something did not go as planned."""

    STOCKOUT = "STOCKOUT"
    QUOTA = "QUOTA"
    PREEMPTED = "PREEMPTED"
    NODE_LOST = "NODE_LOST"
    HEAD_LOST = "HEAD_LOST"
    JOB_LOST = "JOB_LOST"
    HANG = "HANG"
    GPUS_IDLE = "GPUS_IDLE"
    USER_ERROR = "USER_ERROR"
    USER_OOM = "USER_OOM"
    IMAGE_ERROR = "IMAGE_ERROR"
    LUSTRE_NETWORK = "LUSTRE_NETWORK"
    LUSTRE_CONFIG = "LUSTRE_CONFIG"
    LUSTRE_FULL = "LUSTRE_FULL"
    CONFIG = "CONFIG"
    ACCESS = "ACCESS"
    BUILD_ERROR = "BUILD_ERROR"
    INFRA_TRANSIENT = "INFRA_TRANSIENT"
    TIME_LIMIT = "TIME_LIMIT"
    DEADLINE = "DEADLINE"
    BUDGET = "BUDGET"
    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"


class Reaction(StrEnum):
    """What Lustrum does about a failure."""

    RETRY = "retry"  # the same step again, in the same zone, after a pause
    NEXT_ZONE = "next_zone"  # destroy what this zone holds, then try the next zone
    NEXT_REGION = "next_region"  # the same, but skip the zones of this region
    RESUME = "resume"  # a new attempt from the newest complete checkpoint
    STOP = "stop"  # end the run: export what there is, destroy


@dataclass(frozen=True)
class Policy:
    """What to do about a failure class, and how often before the run is stopped."""

    reaction: Reaction
    limit: int | None  # times per run; None: only the request's own limits bound it
    advice: str  # what the user can do, one sentence


TABLE: Mapping[Failure, Policy] = {
    Failure.STOCKOUT: Policy(
        Reaction.NEXT_ZONE, None, "give more zones, or raise limits.capacity_wait_minutes"
    ),
    Failure.QUOTA: Policy(
        Reaction.NEXT_REGION, None, "ask for quota in the region (`lustrum doctor` fills the form)"
    ),
    Failure.PREEMPTED: Policy(Reaction.RESUME, None, "nothing: Spot nodes are lost now and then"),
    Failure.NODE_LOST: Policy(Reaction.RESUME, None, "nothing: a node failed and was replaced"),
    Failure.HEAD_LOST: Policy(Reaction.RESUME, 3, "check the head pod's memory in the report"),
    Failure.JOB_LOST: Policy(Reaction.RESUME, 3, "read the job's log in the report"),
    Failure.HANG: Policy(Reaction.RESUME, 3, "check where the log stops; a collective may hang"),
    Failure.GPUS_IDLE: Policy(
        Reaction.STOP, 0, "see what the log waits for, or raise limits.gpus_idle_minutes"
    ),
    Failure.USER_ERROR: Policy(
        Reaction.RESUME, None, "read the end of the job's log; the program itself failed"
    ),
    Failure.USER_OOM: Policy(
        Reaction.RESUME, 1, "lower the batch or sequence length: a process ran out of memory"
    ),
    Failure.IMAGE_ERROR: Policy(
        Reaction.STOP, 0, "check that the image exists, can be pulled and holds Ray"
    ),
    Failure.LUSTRE_NETWORK: Policy(
        Reaction.STOP, 0, "check the firewall (988), the peering range and the CSI driver's ports"
    ),
    Failure.LUSTRE_CONFIG: Policy(Reaction.STOP, 0, "check lustre.capacity_gib and its tier"),
    Failure.LUSTRE_FULL: Policy(
        Reaction.STOP, 0, "raise lustre.capacity_gib or lower checkpoints.keep"
    ),
    Failure.CONFIG: Policy(Reaction.STOP, 0, "correct the request or the project's set-up"),
    Failure.ACCESS: Policy(Reaction.STOP, 0, "run `lustrum doctor`: an account lacks a role"),
    Failure.BUILD_ERROR: Policy(Reaction.RETRY, 1, "read the build's log"),
    Failure.INFRA_TRANSIENT: Policy(Reaction.RETRY, 3, "nothing, unless it happens again"),
    Failure.TIME_LIMIT: Policy(
        Reaction.RESUME, None, "nothing: the training saved at its own time limit and goes on"
    ),
    Failure.DEADLINE: Policy(Reaction.STOP, 0, "raise limits.hours, or `lustrum extend`"),
    Failure.BUDGET: Policy(Reaction.STOP, 0, "raise limits.cost_usd"),
    Failure.CANCELLED: Policy(Reaction.STOP, 0, "nothing: it was asked for"),
    Failure.UNKNOWN: Policy(Reaction.STOP, 0, "read the reason and the logs in the report"),
}

# In a row without a newer complete checkpoint and without node-loss evidence: a crash loop.
CRASH_LOOP = 2

# Evidence of a lost node: an attempt that ends so is not the program's fault.
NODE_LOSS = frozenset({Failure.PREEMPTED, Failure.NODE_LOST, Failure.HEAD_LOST})


def reaction(failure: Failure, times_before: int) -> Reaction:
    """Return what to do about a failure that already happened ``times_before`` times in this
    run.
    """
    policy = TABLE[failure]
    if policy.limit is not None and times_before >= policy.limit:
        return Reaction.STOP
    return policy.reaction


# Ordered: the first pattern that occurs in the text decides. Sources: texts of GKE autoscaler and
# kubelet events, the Lustre CSI driver's troubleshooting page, Ray's error types.
_TEXTS: tuple[tuple[re.Pattern[str], Failure], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), failure)
    for pattern, failure in (
        (
            r"is the mgs running|mount\.lustre|\blnet\b|lustre.*(timed out|i/o error)",
            Failure.LUSTRE_NETWORK,
        ),
        (
            r"persistentvolumeclaim .*not found|unbound.*persistentvolumeclaim",
            Failure.LUSTRE_CONFIG,
        ),
        (r"no space left on device|enospc|disk quota exceeded", Failure.LUSTRE_FULL),
        (r"quota[ _]?exceeded|exceeded quota|quota '", Failure.QUOTA),
        (
            r"zone_resource_pool_exhausted|gce_stockout|insufficient_capacity|resource_availability"
            r"|out of resources|does not have enough resources",
            Failure.STOCKOUT,
        ),
        (
            r"imagepullbackoff|errimagepull|invalidimagename|manifest unknown"
            r"|failed to pull (and unpack )?image",
            Failure.IMAGE_ERROR,
        ),
        # not the scheduler's "Preemption is not helpful", "No preemption victims"
        (r"preempted|preempting|instances\.preempt", Failure.PREEMPTED),
        (
            r"invalidraycluster|typed patch object|unknown field|violates podsecurity"
            r"|\bip[ _]space[ _]exhausted",
            Failure.CONFIG,
        ),
        (r"permission[ _]denied|forbidden|unauthorized|\b40[13]\b", Failure.ACCESS),
        (
            r"job_supervisor_actor_unschedulable|no available agent|connection (refused|reset)"
            r"|deadline exceeded|unavailable|timed? ?out|\binternal error",
            Failure.INFRA_TRANSIENT,
        ),
    )
)


def named(text: object) -> Failure | None:
    """Return the class of that name, None if there is none."""
    return Failure(text) if isinstance(text, str) and text in Failure.__members__ else None


def classify_text(text: str, default: Failure = Failure.UNKNOWN) -> Failure:
    """Return the failure class that a message of the platform speaks of."""
    return next((failure for pattern, failure in _TEXTS if pattern.search(text)), default)
