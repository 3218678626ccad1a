"""The Ray operator of one cluster: RayClusters become pods, pods become real Ray processes.

Behaves as KubeRay does where a caller can tell the difference: an invalid spec is only a Warning
event, `state: ready` is sticky, zero counts are left out, the head service is `<name>-head-svc`,
a changed pod template does not restart pods, a lost pod is made anew later.
`reconcile` is called again and again by the cloud's controller thread, with the lock held.
"""

from __future__ import annotations

import os
import time

from infra.local.cloud import mounts
from infra.local.cloud.cluster import KubeCluster, PodRuntime
from infra.local.cloud.kube_bodies import gpus_of, is_over
from infra.local.cloud.object_values import Object
from infra.local.cloud.objects import RESOURCES, stamp
from infra.local.cloud.raycluster_parts import (
    PODS,
    cpu_limit,
    env_value,
    find_fault,
    given_up,
    group_of,
    head_runtime,
    owner_reference,
    pods_of,
    replicas,
    tell_once,
    unbound_claim,
)
from infra.local.cloud.raycluster_status import is_ready, node_type, write_status
from infra.local.cloud.state import unique

GROUP = "ray.io"
CRD = "rayclusters.ray.io"
_CPUS = max(1, os.cpu_count() or 1)
RAY = RESOURCES["rayclusters"]


def operator_is_there(cluster: KubeCluster) -> bool:
    """Say whether the RayCluster kind is served, installing it when its time has come."""
    if cluster.store.find("customresourcedefinitions", "", CRD) is not None:
        return True
    addon = cluster.gke.message.addons_config.ray_operator_config
    if not addon.enabled or cluster.started_at is None:
        return False
    if cluster.state.faults.value("kubernetes.operator") is not None:
        return False
    if time.monotonic() - cluster.started_at < cluster.state.timings.operator:
        return False
    cluster.store.create(
        RESOURCES["customresourcedefinitions"],
        "",
        {
            "metadata": {"name": CRD},
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": {"kind": "RayCluster", "plural": "rayclusters", "singular": "raycluster"},
                "versions": [{"name": "v1", "served": True, "storage": True}],
            },
            "status": {"conditions": [{"type": "Established", "status": "True"}]},
        },
    )
    return True


def reconcile(cluster: KubeCluster) -> None:
    """Bring every RayCluster one step nearer to what its spec says."""
    if cluster.closed or not operator_is_there(cluster):
        return
    present = cluster.store.select(RAY, "")
    uids = {item["metadata"]["uid"] for item in present}
    for pod in cluster.store.select(PODS, ""):
        owner = (pod["metadata"].get("ownerReferences") or [{}])[0].get("uid")
        if owner is not None and owner not in uids:
            cluster.remove_pod(pod)
    for service in cluster.store.select(RESOURCES["services"], ""):
        owner = (service["metadata"].get("ownerReferences") or [{}])[0].get("uid")
        if owner is not None and owner not in uids:
            cluster.store.remove("services", service)
    for item in present:
        if item["metadata"].get("deletionTimestamp"):
            for pod in pods_of(cluster, item):
                cluster.remove_pod(pod)
            cluster.store.remove("rayclusters", item)
            continue
        problem = find_fault(item)
        if problem is not None:
            tell_once(cluster, item, *problem)
            continue
        _reconcile_one(cluster, item)
    cluster.drop_idle_nodes()


def _reconcile_one(cluster: KubeCluster, item: Object) -> None:
    problem: str | None = None
    _ensure_service(cluster, item)
    pods = pods_of(cluster, item)
    spec = item["spec"]
    if spec.get("suspend"):
        for pod in pods:
            cluster.remove_pod(pod)
        write_status(cluster, item, [], 0, None)
        return
    heads = [pod for pod in pods if node_type(pod) == "head"]
    heads = _without_lost(cluster, item, heads)
    if not heads:
        # A new head has a new GCS: what joined the old one cannot join it.
        for pod in [pod for pod in pods if node_type(pod) == "worker"]:
            cluster.remove_pod(pod)
        problem = _make_pod(cluster, item, "head", spec["headGroupSpec"], "headgroup")
    desired = 0
    for group in spec.get("workerGroupSpecs") or []:
        wanted = 0 if group.get("suspend") else replicas(group)
        desired += wanted
        here = [
            pod
            for pod in pods_of(cluster, item)
            if pod["metadata"]["labels"]["ray.io/group"] == group["groupName"]
        ]
        here = _without_lost(cluster, item, here)
        here = [pod for pod in here if not given_up(cluster, group, pod)]
        for pod in here[wanted:]:
            cluster.remove_pod(pod)
        for _ in range(wanted - len(here)):
            problem = problem or _make_pod(cluster, item, "worker", group, group["groupName"])
    for pod in pods_of(cluster, item):
        _step_pod(cluster, item, pod)
    write_status(cluster, item, pods_of(cluster, item), desired, problem)


def _without_lost(cluster: KubeCluster, item: Object, pods: list[Object]) -> list[Object]:
    """Remove pods that ended or were deleted; a Failed one counts until it is made anew."""
    kept = []
    for pod in pods:
        runtime = cluster.pods.get(pod["metadata"]["name"])
        if pod["metadata"].get("deletionTimestamp"):
            cluster.remove_pod(pod)
            continue
        if not is_over(pod) and runtime and runtime.raylet and not runtime.raylet.alive:
            code = runtime.raylet.process.poll()
            cluster.fail_pod(pod, "Error", f"The Ray container ended with exit code {code}.")
            runtime.wanted_since = None
        if is_over(pod) and runtime is not None:
            if runtime.wanted_since is None:
                runtime.wanted_since = time.monotonic()
            elif time.monotonic() - runtime.wanted_since > cluster.state.timings.recreate:
                cluster.event(
                    item,
                    "RayCluster",
                    "DeletedPod",
                    "Deleted Pod "
                    f"{pod['metadata']['namespace']}/{pod['metadata']['name']}; Pod "
                    "status: Failed; Pod restart policy: Never",
                    kind="Normal",
                )
                cluster.remove_pod(pod)
                continue
        kept.append(pod)
    return kept


def _make_pod(
    cluster: KubeCluster, item: Object, kind: str, group: Object, group_name: str
) -> str | None:
    meta, template = item["metadata"], group["template"]
    account = template["spec"].get("serviceAccountName", "default")
    if cluster.store.find("serviceaccounts", meta["namespace"], account) is None:
        text = (
            f'pods "{meta["name"]}-{kind}" is forbidden: error looking up service account '
            f'{meta["namespace"]}/{account}: serviceaccount "{account}" not found'
        )
        tell_once(cluster, item, f"FailedToCreate{kind.capitalize()}Pod", text)
        return text
    suffix = "head" if kind == "head" else f"{group_name}-worker"
    name = f"{meta['name']}-{suffix}"[:50].rstrip("-") + f"-{unique(5)}"
    labels = {
        **((template.get("metadata") or {}).get("labels") or {}),
        "ray.io/cluster": meta["name"],
        "ray.io/node-type": kind,
        "ray.io/group": group_name,
        "ray.io/is-ray-node": "yes",
        "ray.io/identifier": f"{meta['name']}-{kind}",
        "app.kubernetes.io/created-by": "kuberay-operator",
        "app.kubernetes.io/name": "kuberay",
    }
    annotations = {
        **((template.get("metadata") or {}).get("annotations") or {}),
        "ray.io/kuberay-version": "v1.5.1",
    }
    pod = cluster.store.create(
        PODS,
        meta["namespace"],
        {
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": [owner_reference(item)],
            },
            "spec": {**template["spec"], "restartPolicy": "Never"},
            "status": {"phase": "Pending", "conditions": []},
        },
    )
    cluster.pods[pod["metadata"]["name"]] = PodRuntime(created=time.monotonic())
    cluster.event(
        item,
        "RayCluster",
        f"Created{kind.capitalize()}Pod",
        f"Created {kind} Pod {meta['namespace']}/{name}",
        kind="Normal",
    )
    return None


def _step_pod(cluster: KubeCluster, item: Object, pod: Object) -> None:
    runtime = cluster.pods.get(pod["metadata"]["name"])
    if runtime is None or is_over(pod):
        return
    if runtime.raylet is not None:
        _show_running(cluster, pod, runtime)
        return
    if not pod["spec"].get("nodeName"):
        claim = unbound_claim(cluster, pod)
        if claim is not None:
            text = f'persistentvolumeclaim "{claim}" not found'
            cluster.event(pod, "Pod", "FailedScheduling", text, once=runtime)
            _pending(cluster, pod, "PodScheduled", "Unschedulable", text)
            return
        node = cluster.place(pod, runtime)
        if node is None:
            _pending(cluster, pod, "PodScheduled", "Unschedulable", "no node fits")
            return
        runtime.wanted_since = None
        pod["spec"]["nodeName"] = node
        cluster.store.touch("pods", pod)
    problem = cluster.mount(pod, runtime)
    if problem is not None:
        cluster.event(pod, "Pod", "FailedMount", problem, once=runtime)
        _waiting(cluster, pod, "ContainerCreating", "")
        return
    image = cluster.state.faults.value("kubernetes.image")
    if image is not None:
        cluster.event(pod, "Pod", "Failed", str(image), once=runtime)
        _waiting(cluster, pod, "ImagePullBackOff", str(image))
        return
    _start(cluster, item, pod, runtime)


def _start(cluster: KubeCluster, item: Object, pod: Object, runtime: PodRuntime) -> None:
    name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
    group = group_of(item, pod)
    parameters = group.get("rayStartParams") or {}
    cpus = max(1, min(_CPUS, int(float(parameters.get("num-cpus") or cpu_limit(container)))))
    env = {
        entry["name"]: mounts.inward(env_value(cluster, pod, entry), runtime.mounts)
        for entry in container.get("env") or []
    }
    home = cluster.folder / name / "home"
    if node_type(pod) == "head":
        runtime.raylet = cluster.raylets.start_head(name, env, cpus, home)
    else:
        head = head_runtime(cluster, item)
        if head is None or head.raylet is None or not head.healthy:
            _waiting(cluster, pod, "PodInitializing", "")  # KubeRay's wait-gcs-ready container
            return
        gpus = int(float(parameters.get("num-gpus") or gpus_of(pod)))
        runtime.raylet = cluster.raylets.start_worker(name, env, cpus, gpus, head.raylet.gcs, home)
    cluster.watch_health(name, runtime)
    _show_running(cluster, pod, runtime)


def _show_running(cluster: KubeCluster, pod: Object, runtime: PodRuntime) -> None:
    raylet, ready = runtime.raylet, runtime.healthy
    assert raylet is not None
    before = pod.get("status") or {}
    since = before.get("startTime", stamp())
    flag = "True" if ready else "False"
    changed = ready != is_ready(pod)
    moment = (
        stamp()
        if changed
        else (before.get("conditions") or [{}])[0].get("lastTransitionTime", since)
    )
    container = pod["spec"]["containers"][0]
    cluster.store.set_status(
        "pods",
        pod,
        {
            "phase": "Running",
            "podIP": raylet.address,
            "hostIP": raylet.address,
            "startTime": since,
            "conditions": [
                {"type": "Ready", "status": flag, "lastTransitionTime": moment},
                {"type": "ContainersReady", "status": flag, "lastTransitionTime": moment},
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": since},
            ],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "imageID": "",
                    "image": container.get("image", ""),
                    "ready": ready,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": since}},
                }
            ],
        },
    )


def _ensure_service(cluster: KubeCluster, item: Object) -> None:
    meta = item["metadata"]
    name = f"{meta['name']}-head-svc"
    if cluster.store.find("services", meta["namespace"], name) is None:
        ports = (
            ("gcs", 6379),
            ("dashboard", 8265),
            ("client", 10001),
            ("metrics", 8080),
            ("serve", 8000),
        )
        cluster.store.create(
            RESOURCES["services"],
            meta["namespace"],
            {
                "metadata": {
                    "name": name,
                    "ownerReferences": [owner_reference(item)],
                    "labels": {"ray.io/cluster": meta["name"], "ray.io/node-type": "head"},
                },
                "spec": {
                    "type": item["spec"]["headGroupSpec"].get("serviceType", "ClusterIP"),
                    "clusterIP": "None",
                    "publishNotReadyAddresses": True,
                    "selector": {"ray.io/cluster": meta["name"], "ray.io/node-type": "head"},
                    "ports": [
                        {"name": label, "port": port, "targetPort": port, "protocol": "TCP"}
                        for label, port in ports
                    ],
                },
            },
        )


def _pending(cluster: KubeCluster, pod: Object, kind: str, reason: str, message: str) -> None:
    before = (pod.get("status") or {}).get("conditions") or []
    since = before[0].get("lastTransitionTime", stamp()) if before else stamp()
    cluster.store.set_status(
        "pods",
        pod,
        {
            "phase": "Pending",
            "conditions": [
                {
                    "type": kind,
                    "status": "False",
                    "reason": reason,
                    "message": message,
                    "lastTransitionTime": since,
                }
            ],
        },
    )


def _waiting(cluster: KubeCluster, pod: Object, reason: str, message: str) -> None:
    container = pod["spec"]["containers"][0]
    cluster.store.set_status(
        "pods",
        pod,
        {
            "phase": "Pending",
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": "False", "reason": "ContainersNotReady"},
            ],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "imageID": "",
                    "image": container.get("image", ""),
                    "ready": False,
                    "started": False,
                    "restartCount": 0,
                    "state": {
                        "waiting": {"reason": reason, **({"message": message} if message else {})}
                    },
                }
            ],
        },
    )
