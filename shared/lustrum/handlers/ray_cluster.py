"""`apply_ray_cluster` and `delete_ray_cluster`: bring the RayCluster up, head first, and away
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lustrum.adapters.supervisor_archive import supervisor_archive
from lustrum.core import kubernetes_objects, names
from lustrum.core.broken_nodes import avoided, pods_on
from lustrum.core.build_substitutions import next_zone
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.failures import Failure
from lustrum.core.readiness import CLOCK_SKEW, FATAL, cluster_is_ready, trouble
from lustrum.core.record import Run, State, check_live, check_owned
from lustrum.core.usage import start_usage
from lustrum.wiring.http import Answer
from lustrum.wiring.services import Services

if TYPE_CHECKING:  # a function that needs neither does not load them
    from lustrum.adapters.kubernetes import Kubernetes

SOLD_OUT = 600.0  # seconds of a stock-out after which another zone, if there is one, is better
HURRY = 10.0  # seconds between looks once the first GPU node is up
_HEAD_ONLY = frozenset({State.PROVISIONING, State.STARTING_HEAD, State.STAGING})


def apply_ray_cluster(
    services: Services, run_id: str, execution: str | None, tokens: tuple[str, str] = ("", "")
) -> Answer:
    """Ensure everything of the RayCluster for the run's present state, and say whether it is
    ready.

    Args:
        services: the services.
        run_id: the run.
        execution: the rl_run execution that asks.
        tokens: Hugging Face token and Weights & Biases key, "" when not given.

    Returns:
        ``ready``, ``why`` not, and ``failure`` when waiting cannot help.
    """
    run = services.ledger.load(run_id)
    check_live(run, execution, services.now())
    workers = 0 if run.state in _HEAD_ONLY else run.plan.nodes
    try:
        cluster_api = services.kubernetes(run_id)
        waiting = _claim_trouble(cluster_api)
        if waiting:
            return _not_ready(waiting)
        if bool(tokens[1]) != run.wandb:
            services.ledger.change(run_id, lambda one: setattr(one, "wandb", bool(tokens[1])))
        cluster = _ensure_cluster(cluster_api, run, workers, tokens)
        if cluster is None:
            return _not_ready("the RayCluster's spec changed: it is created again")
        return _look(services, cluster_api, run, cluster, workers)
    except NotFound as error:  # the cluster, its claim or the RayCluster kind is not there yet
        return _not_ready(str(error))
    except ServiceError as error:
        why = str(error)
        for secret in filter(None, tokens):  # an API may quote what it refuses
            why = why.replace(secret, "***")
        return _not_ready(why, None if error.retryable else error.failure)


def delete_ray_cluster(services: Services, run_id: str, execution: str | None = None) -> Answer:
    """Delete the RayCluster and say whether it and its pods are gone.

    Args:
        services: the services.
        run_id: the run.
        execution: the teardown that asks; None asks without one.

    Raises:
        Refused: the run's teardown is another's: what it deletes may be the next zone's.
    """
    if execution is not None:
        check_owned(services.ledger.load(run_id), execution)
    try:
        kubernetes = services.kubernetes(run_id)
        kubernetes.delete("RayCluster", run_id)
        left = [pod["metadata"]["name"] for pod in kubernetes.pods(run_id)]
        try:
            kubernetes.get("RayCluster", run_id)
            left.append(f"RayCluster {run_id}")
        except NotFound:
            pass
    except NotFound:
        return {"gone": True, "left": []}
    return {"gone": not left, "left": left}


def _claim_trouble(kubernetes: Kubernetes) -> str:
    claim = kubernetes.get("PersistentVolumeClaim", names.CLAIM)
    phase = (claim.get("status") or {}).get("phase")
    return "" if phase == "Bound" else f"claim {names.CLAIM} is {phase}, not Bound"


def _ensure_objects(kubernetes: Kubernetes, run: Run, tokens: tuple[str, str]) -> None:
    expires = run.hard_deadline_at
    kubernetes.apply(kubernetes_objects.account(run.plan, expires))
    kubernetes.apply(kubernetes_objects.tokens(run.plan, expires, *tokens, run.event_key))
    files = {"supervisor.pyz": supervisor_archive()}
    kubernetes.apply(kubernetes_objects.job_files(run.plan, expires, files))


def _ensure_cluster(
    kubernetes: Kubernetes, run: Run, workers: int, tokens: tuple[str, str]
) -> dict[str, Any] | None:
    """Apply the RayCluster and what it mounts; None when one of another spec is deleted first.

    KubeRay ignores a changed pod template on a live cluster, so a changed hash means delete and
    make anew. One that is as wanted is left alone: this is asked every few seconds.
    """
    avoid = run.broken_nodes if workers else []
    leaving = pods_on(kubernetes.pods(run.run_id), avoid) if avoid else []
    wanted = kubernetes_objects.ray_cluster(
        run.plan, run.hard_deadline_at, workers, bool(run.rdma_network), avoid, leaving
    )
    try:
        present = kubernetes.get("RayCluster", run.run_id)
    except NotFound:
        present = None
    if present is not None:
        if present["metadata"].get("deletionTimestamp"):
            return None
        annotations = present["metadata"].get("annotations") or {}
        mine = wanted["metadata"]["annotations"][kubernetes_objects.HASH_ANNOTATION]
        if annotations.get(kubernetes_objects.HASH_ANNOTATION) != mine:
            kubernetes.delete("RayCluster", run.run_id)
            return None
        if _as_wanted(present, wanted):
            return present
    _ensure_objects(kubernetes, run, tokens)
    return kubernetes.apply(wanted)


def _as_wanted(present: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Say whether labels, replicas and the nodes to avoid agree too; the hash leaves them out."""
    labels = present["metadata"].get("labels") or {}
    replicas = [group.get("replicas") for group in present["spec"].get("workerGroupSpecs") or []]
    return (
        replicas == [group["replicas"] for group in wanted["spec"]["workerGroupSpecs"]]
        and avoided(present) == avoided(wanted)
        and all(labels.get(key) == value for key, value in wanted["metadata"]["labels"].items())
    )


def _look(
    services: Services, kubernetes: Kubernetes, run: Run, cluster: dict[str, Any], workers: int
) -> Answer:
    since = run.history[-1].at - CLOCK_SKEW if run.history else 0.0
    pods = kubernetes.pods(run.run_id)
    now, events = services.now(), list(kubernetes.events())
    found = trouble(pods, events, run.run_id, since, now)
    if found is not None and found[0] in FATAL:
        return _not_ready(found[1], found[0])
    if (
        workers
        and run.history
        and now - run.history[-1].at >= SOLD_OUT
        and next_zone(run, services.settings)
    ):
        lately = trouble((), events, run.run_id, now - SOLD_OUT)
        if lately is not None and lately[0] is Failure.STOCKOUT:
            return _not_ready(f"{lately[1]}; there is another zone", Failure.STOCKOUT)
    if workers:
        _count_accelerators(services, run, pods)
    leaving = pods_on(pods, run.broken_nodes) if workers else []
    if leaving:  # what the status counts may be of a moment ago
        answer = _not_ready(f"pod {leaving[0]} has yet to leave a node whose GPU failed")
    elif cluster_is_ready(cluster, workers):
        answer = _ask_ray(services, kubernetes, run, workers)
    else:
        answer = _not_ready(found[1] if found else _what_is_up(cluster, pods, workers))
    if not answer["ready"] and _runs(pods, "worker"):
        answer["wait"] = min(HURRY, run.plan.timing.poll)  # what is up already costs
    return answer


def _what_is_up(cluster: dict[str, Any], pods: list[dict[str, Any]], workers: int) -> str:
    if not workers:
        return "the head pod is " + (
            "running, not ready yet" if _runs(pods, "head") else "pending"
        )
    ready = int((cluster.get("status") or {}).get("readyWorkerReplicas") or 0)
    return f"{ready} of {workers} workers are ready"


def _runs(pods: list[dict[str, Any]], kind: str) -> bool:
    """Say whether a pod of a kind (head, worker) runs."""
    return any(
        (pod["metadata"].get("labels") or {}).get("ray.io/node-type") == kind
        and (pod.get("status") or {}).get("phase") == "Running"
        for pod in pods
    )


def _ask_ray(services: Services, kubernetes: Kubernetes, run: Run, workers: int) -> Answer:
    """Kubernetes may say ready while Ray sees fewer GPUs: Ray's own count decides."""
    ray = services.ray(kubernetes, run.run_id)
    try:
        version = ray.version()
        nodes = ray.nodes()
    except ServiceError as error:
        return _not_ready(str(error))
    if version.get("ray_version") != run.plan.ray_version:
        return _not_ready(
            f"the image runs Ray {version.get('ray_version')}, the plan says "
            f"{run.plan.ray_version}: give ray_version",
            Failure.CONFIG,
        )
    gpus = workers * run.plan.gpus_per_node
    if nodes.alive != workers + 1 or nodes.gpus < gpus:
        return _not_ready(
            f"Ray sees {nodes.alive} of {workers + 1} nodes and {nodes.gpus:g} of {gpus} GPUs"
        )
    return {"ready": True, "why": f"{nodes.alive} nodes, {nodes.gpus:g} GPUs", "failure": None}


def _count_accelerators(services: Services, run: Run, pods: list[dict[str, Any]]) -> None:
    if _runs(pods, "worker") and not any(
        item.resource == "accelerators" and item.until is None for item in run.usage
    ):
        now = services.now()
        services.ledger.change(run.run_id, lambda one: start_usage(one, "accelerators", now))


def _not_ready(why: str, failure: Failure | None = None) -> Answer:
    return {"ready": False, "why": why, "failure": failure}
