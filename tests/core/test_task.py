"""What the Ray head is told."""

from __future__ import annotations

import json

import pytest
from lustrum.core import supervisor_jobs
from lustrum.core.errors import ServiceError
from lustrum.core.plan import make_plan
from lustrum.core.request import StartRequest
from lustrum.head.checkpoint_rule import LAYOUTS, NEMO_RL
from lustrum.head.names import EVENT_PREFIX
from lustrum.head.spec import Spec

RUN_ID = "rl-0123456789"
PLAN = make_plan(StartRequest(), "rl-0123456789", "exports")


class TestEnvironment:
    def test_ray_waits_longer_than_the_supervisor_needs_to_end(self) -> None:
        spec = Spec()
        wait = float(supervisor_jobs.job_environment(PLAN)["RAY_JOB_STOP_WAIT_TIME_S"])
        assert wait > spec.grace_seconds + spec.flush_seconds

    def test_environment_overrides_the_jobs_runtime_environment(self) -> None:
        assert supervisor_jobs.job_environment(PLAN)["RAY_OVERRIDE_JOB_RUNTIME_ENV"] == "1"


class TestListing:
    def test_newest_listing_of_a_log_counts(self) -> None:
        def line(step: int, run_id: str = RUN_ID) -> str:
            one = {"step": step, "files": 3, "bytes": 9, "total_steps": step, "complete": True}
            event = {"type": "checkpoint.list", "run_id": run_id, "checkpoints": [one]}
            return EVENT_PREFIX + json.dumps({**event, "free_bytes": 1, "capacity_bytes": 2})

        found = supervisor_jobs.read_listing(
            f"noise\n{line(2)}\n{line(4)}\n{line(8, 'rl-ffffffffff')}\n{EVENT_PREFIX}not json\n",
            RUN_ID,
        )
        assert found is not None
        assert [one.step for one in found.checkpoints] == [4]

    def test_log_without_a_listing_has_none(self) -> None:
        assert (
            supervisor_jobs.read_listing('nothing\nLUSTRUM {"type": "job.progress"}\n', RUN_ID)
            is None
        )


class TestResume:
    def test_newest_step_with_its_training_info_is_taken(self) -> None:
        uris = [
            "gs://b/runs/rl-1/step_10/training_info.json",
            "gs://b/runs/rl-1/step_9/training_info.json",
            "gs://b/runs/rl-1/step_12/policy/weights/x",
        ]
        found = supervisor_jobs.newest_step_folder(NEMO_RL, uris, "gs://b/runs/rl-1/")
        assert found == "gs://b/runs/rl-1/step_10/"

    @pytest.mark.parametrize(
        ("layout", "uris", "expected"),
        [
            (
                "huggingface",
                ["checkpoint-9/trainer_state.json", "checkpoint-10/model"],
                "checkpoint-9",
            ),
            (
                "verl",
                ["global_step_5/lustrum-manifest.json", "global_step_9/data.pt"],
                "global_step_5",
            ),
            ("megatron", ["iter_0000010/lustrum-manifest.json"], "iter_0000010"),
        ],
    )
    def test_newest_step_of_each_layout(self, layout: str, uris: list[str], expected: str) -> None:
        found = supervisor_jobs.newest_step_folder(
            LAYOUTS[layout], [f"gs://b/{uri}" for uri in uris], "gs://b"
        )
        assert found == f"gs://b/{expected}/"

    def test_folder_without_a_step_is_refused(self) -> None:
        with pytest.raises(ServiceError, match="resume_from"):
            supervisor_jobs.newest_step_folder(NEMO_RL, ["gs://b/x/step_2/weights"], "gs://b/x")
