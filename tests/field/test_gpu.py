"""Texts of trainings that failed on an NVIDIA H200, each with the class they give away."""

from __future__ import annotations

from pathlib import Path

import pytest
from lustrum.head.training_log import TrainingLog

LOGS = Path(__file__).parent / "gpu"

# None: the supervisor knows no more than the exit code, which makes it a USER_ERROR.
RIGHT = {
    "actor_killed": None,
    "cuda_oom": "USER_OOM",
    "device_assert": None,
    "full_disk": "LUSTRE_FULL",  # torch.save never says "No space left on device"
    "illegal_address": None,
    "misaligned_address": None,
    "nccl_two_ranks_one_gpu": None,
    "no_shared_memory": None,
}


class TestFieldGpu:
    def test_every_log_has_its_right_value(self) -> None:
        assert {path.stem for path in LOGS.iterdir()} == set(RIGHT)

    @pytest.mark.parametrize("name", sorted(RIGHT))
    def test_class_that_a_log_gives_away(self, name: str) -> None:
        log = TrainingLog(0)
        for line in (LOGS / f"{name}.log").read_text().splitlines():
            log.feed(line, 0.0)
        assert log.hint == RIGHT[name]
