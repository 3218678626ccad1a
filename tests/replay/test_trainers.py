"""Whole lives of trainers other than NeMo-RL: verl's and Hugging Face's, with a preemption."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from lustrum.core.record import Run
from lustrum.core.request import parse_request

from testing.dashboard import Script
from testing.life import Life
from testing.stories import check_nothing_is_left, in_state, to_the_end

EXAMPLES = Path(__file__).parents[2] / "examples/requests"
CASES = pytest.mark.parametrize(
    ("name", "step", "files"),
    [
        ("verl", "global_step_20", {"data.pt", "actor/model_world_size_2_rank_1.pt"}),
        ("huggingface", "checkpoint-20", {"trainer_state.json", "model.safetensors"}),
    ],
)


def request(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((EXAMPLES / f"{name}.json").read_text())
    found["trainer"]["max_steps"] = 20
    found["checkpoints"]["save_period"] = 4
    return found


def commands(life: Life) -> list[list[str]]:
    """The command of each training attempt."""
    found = []
    for one in life.cloud.submissions:
        words = shlex.split(one["entrypoint"])
        if words[3] == "train":
            found.append(json.loads(words[5])["command"])
    return found


class TestTrainers:
    @CASES
    def test_trainer_is_preempted_resumed_exported_and_destroyed(
        self, name: str, step: str, files: set[str]
    ) -> None:
        life = Life()
        lose = lambda life, run_id: life.cloud.kubernetes(run_id).preempt()  # noqa: E731
        run = life.run(in_state("TRAINING", lose, 400, request(name)))
        check_nothing_is_left(life, run)
        assert (run.outcome, run.attempt, run.goal) == ("SUCCEEDED", 2, 20)
        uri = f"gs://export-bucket/runs/{run.run_id}/{step}/"
        assert run.safe_export is not None and run.safe_export.uri == uri
        found = {key.removeprefix(uri) for key in life.cloud.objects if key.startswith(uri)}
        assert files | {"lustrum-manifest.json"} <= found

    @CASES
    def test_trainer_goes_on_from_an_earlier_run_of_its_own_layout(
        self, name: str, step: str, files: set[str]
    ) -> None:
        async def story(life: Life) -> list[Run]:
            life.cloud.scripts = {1: Script(data_end_at=8)}
            first = await life.until_closed(await life.start(request(name), "m1"))
            life.cloud.scripts = {}
            again = request(name)
            again["checkpoints"]["resume_from"] = first.run_id
            second = await life.until_closed(await life.start(again, "m2"))
            return [first, second]

        life = Life()
        first, second = life.run(story)
        assert (first.outcome, first.goal) == ("SUCCEEDED", 8)
        assert (second.outcome, second.job and second.job.attempt) == ("SUCCEEDED", 1)
        assert min(point.step for point in second.series) == 9

    def test_trainer_of_another_layout_is_nothing_to_resume_from(self) -> None:
        async def story(life: Life) -> dict[str, Any]:
            first = await life.until_closed(await life.start(request("verl"), "m1"))
            again = request("huggingface")
            again["trainer"]["model"] = first.plan.model
            again["checkpoints"]["resume_from"] = first.run_id
            return await life.publish(again, "m2")

        answer = Life().run(story)
        assert (answer["status"], answer["field"]) == ("rejected", "checkpoints.resume_from")
        assert "left verl checkpoints" in answer["reason"]

    def test_trainer_is_given_what_only_the_run_knows(self) -> None:
        life = Life()
        run = life.run(to_the_end(request("verl")))
        (command,) = commands(life)
        folder = f"/lustre/runs/{run.run_id}/checkpoints"
        assert f"trainer.default_local_dir={folder}" in command
        assert {"trainer.nnodes=4", "trainer.n_gpus_per_node=8"} <= set(command)
        assert {"trainer.total_training_steps=20", "trainer.save_freq=4"} <= set(command)
        assert "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct" in command
        assert not [one for one in command if "grpo." in one or "must_save_by" in one]

    @pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
    def test_examples_are_requests(self, path: Path) -> None:
        assert parse_request(path.read_bytes())
