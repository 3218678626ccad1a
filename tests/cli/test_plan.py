"""`lustrum plan`: readable, complete, without a cloud."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml
from lustrum.core import names
from lustrum.core.cost import prices
from lustrum.core.plan import make_plan
from lustrum.core.request import StartRequest

from tests.cli.conftest import Shell

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "requests").glob("*.json"))


class TestPlan:
    @pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
    def test_plan_of_every_example_needs_no_cloud(self, lustrum: Shell, path: Path) -> None:
        lustrum.env.clear()
        result = lustrum("plan", str(path))
        assert result.exit_code == 0 and lustrum.made == 0
        assert "Worst-case cost" in result.stdout

    def test_plan_of_an_own_trainer_shows_its_command_and_no_recipe(self, lustrum: Shell) -> None:
        trainer = {
            "command": ["python3", "t.py", "--to={checkpoint_dir}"],
            "checkpoints": {"layout": "verl"},
        }
        text = lustrum("plan", "-", stdin=json.dumps({"trainer": trainer})).stdout
        assert "trainer       python3 t.py '--to={checkpoint_dir}'" in text
        assert "global_step_{step} (verl)" in text
        assert "recipe" not in text.split("Names")[0]

    def test_plan_of_the_original_recipe_shows_every_default(self, lustrum: Shell) -> None:
        text = lustrum("plan", "-", stdin="{}").stdout
        for expected in (
            "us-east1-b",
            "8 x a4-highgpu-8g",
            "8 x nvidia-b200",
            "64 in all",
            "spot",
            "nvcr.io/nvidia/nemo-rl:v0.4.0",
            "Ray 2.46.0",
            "8 GPU, 100 CPU, 1000Gi",
            "no GPU, 8 CPU, 64Gi",
            "claimName: lustre-pvc",
            "mountPath: /dev/shm",
            "medium: Memory",
            "Qwen/Qwen2.5-72B-Instruct",
            "data.dataset_name=DeepScaler",
            "grpo.max_num_steps=20",
            "grpo.num_generations_per_prompt=8",
            "grpo.num_prompts_per_step=32",
            "policy.train_global_batch_size=256",
            "checkpointing.save_period=2",
            "checkpointing.keep_top_k=2",
            "grpo_math_70B_megatron.yaml",
            "rayVersion: 2.46.0",
            "36000 GiB at 500 MB/s per TiB",
        ):
            assert expected in text, expected
        for name, value in (
            ("GLOO_SOCKET_IFNAME", "eth0"),
            ("NCCL_SOCKET_IFNAME", "eth0"),
            ("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1"),
            ("HF_HOME", "/lustre/cache/huggingface"),
            ("_NODES", "8"),
            ("_CAPACITY", "spot"),
            ("_LUSTRE_CAPACITY_GIB", "36000"),
            ("attempts", "5"),
        ):
            assert [value] == [
                line.split()[1] for line in text.splitlines() if line.split()[:1] == [name]
            ], name
        assert "6 h after the start" in text and "$2,500.00" in text
        plan = make_plan(StartRequest(), names.run_id("any"), "exports")
        assert f"${plan.worst_cost:,.2f}" in text
        assert f"list prices of {prices().dated}" in text

    def test_plan_prints_a_manifest_that_yaml_reads(self, lustrum: Shell) -> None:
        text = lustrum("plan", "-", stdin="{}").stdout
        block = text.split("\nRayCluster\n")[1].split("\n\n")[0]
        found = yaml.safe_load(block)
        wanted = json.loads(lustrum("plan", "-", "--json", stdin="{}").stdout)["ray_cluster"]
        del found["metadata"]["labels"]["lustrum-expires"]
        del wanted["metadata"]["labels"]["lustrum-expires"]
        assert found == wanted
        assert "&id" not in block

    def test_plan_prints_a_command_that_a_shell_reads(self, lustrum: Shell) -> None:
        request = '{"overrides": {"data.system_prompt_file": "a b/c.txt"}}'
        text = lustrum("plan", "-", stdin=request).stdout
        block = text.split("\nJob command")[1].split("\n", 1)[1].split("\n\n")[0]
        wanted = json.loads(lustrum("plan", "-", "--json", stdin=request).stdout)["command"]
        assert shlex.split(block.replace("\\\n", " ")) == wanted

    def test_plan_with_a_key_shows_the_real_run_id(self, lustrum: Shell) -> None:
        real = names.run_id(names.message_key({"idempotency_key": "mine"}, "", None))
        text = lustrum("plan", "-", "--key", "mine", stdin="{}").stdout
        assert text.startswith(real) and "stand-in" not in text

    def test_plan_says_which_zones_have_no_network(self, lustrum: Shell) -> None:
        text = lustrum("plan", "-", stdin='{"zones": ["us-east1-b", "us-east4-c"]}').stdout
        assert "slots us-east1-0" in text and "will be passed over" in text

    def test_plan_reads_gzip_as_the_control_plane_does(
        self, lustrum: Shell, tmp_path: Path
    ) -> None:
        import gzip

        path = tmp_path / "request.json.gz"
        path.write_bytes(gzip.compress(b'{"nodes": 4}'))
        assert "4 x a4-highgpu-8g" in lustrum("plan", str(path)).stdout

    def test_plan_escapes_markup_of_a_request(self, lustrum: Shell) -> None:
        request = '{"checkpoints": {"export_to": "gs://exports/a.b"}}'
        assert "gs://exports/a.b/rl-" in lustrum("plan", "-", stdin=request).stdout
