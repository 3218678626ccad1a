"""Cases C: preemption and resume."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from lustrum.core.record import Run
from lustrum.core.training_command import read_duration

from testing.dashboard import Script
from testing.fake_cluster import FakeKubernetes
from testing.life import Life
from testing.stories import (
    check_nothing_is_left,
    check_the_newest_is_safe,
    in_state,
    to_the_end,
)

Act = Callable[[Life, str], None]


class TestPreemption:
    def test_c1_a_node_is_gone_and_the_job_says_running(self) -> None:
        def act(life: Life, run_id: str) -> None:
            kubernetes = life.cloud.kubernetes(run_id)
            head = kubernetes.head
            assert head is not None
            head.kill_trainings = lambda: None  # type: ignore[method-assign]
            kubernetes.room = 7
            kubernetes.preempt(1)
            life.agenda.after(2000, lambda: setattr(kubernetes, "room", 64))

        life = Life()
        life.cloud.scripts = {1: Script(hang_at=5)}
        run = life.run(in_state("TRAINING", act, seconds=310))
        check_nothing_is_left(life, run)
        assert run.outcome == "SUCCEEDED"
        assert run.mishaps[0].failure == "PREEMPTED"
        assert run.mishaps[0].at - run.history[5].at < 310 + 600

    def test_c2_all_nodes_vanish_while_the_job_is_pending(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            await life.until(lambda: life.record(run_id).job is not None)
            kubernetes = life.cloud.kubernetes(run_id)
            assert kubernetes.head is not None
            job = kubernetes.head.jobs[f"{run_id}-a1"]
            job.status = "PENDING"
            kubernetes.preempt(8)
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert run.outcome == "SUCCEEDED"
        assert run.mishaps[0].failure in ("PREEMPTED", "NODE_LOST")

    @pytest.mark.parametrize("message", ("Traceback: boom", "RuntimeError: NCCL error"))
    def test_c3_a_failure_beside_a_lost_node_is_not_the_programs(self, message: str) -> None:
        """The event of the lost node comes half a minute after the job has failed."""

        def act(life: Life, run_id: str) -> None:
            kubernetes = life.cloud.kubernetes(run_id)
            head = kubernetes.head
            assert head is not None
            head._complete(head.jobs[f"{run_id}-a1"], 1, message)
            life.agenda.after(
                30, lambda: kubernetes.event("Normal", "Shutdown", "node shutdown", kind="Node")
            )

        life = Life()
        run = life.run(in_state("TRAINING", act, seconds=200))
        check_nothing_is_left(life, run)
        assert [one.failure for one in run.mishaps] == ["PREEMPTED"]
        assert run.crashes == 0

    def test_c3_words_of_the_scheduler_are_no_preemption(self) -> None:
        """'Preemption is not helpful for scheduling' once excused every crash of the program."""

        def prepare(kubernetes: FakeKubernetes) -> None:
            real = kubernetes._bring_node

            def bring() -> None:
                kubernetes.event(
                    "Warning",
                    "FailedScheduling",
                    "0/3 nodes are available: preemption: 0/3 nodes are available: 3 Preemption "
                    "is not helpful for scheduling.",
                )
                real()

            kubernetes._bring_node = bring  # type: ignore[method-assign]

        life = Life()
        life.cloud.on_cluster = prepare
        life.cloud.scripts = {n: Script(fail_at=1) for n in range(1, 9)}
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert (run.failure, run.attempt) == ("USER_ERROR", 2)

    def test_c6_a_stopped_spot_machine_counts_as_lost(self) -> None:
        def act(life: Life, run_id: str) -> None:
            kubernetes = life.cloud.kubernetes(run_id)
            kubernetes.preempt(1, leaves_events=False)
            kubernetes.event("Warning", "NodeNotReady", "Node is not ready", kind="Node")

        life = Life()
        run = life.run(in_state("TRAINING", act, seconds=330))
        check_nothing_is_left(life, run)
        assert [one.failure for one in run.mishaps] == ["NODE_LOST"]
        assert run.outcome == "SUCCEEDED"

    def test_c7_the_head_does_not_answer_for_a_while(self) -> None:
        """G9 too: a dashboard under load, four minutes of timeouts, then all is well."""

        def act(life: Life, run_id: str) -> None:
            head = life.cloud.kubernetes(run_id).head
            assert head is not None
            real = head.send
            from testing.dashboard import lost

            def send(method: str, path: str, body: bytes | None = None):  # type: ignore[no-untyped-def]
                raise lost()

            head.send = send  # type: ignore[method-assign]
            life.agenda.after(240, lambda: setattr(head, "send", real))

        life = Life()
        run = life.run(in_state("TRAINING", act, seconds=200))
        check_nothing_is_left(life, run)
        assert (run.outcome, run.attempt, run.mishaps) == ("SUCCEEDED", 1, [])

    def test_c7_the_head_is_lost_and_knows_nothing_any_more(self) -> None:
        life = Life(deliver_events=False)
        run = life.run(
            in_state("TRAINING", lambda life, run: life.cloud.kubernetes(run).lose_head(900), 330)
        )
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 20)
        assert {one.failure for one in run.mishaps} == {"HEAD_LOST"}

    def test_c10_no_two_runs_share_a_checkpoint_folder(self) -> None:
        async def story(life: Life) -> list[Run]:
            return [await life.until_closed(await life.start({}, f"m{n}")) for n in range(2)]

        life = Life()
        runs = life.run(story)
        folders = {run.plan.checkpoint_dir for run in runs} | {run.plan.export_to for run in runs}
        assert len(folders) == 4
        assert all(run.run_id in run.plan.checkpoint_dir for run in runs)

    def test_c10_a_run_resumes_from_an_earlier_one_that_asked_for_it(self) -> None:
        began: list[int] = []

        async def story(life: Life) -> Run:
            life.cloud.scripts = {1: Script(data_end_at=8)}
            first = await life.until_closed(await life.start({}, "m1"))
            life.cloud.scripts = {}
            request = {"checkpoints": {"resume_from": first.run_id}}
            second = await life.start(request, "m2")
            await life.until_state(second, "WAITING_FOR_GPUS")
            began.append(life.cloud.instance(second).files.newest)
            return await life.until_closed(second)

        life = Life()
        run = life.run(story)
        check_the_newest_is_safe(life, run, 20)
        assert (began, run.outcome) == ([8], "SUCCEEDED")

    @pytest.mark.parametrize("source", ("rl-0000000000", "gs://no-such-bucket/step_4/"))
    def test_c10_nothing_to_resume_from(self, source: str) -> None:
        async def story(life: Life) -> None:
            life.cloud.buckets = {"export-bucket", "report-bucket"}
            answer = await life.publish({"checkpoints": {"resume_from": source}})
            if source.startswith("rl-"):  # known at once, so refused before anything is paid for
                assert answer["status"] == "rejected"
                assert answer["field"] == "checkpoints.resume_from"
                return
            run = await life.until_closed(answer["run_id"])
            assert (run.outcome, run.failure) == ("FAILED", "CONFIG")
            assert run.closed_at is not None and run.closed_at - run.created_at < 3600
            check_nothing_is_left(life, run)

        Life().run(story)

    def test_c12_a_job_that_ends_at_its_time_limit_is_resumed_while_hours_remain(self) -> None:
        life = Life()
        life.cloud.scripts = {number: Script(leave_at=2 * number) for number in range(1, 8)}
        run = life.run(to_the_end({"limits": {"attempts": 2}}))
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 20)
        assert (run.outcome, run.attempt, run.crashes) == ("SUCCEEDED", 8, 0)
        assert {mishap.failure for mishap in run.mishaps} == {"TIME_LIMIT"}

    def test_c12_a_job_that_ends_at_its_time_limit_near_the_deadline_is_not(self) -> None:
        life = Life()
        life.cloud.scripts = {1: Script(leave_at=18, step_seconds=300)}
        run = life.run(to_the_end({"limits": {"hours": 2}}))
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 18)
        assert (run.outcome, run.failure, run.attempt) == ("PARTIAL", "DEADLINE", 1)
        assert "step 18 of 20" in run.reason
        closed = life.services.outbox.kinds("run.closed")[0]
        assert (closed["step"], closed["max_steps"]) == (18, 20)

    def test_c12_a_job_whose_data_end_has_succeeded(self) -> None:
        life = Life()
        life.cloud.scripts = {1: Script(data_end_at=13)}
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 13)
        assert (run.outcome, run.attempt) == ("SUCCEEDED", 1)
        assert "step 13 of 20, where the data ended" in run.reason

    def test_c12_the_last_save_is_due_before_the_deadline_in_each_attempt(self) -> None:
        life = Life()
        life.cloud.scripts = {1: Script(fail_at=5)}
        run = life.run(to_the_end({"limits": {"hours": 3}}))
        assert run.attempt == 2
        began = [one.at for one in run.history if one.state == "TRAINING"]
        limits = [
            read_duration(match.group(1))
            for one in life.cloud.submissions
            if (match := re.search(r"checkpoint_must_save_by=\D{0,9}([0-9:]+)", one["entrypoint"]))
        ]
        # What the start takes comes on top: it is left room for, and the save too.
        for at, limit in zip(began, limits, strict=True):
            assert limit is not None
            assert run.deadline_at - 3600 < at + limit < run.deadline_at - 60

    def test_c12_an_extension_counts_from_the_next_attempt_on(self) -> None:
        async def story(life: Life) -> Run:
            life.cloud.scripts = {1: Script(leave_at=6, step_seconds=600)}
            run_id = await life.start({"limits": {"hours": 2}})
            await life.until_state(run_id, "TRAINING")
            await life.publish({"action": "extend", "run_id": run_id, "hours": 4}, message_id="x")
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        assert (run.outcome, run.attempt) == ("SUCCEEDED", 2)

    def test_c13_a_metric_without_its_prefix_is_refused_at_the_door(self) -> None:
        async def story(life: Life) -> None:
            request = {"overrides": {"checkpointing.metric_name": "val_reward"}}
            answer = await life.publish(request)
            assert answer["status"] == "rejected"
            assert answer["field"] == "overrides.checkpointing.metric_name"

        life = Life()
        life.run(story)
        assert life.services.memory.run_ids() == []
