"""When a RayCluster is ready, and what its pods and events show of failures. Pure.

KubeRay's ``state: ready`` is sticky and RayClusterProvisioned means "once": neither is
believed. An invalid spec never shows in the status, only as a Warning event.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from lustrum.core.failures import Failure, classify_text
from lustrum.core.plain_text import shorten

Object = Mapping[str, Any]
CLOCK_SKEW = 120.0  # seconds between our clock and the cluster's

# What ends a wait at once: waiting longer does not fix it.
FATAL = frozenset(
    {
        Failure.IMAGE_ERROR,
        Failure.LUSTRE_NETWORK,
        Failure.LUSTRE_CONFIG,
        Failure.CONFIG,
        Failure.QUOTA,
    }
)
# What the scheduler says of pods that wait ("Preemption is not helpful for scheduling").
_WAITING = frozenset({"FailedScheduling", "NotTriggerScaleUp", "TriggeredScaleUp"})
_LOST = (
    "shutdown manager detected shutdown",
    "preempt",
    "nodeshutdown",
    "node shutdown",
    "terminated by spot",
    "shutting down",
)
_GONE = ("nodenotready", "node is not ready", "nodelost", "deletingnode", "removingnode")
_IMAGE_TROUBLE = frozenset({"ImagePullBackOff", "ErrImagePull", "InvalidImageName"})
# A registry that was away for a moment: the kubelet pulls again, and no pod is to blame.
_PULL_MAY_PASS = re.compile(
    r"timed? ?out|time-?out|too ?many ?requests|\b(429|50\d)\b|connection (refused|reset)"
    r"|unavailable|temporary failure|unexpected eof|no such host",
    re.IGNORECASE,
)
_PULL_NEVER = re.compile(
    r"manifest unknown|not ?found|does not exist|denied|unauthorized|forbidden|invalid reference"
    r"|no match for platform",
    re.IGNORECASE,
)
_START_TROUBLE = frozenset(
    {"CrashLoopBackOff", "RunContainerError", "CreateContainerError", "CreateContainerConfigError"}
)
STARTS = 3  # restarts of a container after which waiting is given up
STUCK = 300.0  # seconds a worker's container may fail to be made while its GPUs are paid for
# A fault of one node, not of what should run on it: the pod's next place may be a sound one.
_NODE_FAULT = re.compile(
    r"nvidia-container-cli|nvml|driver/library version mismatch|driver not loaded|no such device"
    r"|unknown device|cdi device|failed to create (?:pod )?sandbox|cni|too many open files",
    re.IGNORECASE,
)
_NO_FILES = re.compile(
    r"\b(?:secrets?|configmaps?)\b.{0,120}\bnot found|couldn.t find key|non-existent config key",
    re.IGNORECASE,
)


def cluster_is_ready(cluster: Object, workers: int) -> bool:
    """Apply the live test: this generation is observed, the head is ready, all workers are."""
    status = cluster.get("status") or {}
    conditions = {item.get("type"): item.get("status") for item in status.get("conditions") or []}
    desired = int(status.get("desiredWorkerReplicas") or 0)  # zero is left out of the JSON
    return (
        status.get("observedGeneration") == cluster["metadata"].get("generation")
        and conditions.get("HeadPodReady") == "True"
        and conditions.get("ReplicaFailure") != "True"
        and desired == workers
        and int(status.get("readyWorkerReplicas") or 0) == desired
    )


def trouble(
    pods: Iterable[Object],
    events: Iterable[Object],
    run_id: str,
    since: float,
    now: float | None = None,
) -> tuple[Failure, str] | None:
    """Return the worst trouble that pods and events since a moment show, or None.

    A fatal class wins over a passing one; events of other objects do not count.

    Args:
        pods, events: as Kubernetes lists them.
        run_id: whose.
        since: epoch seconds; older events do not count.
        now: epoch seconds; None: how long a pod has been stuck is not looked at.
    """
    found = [*_pod_trouble(pods, now), *_event_trouble(events, run_id, since)]
    found.sort(key=lambda item: item[0] not in FATAL)
    return found[0] if found else None


def lost_nodes(
    pods: Iterable[Object], events: Iterable[Object], run_id: str, since: float
) -> Failure | None:
    """Return PREEMPTED or NODE_LOST if a worker's node went away since a moment, else None.

    A worker's container that began again inside its pod, which keeps its age, lost all that ran in
    it: NODE_LOST, or USER_OOM when the kernel killed it for its memory.
    """
    gone, restarted = False, None
    for pod in pods:
        status = pod.get("status") or {}
        ended = _ended(pod)
        if ended is not None and ended < since:
            continue  # a pod that an earlier loss left behind
        text = f"{status.get('reason', '')} {status.get('message', '')}".lower()
        if any(word in text for word in _LOST):
            return Failure.PREEMPTED
        restarted = restarted or _restarted(pod, since)
        gone = gone or any(word in text for word in _GONE)
    for event in events:
        if _moment(event) < since or event.get("reason") in _WAITING:
            continue
        text = f"{event.get('reason', '')} {event.get('message', '')}".lower()
        about = event.get("involvedObject") or {}
        ours = _is_ours(event, run_id) or about.get("kind") == "Node"
        if ours and any(word in text for word in _LOST):
            return Failure.PREEMPTED
        gone = gone or (ours and any(word in text for word in _GONE))
    return Failure.NODE_LOST if gone else restarted


def worker_was_replaced(pods: Iterable[Object], since: float) -> bool:
    """Say whether a worker's pod is younger than the attempt that began with all of them: its
    node went away, though no event tells of it any more.
    """
    return any(
        (pod["metadata"].get("labels") or {}).get("ray.io/node-type") == "worker"
        and _epoch(pod["metadata"].get("creationTimestamp")) > since
        for pod in pods
    )


def _pod_trouble(pods: Iterable[Object], now: float | None) -> Iterable[tuple[Failure, str]]:
    for pod in pods:
        name = pod["metadata"]["name"]
        for container in (pod.get("status") or {}).get("containerStatuses") or []:
            waiting = (container.get("state") or {}).get("waiting") or {}
            message = str(waiting.get("message") or waiting.get("reason"))
            if waiting.get("reason") in _IMAGE_TROUBLE:
                yield _pull_failure(pod, message), f"pod {name}: {message}"
            elif waiting.get("reason") in _START_TROUBLE:
                how = _how_it_ended(container)
                yield _start_failure(pod, container, how, now), f"pod {name}: {how}"


def _pull_failure(pod: Object, message: str) -> Failure:
    """A back-off without a cause is no verdict on a worker's image: the head, which is ready
    before there are workers, runs the same one.
    """
    never = _PULL_NEVER.search(message)
    passing = _PULL_MAY_PASS.search(message) or (
        kind_of(pod) == "worker" and message.startswith("Back-off")
    )
    passing = passing and not never
    return Failure.INFRA_TRANSIENT if passing else Failure.IMAGE_ERROR


def _start_failure(pod: Object, container: Object, how: str, now: float | None) -> Failure:
    """A head that never starts shows what is wrong with the image before a GPU is up; a worker
    that cannot start is paid for while it is tried again, and in another zone it would not either.
    """
    if kind_of(pod) == "worker" and _NODE_FAULT.search(how):
        return Failure.INFRA_TRANSIENT
    if int(container.get("restartCount") or 0) >= STARTS:
        return Failure.IMAGE_ERROR if kind_of(pod) else Failure.INFRA_TRANSIENT
    conditions = (pod.get("status") or {}).get("conditions") or []
    placed = [
        _epoch(one.get("lastTransitionTime"))
        for one in conditions
        if one.get("type") == "PodScheduled" and one.get("status") == "True"
    ]
    reason = container["state"]["waiting"]["reason"]
    never_made = not container.get("restartCount") and reason != "CrashLoopBackOff"
    if now is not None and placed and never_made and now - max(placed) >= STUCK:
        return Failure.CONFIG
    return Failure.INFRA_TRANSIENT


def kind_of(pod: Object) -> str:
    """Return "head" or "worker", "" for a pod that is neither."""
    return str((pod["metadata"].get("labels") or {}).get("ray.io/node-type") or "")


def _restarted(pod: Object, since: float) -> Failure | None:
    """Say what a worker's container that ended and began again inside its pod is a sign of."""
    if kind_of(pod) != "worker":
        return None
    found = None
    for container in (pod.get("status") or {}).get("containerStatuses") or []:
        before = (container.get("lastState") or {}).get("terminated") or {}
        if not container.get("restartCount") or _epoch(before.get("finishedAt")) < since:
            continue
        if before.get("reason") == "OOMKilled":
            return Failure.USER_OOM
        found = Failure.NODE_LOST
    return found


def _how_it_ended(container: Object) -> str:
    waiting = container["state"]["waiting"]
    ended = (container.get("lastState") or {}).get("terminated") or {}
    parts = [f"{waiting['reason']} after {container.get('restartCount') or 0} restarts"]
    if ended:
        parts.append(f"it ended with {ended.get('reason') or 'Error'}, code {ended['exitCode']}")
    parts.append(str(ended.get("message") or waiting.get("message") or "").strip())
    return shorten(": ".join(part for part in parts if part), 300)


def _event_trouble(
    events: Iterable[Object], run_id: str, since: float
) -> Iterable[tuple[Failure, str]]:
    for event in events:
        if event.get("type") != "Warning" or not _is_ours(event, run_id):
            continue
        if _moment(event) < since:
            continue
        reason, message = str(event.get("reason", "")), str(event.get("message", ""))
        if reason.startswith("InvalidRayCluster"):
            yield Failure.CONFIG, f"KubeRay refuses the RayCluster: {message}"
            continue
        if reason == "FailedMount" and _NO_FILES.search(message):
            # The first try may come before the object is there; the kubelet counts its tries.
            if int(event.get("count") or 1) >= STARTS:
                yield Failure.CONFIG, f"{reason}: {message}"
            continue
        failure = classify_text(f"{reason} {message}")
        if failure is Failure.IMAGE_ERROR and not _PULL_NEVER.search(message):
            continue  # the next pull may have gone well: the pod's own state tells
        if failure is not Failure.UNKNOWN:
            yield failure, f"{reason}: {message}"


def _is_ours(event: Object, run_id: str) -> bool:
    return str((event.get("involvedObject") or {}).get("name", "")).startswith(run_id)


def _ended(pod: Object) -> float | None:
    """Return when a pod ended: when its newest container did, else when it was last told of. None
    while a container runs. A pod that was evicted before it ran names no container.
    """
    status = pod.get("status") or {}
    moments = []
    for container in status.get("containerStatuses") or []:
        ended = (container.get("state") or {}).get("terminated")
        if not ended:
            return None
        moments.append(_epoch(ended.get("finishedAt")))
    if moments or status.get("phase") not in ("Failed", "Succeeded"):
        return max(moments, default=None)
    told = [_epoch(one.get("lastTransitionTime")) for one in status.get("conditions") or []]
    return max([*told, _epoch(pod["metadata"].get("creationTimestamp"))])


def _moment(event: Object) -> float:
    text = event.get("lastTimestamp") or event.get("eventTime")
    return _epoch(text or (event.get("metadata") or {}).get("creationTimestamp"))


def _epoch(text: object) -> float:
    if not text:
        return 0.0
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0
