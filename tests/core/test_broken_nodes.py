"""Which node's GPU broke, and how a RayCluster keeps off it."""

from __future__ import annotations

from typing import Any

import pytest
from lustrum.core import kubernetes_objects
from lustrum.core.broken_nodes import broken_node, pods_on

from testing.samples import plan


def pod(number: int, kind: str = "worker") -> dict[str, Any]:
    return {
        "metadata": {"name": f"pod-{number}", "labels": {"ray.io/node-type": kind}},
        "spec": {"nodeName": f"node-{number}"},
        "status": {"podIP": f"10.4.2.{number}"},
    }


class TestWhichNode:
    @pytest.mark.parametrize(
        ("message", "node"),
        [
            ("a GPU failed on node 10.4.2.7: uncorrectable ECC error encountered", "node-7"),
            ("a GPU failed: GPU 3 of node 10.4.2.8: Xid 79; RuntimeError: CUDA error", "node-8"),
            ("a GPU failed: GPU is lost", None),  # nobody can tell which
            ("a GPU failed on node 10.4.2.9: the head has none", None),
            ("a GPU failed on node 10.4.2.70: of an earlier pod", None),
            ("ValueError: no such node 10.4.2.7", None),
        ],
    )
    def test_is_named_by_the_address_of_its_pod(self, message: str, node: str | None) -> None:
        assert broken_node(message, [pod(7), pod(8), pod(9, "head")], 2) == node

    def test_is_the_only_one_of_a_run_with_one(self) -> None:
        assert broken_node("a GPU failed: GPU is lost", [pod(9, "head"), pod(7)], 1) == "node-7"
        assert broken_node("a GPU failed: GPU is lost", [pod(9, "head")], 1) is None

    def test_pods_on_a_node_are_the_workers_alone(self) -> None:
        pods = [pod(9, "head"), pod(8), pod(7)]
        assert pods_on(pods, ["node-7", "node-8", "node-9"]) == ["pod-7", "pod-8"]
        assert pods_on(pods, []) == []


class TestRayCluster:
    def test_forbids_the_node_and_gives_its_pod_up_under_the_same_hash(self) -> None:
        usual = kubernetes_objects.ray_cluster(plan(), 0, 8)
        body = kubernetes_objects.ray_cluster(plan(), 0, 8, avoid=["node-7"], leaving=["pod-7"])
        assert body["metadata"] == usual["metadata"]
        (group,) = body["spec"]["workerGroupSpecs"]
        rule = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node-7"]}
        affinity = group["template"]["spec"]["affinity"]["nodeAffinity"]
        assert affinity == {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [rule]}]
            }
        }
        assert group["scaleStrategy"] == {"workersToDelete": ["pod-7"]}
        assert "affinity" not in body["spec"]["headGroupSpec"]["template"]["spec"]
        assert "affinity" not in usual["spec"]["workerGroupSpecs"][0]["template"]["spec"]
