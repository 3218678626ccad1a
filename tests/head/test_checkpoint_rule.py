"""Which folder is a step, when it is complete, what is pruned: of every layout."""

from __future__ import annotations

import json
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lustrum.head.checkpoint_rule import (
    LAYOUTS,
    NEMO_RL,
    Layout,
    StepFolder,
    judge,
    newest_complete,
    own_layout,
    to_prune,
)

CHECKPOINTS = st.lists(
    st.builds(
        StepFolder,
        step=st.integers(0, 30),
        files=st.just(3),
        bytes=st.just(9),
        total_steps=st.integers(0, 30),
        complete=st.booleans(),
    ),
    unique_by=lambda one: one.step,
)


def step(number: int, complete: bool = True) -> StepFolder:
    return StepFolder(number, 3, 128, number if complete else None, complete)


class TestStepOf:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("step_4", 4),
            ("tmp_step_6", None),
            ("old_step_4", None),
            ("step_4.tmp", None),
            ("step_", None),
            ("step_-1", None),
        ],
    )
    def test_step_of_c11(self, name: str, expected: int | None) -> None:
        assert NEMO_RL.step_of(name) == expected


class TestJudge:
    def test_judge_committed_step_is_complete(self) -> None:
        sizes = {"training_info.json": 18, "policy/weights/a": 100}
        found = judge(NEMO_RL, "step_4", sizes, '{"total_steps": 4}', None)
        assert found == StepFolder(4, 2, 118, 4, True)

    def test_judge_without_training_info_is_not(self) -> None:
        found = judge(NEMO_RL, "step_4", {"policy/weights/a": 100}, None, None)
        assert found is not None
        assert not found.complete

    def test_judge_manifest_is_held_against_the_files(self) -> None:
        sizes = {"training_info.json": 18, "policy/a": 99, "lustrum-manifest.json": 50}
        manifest = json.dumps({"sizes": {"policy/a": 100}})
        found = judge(NEMO_RL, "step_4", sizes, '{"total_steps": 4}', manifest)
        assert found == StepFolder(4, 2, 117, 4, False)

    def test_judge_interrupted_save_is_no_checkpoint_i12(self) -> None:
        assert (
            judge(NEMO_RL, "tmp_step_8", {"training_info.json": 18}, '{"total_steps": 8}', None)
            is None
        )


class TestToPrune:
    def test_to_prune_keeps_the_newest(self) -> None:
        assert to_prune([step(2), step(4), step(6), step(8)], keep=2) == (2, 4)

    @given(checkpoints=CHECKPOINTS, keep=st.integers(-1, 5))
    def test_to_prune_never_the_newest_complete_nor_what_is_newer(
        self, checkpoints: list[StepFolder], keep: int
    ) -> None:
        newest = newest_complete(checkpoints)
        gone = to_prune(checkpoints, keep)
        if newest is None:
            assert gone == ()
        else:
            assert all(number < newest.step for number in gone)
            left = [one for one in checkpoints if one.complete and one.step not in gone]
            complete = sum(one.complete for one in checkpoints)
            assert len(left) == min(max(keep, 1), complete)


class TestLayouts:
    VERL, HUGGING_FACE = LAYOUTS["verl"], LAYOUTS["huggingface"]
    WEIGHTS: ClassVar = {"actor/model_world_size_8_rank_0.pt": 90, "data.pt": 10}

    @pytest.mark.parametrize(
        ("layout", "name", "expected"),
        [
            ("verl", "global_step_10", 10),
            ("verl", "step_10", None),
            ("verl", "global_step_10.bak", None),
            ("huggingface", "checkpoint-500", 500),
            ("huggingface", "tmp-checkpoint-500", None),
            ("huggingface", "checkpoint-best", None),
            ("huggingface", "checkpoint-" + "9" * 5000, None),
            ("nemo-rl", "step_\u0661", None),
            ("nemo-rl", "step_04", None),
            ("megatron", "iter_0000120", 120),
            ("megatron", "iter_120", None),
            ("megatron", "iter_12000000", 12000000),
        ],
    )
    def test_step_of_each(self, layout: str, name: str, expected: int | None) -> None:
        assert LAYOUTS[layout].step_of(name) == expected

    @pytest.mark.parametrize("layout", LAYOUTS.values(), ids=lambda one: one.name)
    def test_folder_and_step_of_are_inverse(self, layout: Layout) -> None:
        assert layout.step_of(layout.folder(120)) == 120

    @pytest.mark.parametrize(
        ("tracker", "complete"),
        [("10", True), ("15\n", True), ("5", False), ("", False), (None, False), ("1e9", False)],
    )
    def test_verl_is_complete_once_the_tracker_has_come_to_it(
        self, tracker: str | None, complete: bool
    ) -> None:
        found = judge(self.VERL, "global_step_10", self.WEIGHTS, tracker=tracker)
        assert found == StepFolder(10, 2, 100, 10 if complete else None, complete)

    def test_verl_a_copy_without_its_tracker_is_proved_by_its_manifest(self) -> None:
        manifest = json.dumps({"sizes": self.WEIGHTS})
        found = judge(self.VERL, "global_step_10", self.WEIGHTS, manifest=manifest)
        assert found is not None
        assert found.complete
        short = judge(self.VERL, "global_step_10", {"data.pt": 10}, manifest=manifest)
        assert short is not None
        assert not short.complete

    def test_verl_an_empty_folder_is_no_checkpoint(self) -> None:
        found = judge(self.VERL, "global_step_10", {}, tracker="10")
        assert found is not None
        assert not found.complete

    @pytest.mark.parametrize(
        ("state", "complete"),
        [
            ('{"global_step": 500, "max_steps": 500}', True),
            ('{"global_step": 500, "max_', False),
            (None, False),
        ],
    )
    def test_huggingface_is_complete_with_a_readable_state(
        self, state: str | None, complete: bool
    ) -> None:
        sizes = {"model.safetensors": 100, "trainer_state.json": len(state or "")}
        found = judge(self.HUGGING_FACE, "checkpoint-500", sizes, state)
        assert found is not None
        assert (found.complete, found.total_steps) == (complete, 500 if complete else None)

    def test_own_is_complete_with_its_file(self) -> None:
        layout = own_layout("ckpt-{step}", "state/done.txt")
        whole = judge(layout, "ckpt-7", {"state/done.txt": 0, "weights.bin": 5})
        assert whole == StepFolder(7, 2, 5, 7, True)
        half = judge(layout, "ckpt-7", {"weights.bin": 5})
        assert half is not None
        assert not half.complete

    @pytest.mark.parametrize(
        ("pattern", "complete_when"),
        [
            ("ckpt", "done"),
            ("ckpt-{step}-{step}", "done"),
            ("../{step}", "done"),
            ("a/{step}", "done"),
            ("a{step:7}", "done"),
            ("{step}{step}", "done"),
            ("a{step}\n", "done"),
            ("v1{step}", "done"),
            ("tmp_{step}", "done"),
            ("pruned_x{step}", "done"),
            ("ckpt-{step}", "../done"),
            ("ckpt-{step}", "/done"),
            ("ckpt-{step}", ""),
            ("ckpt-{step}", "a//b"),
        ],
    )
    def test_own_refuses_what_leads_elsewhere(self, pattern: str, complete_when: str) -> None:
        with pytest.raises(ValueError, match="must"):
            own_layout(pattern, complete_when)

    @pytest.mark.parametrize("pattern", ["{step}", "ckpt-{step}", "it{step}_x", "e.{step}"])
    def test_own_reads_the_names_it_makes(self, pattern: str) -> None:
        assert own_layout(pattern, "done.txt").step_of(pattern.replace("{step}", "12")) == 12


class TestVerlAsItWrites:
    """Actor, then data.pt, then the tracker; beyond max_actor_ckpt_to_keep only data.pt stays."""

    @pytest.mark.parametrize(
        ("files", "tracker", "complete"),
        [
            ({"actor/model_0.pt": 9}, None, False),
            ({"actor/model_0.pt": 9, "data.pt": 1}, "4", False),
            ({"actor/model_0.pt": 9, "data.pt": 1}, "", False),  # opened, not written yet
            ({"actor/model_0.pt": 9, "data.pt": 1}, "8", True),
            ({"actor/model_0.pt": 9, "data.pt": 1}, "12", True),
            ({"data.pt": 1}, "12", False),
        ],
    )
    def test_verl_step_is_complete(
        self, files: dict[str, int], tracker: str | None, complete: bool
    ) -> None:
        found = judge(LAYOUTS["verl"], "global_step_8", files, tracker=tracker)
        assert found is not None and found.complete is complete
