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
    "full_disk_safetensors": "LUSTRE_FULL",  # it does, but not on which disk
    "full_disk_shards": "LUSTRE_FULL",
    "full_shared_memory": None,
    "full_shared_memory_loader": None,
    "illegal_address": None,
    "misaligned_address": None,
    "nccl_timeout": "HANG",
    "nccl_two_ranks_one_gpu": None,
    "no_shared_memory": None,
}


class TestFieldGpu:
    def test_every_log_has_its_right_value(self) -> None:
        assert {path.stem for path in LOGS.iterdir()} == set(RIGHT)

    @pytest.mark.parametrize("name", sorted(RIGHT))
    def test_class_that_a_log_gives_away(self, name: str) -> None:
        log = TrainingLog(0)
        if name.startswith("full_disk"):  # as the training says before a save
            log.feed("Saving checkpoint for step 10...", 0.0)
        for line in (LOGS / f"{name}.log").read_text().splitlines():
            log.feed(line, 0.0)
        assert log.hint == RIGHT[name]

    def test_message_is_the_error_and_not_its_wrapper(self) -> None:
        log = TrainingLog(0)
        for line in (LOGS / "nccl_two_ranks_one_gpu.log").read_text().splitlines():
            log.feed(line, 0.0)
        assert log.why().message.startswith("torch.distributed.DistBackendError: NCCL error")

    def test_a_rank_s_own_error_counts_more_than_the_time_out_of_the_others(self) -> None:
        log = TrainingLog(0)
        log.feed("[rank1]: ValueError: no such sample", 0.0)
        for line in (LOGS / "nccl_timeout.log").read_text().splitlines():
            log.feed(line, 0.0)
        why = log.why()
        assert (why.failure, why.message) == (None, "ValueError: no such sample")
