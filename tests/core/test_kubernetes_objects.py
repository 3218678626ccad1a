"""The Kubernetes objects that a run is made of."""

from __future__ import annotations

import base64
import json

import pytest
from lustrum.adapters.supervisor_archive import supervisor_archive
from lustrum.core import kubernetes_objects
from lustrum.core.names import LABEL_RUN

from testing.samples import NOW, RUN_ID, plan


class TestManifest:
    @pytest.mark.parametrize("workers", (0, 8))
    def test_ray_cluster(self, workers: int) -> None:
        made = plan()
        body = kubernetes_objects.ray_cluster(made, NOW, workers)
        spec = body["spec"]
        assert body["metadata"]["name"] == RUN_ID
        assert body["metadata"]["labels"][LABEL_RUN] == RUN_ID
        assert spec["rayVersion"] == "2.46.0"
        head = spec["headGroupSpec"]["template"]["spec"]
        [group] = spec["workerGroupSpecs"]
        worker = group["template"]["spec"]
        assert (group["replicas"], group["maxReplicas"]) == (workers, 8)
        assert "nvidia.com/gpu" not in json.dumps(head)
        assert head["nodeSelector"] == {"cloud.google.com/gke-nodepool": "system"}
        assert worker["nodeSelector"] == {"cloud.google.com/gke-nodepool": "a4"}
        for pod in (head, worker):
            [container] = pod["containers"]
            resources = container["resources"]
            assert resources["requests"] == resources["limits"]
            assert container["image"] == made.image
        assert worker["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8"

    def test_rdma_is_on_the_workers_alone(self) -> None:
        made = plan()
        body = kubernetes_objects.ray_cluster(made, NOW, 8, rdma=True)
        [group] = body["spec"]["workerGroupSpecs"]
        worker = group["template"]
        listed = json.loads(worker["metadata"]["annotations"]["networking.gke.io/interfaces"])
        assert listed[0] == {"interfaceName": "eth0", "network": "default"}
        assert [one["network"] for one in listed[1:]] == [f"rdma-{n}" for n in range(8)]
        assert [one["interfaceName"] for one in listed[1:]] == [f"eth{n}" for n in range(2, 10)]
        [ray], [gib] = worker["spec"]["containers"], worker["spec"]["initContainers"]
        assert ray["name"] == "ray-worker"  # the devices are mounted into the first container
        assert ray["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
        assert gib["image"].endswith(f":{made.gib}") and made.gib == "v1.0.6"
        volume = {one["name"]: one for one in worker["spec"]["volumes"]}["gib"]
        assert volume == {"name": "gib", "emptyDir": {}}
        assert {one["name"] for one in ray["volumeMounts"]} > {"gib"}
        assert "rdma" not in json.dumps(body["spec"]["headGroupSpec"])
        # A cluster that gains or loses RDMA is another one: its pods must be made anew.
        plain = kubernetes_objects.ray_cluster(made, NOW, 8)
        marks = [one["metadata"]["annotations"] for one in (body, plain)]
        assert marks[0] != marks[1]

    def test_g12_the_pods_fit_their_machines(self) -> None:
        """8 A4 nodes of 224 CPUs carry 8 workers; the head is not among them."""
        made = plan()
        assert float(made.worker.cpu) <= 224
        assert (
            int(
                kubernetes_objects.ray_cluster(made, 0, 8)["spec"]["headGroupSpec"][
                    "rayStartParams"
                ]["num-cpus"]
            )
            >= 1
        )

    def test_the_head_is_not_evicted(self) -> None:
        body = kubernetes_objects.ray_cluster(plan(), 0, 0)
        annotations = body["spec"]["headGroupSpec"]["template"]["metadata"]["annotations"]
        assert annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"

    def test_no_secret_is_in_an_environment(self) -> None:
        body = kubernetes_objects.ray_cluster(plan(), 0, 8)
        groups = [body["spec"]["headGroupSpec"], *body["spec"]["workerGroupSpecs"]]
        for group in groups:
            for item in group["template"]["spec"]["containers"][0]["env"]:
                assert set(item) == {"name", "value"}
                assert item["value"].startswith("/")
        secret = kubernetes_objects.tokens(plan(), 0, "hf_x", "wandb_y")
        assert secret["stringData"]["hf_token"] == "hf_x"
        assert "wandb_y" in secret["stringData"]["netrc"]
        assert kubernetes_objects.tokens(plan(), 0, "", "")["stringData"] == {}

    def test_supervisor_fits_into_its_config_map_as_it_is(self) -> None:
        files = {"supervisor.pyz": supervisor_archive()}
        body = kubernetes_objects.job_files(plan(), NOW, files)
        assert "data" not in body
        assert base64.b64decode(body["binaryData"]["supervisor.pyz"]) == files["supervisor.pyz"]
        assert len(json.dumps(body)) < 2**20  # the most that Kubernetes takes

    def test_the_hash_leaves_replicas_out_and_nothing_else(self) -> None:
        annotations = [
            kubernetes_objects.ray_cluster(plan(), expires, workers)["metadata"]["annotations"]
            for expires, workers in ((0, 0), (0, 8), (5, 8))
        ]
        assert annotations[0] == annotations[1] == annotations[2]
        other = kubernetes_objects.ray_cluster(plan(nodes=4), 0, 4)["metadata"]["annotations"]
        assert other != annotations[0]
