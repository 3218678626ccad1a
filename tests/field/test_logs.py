"""Training logs made from public reports: which steps they tell of, and why the training ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from lustrum.core.failures import Failure, named
from lustrum.core.verdict import Action, Seen, crashes_after, decide
from lustrum.head.training_log import TrainingLog

from testing.samples import NOW, run, saved

LOGS = Path(__file__).parent / "log"


def read(text: str, seconds: float = 1.0) -> TrainingLog:
    """What the reader knows after these lines, one each so many seconds."""
    log = TrainingLog(0)
    for number, line in enumerate(text.splitlines()):
        log.feed(line, number * seconds)
    return log


def ended(text: str) -> tuple[Failure | None, Action, int, str]:
    """Class, reaction, crashes counted and reason of a training that exits 1 after this log."""
    why = read(text).why()
    seen = Seen("FAILED", exit_code=1, message=why.message, failure=named(why.failure))
    one = run(checkpoint=saved(4))
    verdict = decide(one, seen, NOW)
    assert verdict.failure is not None
    return verdict.failure, verdict.action, crashes_after(one, verdict.failure), verdict.sentence


class TestWhyItEnded:
    @pytest.mark.parametrize(
        ("name", "failure", "action", "reason"),
        [
            ("shm_full", Failure.USER_ERROR, Action.RESUME, "/dev/shm"),
            ("lustre_full", Failure.LUSTRE_FULL, Action.STOP, "No space left"),
            ("capture_oom_then_code_error", Failure.USER_ERROR, Action.RESUME, "'answer'"),
            ("ecc", Failure.NODE_LOST, Action.RESUME, "a GPU failed on node 10.4.2.7"),
        ],
    )
    def test_log(self, name: str, failure: Failure, action: Action, reason: str) -> None:
        found = ended((LOGS / f"{name}.log").read_text())
        assert found[:2] == (failure, action)
        assert reason in found[3]

    def test_a_gpu_fault_counts_no_crash_of_the_program(self) -> None:
        assert ended((LOGS / "ecc.log").read_text())[2] == run().crashes

    @pytest.mark.parametrize(
        ("text", "failure"),
        [
            ("OSError: [Errno 28] No space left on device: '/tmp/ray/spill/1'", None),
            ("OSError: [Errno 122] Disk quota exceeded: '/lustre/runs/x'", "LUSTRE_FULL"),
            (
                "Saving checkpoint for step 6...\nOSError: [Errno 28] No space left on device",
                "LUSTRE_FULL",
            ),
            (
                "NVRM: Xid (PCI:0000:8f:00): 79, pid=1, GPU has fallen off the bus.\n"
                "RuntimeError: CUDA error: unspecified launch failure",
                "NODE_LOST",
            ),
            (
                "NVRM: Xid (PCI:0000:8f:00): 31, pid=1, MMU Fault\n"
                "RuntimeError: CUDA error: an illegal memory access was encountered",
                None,
            ),
            ("uncorrectable ECC error was seen at the last boot\nKeyError: 'answer'", None),
            (
                "(W pid=1) torch.OutOfMemoryError: CUDA out of memory.\n"
                "ray.exceptions.ActorDiedError: The actor died unexpectedly",
                "USER_OOM",
            ),
            (
                "torch.OutOfMemoryError: CUDA out of memory.\n\nDuring handling of the above "
                "exception, another exception occurred:\n\nRuntimeError: cannot free",
                "USER_OOM",
            ),
            (
                "torch.OutOfMemoryError: CUDA out of memory.\nTraceback (most recent call last):\n"
                "KeyError: 'answer'",
                None,
            ),
            ("\x1b[36m(W pid=1)\x1b[0m MemoryError: Unable to allocate", "USER_OOM"),
            ("Exception: Could not override 'grpo.max_num_step'.", "CONFIG"),
            (
                "AssertionError: OptimizerParamScheduler: class input value 1 and "
                "checkpoint value 2 for total number of weight decay iterations do not match",
                "CONFIG",
            ),
            ("AssertionError: World size (24) must be divisible by 16", "CONFIG"),
            ("huggingface_hub.errors.GatedRepoError: 403 Client Error.", "ACCESS"),
            ("📊 Training Results:\nValueError: 7 must be divisible by 2", None),
        ],
    )
    def test_class_of_the_last_error(self, text: str, failure: str | None) -> None:
        assert read(text).hint == failure


class TestProgress:
    def test_with_dynamic_sampling_a_banner_is_no_step(self) -> None:
        log = read((LOGS / "dapo_dynamic_sampling.log").read_text())
        assert [(one["step"], one["reward"]) for one in log.steps] == [(1, 0.11), (2, 0.13)]
        assert log.step == 2

    def test_a_banner_that_comes_again_at_once_is_no_progress(self) -> None:
        banner = "=" * 25 + " Step 1/20 " + "=" * 25
        assert read("\n".join([banner] * 50), seconds=0.5).moves == 1
        assert read("\n".join([banner] * 5), seconds=60).moves == 5

    def test_the_loss_of_a_training_without_rewards(self) -> None:
        log = read("📊 Training Results:\n  • Loss: 0.0123\n  • Total step time: 2.00s")
        assert (log.step, log.reward, log.loss) == (1, None, 0.0123)

    def test_a_reward_belongs_to_its_own_step(self) -> None:
        log = read("📊 Training Results:\n  • Avg Reward: 0.5\n📊 Training Results:")
        assert (log.step, log.reward) == (2, None)
        assert [one["step"] for one in log.take_steps()] == [1]
        log.feed("  • Avg Reward: 0.7", 9.0)
        log.feed("  • Total step time: 1.00s", 9.0)
        assert log.take_steps() == [{"step": 2, "reward": 0.7, "seconds": 1.0}]

    @pytest.mark.parametrize(
        "line",
        [
            "  • Avg Reward: 1.2.3",
            "  • Avg Reward: ...",
            "  • Avg Reward: 0x1F",
            "  • Avg Reward: --1",
            "  • Avg Reward: ٣",
            "Saving checkpoint for step 1e3...",
            "=" * 25 + " Step -1/20 " + "=" * 25,
            "  • Avg Reward: " + "9" * 5000,
            "  • Avg Reward: 1e999",
            "Saving checkpoint for step " + "9" * 5000 + "...",
            "=" * 25 + " Step " + "9" * 5000 + "/20 " + "=" * 25,
            b"\xf0\x9f\x93".decode("utf-8", "replace"),
            "x" * 2**16,
        ],
    )
    def test_an_odd_line_changes_nothing(self, line: str) -> None:
        log = read("📊 Training Results:\n  • Avg Reward: 0.5")
        log.feed(line, 3.0)
        assert (log.step, log.reward, log.saves) == (1, 0.5, {})
