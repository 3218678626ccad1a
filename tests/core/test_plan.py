from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lustrum.core.cost import Usage, bill, prices
from lustrum.core.plan import make_plan, worst_cost, worst_costs
from lustrum.core.profiles import profiles
from lustrum.core.request import BadRequest, StartRequest
from lustrum.core.run_plan import LUSTRE_TIERS

from testing.samples import NOW, RUN_ID, plan


def refused(**request: Any) -> BadRequest:
    with pytest.raises(BadRequest) as bad:
        plan(**request)
    return bad.value


REQUESTS = Path(__file__).parents[1] / "field" / "request"


class TestDefaults:
    def test_an_empty_request_is_the_original_recipe_with_its_corrections(self) -> None:
        made = plan()
        assert made.zones == ["us-east1-b"]
        assert (made.nodes, made.gpus_per_node, made.gpus) == (8, 8, 64)
        assert (made.machine, made.accelerator) == ("a4-highgpu-8g", "nvidia-b200")
        assert made.capacity == "spot"
        assert made.image == "nvcr.io/nvidia/nemo-rl:v0.4.0"
        assert made.ray_version == "2.46.0"  # not 2.54.0: the image's own
        assert made.model == "Qwen/Qwen2.5-72B-Instruct"
        assert (made.max_num_steps, made.save_period, made.keep) == (20, 2, 2)
        assert (made.lustre_capacity_gib, made.lustre_throughput) == (36_000, 500)
        assert (made.worker.cpu, made.worker.memory) == ("100", "1000Gi")
        assert (made.head.cpu, made.head.memory) == ("8", "64Gi")
        assert made.environment["NCCL_SOCKET_IFNAME"] == "eth0"
        assert made.checkpoint_dir == f"/lustre/runs/{RUN_ID}/checkpoints"
        assert made.log_dir == f"/lustre/runs/{RUN_ID}/logs"
        assert made.export_to == f"gs://bucket/runs/{RUN_ID}/"
        assert (made.hours, made.attempts, made.capacity_wait_minutes) == (6, 5, 60)
        assert made.export_required

    @pytest.mark.parametrize("profile", profiles())
    def test_every_profile_is_a_plan(self, profile: str) -> None:
        made = plan(profile=profile)
        assert made.worst_cost <= made.cost_limit
        assert made.timing.poll < made.timing.doorbell

    def test_a_request_changes_what_it_names(self) -> None:
        made = plan(
            nodes=4,
            zones=["us-central1-a"],
            overrides={"grpo.max_num_steps": 7},
            checkpoints={"export_to": "gs://mine/x", "save_period": 3},
        )
        assert (made.nodes, made.zones, made.max_num_steps) == (4, ["us-central1-a"], 7)
        assert made.export_to == f"gs://mine/x/{RUN_ID}/"
        assert "grpo.max_num_steps" not in made.overrides


class TestLustre:
    @pytest.mark.parametrize(
        ("tier", "capacity"),
        (
            (1000, 9_000),
            (1000, 1_530_000),
            (500, 18_000),
            (500, 36_000),
            (500, 3_060_000),
            (250, 36_000),
            (250, 6_120_000),
            (125, 72_000),
            (125, 10_008_000),
        ),
    )
    def test_c3_what_the_service_offers(self, tier: int, capacity: int) -> None:
        lustre = {"capacity_gib": capacity, "throughput_mbps_per_tib": tier}
        made = plan(profile="tiny-grpo", limits={"cost_usd": 1_000_000}, lustre=lustre)
        assert made.lustre_capacity_gib == capacity

    @pytest.mark.parametrize(
        ("tier", "capacity"),
        (
            (1000, 10_000),
            (1000, 1_539_000),
            (500, 9_000),
            (500, 27_000),
            (250, 18_000),
            (125, 36_000),
            (125, 73_000),
            (500, 18_001),
        ),
    )
    def test_c3_what_it_does_not(self, tier: int, capacity: int) -> None:
        bad = refused(lustre={"capacity_gib": capacity, "throughput_mbps_per_tib": tier})
        assert bad.field == "lustre.capacity_gib"
        smallest, step, largest = LUSTRE_TIERS[tier]
        for number in (smallest, step, largest):
            assert str(number) in bad.reason

    def test_too_many_checkpoints_for_the_file_system(self) -> None:
        assert refused(checkpoints={"keep": 100}).field == "checkpoints.keep"


class TestBounds:
    def test_the_worst_case_is_checked_before_anything_is_made(self) -> None:
        bad = refused(limits={"cost_usd": 100})
        assert bad.field == "limits.cost_usd"
        assert f"{plan().worst_cost:,.0f}" in bad.reason

    @given(st.floats(200, 2000), st.floats(1, 168), st.sampled_from([2, 4, 8, 16, 32, 64]))
    def test_the_advice_of_a_refusal_works(self, cost: float, hours: float, nodes: int) -> None:
        request = {"nodes": nodes, "limits": {"cost_usd": cost, "hours": hours}}
        try:
            plan(**request)
        except BadRequest as bad:
            raised = bad.reason.split("raise it to ")[1].split()[0]
            if float(raised) <= 1_000_000:
                plan(nodes=nodes, limits={"cost_usd": float(raised), "hours": hours})
            if "limits.hours to " in bad.reason:
                fewer = float(bad.reason.split("limits.hours to ")[1])
                plan(nodes=nodes, limits={"cost_usd": cost, "hours": fewer})

    def test_the_worst_case_counts_lustre_past_the_deadline(self) -> None:
        made = plan()
        costs = worst_costs(made, 6)
        assert costs["accelerators"] == pytest.approx(8 * 39.6336 * 6)
        assert costs["lustre"] == pytest.approx(36_000 * 0.34 / 730 * 7)
        assert worst_cost(made, 6) == pytest.approx(sum(costs.values()))
        assert worst_cost(made, 7) > worst_cost(made, 6)

    @pytest.mark.parametrize("capacity", ("on-demand", "my-reservation"))
    @pytest.mark.parametrize("profile", profiles())
    def test_what_has_no_price_is_refused_and_nothing_else_is_raised(
        self, capacity: str, profile: str
    ) -> None:
        try:
            plan(capacity=capacity, profile=profile, limits={"cost_usd": 1_000_000})
        except BadRequest as bad:
            assert bad.field == "capacity"

    def test_every_price_is_dated(self) -> None:
        assert prices().dated.startswith("20")
        assert plan().prices_dated == prices().dated


class TestBatch:
    @pytest.mark.parametrize(
        "overrides",
        (
            {},
            {"grpo.num_prompts_per_step": 64},
            {"grpo.num_prompts_per_step": 64, "policy.train_global_batch_size": 512},
            {"grpo.num_generations_per_prompt": 16, "policy.train_global_batch_size": 512},
        ),
    )
    def test_prompts_times_generations_is_the_batch(self, overrides: dict[str, Any]) -> None:
        from lustrum.core.supervisor_jobs import training_command
        from lustrum.core.training_command import training_argv

        made = plan(overrides=overrides)
        words = training_argv(training_command(made, False))
        found = dict(word.split("=", 1) for word in words if "=" in word)
        prompts = int(found["grpo.num_prompts_per_step"])
        generations = int(found["grpo.num_generations_per_prompt"])
        assert int(found["policy.train_global_batch_size"]) == prompts * generations

    @pytest.mark.parametrize(
        "path", sorted(REQUESTS.glob("r0[1-5]*.json")), ids=lambda path: path.stem
    )
    def test_batches_of_public_reports(self, path: Path) -> None:
        """r01 and r03 train in batches of less than a step; r04 and r05 NeMo-RL refuses."""
        body = json.loads(path.read_text())
        if path.stem[:3] in ("r01", "r03"):
            assert plan(**body).overrides == body["overrides"]
            return
        bad = refused(**body)
        assert bad.field == "overrides.policy.train_global_batch_size"
        assert ("force_on_policy_ratio" in bad.reason) is (path.stem[:3] == "r04")

    @pytest.mark.parametrize(
        ("overrides", "field"),
        (
            ({"policy.train_global_batch_size": 255}, "overrides.policy.train_global_batch_size"),
            ({"grpo.num_prompts_per_step": 0}, "overrides.grpo.num_prompts_per_step"),
            ({"grpo.num_prompts_per_step": "32"}, "overrides.grpo.num_prompts_per_step"),
            ({"grpo.max_num_steps": 0}, "overrides.grpo.max_num_steps"),
            ({"grpo.max_num_steps": 1.0}, "overrides.grpo.max_num_steps"),
            ({"grpo.max_num_steps": True}, "overrides.grpo.max_num_steps"),
        ),
    )
    def test_a_batch_that_would_die_after_the_model_is_loaded(
        self, overrides: dict[str, Any], field: str
    ) -> None:
        assert refused(overrides=overrides).field == field


class TestImages:
    def test_an_unknown_image_is_refused_with_the_list(self) -> None:
        bad = refused(image="nvcr.io/nvidia/nemo-rl:v9")
        assert bad.field == "image"
        assert "v0.4.0 (Ray 2.46.0)" in bad.reason and "v0.6.0" in bad.reason

    def test_an_unknown_image_with_its_ray_is_taken(self) -> None:
        made = plan(image="eu.gcr.io/mine/rl:1", ray_version="2.49.2")
        assert (made.ray_version, made.script) == ("2.49.2", "examples/run_grpo_math.py")

    def test_a_ray_that_contradicts_the_image(self) -> None:
        assert refused(ray_version="2.54.0").field == "image"

    def test_an_override_of_another_release(self) -> None:
        bad = refused(overrides={"data.train.dataset_name": "x"})
        assert bad.field == "overrides.data.train.dataset_name"


class TestBill:
    def test_bill_is_seconds_times_price(self) -> None:
        usage = [
            Usage(resource="gpu", pieces=8, rate=40, since=NOW, until=NOW + 1800),
            Usage(resource="gpu", pieces=8, rate=40, since=NOW + 3600, until=None),
            Usage(resource="lustre", pieces=1, rate=17, since=NOW, until=NOW + 7200),
        ]
        assert bill(usage, NOW + 5400) == pytest.approx({"gpu": 320.0, "lustre": 34.0})

    def test_a_clock_that_goes_back_costs_nothing(self) -> None:
        assert Usage(resource="x", pieces=1, rate=1, since=NOW, until=NOW - 5).dollars(NOW) == 0

    def test_a_plan_is_a_value(self) -> None:
        request = StartRequest()
        assert make_plan(request, RUN_ID, "b") == make_plan(request, RUN_ID, "b")
