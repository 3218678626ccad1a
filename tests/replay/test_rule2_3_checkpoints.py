"""Rules 2 and 3: neither an exception nor a head that is gone for good costs a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lustrum.core.errors import ServiceError
from lustrum.core.failures import Failure
from lustrum.core.record import Run

from testing.cloud import unavailable
from testing.dashboard import Script
from testing.life import Life
from testing.stories import check_nothing_is_left, check_the_newest_is_safe

ANYTHING: dict[str, Callable[[], Exception]] = {
    "a bug": lambda: AttributeError("'NoneType' object has no attribute 'get'"),
    "a wrong shape": lambda: KeyError("name"),
    "no JSON": lambda: ValueError("Expecting value: line 1 column 1"),
    "a socket": lambda: OSError("Connection reset by peer"),
    "an outage": lambda: unavailable("it"),
    "a refusal": lambda: ServiceError(Failure.ACCESS, "403", status=403),
}


def trouble(life: Life, run_id: str, service: str, error: Callable[[], Exception]) -> None:
    """From the teardown's begin until the export is over, a service raises."""

    def hook(asked: str, method: str) -> None:
        if asked == service and life.record(run_id).state in ("RELEASING", "EXPORTING"):
            raise error()

    life.cloud.hooks.append(hook)


def cancelled_while_training(
    service: str, error: Callable[[], Exception], step: int = 6
) -> Callable[[Life], Any]:
    async def story(life: Life) -> Run:
        run_id = await life.start()
        await life.until(lambda: (life.record(run_id).checkpoint or _NONE).step >= step)
        trouble(life, run_id, service, error)
        await life.publish({"action": "cancel", "run_id": run_id}, "c")
        return await life.until_closed(run_id)

    return story


class _NONE:
    step = 0


class TestRule2AnExceptionNeverCostsTheCheckpoint:
    @pytest.mark.parametrize("what", ANYTHING)
    @pytest.mark.parametrize("service", ("kubernetes", "gke", "builds", "compute"))
    def test_rule2_whatever_an_adapter_raises_the_step_is_exported(
        self, service: str, what: str
    ) -> None:
        life = Life()
        run = life.run(cancelled_while_training(service, ANYTHING[what]))
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 6)
        assert run.closed_at is not None and run.closed_at < run.hard_deadline_at - 3600

    @pytest.mark.parametrize("what", ANYTHING)
    @pytest.mark.parametrize(
        ("service", "method"),
        (
            ("lustre", "export"),
            ("lustre", "transfer"),
            ("storage", "list"),
            ("storage", "read"),
        ),
    )
    def test_rule2_an_export_that_raises_for_a_while_is_tried_again(
        self, service: str, method: str, what: str
    ) -> None:
        left = [4]

        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until(lambda: (life.record(run_id).checkpoint or _NONE).step >= 6)

            def hook(*asked: str) -> None:
                if asked == (service, method) and left[0]:
                    left[0] -= 1
                    raise ANYTHING[what]()

            life.cloud.hooks.append(hook)
            await life.publish({"action": "cancel", "run_id": run_id}, "c")
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        assert left == [0]
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 6)

    def test_rule2_the_accelerators_do_not_wait_for_a_cluster_that_does_not_answer(self) -> None:
        life = Life()
        run = life.run(cancelled_while_training("kubernetes", ANYTHING["a bug"]))
        assert run.cancel is not None
        gpus = next(one for one in run.usage if one.resource == "accelerators")
        assert gpus.until is not None and gpus.until - run.cancel.at < 300


class TestRule2AStepSavedDuringTheExportIsExportedToo:
    @pytest.mark.parametrize("head_answers", (True, False), ids=("head seen", "head unseen"))
    def test_rule2_what_trains_on_unreleased_is_released_and_exported_once_more(
        self, head_answers: bool
    ) -> None:
        """Neither job nor node pool could be ended before the export; rights came back after."""
        first: list[int] = []
        kept: list[int] = []

        async def story(life: Life) -> Run:
            life.cloud.losing = lambda instance: kept.append(instance.files.newest)
            run_id = await life.start()
            await life.until(lambda: (life.record(run_id).checkpoint or _NONE).step >= 6)

            def hook(service: str, method: str) -> None:
                run = life.record(run_id)
                if run.state not in ("RELEASING", "EXPORTING"):
                    return
                copied = run.export if head_answers else run.whole_export
                if run.safe_export is not None and copied is not None and copied.verified_at:
                    first.append(run.safe_export.step)
                back = bool(first) and life.cloud.instance(run_id).files.newest > first[0]
                if (service == "gke" and method == "delete_pool" and not back) or (
                    service == "kubernetes" and not (head_answers and back)
                ):
                    raise ServiceError(Failure.ACCESS, f"{service}: 403", status=403)

            life.cloud.hooks.append(hook)
            life.deliver_events = head_answers  # else only the whole folder holds what is new
            await life.publish({"action": "cancel", "run_id": run_id}, "c")
            return await life.until_closed(run_id)

        life = Life()
        life.cloud.scripts = {number: Script(step_seconds=300.0) for number in range(1, 9)}
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert kept and first and kept[-1] > first[0], "it trained on during the export"
        check_the_newest_is_safe(life, run, kept[-1])


def head_lost_for_good(life: Life) -> Callable[[Life], Any]:
    async def story(life: Life) -> Run:
        run_id = await life.start()
        await life.until_state(run_id, "TRAINING")
        files = life.cloud.instance(run_id).files
        await life.until(lambda: files.newest >= 6)
        life.cloud.cluster(run_id).kubernetes.lose_head(10**9)
        return await life.until_closed(run_id)

    return story


class TestRule3ACheckpointNobodyCouldTellOf:
    def test_rule3_the_whole_folder_is_exported_when_the_head_is_gone(self) -> None:
        """Not an event, not a line in the log: only the disk knows."""
        life = Life(deliver_events=False)
        life.cloud.scripts = {n: Script(mute=True) for n in range(1, 9)}
        run = life.run(head_lost_for_good(life))
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 6)
        assert run.outcome == "PARTIAL" and run.checkpoint is not None
        assert run.safe_export is not None and run.checkpoint.step == run.safe_export.step

    def test_rule3_a_newer_step_than_the_record_knows_is_found(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until(lambda: (life.record(run_id).checkpoint or _NONE).step >= 4)
            job = life.cloud.cluster(run_id).kubernetes.head.jobs[f"{run_id}-a1"]
            job.log = _Forgets()  # from here on nobody is told of a save
            life.deliver_events = False
            files = life.cloud.instance(run_id).files
            await life.until(lambda: files.newest >= 10)
            life.cloud.cluster(run_id).kubernetes.lose_head(10**9)
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 10)

    def test_rule3_a_step_that_is_not_on_the_disk_does_not_hide_the_one_that_is(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until(lambda: (life.record(run_id).checkpoint or _NONE).step >= 6)

            def claim(run: Run) -> None:
                assert run.checkpoint is not None
                run.checkpoint = run.checkpoint.model_copy(update={"step": 18})

            life.cloud.cluster(run_id).kubernetes.lose_head(10**9)
            life.services.memory.change(run_id, claim)
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 6)
        assert run.outcome == "PARTIAL"

    def test_rule3_a_folder_that_holds_nothing_does_not_keep_the_file_system(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            await life.pass_time(30)
            life.cloud.cluster(run_id).kubernetes.lose_head(10**9)
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert run.outcome == "FAILED" and run.closed_at is not None
        exporting = next(one.at for one in run.history if one.state == "EXPORTING")
        assert run.closed_at - exporting < 7200 < run.hard_deadline_at - exporting


class _Forgets(list[str]):
    def append(self, line: str) -> None:
        """Nothing is kept."""
