"""The plan of a request: every value of the original recipe, and what differs from it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from lustrum.core import names
from lustrum.core.cost import prices
from lustrum.core.request import BadRequest, StartRequest, parse_request
from lustrum.core.settings import Settings, Slot
from lustrum.show.preview import UNKNOWN, Preview, planned_id, preview, readable

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "requests").glob("*.json"))
RUN_ID = names.run_id("key:preview")


def planned(**request: object) -> Preview:
    return preview(StartRequest.model_validate(request), RUN_ID)


def slot(name: str, region: str) -> Slot:
    return Slot(
        name, region, "net", f"sub-{name}", f"pods-{name}", f"services-{name}", "10.0.0.0/28"
    )


class TestOriginalRecipe:
    """Each default of the original recipe, and each correction of it."""

    recipe = planned()

    def test_zone_nodes_and_accelerators(self) -> None:
        plan = self.recipe.plan
        assert plan.zones == ["us-east1-b"]
        assert (plan.nodes, plan.gpus_per_node, plan.gpus) == (8, 8, 64)
        assert (plan.machine, plan.accelerator) == ("a4-highgpu-8g", "nvidia-b200")

    def test_spot_without_reservation(self) -> None:
        assert self.recipe.blueprint["_CAPACITY"] == "spot"
        assert self.recipe.blueprint["_RESERVATION"] == ""

    def test_image_goes_with_its_own_ray(self) -> None:
        cluster = self.recipe.ray_cluster
        assert self.recipe.plan.image == "nvcr.io/nvidia/nemo-rl:v0.4.0"
        assert cluster["spec"]["rayVersion"] == "2.46.0"

    def test_workers(self) -> None:
        [group] = self.recipe.ray_cluster["spec"]["workerGroupSpecs"]
        container = group["template"]["spec"]["containers"][0]
        assert group["replicas"] == 8
        assert container["resources"]["limits"] == {
            "cpu": "100",
            "memory": "1000Gi",
            "nvidia.com/gpu": "8",
        }
        assert container["image"] == "nvcr.io/nvidia/nemo-rl:v0.4.0"

    def test_head_takes_no_gpu_and_may_not_be_evicted(self) -> None:
        head = self.recipe.ray_cluster["spec"]["headGroupSpec"]
        container = head["template"]["spec"]["containers"][0]
        assert container["resources"]["limits"] == {"cpu": "8", "memory": "64Gi"}
        assert container["resources"]["limits"] == container["resources"]["requests"]
        assert int(head["rayStartParams"]["num-cpus"]) >= 1
        assert "nvidia.com/gpu" not in str(head)

    def test_lustre_is_mounted_from_the_claim_and_shm_is_memory(self) -> None:
        for template in _templates(self.recipe):
            spec = template["spec"]
            mounts = {
                one["name"]: one["mountPath"] for one in spec["containers"][0]["volumeMounts"]
            }
            volumes = {one["name"]: one for one in spec["volumes"]}
            assert mounts["lustre"] == "/lustre" and mounts["dshm"] == "/dev/shm"
            assert volumes["lustre"]["persistentVolumeClaim"] == {"claimName": "lustre-pvc"}
            assert volumes["dshm"]["emptyDir"] == {"medium": "Memory"}

    def test_lustre_size_and_tier(self) -> None:
        assert self.recipe.blueprint["_LUSTRE_CAPACITY_GIB"] == "36000"
        assert self.recipe.blueprint["_LUSTRE_THROUGHPUT"] == "500"

    @pytest.mark.parametrize(
        "argument",
        [
            "examples/run_grpo_math.py",
            "examples/configs/grpo_math_70B_megatron.yaml",
            "policy.model_name=Qwen/Qwen2.5-72B-Instruct",
            "data.dataset_name=DeepScaler",
            "grpo.max_num_steps=20",
            "grpo.num_generations_per_prompt=8",
            "grpo.num_prompts_per_step=32",
            "policy.train_global_batch_size=256",
            "checkpointing.save_period=2",
            "checkpointing.keep_top_k=2",
            f"checkpointing.checkpoint_dir=/lustre/runs/{RUN_ID}/checkpoints",
            f"logger.log_dir=/lustre/runs/{RUN_ID}/logs",
            "cluster.num_nodes=8",
            "cluster.gpus_per_node=8",
        ],
    )
    def test_command(self, argument: str) -> None:
        assert argument in self.recipe.command

    def test_environment(self) -> None:
        environment = self.recipe.environment
        assert environment["GLOO_SOCKET_IFNAME"] == environment["NCCL_SOCKET_IFNAME"] == "eth0"
        assert environment["RAY_OVERRIDE_JOB_RUNTIME_ENV"] == "1"
        assert environment["HF_HOME"].startswith("/lustre/")

    def test_tokens_are_files_and_nowhere_else(self) -> None:
        for template in _templates(self.recipe):
            env = {one["name"]: one["value"] for one in template["spec"]["containers"][0]["env"]}
            assert env["HF_TOKEN_PATH"].startswith("/etc/lustrum-tokens/")
            assert env["NETRC"].startswith("/etc/lustrum-tokens/")
        assert "HF_TOKEN" not in self.recipe.environment

    def test_limits_and_price(self) -> None:
        limits = self.recipe.limits
        assert (limits["hours"], limits["hard_hours"], limits["attempts"]) == (6, 7, 5)
        assert limits["gpus_idle_minutes"] is None
        assert limits["capacity_wait_minutes"] == 60 and limits["cost_usd"] == 2500
        assert self.recipe.worst_cost == pytest.approx(
            sum(one.worst for one in self.recipe.costs), abs=0.02
        )
        assert self.recipe.costs[0].pieces == 8
        assert self.recipe.costs[0].rate == prices().node("a4-highgpu-8g", "spot")

    def test_entrypoint_carries_the_command_through_one_shell(self) -> None:
        parts = shlex.split(self.recipe.train_entrypoint)
        assert parts[:4] == ["exec", "python3", "/etc/lustrum/supervisor.pyz", "train"]
        assert json.loads(parts[5])["command"] == self.recipe.command

    def test_spelled_out_it_is_the_same_plan(self) -> None:
        text = (EXAMPLES[0].parent / "original.json").read_bytes()
        request = parse_request(text)
        assert isinstance(request, StartRequest)
        spelled = preview(request, RUN_ID)
        assert set(spelled.command) == set(self.recipe.command)
        same = ("blueprint", "limits", "costs", "environment", "names")
        for field in same:
            assert getattr(spelled, field) == getattr(self.recipe, field)
        assert spelled.ray_cluster == self.recipe.ray_cluster


class TestExamples:
    @pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
    def test_preview_of_every_example(self, path: Path) -> None:
        request = parse_request(path.read_bytes())
        assert isinstance(request, StartRequest)
        found = preview(request, planned_id(request))
        assert 0 < found.worst_cost <= found.cost_limit

    def test_examples_are_there(self) -> None:
        stems = {path.stem for path in EXAMPLES}
        assert {"original", "nightly", "tiny", "reservation", "own-code"} <= stems


class TestDifferences:
    def test_reservation_replaces_spot(self) -> None:
        found = planned(capacity="winter-block", limits={"cost_usd": 9000})
        assert found.blueprint["_CAPACITY"] == "reservation"
        assert found.blueprint["_RESERVATION"] == "winter-block"
        assert found.costs[0].rate == prices().node("a4-highgpu-8g", "winter-block")
        assert found.costs[0].rate > planned().costs[0].rate

    def test_slots_of_the_control_plane_are_used(self) -> None:
        settings = Settings(
            project="p",
            region="us-east1",
            export_bucket="mine",
            slots=(slot("c0", "us-central1"), slot("c1", "us-central1"), slot("e0", "us-east4")),
        )
        request = StartRequest(zones=["us-east1-b", "us-central1-b"])
        found = preview(request, RUN_ID, settings)
        assert [zone.slots for zone in found.zones] == [[], ["c0", "c1"]]
        # The first zone has no network: the control plane begins with the second.
        assert found.blueprint["_ZONE"] == "us-central1-b"
        assert found.blueprint["_SUBNETWORK"] == "sub-c0"
        assert found.plan.export_to == f"gs://mine/runs/{RUN_ID}/"

    def test_rdma_of_the_zone_is_in_the_build_the_pods_and_the_job(self) -> None:
        slots = (slot("e0", "us-east1"),)
        settings = Settings(project="p", region="us-east1", slots=slots, rdma={"us-east1-c": "r"})
        zones = ["us-east1-b", "us-east1-c"]
        found = preview(StartRequest(zones=zones, network="rdma"), RUN_ID, settings)
        assert found.blueprint["_ZONE"] == "us-east1-c"
        assert found.blueprint["_RDMA_NETWORK"] == "r"
        assert "networking.gke.io/interfaces" in str(found.ray_cluster)
        assert found.environment["NCCL_NET"] == "gIB"
        plain = preview(StartRequest(zones=zones), RUN_ID, settings)  # auto begins with the first
        assert plain.blueprint["_ZONE"] == "us-east1-b"
        assert "_RDMA_NETWORK" not in plain.blueprint and "NCCL_NET" not in plain.environment

    @pytest.mark.parametrize(
        ("asked", "field"),
        (
            ({"profile": "tiny-grpo", "network": "rdma"}, "network"),
            ({"network": "tcp", "gib": "v1.1.0"}, "gib"),
            ({"profile": "llama3.1-8b-grpo", "gib": "v1.1.0"}, "gib"),  # one node: NVLink alone
        ),
    )
    def test_rdma_that_cannot_be_is_refused(self, asked: dict[str, str], field: str) -> None:
        with pytest.raises(BadRequest) as caught:
            planned(**asked)
        assert caught.value.field == field

    def test_unknown_control_plane_shows_placeholders(self) -> None:
        assert planned().plan.export_to == f"gs://EXPORT_BUCKET/runs/{RUN_ID}/"
        assert "_SUBNETWORK" not in preview(StartRequest(), RUN_ID, UNKNOWN).blueprint

    def test_expiry_follows_from_the_beginning(self) -> None:
        found = preview(StartRequest(), RUN_ID, UNKNOWN, now=1_000_000)
        assert found.labels["lustrum-expires"] == str(1_000_000 + 7 * 3600)

    def test_too_dear_is_refused_with_what_fits(self) -> None:
        with pytest.raises(BadRequest) as caught:
            planned(limits={"cost_usd": 10})
        assert caught.value.field == "limits.cost_usd" and "raise it to" in caught.value.reason

    def test_planned_id_is_a_run_id_and_the_same_for_the_same_request(self) -> None:
        assert names.is_run_id(planned_id(StartRequest()))
        assert planned_id(StartRequest(nodes=4)) == planned_id(StartRequest(nodes=4))
        assert planned_id(StartRequest(nodes=4)) != planned_id(StartRequest())

    def test_preview_survives_a_round_trip_through_json(self) -> None:
        found = planned()
        assert Preview.model_validate_json(found.model_dump_json()) == found


class TestReadable:
    def test_readable_is_the_command_again_when_a_shell_reads_it(self) -> None:
        command = [*planned().command, "data.system_prompt='two words; $(rm -rf /)'"]
        assert shlex.split(readable(command).replace("\\\n", " ")) == command

    def test_readable_gives_each_override_its_line(self) -> None:
        lines = readable(planned().command).splitlines()
        assert lines[0] == "uv run python examples/run_grpo_math.py \\"
        assert "  grpo.max_num_steps=20 \\" in lines

    @pytest.mark.parametrize("command", [["true"], ["python3", "x.py"], ["a=1"], []])
    def test_readable_of_odd_commands(self, command: list[str]) -> None:
        assert shlex.split(readable(command).replace("\\\n", " ")) == command


def _templates(found: Preview) -> list[dict[str, Any]]:
    spec = found.ray_cluster["spec"]
    return [spec["headGroupSpec"]["template"], spec["workerGroupSpecs"][0]["template"]]
