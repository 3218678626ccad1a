"""The Ray operator of one cluster: RayClusters become pods, pods become real Ray processes.

Behaves as KubeRay does where a caller can tell the difference: an invalid spec is only a Warning
event, `state: ready` is sticky, zero counts are left out, the head service is `<name>-head-svc`,
a changed pod template does not restart pods, a lost pod is made anew later.
`reconcile` is called again and again by the cloud's controller thread, with the lock held.
"""

from __future__ import annotations

import base64
import os
import re
import time
from pathlib import Path
from typing import Any

from infra.local.cloud import mounts
from infra.local.cloud.cluster import KubeCluster, PodRuntime, gpus_of, is_over
from infra.local.cloud.objects import RESOURCES, Object, stamp
from infra.local.cloud.raycluster_status import is_ready, node_type, write_status
from infra.local.cloud.state import unique

GROUP = "ray.io"
CRD = "rayclusters.ray.io"
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_CPUS = max(1, os.cpu_count() or 1)
PODS, RAY = RESOURCES["pods"], RESOURCES["rayclusters"]


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
    cluster.store.create(RESOURCES["customresourcedefinitions"], "", {
        "metadata": {"name": CRD},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": {
            "kind": "RayCluster", "plural": "rayclusters", "singular": "raycluster"},
            "versions": [{"name": "v1", "served": True, "storage": True}]},
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
    })  # fmt: skip
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
            for pod in _pods_of(cluster, item):
                cluster.remove_pod(pod)
            cluster.store.remove("rayclusters", item)
            continue
        problem = _invalid(item)
        if problem is not None:
            _tell_once(cluster, item, *problem)
            continue
        _reconcile_one(cluster, item)
    cluster.drop_idle_nodes()


def _invalid(item: Object) -> tuple[str, str] | None:
    name, spec = item["metadata"]["name"], item.get("spec") or {}
    if len(name) > 53:
        return "InvalidRayClusterMetadata", f"RayCluster name should be no more than 53 "\
            f"characters, got {len(name)}"  # fmt: skip
    if not _DNS_1035.fullmatch(name):
        return (
            "InvalidRayClusterMetadata",
            f"RayCluster name {name} should be a valid DNS1035 label",
        )
    head = (spec.get("headGroupSpec") or {}).get("template") or {}
    if not (head.get("spec") or {}).get("containers"):
        return "InvalidRayClusterSpec", "headGroupSpec should have at least one container"
    names = set()
    for group in spec.get("workerGroupSpecs") or []:
        if not ((group.get("template") or {}).get("spec") or {}).get("containers"):
            return "InvalidRayClusterSpec", "workerGroupSpec should have at least one container"
        if group.get("minReplicas", 0) > group.get("maxReplicas", 0):
            return "InvalidRayClusterSpec", f"worker group {group['groupName']} minReplicas "\
                "cannot be greater than maxReplicas"  # fmt: skip
        if group["groupName"] in names:
            return "InvalidRayClusterSpec", f"worker group {group['groupName']} is given twice"
        names.add(group["groupName"])
    return None


def _tell_once(cluster: KubeCluster, item: Object, reason: str, text: str) -> None:
    meta = item["metadata"]
    for event in cluster.store.select(RESOURCES["events"], meta["namespace"]):
        about = event["involvedObject"]
        if about.get("uid") == meta["uid"] and event["message"].endswith(text):
            return
    what = "metadata" if reason.endswith("Metadata") else "spec"
    cluster.event(item, "RayCluster", reason, f"The RayCluster {what} is invalid "
                  f"{meta['namespace']}/{meta['name']}: {text}")  # fmt: skip


def _reconcile_one(cluster: KubeCluster, item: Object) -> None:
    problem: str | None = None
    _ensure_service(cluster, item)
    pods = _pods_of(cluster, item)
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
        wanted = 0 if group.get("suspend") else _replicas(group)
        desired += wanted
        here = [pod for pod in _pods_of(cluster, item)
                if pod["metadata"]["labels"]["ray.io/group"] == group["groupName"]]  # fmt: skip
        here = _without_lost(cluster, item, here)
        for pod in here[wanted:]:
            cluster.remove_pod(pod)
        for _ in range(wanted - len(here)):
            problem = problem or _make_pod(cluster, item, "worker", group, group["groupName"])
    for pod in _pods_of(cluster, item):
        _step_pod(cluster, item, pod)
    write_status(cluster, item, _pods_of(cluster, item), desired, problem)


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
        _tell_once(cluster, item, f"FailedToCreate{kind.capitalize()}Pod", text)
        return text
    suffix = "head" if kind == "head" else f"{group_name}-worker"
    name = f"{meta['name']}-{suffix}"[:50].rstrip("-") + f"-{unique(5)}"
    labels = {
        **((template.get("metadata") or {}).get("labels") or {}),
        "ray.io/cluster": meta["name"], "ray.io/node-type": kind, "ray.io/group": group_name,
        "ray.io/is-ray-node": "yes", "ray.io/identifier": f"{meta['name']}-{kind}",
        "app.kubernetes.io/created-by": "kuberay-operator",
        "app.kubernetes.io/name": "kuberay",
    }  # fmt: skip
    annotations = {**((template.get("metadata") or {}).get("annotations") or {}),
                   "ray.io/kuberay-version": "v1.5.1"}  # fmt: skip
    pod = cluster.store.create(PODS, meta["namespace"], {
        "metadata": {"name": name, "labels": labels, "annotations": annotations,
                     "ownerReferences": [_owner(item)]},
        "spec": {**template["spec"], "restartPolicy": "Never"},
        "status": {"phase": "Pending", "conditions": []},
    })  # fmt: skip
    cluster.pods[pod["metadata"]["name"]] = PodRuntime(created=time.monotonic())
    cluster.event(item, "RayCluster", f"Created{kind.capitalize()}Pod",
                  f"Created {kind} Pod {meta['namespace']}/{name}", kind="Normal")  # fmt: skip
    return None


def _step_pod(cluster: KubeCluster, item: Object, pod: Object) -> None:
    runtime = cluster.pods.get(pod["metadata"]["name"])
    if runtime is None or is_over(pod):
        return
    if runtime.raylet is not None:
        _show_running(cluster, pod, runtime)
        return
    if not pod["spec"].get("nodeName"):
        claim = _unbound_claim(cluster, pod)
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
    group = _group(item, pod)
    parameters = group.get("rayStartParams") or {}
    cpus = max(1, min(_CPUS, int(float(parameters.get("num-cpus") or _cpu_limit(container)))))
    env = {
        entry["name"]: mounts.inward(_value(cluster, pod, entry), runtime.mounts)
        for entry in container.get("env") or []
    }
    home = cluster.folder / name / "home"
    if node_type(pod) == "head":
        runtime.raylet = cluster.raylets.start_head(name, env, cpus, home)
    else:
        head = _head_runtime(cluster, item)
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
    moment = stamp() if changed else (before.get("conditions") or [{}])[0].get(
        "lastTransitionTime", since)  # fmt: skip
    container = pod["spec"]["containers"][0]
    cluster.store.set_status("pods", pod, {
        "phase": "Running", "podIP": raylet.address, "hostIP": raylet.address, "startTime": since,
        "conditions": [
            {"type": "Ready", "status": flag, "lastTransitionTime": moment},
            {"type": "ContainersReady", "status": flag, "lastTransitionTime": moment},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": since},
        ],
        "containerStatuses": [{
            "name": container["name"], "imageID": "",
            "image": container.get("image", ""), "ready": ready,
            "started": True, "restartCount": 0, "state": {"running": {"startedAt": since}},
        }],
    })  # fmt: skip


def _ensure_service(cluster: KubeCluster, item: Object) -> None:
    meta = item["metadata"]
    name = f"{meta['name']}-head-svc"
    if cluster.store.find("services", meta["namespace"], name) is None:
        ports = (("gcs", 6379), ("dashboard", 8265), ("client", 10001), ("metrics", 8080),
                 ("serve", 8000))  # fmt: skip
        cluster.store.create(RESOURCES["services"], meta["namespace"], {
            "metadata": {"name": name, "ownerReferences": [_owner(item)],
                         "labels": {"ray.io/cluster": meta["name"], "ray.io/node-type": "head"}},
            "spec": {
                "type": item["spec"]["headGroupSpec"].get("serviceType", "ClusterIP"),
                "clusterIP": "None", "publishNotReadyAddresses": True,
                "selector": {"ray.io/cluster": meta["name"], "ray.io/node-type": "head"},
                "ports": [{"name": label, "port": port, "targetPort": port, "protocol": "TCP"}
                          for label, port in ports],
            },
        })  # fmt: skip


def _pending(cluster: KubeCluster, pod: Object, kind: str, reason: str, message: str) -> None:
    before = (pod.get("status") or {}).get("conditions") or []
    since = before[0].get("lastTransitionTime", stamp()) if before else stamp()
    cluster.store.set_status("pods", pod, {"phase": "Pending", "conditions": [
        {"type": kind, "status": "False", "reason": reason, "message": message,
         "lastTransitionTime": since}]})  # fmt: skip


def _waiting(cluster: KubeCluster, pod: Object, reason: str, message: str) -> None:
    container = pod["spec"]["containers"][0]
    cluster.store.set_status("pods", pod, {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "True"},
                       {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}],
        "containerStatuses": [{
            "name": container["name"], "imageID": "",
            "image": container.get("image", ""), "ready": False,
            "started": False, "restartCount": 0,
            "state": {"waiting": {"reason": reason, **({"message": message} if message else {})}},
        }],
    })  # fmt: skip


def _unbound_claim(cluster: KubeCluster, pod: Object) -> str | None:
    for volume in pod["spec"].get("volumes") or []:
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim and cluster.claim_folder(pod["metadata"]["namespace"], claim) is None:
            return str(claim)
    return None


def _value(cluster: KubeCluster, pod: Object, entry: Object) -> str:
    source = entry.get("valueFrom") or {}
    for key, plural in (("secretKeyRef", "secrets"), ("configMapKeyRef", "configmaps")):
        if key in source:
            found = cluster.store.find(plural, pod["metadata"]["namespace"], source[key]["name"])
            text = str(((found or {}).get("data") or {}).get(source[key]["key"], ""))
            return base64.b64decode(text).decode() if plural == "secrets" else text
    return str(entry.get("value") or "")


def _pods_of(cluster: KubeCluster, item: Object) -> list[Object]:
    meta = item["metadata"]
    return cluster.store.select(PODS, meta["namespace"], f"ray.io/cluster={meta['name']}")


def head_mounts(cluster: KubeCluster, service: Object) -> tuple[int | None, dict[str, Path]]:
    """Return dashboard port and mounts of the running head behind a service."""
    selector = ",".join(f"{key}={value}" for key, value in service["spec"]["selector"].items())
    for pod in cluster.store.select(PODS, service["metadata"]["namespace"], selector):
        runtime = cluster.pods.get(pod["metadata"]["name"])
        if runtime is not None and runtime.raylet is not None and not is_over(pod):
            return runtime.raylet.dashboard, dict(runtime.mounts)
    return None, {}


def _head_runtime(cluster: KubeCluster, item: Object) -> PodRuntime | None:
    for pod in _pods_of(cluster, item):
        if node_type(pod) == "head" and not is_over(pod):
            return cluster.pods.get(pod["metadata"]["name"])
    return None


def _group(item: Object, pod: Object) -> Any:
    name = pod["metadata"]["labels"]["ray.io/group"]
    for group in item["spec"].get("workerGroupSpecs") or []:
        if group["groupName"] == name and node_type(pod) == "worker":
            return group
    return item["spec"]["headGroupSpec"]


def _replicas(group: Object) -> int:
    least, most = group.get("minReplicas", 0), group.get("maxReplicas", 0)
    return int(min(max(group.get("replicas", least), least), most))


def _cpu_limit(container: Object) -> str:
    resources = container.get("resources") or {}
    text = str((resources.get("limits") or resources.get("requests") or {}).get("cpu", "1"))
    return str(float(text[:-1]) / 1000) if text.endswith("m") else text


def _owner(item: Object) -> Object:
    meta = item["metadata"]
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": meta["name"],
            "uid": meta["uid"], "controller": True, "blockOwnerDeletion": True}  # fmt: skip
