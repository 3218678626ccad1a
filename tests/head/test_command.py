"""The training's command line, and the one string that Ray gives to a shell."""

from __future__ import annotations

import dataclasses
import json
import shlex
import subprocess
import sys

import pytest
from lustrum.core.images import NEMO, resolve
from lustrum.core.plan import make_plan
from lustrum.core.request import StartRequest
from lustrum.core.supervisor_jobs import training_command
from lustrum.core.training_command import (
    TrainingCommand,
    entrypoint,
    supervisor_spec,
    training_argv,
    training_settings,
)

RUN = "rl-0123456789"


def recipe(tag: str = "v0.4.0", **more: object) -> TrainingCommand:
    command = TrainingCommand(
        image=resolve(f"{NEMO}:{tag}"),
        model="Qwen/Qwen2.5-72B-Instruct",
        nodes=8,
        gpus_per_node=8,
        checkpoint_dir=f"/lustre/runs/{RUN}/checkpoints",
        log_dir=f"/lustre/runs/{RUN}/logs",
        save_period=2,
        keep=2,
        max_num_steps=20,
    )
    return dataclasses.replace(command, **more)  # type: ignore[arg-type]


class TestTrainingArgv:
    def test_argv_is_the_original_recipe(self) -> None:
        argv = training_argv(recipe())
        assert argv[:6] == [
            "uv",
            "run",
            "python",
            "examples/run_grpo_math.py",
            "--config",
            "examples/configs/grpo_math_70B_megatron.yaml",
        ]
        assert set(argv[6:]) == {
            "policy.model_name=Qwen/Qwen2.5-72B-Instruct",
            "policy.megatron_cfg.converter_type=Qwen2ForCausalLM",
            "data.dataset_name=DeepScaler",
            "grpo.max_num_steps=20",
            "grpo.num_generations_per_prompt=8",
            "grpo.num_prompts_per_step=32",
            "policy.train_global_batch_size=256",
            "checkpointing.enabled=true",
            "checkpointing.save_period=2",
            "checkpointing.keep_top_k=2",
            "checkpointing.metric_name=null",
            f"checkpointing.checkpoint_dir=/lustre/runs/{RUN}/checkpoints",
            f"logger.log_dir=/lustre/runs/{RUN}/logs",
            "logger.wandb_enabled=false",
            "cluster.num_nodes=8",
            "cluster.gpus_per_node=8",
        }

    def test_argv_of_v0_7_0_has_no_key_that_it_lacks(self) -> None:
        argv = training_argv(recipe("v0.7.0"))
        assert argv[3] == "examples/run_grpo.py"
        assert "data.train.dataset_name=DeepScaler" in argv
        assert not [item for item in argv if "converter_type" in item]
        assert not [item for item in argv if item.startswith("data.dataset_name")]

    def test_argv_override_replaces_the_recipe_once(self) -> None:
        argv = training_argv(recipe(overrides={"grpo.num_prompts_per_step": 16}))
        assert [item for item in argv if "num_prompts" in item] == ["grpo.num_prompts_per_step=16"]

    def test_argv_batch_follows_prompts_and_generations(self) -> None:
        overrides = {"grpo.num_prompts_per_step": 16, "grpo.num_generations_per_prompt": 4}
        settings = training_settings(recipe(overrides=overrides))
        assert settings["policy.train_global_batch_size"] == 64

    def test_argv_wandb_names_the_run(self) -> None:
        argv = training_argv(recipe(wandb=True, name="nightly-" + RUN))
        assert "logger.wandb_enabled=true" in argv
        assert f"logger.wandb.name=nightly-{RUN}" in argv

    def test_argv_refuses_what_lustrum_owns(self) -> None:
        with pytest.raises(ValueError, match="use nodes"):
            training_argv(recipe(overrides={"cluster.num_nodes": 64}))


class TestSpec:
    def test_spec_is_what_the_supervisor_reads(self) -> None:
        spec = supervisor_spec(RUN, 1, command=["x"], max_steps=20, code=None)
        assert spec == {
            "run_id": RUN,
            "attempt": 1,
            "lustre": "/lustre",
            "command": ["x"],
            "max_steps": 20,
        }

    @pytest.mark.parametrize("more", [{"colour": 1}, {"max_steps": "20"}, {"token": 1}])
    def test_spec_refuses_what_the_supervisor_would(self, more: dict[str, object]) -> None:
        with pytest.raises(ValueError, match=r"spec\."):
            supervisor_spec(RUN, 1, **more)

    def test_entrypoint_survives_a_shell(self) -> None:
        nasty = ["it's", "$HOME", "`id`", "a;b", 'q"q', "\\", "*", "é"]
        text = entrypoint("train", supervisor_spec(RUN, 1, command=nasty))
        assert shlex.split(text)[:3] == ["exec", "python3", "/etc/lustrum/supervisor.pyz"]
        script = "import sys; print(sys.argv[1:], end='')"
        echo = shlex.join([sys.executable, "-c", script])
        shown = subprocess.run(
            ["/bin/sh", "-c", text.replace("python3", echo, 1)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        spec = json.loads(eval(shown)[3])
        assert spec["command"] == nasty


class TestWhatSetupAsserts:
    """Rules of NeMo-RL's setup that are met only when all GPUs are up."""

    @pytest.mark.parametrize("tag", ["v0.6.0", "v0.7.0"])
    def test_a_validation_set_is_named_where_the_data_brings_none(self, tag: str) -> None:
        wanted = "+data.validation={dataset_name:AIME2024,repeat:16}"
        assert wanted in training_argv(recipe(tag))
        assert wanted not in training_argv(recipe(tag, overrides={"grpo.val_period": 0}))
        own = {"data.validation.dataset_name": "AIME2025"}
        assert wanted not in training_argv(recipe(tag, overrides=own))

    @pytest.mark.parametrize("tag", ["v0.4.0", "v0.5.0"])
    def test_no_validation_set_where_the_data_brings_its_own(self, tag: str) -> None:
        assert not [one for one in training_argv(recipe(tag)) if "data.validation" in one]

    @pytest.mark.parametrize("tag", ["v0.4.0", "v0.5.0", "v0.6.0", "v0.7.0"])
    def test_another_runs_optimizer_state_may_be_overridden(self, tag: str) -> None:
        wanted = "+policy.megatron_cfg.scheduler.override_opt_param_scheduler=true"
        assert wanted in training_argv(recipe(tag, resumes=True))
        assert wanted not in training_argv(recipe(tag))

    def test_resume_from_reaches_the_command(self) -> None:
        request = StartRequest.model_validate(
            {"checkpoints": {"resume_from": "gs://bucket/runs/rl-4f0c2a9d31/"}}
        )
        assert training_command(make_plan(request, RUN, "exports"), False).resumes
        assert not training_command(make_plan(StartRequest(), RUN, "exports"), False).resumes
