"""What a listing says, and whether an export is whole."""

from __future__ import annotations

import json

import pytest
from lustrum.core.checkpoints import export_shortfall, read_listing
from lustrum.head.checkpoint_rule import LAYOUTS, NEMO_RL, StepFolder


def step(number: int, complete: bool = True) -> StepFolder:
    return StepFolder(number, 3, 128, number if complete else None, complete)


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
        assert export_shortfall(NEMO_RL, step(4), self.objects()) is None

    def test_export_shortfall_of_nothing_i6(self) -> None:
        assert export_shortfall(NEMO_RL, step(4), {}) == "0 of 3 files"

    def test_export_shortfall_the_manifest_does_not_stand_for_a_file(self) -> None:
        objects = self.objects()
        del objects["config.yaml"]
        assert export_shortfall(NEMO_RL, step(4), objects) == "2 of 3 files"

    def test_export_shortfall_a_short_file(self) -> None:
        assert (
            export_shortfall(NEMO_RL, step(4), self.objects() | {"policy/a": 99})
            == "127 of 128 bytes"
        )

    def test_export_shortfall_by_manifest_names_the_file(self) -> None:
        manifest = json.dumps({"sizes": {"policy/a": 100, "policy/b": 7}})
        objects = self.objects() | {"other": 7}
        assert export_shortfall(NEMO_RL, step(4), objects, manifest) == "policy/b: no of 7 bytes"

    def test_export_shortfall_asks_for_the_proof_of_its_own_layout(self) -> None:
        objects = {"trainer_state.json": 50, "model.safetensors": 50, "optimizer.pt": 50}
        assert export_shortfall(LAYOUTS["huggingface"], step(4), objects) is None
        missing = export_shortfall(NEMO_RL, step(4), objects)
        assert missing == "training_info.json is missing"
