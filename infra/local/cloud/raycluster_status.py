"""The status of a RayCluster, as KubeRay writes it: sticky state, live conditions, no zeros."""

from __future__ import annotations

from infra.local.cloud.cluster import KubeCluster
from infra.local.cloud.object_values import Object
from infra.local.cloud.objects import stamp


def write_status(
    cluster: KubeCluster, item: Object, pods: list[Object], desired: int, problem: str | None
) -> None:
    meta, before = item["metadata"], item.get("status") or {}
    workers = [pod for pod in pods if node_type(pod) == "worker"]
    head = next((pod for pod in pods if node_type(pod) == "head"), None)
    groups = item["spec"].get("workerGroupSpecs") or []
    head_ready = head is not None and is_ready(head)
    all_ready = head_ready and all(is_ready(pod) for pod in pods)
    counts = {
        "desiredWorkerReplicas": desired,
        "minWorkerReplicas": sum(group.get("minReplicas", 0) for group in groups),
        "maxWorkerReplicas": sum(group.get("maxReplicas", 0) for group in groups),
        "availableWorkerReplicas": sum(
            1 for pod in workers if pod["status"].get("phase") == "Running"
        ),
        "readyWorkerReplicas": sum(1 for pod in workers if is_ready(pod)),
    }
    status: Object = {key: value for key, value in counts.items() if value}
    status["observedGeneration"] = meta["generation"]
    status["head"] = {"serviceName": f"{meta['name']}-head-svc"}
    if head is not None:
        status["head"]["podName"] = head["metadata"]["name"]
        for key in ("podIP", "serviceIP"):
            address = head["status"].get("podIP")
            if address:
                status["head"][key] = address
    status["endpoints"] = {"dashboard": "8265", "gcs": "6379", "client": "10001"}
    suspended = bool(item["spec"].get("suspend"))
    if suspended:
        status["state"] = "suspended"
    elif all_ready and len(pods) == desired + 1 and problem is None:
        status["state"] = "ready"
    elif before.get("state"):
        status["state"] = before["state"]  # sticky
    provisioned = all_ready or condition(before, "RayClusterProvisioned") == "True"
    status["conditions"] = _conditions(
        before,
        {
            "HeadPodReady": (
                head_ready,
                "HeadPodRunningAndReady"
                if head_ready
                else "HeadPodNotFound"
                if head is None
                else "ContainersNotReady",
            ),
            "RayClusterProvisioned": (
                provisioned and not suspended,
                "AllPodRunningAndReadyFirstTime" if provisioned else "RayClusterPodsProvisioning",
            ),
            **({"ReplicaFailure": (True, "FailedCreatePod")} if problem else {}),
        },
        problem or "",
    )
    if {**before, "lastUpdateTime": 0} != {**status, "lastUpdateTime": 0}:
        status["lastUpdateTime"] = stamp()
        cluster.store.set_status("rayclusters", item, status)


def _conditions(before: Object, wanted: dict[str, tuple[bool, str]], message: str) -> list[Object]:
    known = {item["type"]: item for item in before.get("conditions") or []}
    found = []
    for kind, (flag, reason) in wanted.items():
        text = "True" if flag else "False"
        old = known.get(kind)
        same = old is not None and old["status"] == text
        moment = old["lastTransitionTime"] if same and old is not None else stamp()
        found.append(
            {
                "type": kind,
                "status": text,
                "reason": reason,
                "lastTransitionTime": moment,
                "message": message if kind == "ReplicaFailure" else "",
            }
        )
    return found


def node_type(pod: Object) -> str:
    return str(pod["metadata"]["labels"].get("ray.io/node-type", ""))


def is_ready(pod: Object) -> bool:
    return condition(pod.get("status") or {}, "Ready") == "True"


def condition(status: Object, kind: str) -> str | None:
    for item in status.get("conditions") or []:
        if item["type"] == kind:
            return str(item["status"])
    return None
