"""Recipes of NeMo-RL: what is known of them, and which numbers fit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lustrum.core import recipes
from lustrum.core.images import NEMO, TABLE
from lustrum.core.plan import make_plan, training_command
from lustrum.core.profiles import profiles
from lustrum.core.recipes import find, parameters, sizes
from lustrum.core.request import BadRequest, StartRequest, read_request
from lustrum.core.training_command import training_argv
from lustrum.head.arithmetic import faults, working_nodes
from lustrum.head.recipe_numbers import SETTINGS

from testing.samples import plan

RELEASES = [image.release for image in TABLE.values() if image.release]
RICH = {"cost_usd": 1_000_000}


def refused(**request: Any) -> BadRequest:
    with pytest.raises(BadRequest) as bad:
        plan(limits=RICH, **request)
    return bad.value


class TestOfficialRecipes:
    @pytest.mark.parametrize("release", RELEASES)
    def test_no_rule_refuses_what_nvidia_runs(self, release: str) -> None:
        """Two recipes fail an assertion of v0.6.0 and later unless NRL_IGNORE_TP_ACCURACY_CHECK is
        set, and NVIDIA's own suites set it for these; no other is refused.
        """
        refused = set()
        for name in recipes.names(release):
            recipe = find(release, name)
            settings = recipes.numbers(recipe, {}, recipe.nodes, 8)
            for fault in recipes.check(recipe, release, settings):
                refused.add((name, fault.key))
        known = set()
        if release >= "v0.6.0":
            for name in (
                "grpo-qwen3-30ba3b-8n8g-megatron",
                "grpo-gemma3-27b-it-8n8g-fsdp2tp8-actckpt-long",
            ):
                known.add((name, "policy.logprob_batch_size"))
        assert refused == known
        assert len(recipes.names(release)) > 50

    def test_find_by_name_path_and_without_the_version(self) -> None:
        path = "examples/configs/recipes/llm/dapo-qwen2.5-7b.v2.yaml"
        assert find("v0.7.0", "dapo-qwen2.5-7b").config == path
        assert find("v0.7.0", path) == find("v0.7.0", "dapo-qwen2.5-7b.v2")
        assert find("v0.4.0", "dapo-qwen2.5-7b").config == path.replace(".v2", "")
        assert find("v0.4.0", "grpo_math_8B").script == "examples/run_grpo_math.py"
        assert find("v0.6.0", "grpo_math_8B").script == "examples/run_grpo.py"

    @pytest.mark.parametrize(
        "name", ("grpo_math_8C", "../grpo_math_8B", "other/grpo_math_8B", "ppo_math_1B", "")
    )
    def test_find_lists_what_is_near(self, name: str) -> None:
        with pytest.raises(ValueError, match=r"is not a recipe of NeMo-RL v0\.4\.0; near it are "):
            find("v0.4.0", name)


class TestShapes:
    @pytest.mark.parametrize(
        ("model", "total"),
        (
            # metadata.total_size of each model.safetensors.index.json, 2 bytes a parameter
            ("Qwen/Qwen2.5-72B-Instruct", 72_706_203_648),
            ("Qwen/Qwen2.5-32B", 32_763_876_352),
            ("Qwen/Qwen2.5-14B-Instruct", 14_770_033_664),
            ("Qwen/Qwen2.5-Math-7B", 7_615_616_512),
            ("Qwen/Qwen2.5-Math-1.5B-Instruct", 1_543_714_304),
            ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1_777_088_000),
            ("meta-llama/Llama-3.1-8B", 8_030_261_248),
            ("meta-llama/Llama-3.3-70B-Instruct", 70_553_706_496),
            ("meta-llama/Llama-3.2-1B", 1_235_814_400),
            ("Qwen/Qwen3-30B-A3B", 30_532_122_624),
            ("Qwen/Qwen3-32B", 32_762_123_264),
            ("Qwen/Qwen3-8B", 8_190_735_360),
            ("Qwen/Qwen3-4B-Base", 4_022_468_096),
            ("Qwen/Qwen3-1.7B-Base", 1_720_574_976),
        ),
    )
    def test_parameters_are_those_of_the_hub(self, model: str, total: int) -> None:
        assert parameters(model) == total

    def test_parameters_of_a_name(self) -> None:
        assert parameters("google/gemma-3-27b-it") == int(27 * 1.1e9)
        assert parameters("zai-org/GLM-4.7-Flash") is None
        assert parameters("nvidia/Nemotron-3-Super-120B-A12B") == int(120 * 1.1e9)

    def test_sizes_of_the_original_recipe(self) -> None:
        """The profile says 290 and 950 GiB; the shape says what it was made from."""
        found = sizes("Qwen/Qwen2.5-72B-Instruct", True)
        assert found == pytest.approx((270.9, 948.0), abs=0.1)


class TestProfiles:
    @pytest.mark.parametrize("release", RELEASES)
    @pytest.mark.parametrize("name", [one for one in profiles() if one != "tiny-grpo"])
    def test_every_profile_is_a_plan_with_every_image(self, name: str, release: str) -> None:
        request: dict[str, Any] = {"profile": name, "image": f"{NEMO}:{release}", "limits": RICH}
        if name.endswith("ppo") and release != "v0.7.0":
            bad = refused(profile=name, image=f"{NEMO}:{release}")
            assert bad.field == "image" and "qwen2.5-1.5b-ppo" in bad.reason
            return
        made = plan(**request)
        argv = training_argv(training_command(made))
        goal = f"{made.algorithm}.max_num_steps={made.max_num_steps}"
        assert goal in argv and f"cluster.num_nodes={made.nodes}" in argv
        assert len({word.split("=")[0].lstrip("+") for word in argv if "=" in word}) == len(
            [word for word in argv if "=" in word]
        )
        assert f" {made.nodes}" in made.parallel.split("nodes that work:")[1]
        assert made.checkpoint_gib and made.model_gib

    @pytest.mark.parametrize(
        "name", [name for name, profile in profiles().items() if profile.recipe]
    )
    def test_a_profile_trains_the_model_of_its_recipe(self, name: str) -> None:
        profile = profiles()[name]
        recipe = find(TABLE[profile.image].release, str(profile.recipe))
        assert profile.model == recipe.model
        if name != "qwen2.5-7b-dapo":  # upstream takes 16 nodes of 80 GB a GPU
            assert profile.nodes == recipe.nodes

    def test_another_model_has_its_own_sizes(self) -> None:
        made = plan(
            profile="llama3.1-8b-sft",
            overrides={"policy.model_name": "meta-llama/Llama-3.1-70B"},
            checkpoints={"keep": 1},
        )
        assert made.checkpoint_gib == pytest.approx(70.55 * 14 / 1.0737, rel=0.01)

    def test_the_goal_is_that_of_the_algorithm(self) -> None:
        made = plan(profile="llama3.1-8b-sft", overrides={"sft.max_num_steps": 7})
        assert made.max_num_steps == 7
        assert "sft.max_num_steps=7" in training_argv(training_command(made))
        bad = refused(profile="llama3.1-8b-sft", overrides={"grpo.max_num_steps": 7})
        assert bad.field == "overrides.grpo.max_num_steps" and "sft." in bad.reason

    def test_saves_are_the_profile_s_unless_given(self) -> None:
        assert plan(profile="llama3.1-8b-sft").save_period == 50
        given = plan(profile="llama3.1-8b-sft", checkpoints={"save_period": 2})
        assert given.save_period == 2
        assert plan().save_period == 2


class TestRecipeOfARequest:
    def test_script_model_and_nodes_follow(self) -> None:
        made = plan(recipe="sft-llama3.1-8b-1n8g-megatron")
        assert (made.script, made.algorithm) == ("examples/run_sft.py", "sft")
        assert (made.model, made.nodes) == ("meta-llama/Llama-3.1-8B", 1)
        argv = training_argv(training_command(made))
        assert made.config in argv and not [word for word in argv if "DeepScaler" in word]

    def test_what_the_image_has_not(self) -> None:
        assert refused(recipe="ppo_math_1B").field == "recipe"
        bad = refused(recipe="grpo_math_8B", profile="tiny-grpo")
        assert bad.field == "recipe" and "no recipes" in bad.reason

    @pytest.mark.parametrize("name", ("/etc/passwd", "a b", "$(id)", "-x", "x" * 201))
    def test_a_name_is_a_name(self, name: str) -> None:
        with pytest.raises(BadRequest) as bad:
            read_request({"recipe": name})
        assert bad.value.field == "recipe"

    def test_own_image_has_the_recipes_of_its_release(self) -> None:
        made = plan(
            image="example.com/mine:1", ray_version="2.55.1", recipe="dapo-qwen2.5-7b", limits=RICH
        )
        assert str(made.config).endswith("dapo-qwen2.5-7b.v2.yaml")


class TestNodes:
    @pytest.mark.parametrize("nodes", (1, 3, 5, 6, 7, 9, 10, 12))
    def test_what_the_original_recipe_cannot_be_cut_into(self, nodes: int) -> None:
        bad = refused(nodes=nodes)
        assert bad.field == "nodes"
        assert bad.reason.endswith("nodes that work: 2, 4, 8, 16, 32, 64")

    @pytest.mark.parametrize("nodes", (2, 4, 8, 16))
    def test_what_it_can(self, nodes: int) -> None:
        assert plan(nodes=nodes, limits=RICH).nodes == nodes

    def test_another_cut_has_other_numbers(self) -> None:
        made = plan(nodes=1, overrides={"policy.megatron_cfg.pipeline_model_parallel_size": 2})
        assert "TP4 x PP2" in made.parallel
        one = {"policy.megatron_cfg": {"tensor_model_parallel_size": 8}}
        assert "nodes that work: 4, 8" in refused(nodes=2, overrides=one).reason

    def test_with_a_batch_that_cannot_be_the_nodes_are_those_of_one_that_can(self) -> None:
        bad = refused(nodes=3, overrides={"policy.train_global_batch_size": 500})
        assert bad.field == "overrides.policy.train_global_batch_size"
        assert bad.reason.endswith("nodes that work: 2, 4, 8, 16, 32, 64")

    def test_a_batch_that_was_given_is_at_fault_itself(self) -> None:
        overrides = {
            "grpo.num_prompts_per_step": 6,
            "grpo.num_generations_per_prompt": 5,
            "policy.train_global_batch_size": 30,
        }
        bad = refused(overrides=overrides)
        assert bad.field == "overrides.policy.train_global_batch_size"
        assert "multiple of 4" in bad.reason


class TestAllAtOnce:
    def test_every_fault_is_named(self) -> None:
        bad = refused(
            nodes=3,
            overrides={"hydra.run.dir": "x", "policy.generation.vllm_cfg.tensor_parallel_size": 5},
            checkpoints={"keep": 99},
        )
        for word in (
            "overrides.hydra.run.dir",
            "nodes: 3",
            "tensor_parallel_size: 5",
            "64 attention heads",
            "checkpoints.keep: 99",
        ):
            assert word in str(bad), word
        assert len(bad.value) <= 80


GRPO = {
    "grpo.num_prompts_per_step": 32,
    "grpo.num_generations_per_prompt": 8,
    "policy.train_global_batch_size": 256,
    "policy.dtensor_cfg.enabled": True,
    "policy.generation.backend": "vllm",
}


def keys(release: tuple[int, int] = (0, 7), algorithm: str = "grpo", **more: Any) -> list[str]:
    """Return the keys at fault; `a__b` in a name is `a.b`."""
    changed = {key.replace("__", "."): value for key, value in more.items()}
    return [fault.key for fault in faults(algorithm, release, {**GRPO, **changed})]


class TestAnything:
    @given(
        st.dictionaries(
            st.sampled_from([one.replace("<algorithm>", "grpo") for one in SETTINGS]),
            st.none()
            | st.booleans()
            | st.integers(-2, 70)
            | st.text(max_size=3)
            | st.floats(-2, 70)
            | st.lists(st.integers(0, 3), max_size=2)
            | st.dictionaries(st.sampled_from(["enabled", "num_nodes"]), st.integers(-1, 3)),
            max_size=4,
        ),
        st.sampled_from(["", "+", "++"]),
        st.sampled_from([profile for profile, one in profiles().items() if one.recipe]),
    )
    def test_overrides_are_planned_or_refused(
        self, overrides: dict[str, Any], mark: str, profile: str
    ) -> None:
        marked = {mark + key: value for key, value in overrides.items()}
        try:
            asked = read_request({"profile": profile, "overrides": marked, "limits": RICH})
            assert isinstance(asked, StartRequest)
            make_plan(asked, "rl-0123456789", "bucket")
        except BadRequest as bad:
            assert bad.field and bad.reason


class TestRules:
    def test_what_fits(self) -> None:
        assert keys() == []

    @pytest.mark.parametrize(
        ("more", "key"),
        (
            ({"policy__train_micro_batch_size": 3}, "policy.train_micro_batch_size"),
            ({"policy__logprob_batch_size": 5}, "policy.logprob_batch_size"),
            (
                {"policy__generation__vllm_cfg__tensor_parallel_size": 3},
                "policy.generation.vllm_cfg.tensor_parallel_size",
            ),
            (
                {
                    "policy__dynamic_batching__enabled": True,
                    "policy__sequence_packing__enabled": True,
                },
                "policy.dynamic_batching.enabled",
            ),
            (
                {"policy__dtensor_cfg__tensor_parallel_size": 4, "policy__logprob_batch_size": 4},
                "policy.logprob_batch_size",
            ),
            (
                {"grpo__val_period": 10, "data__train__dataset_name": "DeepScaler"},
                "grpo.val_period",
            ),
            (
                {"grpo__val_at_end": True, "data__train__dataset_name": "OpenMathInstruct-2"},
                "grpo.val_period",
            ),
            (
                {"policy__generation__colocated__enabled": False, "cluster__num_nodes": 2},
                "policy.generation.colocated.resources.num_nodes",
            ),
            (
                {"policy__generation__colocated__enabled": False},
                "policy.generation.colocated.resources.gpus_per_node",
            ),
            ({"policy__dtensor_cfg__enabled": False}, "policy.megatron_cfg.enabled"),
            ({"policy__megatron_cfg__enabled": True}, "policy.megatron_cfg.enabled"),
            ({"policy__generation__backend": None}, "policy.generation"),
            (
                {"policy__generation__colocated__enabled": "no"},
                "policy.generation.colocated.enabled",
            ),
            (
                {"policy__generation__colocated__resources__num_nodes": "2"},
                "policy.generation.colocated.resources.num_nodes",
            ),
            ({"policy__train_global_batch_size": 0}, "policy.train_global_batch_size"),
            ({"grpo__num_prompts_per_step": True}, "grpo.num_prompts_per_step"),
            (
                {"loss_fn__force_on_policy_ratio": True, "policy__train_global_batch_size": 128},
                "policy.train_global_batch_size",
            ),
        ),
    )
    def test_what_does_not(self, more: dict[str, Any], key: str) -> None:
        assert key in keys(**more)

    @pytest.mark.parametrize(
        ("release", "more"),
        (
            (
                (0, 7),
                {"policy__train_micro_batch_size": 3, "policy__sequence_packing__enabled": True},
            ),
            ((0, 5), {"grpo__val_period": 10, "data__dataset_name": "DeepScaler"}),
            ((0, 7), {"grpo__val_period": 0, "data__train__dataset_name": "DeepScaler"}),
            ((0, 7), {"grpo__val_period": 10, "data__train__dataset_name": "mine.Data"}),
            (
                (0, 5),
                {"policy__dtensor_cfg__tensor_parallel_size": 4, "policy__logprob_batch_size": 4},
            ),
            (
                (0, 4),
                {"loss_fn__force_on_policy_ratio": True, "policy__train_global_batch_size": 128},
            ),
        ),
    )
    def test_what_was_no_rule_there(self, release: tuple[int, int], more: dict[str, Any]) -> None:
        assert keys(release, **more) == []

    def test_generation_on_nodes_of_its_own(self) -> None:
        own = {
            "policy.generation.colocated.enabled": False,
            "policy.generation.colocated.resources.num_nodes": 1,
            "policy.generation.colocated.resources.gpus_per_node": 8,
        }
        assert working_nodes("grpo", (0, 7), {**GRPO, **own}) == [2, 3, 5, 9, 17, 33]

    def test_dpo_packs_nothing(self) -> None:
        assert keys(algorithm="dpo", policy__sequence_packing__enabled=True) == [
            "policy.sequence_packing.enabled"
        ]
