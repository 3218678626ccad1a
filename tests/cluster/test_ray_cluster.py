"""Our RayCluster against the real CRD, the real operator and played nodes."""

from __future__ import annotations

import time
from typing import Any

import pytest
from lustrum.core import kubernetes_objects
from lustrum.core.failures import NODE_LOSS, Failure
from lustrum.core.profiles import profiles
from lustrum.core.readiness import cluster_is_ready, lost_nodes, trouble, worker_was_replaced
from lustrum.core.run_plan import RunPlan

from testing.cluster.api import Api, ApiError
from testing.cluster.nodes import Nodes
from testing.cluster.plans import EXPIRES, companions, fresh_plan
from testing.cluster.processes import Child
from tests.cluster.conftest import Cluster, Until


def apply_all(api: Api, plan: RunPlan, workers: int) -> Cluster:
    for companion in companions(plan):
        api.apply(companion)
    api.apply(kubernetes_objects.ray_cluster(plan, EXPIRES, workers))
    return Cluster(api, plan.run_id)


def lost_fields(sent: Any, stored: Any, path: str = "") -> list[str]:
    """Paths of what we sent and the server did not keep as it was."""
    if isinstance(sent, dict):
        kept = stored if isinstance(stored, dict) else {}
        return [
            lost
            for key, value in sent.items()
            for lost in lost_fields(value, kept.get(key), f"{path}.{key}")
        ]
    if isinstance(sent, list):
        kept_items = stored if isinstance(stored, list) else []
        return [
            lost
            for number, value in enumerate(sent)
            for lost in lost_fields(
                value,
                kept_items[number] if number < len(kept_items) else None,
                f"{path}[{number}]",
            )
        ]
    return [] if sent == stored else [f"{path}: {sent!r} became {stored!r}"]


@pytest.mark.usefixtures("operator")
class TestRayCluster:
    @pytest.mark.parametrize("profile", sorted(profiles()))
    def test_ray_cluster_of_a_profile_is_accepted_and_reconciled(
        self, api: Api, nodes: Nodes, until: Until, profile: str
    ) -> None:
        plan = fresh_plan(profile=profile)
        nodes.resize("a4", plan.nodes)
        sent = kubernetes_objects.ray_cluster(plan, EXPIRES, plan.nodes)
        cluster = apply_all(api, plan, plan.nodes)

        assert lost_fields(sent, cluster.get()) == []
        until(lambda: cluster.status().get("readyWorkerReplicas") == plan.nodes, "all workers")
        assert len(cluster.pods("head")) == 1
        assert len(cluster.pods("worker")) == plan.nodes
        head_node = cluster.pods("head")[0]["spec"]["nodeName"]
        assert head_node.startswith("system")
        assert {pod["spec"]["nodeName"] for pod in cluster.pods("worker")} == set(
            nodes.names("a4")
        )
        assert cluster.status()["head"]["serviceName"] == f"{plan.run_id}-head-svc"

    def test_state_ready_is_sticky_and_our_test_is_not(
        self, api: Api, nodes: Nodes, until: Until
    ) -> None:
        plan = fresh_plan(nodes=2)
        cluster = apply_all(api, plan, 2)
        until(lambda: cluster_is_ready(cluster.get(), 2), "ready")
        assert not cluster_is_ready(cluster.get(), 3), "another size is not ready"
        lost = cluster.pods("worker")[0]["metadata"]["name"]

        nodes.behaviour.never_ready = lambda pod: pod["metadata"]["name"] == lost
        until(lambda: not cluster_is_ready(cluster.get(), 2), "one worker is not ready any more")
        assert cluster.status()["state"] == "ready"
        nodes.reset()
        until(lambda: cluster_is_ready(cluster.get(), 2), "ready again")

    def test_invalid_spec_is_told_by_an_event_alone(
        self, api: Api, nodes: Nodes, until: Until
    ) -> None:
        plan = fresh_plan()
        wrong = kubernetes_objects.ray_cluster(plan, EXPIRES, 0)
        wrong["spec"]["headGroupSpec"]["template"]["spec"]["containers"] = []
        api.apply(wrong)
        cluster = Cluster(api, plan.run_id)
        found = until(
            lambda: trouble(cluster.pods(), api.list("Event"), plan.run_id, 0.0), "an event", 20
        )
        assert found[0] is Failure.CONFIG
        assert "KubeRay refuses the RayCluster" in found[1]
        assert not cluster.status().get("conditions")

    def test_lost_node_gets_a_new_worker(self, api: Api, nodes: Nodes, until: Until) -> None:
        plan = fresh_plan(nodes=2)
        cluster = apply_all(api, plan, 2)
        until(lambda: cluster_is_ready(cluster.get(), 2), "ready")
        # Pods carry whole seconds: what comes after must not share one with what was there.
        began = int(time.time()) + 0.5
        until(lambda: time.time() > began + 0.5, "the next second")
        before = {pod["metadata"]["uid"] for pod in cluster.pods("worker")}
        nodes.preempt(nodes.names("a4")[0])
        # KubeRay deletes a Failed pod at once: a look may come too late for the pod's own word,
        # then it is the event of its node, or the age of its replacement, that tells.
        until(
            lambda: (
                lost_nodes(cluster.pods(), api.list("Event"), plan.run_id, began) in NODE_LOSS
                or worker_was_replaced(cluster.pods(), began)
            ),
            "evidence of the loss",
        )
        until(
            lambda: (
                len({pod["metadata"]["uid"] for pod in cluster.pods("worker")} - before) == 1
                and cluster_is_ready(cluster.get(), 2)
            ),
            "a new worker",
        )

    def test_unknown_field_is_refused(self, api: Api) -> None:
        wrong = kubernetes_objects.ray_cluster(fresh_plan(), EXPIRES, 1)
        wrong["spec"]["headGroupSpec"]["template"]["spec"]["nodeselector"] = {"a": "b"}
        with pytest.raises(ApiError) as refused:
            api.apply(wrong)
        assert refused.value.status == 500, "server-side apply answers 500 to an unknown field"
        assert "nodeselector" in str(refused.value)

    def test_probe_follows_the_ray_of_the_image(
        self, api: Api, nodes: Nodes, until: Until, operator: Child
    ) -> None:
        plan = fresh_plan()  # nemo-rl:v0.4.0 holds Ray 2.46, which lacks /api/healthz
        cluster = apply_all(api, plan, 0)
        until(lambda: cluster.pods("head"), "the head pod")
        probe = cluster.pods("head")[0]["spec"]["containers"][0]["readinessProbe"]
        assert "httpGet" not in probe, operator.name
        assert "local_raylet_healthz" in " ".join(probe["exec"]["command"])
