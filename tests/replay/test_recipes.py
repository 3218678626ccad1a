"""Whole lives of every profile in virtual time: lost nodes, resumed, exported, destroyed."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from lustrum.core.images import TABLE
from lustrum.core.profiles import profiles
from lustrum.core.recipes import find

from testing.fake_cluster import FakeKubernetes
from testing.life import Life
from testing.stories import check_nothing_is_left, check_the_newest_is_safe, in_state, to_the_end

TRAINED = {name: one for name, one in profiles().items() if one.machine != "local"}


def specs(life: Life, mode: str) -> list[dict[str, Any]]:
    """The spec of each job of a mode that was submitted."""
    words = [shlex.split(one["entrypoint"]) for one in life.cloud.submissions]
    return [json.loads(one[5]) for one in words if one[3] == mode]


class TestProfiles:
    @pytest.mark.parametrize("name", TRAINED)
    def test_profile_is_preempted_resumed_exported_and_destroyed(self, name: str) -> None:
        profile, life = TRAINED[name], Life()
        image = TABLE[profile.image]
        recipe = find(image.release, profile.recipe or str(image.config))
        goal = f"{recipe.algorithm}.max_num_steps"
        request = {
            "profile": name,
            "overrides": {goal: 20},
            "checkpoints": {"save_period": 4},
        }
        lose = lambda life, run_id: life.cloud.kubernetes(run_id).preempt()  # noqa: E731
        run = life.run(in_state("TRAINING", lose, 400, request))
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 20)
        assert (run.outcome, run.attempt) == ("SUCCEEDED", 2)
        for spec in specs(life, "train"):
            assert {recipe.script, recipe.config, f"{goal}=20"} <= set(spec["command"])
            assert spec["max_steps"] == 20
        checked = [spec for spec in specs(life, "stage") if not spec.get("folders")]
        assert checked[0]["release"] == image.release
        assert checked[0]["algorithm"] == recipe.algorithm
        loaded = specs(life, "train")[0]["command"]
        at = loaded.index("--config")
        assert checked[0]["command"][: at + 2] == loaded[: at + 2]


class TestRefusedWhileStaging:
    def test_what_the_loader_refuses_costs_no_gpu(self) -> None:
        refused = "the image's loader refuses the command: Could not override"

        def prepare(kubernetes: FakeKubernetes) -> None:
            real = kubernetes._new_head

            def new(session: str) -> Any:
                head = real(session)
                head.stage_failures = [("CONFIG", refused)]
                return head

            kubernetes._new_head = new

        life = Life()
        life.cloud.on_cluster = prepare
        run = life.run(to_the_end({"overrides": {"grpo.max_num_step": 4}}))
        check_nothing_is_left(life, run)
        assert (run.outcome, str(run.failure)) == ("FAILED", "CONFIG")
        assert refused in str(run.reason)
        assert specs(life, "train") == []
        assert "accelerators" not in {item.resource for item in run.usage}
