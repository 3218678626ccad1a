"""The table of images: what goes together, and what a request may override."""

from __future__ import annotations

import re

import pytest
from lustrum.core.images import NEMO, TABLE, check_override, resolve
from pydantic import JsonValue

OLD, NEW, LOCAL = f"{NEMO}:v0.4.0", f"{NEMO}:v0.7.0", "local/grpo-numpy:1"


class TestResolve:
    @pytest.mark.parametrize(
        ("image", "ray", "script"),
        [
            (f"{NEMO}:v0.4.0", "2.46.0", "examples/run_grpo_math.py"),
            (f"{NEMO}:v0.5.0", "2.49.2", "examples/run_grpo_math.py"),
            (f"{NEMO}:v0.6.0", "2.54.0", "examples/run_grpo.py"),
            (f"{NEMO}:v0.7.0", "2.55.1", "examples/run_grpo.py"),
        ],
    )
    def test_resolve_known_image(self, image: str, ray: str, script: str) -> None:
        found = resolve(image)
        assert (found.ray_version, found.script) == (ray, script)

    def test_resolve_the_codelab_s_pair_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"holds Ray 2\.46\.0, not 2\.54\.0"):
            resolve(OLD, "2.54.0")

    def test_resolve_unknown_image_lists_the_pairs(self) -> None:
        with pytest.raises(ValueError, match=r"example\.com/mine:1") as caught:
            resolve("example.com/mine:1")
        for entry in TABLE.values():
            assert f"{entry.name} (Ray {entry.ray_version})" in str(caught.value)

    @pytest.mark.parametrize(
        ("ray", "like"), [("2.46.0", "v0.4.0"), ("2.50.0", "v0.5.0"), ("2.60.0", "v0.7.0")]
    )
    def test_resolve_own_image_is_taken_as_the_release_of_its_ray(
        self, ray: str, like: str
    ) -> None:
        found = resolve("example.com/mine:1", ray)
        assert (found.name, found.ray_version) == ("example.com/mine:1", ray)
        assert found.script == TABLE[f"{NEMO}:{like}"].script
        assert found.dataset_key == TABLE[f"{NEMO}:{like}"].dataset_key

    @pytest.mark.parametrize("ray", ["2.9.0", "latest", ""])
    def test_resolve_unusable_ray(self, ray: str) -> None:
        with pytest.raises(ValueError, match=r"Ray|ray_version"):
            resolve("example.com/mine:1", ray)

    def test_resolve_local_image_is_the_ray_this_machine_runs(self) -> None:
        ray = pytest.importorskip("ray")
        assert resolve(LOCAL).ray_version == ray.__version__


class TestCheckOverride:
    @pytest.mark.parametrize(
        ("image", "key", "value"),
        [
            (OLD, "grpo.num_prompts_per_step", 16),
            (OLD, "policy.megatron_cfg.converter_type", "Qwen2ForCausalLM"),
            (OLD, "policy.megatron_cfg.optimizer.lr", 3e-7),
            (OLD, "data.dataset_name", "OpenMathInstruct-2"),
            (NEW, "data.train.dataset_name", "DeepScaler"),
            (NEW, "data_plane.enabled", False),
            (OLD, "policy.model_name", "/lustre/models/mine"),
            (OLD, "checkpointing.metric_name", None),
            (OLD, "checkpointing.metric_name", "val:accuracy"),
            (OLD, "checkpointing.checkpoint_must_save_by", "00:03:45:00"),
            (LOCAL, "local.step_seconds", 0.5),
            ("example.com/mine:1", "loss_fn.ratio_clip_max", 0.28),
        ],
    )
    def test_check_override_accepts(self, image: str, key: str, value: JsonValue) -> None:
        check_override(image, key, value)

    @pytest.mark.parametrize(
        ("image", "key", "advice"),
        [
            (OLD, "checkpointing.checkpoint_dir", "/lustre/runs/<run_id>/checkpoints"),
            (OLD, "checkpointing.keep_top_k", "use checkpoints.keep"),
            (OLD, "cluster.num_nodes", "use nodes"),
            (OLD, "logger.log_dir", "/lustre/runs/<run_id>/logs"),
            (NEW, "policy.megatron_cfg.converter_type", "removed in v0.7.0"),
            (NEW, "data.dataset_name", "use data.train.dataset_name"),
            (OLD, "data.train.dataset_name", "use data.dataset_name"),
            (OLD, "local.step_seconds", "begin with one of grpo., policy."),
            (OLD, "hydra.run.dir", "begin with one of"),
            (OLD, "grpo", "dotted names"),
            (OLD, "+++grpo.new", "dotted names"),
            (OLD, "+~grpo.seed", "dotted names"),
            (OLD, "@grpo.seed", "dotted names"),
            (OLD, "+hydra.run.dir", "begin with one of"),
            (OLD, "++checkpointing.checkpoint_dir", "/lustre/runs/<run_id>/checkpoints"),
            (OLD, "~logger.log_dir", "/lustre/runs/<run_id>/logs"),
            (OLD, "+cluster.num_nodes.x", "use nodes"),
            (OLD, "~grpo.seed", "must be null"),
            (OLD, "grpo.seed=1 policy.x", "dotted names"),
        ],
    )
    def test_check_override_refuses_the_key_and_says_what_instead(
        self, image: str, key: str, advice: str
    ) -> None:
        with pytest.raises(ValueError, match=re.escape(advice)):
            check_override(image, key, 1)

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("checkpointing.metric_name", "val_reward"),
            ("checkpointing.metric_name", 1),
            ("checkpointing.checkpoint_must_save_by", "4h"),
            ("policy.model_name", "a b; rm -rf /"),
            ("policy.model_name", "a/b/c"),
            ("policy.model_name", "/etc/passwd"),
            ("policy.tokenizer.name", "/lustre/../etc"),
            ("policy.tokenizer.name", "../x"),
            ("logger.wandb.name", "${oc.env:HF_TOKEN}"),
            ("logger.wandb.name", "two\nlines"),
            ("logger.wandb.name", "$(id)"),
            ("logger.wandb.name", "`id`"),
            ("logger.wandb.name", "x" * 513),
            ("grpo.seed", float("nan")),
            ("policy.tokenizer.name", "file:///etc/passwd"),
            ("policy.tokenizer.name", "/lustre//../etc"),
            ("policy.tokenizer.name", "//etc/passwd"),
            ("+data.files", ["/lustre/a", "/etc/passwd"]),
            ("+data.files", {"a": ["${oc.env:HF_TOKEN}"]}),
            ("grpo.seed", "???"),
            ("grpo.seed", 2**63),
        ],
    )
    def test_check_override_refuses_the_value_c13_e14(self, key: str, value: JsonValue) -> None:
        with pytest.raises(ValueError, match="must"):
            check_override(OLD, key, value)

    def test_check_override_own_image_is_held_to_its_release(self) -> None:
        with pytest.raises(ValueError, match=r"data\.train\.dataset_name"):
            check_override("example.com/mine:1", "data.dataset_name", "x", "2.55.1")
