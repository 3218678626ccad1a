"""The image's own loader reads the training's command while the data is staged."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import RUN, Head

# NeMo-RL's loader in little: Hydra's own parser over a struct, as nemo_rl/utils/config.py has it.
LOADER = """
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

class OverridesError(Exception):
    pass

def load_config(path):
    return OmegaConf.load(path)

def parse_hydra_overrides(cfg, overrides):
    try:
        OmegaConf.set_struct(cfg, True)
        parsed = OverridesParser.create().parse_overrides(overrides=overrides)
        ConfigLoaderImpl._apply_overrides_to_config(overrides=parsed, cfg=cfg)
        return cfg
    except Exception as error:
        raise OverridesError(f"Failed to parse Hydra overrides: {error}") from error
"""
CONFIG = """
grpo: {num_prompts_per_step: 32, num_generations_per_prompt: 8, max_num_steps: 20, val_period: 0}
policy:
  train_global_batch_size: 256
  train_micro_batch_size: 1
  logprob_batch_size: ${policy.train_micro_batch_size}
  sequence_packing: {enabled: true}
  megatron_cfg: {enabled: true, tensor_model_parallel_size: 4, pipeline_model_parallel_size: 4,
    scheduler: {lr_decay_iters: 10}}
  dtensor_cfg: {enabled: false}
  generation: {backend: vllm, vllm_cfg: {tensor_parallel_size: 8}}
data: {dataset_name: DeepScaler}
cluster: {num_nodes: 8, gpus_per_node: 8}
"""
DATA = """
def load_response_dataset(data_config, seed=42):
    {body}
"""


class Image:
    """A working directory as an image of NeMo-RL has it, and a head that stages with it."""

    def __init__(self, head: Head, folder: Path) -> None:
        self.head, self.folder = head, folder
        for name in ("nemo_rl", "nemo_rl/utils", "nemo_rl/data", "nemo_rl/data/datasets"):
            (folder / name).mkdir(parents=True)
            (folder / name / "__init__.py").touch()
        (folder / "nemo_rl/utils/config.py").write_text(LOADER)
        (folder / "config.yaml").write_text(CONFIG)

    def data(self, body: str) -> None:
        (self.folder / "nemo_rl/data/datasets/__init__.py").write_text(DATA.format(body=body))

    def stage(self, *overrides: str, release: str = "v0.4.0", **more: Any) -> int:
        argv = [sys.executable, "run.py", "--config", "config.yaml", *overrides]
        return self.head.run(
            "stage", command=argv, release=release, workdir=str(self.folder), **more
        )

    def refusal(self) -> str:
        found = self.head.last("stage.failed")
        assert found["class"] == "CONFIG"
        return str(found["message"])


@pytest.fixture
def image(head: Head, tmp_path: Path) -> Image:
    return Image(head, tmp_path / "image")


class TestLoader:
    def test_a_command_that_fits_is_staged(self, image: Image) -> None:
        assert image.stage("grpo.max_num_steps=40") == 0
        held = json.loads((image.head.lustre / "runs" / RUN / "config.json").read_text())
        assert held["config"]["grpo"]["max_num_steps"] == 40

    def test_a_typo_is_refused_in_the_loader_s_words(self, image: Image) -> None:
        assert image.stage("grpo.max_num_step=40") == 78
        assert "Could not override 'grpo.max_num_step'" in image.refusal()

    def test_an_override_that_is_none(self, image: Image) -> None:
        assert image.stage("grpo.seed=[1") == 78
        assert "Failed to parse Hydra overrides" in image.refusal()

    def test_a_config_that_the_image_has_not(self, image: Image) -> None:
        (image.folder / "config.yaml").unlink()
        assert image.stage() == 78
        assert "config.yaml" in image.refusal()

    def test_a_loader_that_does_not_run_is_no_fault(self, image: Image) -> None:
        (image.folder / "nemo_rl/utils/config.py").write_text("import torch_of_another_image")
        assert image.stage("grpo.max_num_step=40") == 0
        assert "is not checked" in image.head.text()

    def test_another_trainer_s_command_is_left_alone(self, image: Image) -> None:
        assert image.stage("grpo.max_num_step=40", release="") == 0

    def test_the_release_s_own_model_of_the_configuration(self, image: Image) -> None:
        """v0.7.0 gives the resolved configuration to a pydantic model before anything else."""
        folder = image.folder / "nemo_rl/algorithms"
        folder.mkdir()
        (folder / "__init__.py").touch()
        (folder / "grpo.py").write_text(
            "import pydantic\n"
            "class MasterConfig(pydantic.BaseModel, extra='allow'):\n    needed: int\n"
        )
        assert image.stage() == 78
        assert "MasterConfig" in image.refusal() and "needed" in image.refusal()


class TestArithmetic:
    def test_all_numbers_at_once_with_those_that_work(self, image: Image) -> None:
        assert image.stage("cluster.num_nodes=3", "policy.train_global_batch_size=250") == 78
        found = image.refusal()
        assert "cluster.num_nodes: 3" in found and "16 GPUs" in found
        assert "must divide prompts x generations = 256" in found
        assert "nodes that work" in found

    def test_what_the_recipe_alone_says(self, image: Image) -> None:
        text = CONFIG.replace("val_period: 0", "val_period: 10").replace(
            "data: {dataset_name: DeepScaler}", "data: {train: {dataset_name: DeepScaler}}"
        )
        (image.folder / "config.yaml").write_text(text)
        assert image.stage(release="v0.6.0") == 78
        assert "validation set" in image.refusal()

    def test_heads_of_the_model_that_was_fetched(self, image: Image) -> None:
        head = image.head
        snapshot = head.lustre / "cache/huggingface/hub/models--a--b/snapshots/1"
        snapshot.mkdir(parents=True)
        shape = {"text_config": {"num_attention_heads": 28, "num_hidden_layers": 28}}
        (snapshot / "config.json").write_text(json.dumps(shape))
        assert image.stage(model="a/b") == 78
        assert "28 attention heads: 1, 2, 4, 7, 14" in image.refusal()


class TestResumed:
    def resume(self, image: Image, *overrides: str, saved: str = CONFIG) -> int:
        step = image.head.checkpoint("step_8", 8)
        (step / "config.yaml").write_text(saved)
        return image.stage(*overrides, resume_from=f"runs/{RUN}/checkpoints/step_8")

    def test_the_same_goal(self, image: Image) -> None:
        assert self.resume(image) == 0

    @pytest.mark.parametrize(
        ("override", "word"),
        (
            ("grpo.max_num_steps=40", "grpo.max_num_steps 20, this run has 40"),
            (
                "policy.train_global_batch_size=128",
                "train_global_batch_size 256, this run has 128",
            ),
        ),
    )
    def test_another_one(self, image: Image, override: str, word: str) -> None:
        assert self.resume(image, override) == 78
        assert word in image.refusal()

    def test_another_one_that_may_override(self, image: Image) -> None:
        may = "+policy.megatron_cfg.scheduler.override_opt_param_scheduler=true"
        assert self.resume(image, "grpo.max_num_steps=40", may) == 0

    def test_another_one_without_megatron(self, image: Image) -> None:
        own = ("policy.megatron_cfg.enabled=false", "policy.dtensor_cfg.enabled=true")
        assert self.resume(image, "grpo.max_num_steps=40", *own) == 0


class TestData:
    @pytest.fixture(autouse=True)
    def model(self, image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
        """Give the head a hub whose models are there at once."""
        (image.folder / "huggingface_hub.py").write_text("def snapshot_download(name): pass\n")
        image.head.environment["PYTHONPATH"] = str(image.folder)

    def stage(self, image: Image) -> int:
        return image.stage(model="a/b", fetch_model=True)

    def test_heads_are_looked_at_once_the_model_is_there(self, image: Image) -> None:
        image.data("raise AssertionError('the data was fetched before')")
        (image.folder / "huggingface_hub.py").write_text(
            "import json, os\n"
            "def snapshot_download(name):\n"
            "    place = os.environ['HF_HOME'] + '/hub/models--a--b/snapshots/1'\n"
            "    os.makedirs(place)\n"
            "    shape = {'num_attention_heads': 28, 'num_hidden_layers': 28}\n"
            "    with open(place + '/config.json', 'w') as file:\n"
            "        json.dump(shape, file)\n"
        )
        assert self.stage(image) == 78
        assert "28 attention heads" in image.refusal()

    def test_it_is_fetched_into_the_shared_cache(self, image: Image) -> None:
        image.data(
            "import os; open(os.environ['HF_HOME'] + '/' + data_config['dataset_name'], 'w')"
        )
        assert self.stage(image) == 0
        assert (image.head.lustre / "cache/huggingface/DeepScaler").exists()
        phases = [event.get("phase") for event in image.head.events("stage.progress")]
        assert phases[-1] == "data"

    @pytest.mark.parametrize(
        ("error", "failure", "code"),
        (
            ("RuntimeError('401 Client Error: Unauthorized')", "ACCESS", 77),
            ("RuntimeError('DatasetNotFoundError: no such set')", "CONFIG", 78),
            ("OSError(28, 'No space left on device')", "LUSTRE_FULL", 74),
        ),
    )
    def test_what_would_end_the_training(
        self, image: Image, error: str, failure: str, code: int
    ) -> None:
        image.data(f"raise {error}")
        assert self.stage(image) == code
        assert image.head.last("stage.failed")["class"] == failure

    def test_what_may_pass_is_left_to_the_training(self, image: Image) -> None:
        image.data("raise ConnectionError('timed out')")
        assert self.stage(image) == 0
        assert "left to the training" in image.head.text()

    def test_each_part_of_a_newer_configuration(self, image: Image) -> None:
        text = CONFIG.replace(
            "data: {dataset_name: DeepScaler}",
            "data: {default: {processor: p}, train: [{dataset_name: A}, {dataset_name: B}],"
            " validation: {dataset_name: C}}",
        )
        (image.folder / "config.yaml").write_text(text)
        (image.folder / "nemo_rl/data/datasets/utils.py").write_text(
            "def update_single_dataset_config(one, default):\n    one.update(default)\n"
        )
        image.data("print('loading', data_config['dataset_name'], data_config['processor'])")
        assert image.stage(model="a/b", fetch_model=True, release="v0.6.0") == 0
        for name in "ABC":
            assert f"loading {name} p" in image.head.text()
