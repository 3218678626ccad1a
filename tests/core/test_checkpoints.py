"""What is complete, what is exported, what is pruned."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lustrum.core.checkpoints import (
    Checkpoint,
    export_shortfall,
    is_finished,
    judge,
    newest_complete,
    read_listing,
    step_of,
    to_export,
    to_prune,
)

CHECKPOINTS = st.lists(
    st.builds(
        Checkpoint,
        step=st.integers(0, 30),
        files=st.just(3),
        bytes=st.just(9),
        total_steps=st.integers(0, 30),
        complete=st.booleans(),
    ),
    unique_by=lambda one: one.step,
)


def step(number: int, complete: bool = True) -> Checkpoint:
    return Checkpoint(number, 3, 128, number if complete else None, complete)


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
        assert step_of(name) == expected


class TestJudge:
    def test_judge_committed_step_is_complete(self) -> None:
        sizes = {"training_info.json": 18, "policy/weights/a": 100}
        found = judge("step_4", sizes, '{"total_steps": 4}', None)
        assert found == Checkpoint(4, 2, 118, 4, True)

    def test_judge_without_training_info_is_not(self) -> None:
        found = judge("step_4", {"policy/weights/a": 100}, None, None)
        assert found is not None
        assert not found.complete

    def test_judge_manifest_is_held_against_the_files(self) -> None:
        sizes = {"training_info.json": 18, "policy/a": 99, "lustrum-manifest.json": 50}
        manifest = json.dumps({"sizes": {"policy/a": 100}})
        found = judge("step_4", sizes, '{"total_steps": 4}', manifest)
        assert found == Checkpoint(4, 2, 117, 4, False)

    def test_judge_interrupted_save_is_no_checkpoint_i12(self) -> None:
        assert judge("tmp_step_8", {"training_info.json": 18}, '{"total_steps": 8}', None) is None


class TestToExport:
    def test_to_export_the_newest_complete_i12(self) -> None:
        assert to_export([step(6), step(4), step(8, complete=False)]) == step(6)

    def test_to_export_nothing_when_it_is_there_already(self) -> None:
        assert to_export([step(4), step(6)], exported=6) is None
        assert to_export([step(4), step(6)], exported=4) == step(6)

    def test_to_export_nothing_when_nothing_is_complete(self) -> None:
        assert to_export([step(8, complete=False)]) is None


class TestToPrune:
    def test_to_prune_keeps_the_newest(self) -> None:
        assert to_prune([step(2), step(4), step(6), step(8)], keep=2) == (2, 4)

    @given(checkpoints=CHECKPOINTS, keep=st.integers(-1, 5))
    def test_to_prune_never_the_newest_complete_nor_what_is_newer(
        self, checkpoints: list[Checkpoint], keep: int
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


class TestIsFinished:
    def test_is_finished_by_total_steps_c12(self) -> None:
        assert is_finished([step(18), step(20)], 20)
        assert not is_finished([step(12)], 20)
        assert not is_finished([step(12), step(20, complete=False)], 20)
        assert not is_finished([], 20)


class TestReadListing:
    def test_read_listing_sorts(self) -> None:
        items = [
            {"step": 6, "files": 3, "bytes": 9, "total_steps": 6, "complete": True},
            {"step": 4, "files": 3, "bytes": 9, "total_steps": None, "complete": False},
        ]
        listing = read_listing(
            {
                "type": "checkpoint.list",
                "checkpoints": items,
                "free_bytes": 1,
                "capacity_bytes": 2,
                "run_id": "rl-0123456789",
            }
        )
        assert [one.step for one in listing.checkpoints] == [4, 6]
        assert (listing.free_bytes, listing.capacity_bytes) == (1, 2)

    @pytest.mark.parametrize(
        "event",
        [
            {},
            {"type": "job.progress"},
            {"type": "checkpoint.list"},
            {"type": "checkpoint.list", "checkpoints": [{}], "free_bytes": 1, "capacity_bytes": 1},
            {"type": "checkpoint.list", "checkpoints": None, "free_bytes": 1, "capacity_bytes": 1},
        ],
    )
    def test_read_listing_refuses_what_is_none(self, event: dict[str, object]) -> None:
        with pytest.raises(ValueError, match=r"type|checkpoint\.list"):
            read_listing(event)


class TestExportShortfall:
    def objects(self) -> dict[str, int]:
        return {
            "training_info.json": 18,
            "config.yaml": 10,
            "policy/a": 100,
            "lustrum-manifest.json": 60,
        }

    def test_export_shortfall_none_when_whole(self) -> None:
        assert export_shortfall(step(4), self.objects()) is None

    def test_export_shortfall_of_nothing_i6(self) -> None:
        assert export_shortfall(step(4), {}) == "0 of 3 files"

    def test_export_shortfall_the_manifest_does_not_stand_for_a_file(self) -> None:
        objects = self.objects()
        del objects["config.yaml"]
        assert export_shortfall(step(4), objects) == "2 of 3 files"

    def test_export_shortfall_a_short_file(self) -> None:
        assert export_shortfall(step(4), self.objects() | {"policy/a": 99}) == "127 of 128 bytes"

    def test_export_shortfall_by_manifest_names_the_file(self) -> None:
        manifest = json.dumps({"sizes": {"policy/a": 100, "policy/b": 7}})
        objects = self.objects() | {"other": 7}
        assert export_shortfall(step(4), objects, manifest) == "policy/b: no of 7 bytes"
