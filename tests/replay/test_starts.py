"""Cases B: duplicate starts."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from lustrum.adapters.ray_jobs import RayReply
from lustrum.core.record import Run
from lustrum.handlers import start as request_steps

from testing.gates import lose_answer
from testing.life import Life
from testing.services import FakeServices, push
from testing.stories import check_nothing_is_left, in_state, to_the_end

NIGHTLY = {"schedule": "nightly", "cron": "0 3 * * *", "tz": "Europe/Paris"}


def deliver(services: FakeServices, body: bytes) -> dict[str, Any]:
    return request_steps.handle_push(services, body)


class TestStarts:
    def test_b1_the_answer_of_a_start_is_lost(self) -> None:
        services = FakeServices()
        services.executions.lost_replies = 1
        with pytest.raises(TimeoutError):
            deliver(services, push({}))
        assert deliver(services, push({}))["status"] == "duplicate"
        assert len(services.memory.run_ids()) == 1
        assert len(services.executions.of("rl-run")) == 1
        assert len(services.outbox.kinds("run.requested")) == 1

    def test_b1_a_start_that_failed_is_made_good_by_the_next_delivery(self) -> None:
        services = FakeServices()
        services.executions.broken = ConnectionError("503")
        for _ in range(3):
            with pytest.raises(ConnectionError):
                deliver(services, push({}))
        services.executions.broken = None
        deliver(services, push({}))
        assert len(services.executions.of("rl-run")) == 1
        assert len(services.outbox.kinds("run.requested")) == 1

    def test_b1_two_executions_of_one_run_are_one_life(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            twin = life.engine.create("rl-run", {"run_id": run_id}, {"lustrum-run": run_id})
            life.executions.append(twin)
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert (run.outcome, run.attempt, run.zone_attempts) == ("SUCCEEDED", 1, 1)
        assert life.cloud.deployments == 1

    def test_b3_two_submissions_of_one_attempt_are_one_job(self) -> None:

        life = Life()
        life.after.append(lose_answer("submit_ray_job", times=2))
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        posted = [one["submission_id"] for one in life.cloud.submissions]
        assert posted.count(f"{run.run_id}-a1") == 3  # posted again, adopted, run once
        assert run.attempt == 1

    def test_b5_a_new_head_gets_a_new_attempt_and_never_the_old_id(self) -> None:
        life = Life()
        run = life.run(
            in_state("TRAINING", lambda life, run: life.cloud.kubernetes(run).lose_head(), 330)
        )
        check_nothing_is_left(life, run)
        posted = [one["submission_id"] for one in life.cloud.submissions]
        assert f"{run.run_id}-a2" in posted
        assert posted.count(f"{run.run_id}-a1") == 1

    @pytest.mark.parametrize("state", ("PROVISIONING", "TRAINING", "EXPORTING", "CLOSED"))
    def test_b6_b9_a_second_delivery_at_any_moment_is_no_second_run(self, state: str) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, state)
            answer = await life.publish({}, "1")
            assert answer["status"] == "duplicate"
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert life.services.memory.run_ids() == [run.run_id]
        assert len([one for one in life.executions if one.deployment.id == "rl-run"]) == 1

    def test_b7_five_deliveries_at_once_are_one_run_and_one_execution(self) -> None:
        for _ in range(20):
            services = FakeServices()
            barrier = threading.Barrier(5)
            answers: list[dict[str, Any]] = []

            def one(
                services: FakeServices = services,
                barrier: Any = barrier,
                answers: list[dict[str, Any]] = answers,
            ) -> None:
                barrier.wait()
                answers.append(deliver(services, push({})))

            threads = [threading.Thread(target=one) for _ in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(answers) == 5
            assert sorted(one["status"] for one in answers)[-1] == "started"
            assert len(services.memory.run_ids()) == 1
            assert len(services.executions.of("rl-run")) == 1
            assert len(services.outbox.kinds("run.requested")) == 1

    def test_b11_a_tick_that_fires_twice_is_one_run(self) -> None:
        services = FakeServices()
        first = push({}, "m1", NIGHTLY, "2026-03-10T02:00:03Z")
        again = push({}, "m2", NIGHTLY, "2026-03-10T02:07:00Z")
        assert deliver(services, first)["run_id"] == deliver(services, again)["run_id"]
        assert len(services.executions.of("rl-run")) == 1

    def test_b11_the_next_tick_is_skipped_while_the_last_run_lives(self) -> None:
        services = FakeServices()
        first = deliver(services, push({}, "m1", NIGHTLY, "2026-03-10T02:00:03Z"))
        body = push({}, "m2", NIGHTLY, "2026-03-11T02:00:03Z")
        for _ in range(3):
            assert deliver(services, body)["status"] == "skipped"
        skipped = services.outbox.kinds("run.skipped")
        assert len(skipped) == 1 and first["run_id"] in skipped[0]["reason"]
        assert len(services.executions.of("rl-run")) == 1

    def test_b11_a_skipped_tick_stays_skipped_when_delivered_again_later(self) -> None:
        async def story(life: Life) -> None:
            run_id = (await life.publish({}, "m1", **NIGHTLY))["run_id"]
            services = life.services
            body = push({}, "m2", NIGHTLY, "2026-01-02T02:00:03Z")
            assert deliver(services, body)["status"] == "skipped"
            await life.until_closed(run_id)
            assert deliver(services, body)["status"] == "skipped"
            later = push({}, "m3", NIGHTLY, "2026-01-03T02:00:03Z")
            assert deliver(services, later)["status"] == "started"

        Life().run(story)

    def test_b11_overlap_may_be_allowed(self) -> None:
        services = FakeServices()
        request = {"overlap": "allow"}
        deliver(services, push(request, "m1", NIGHTLY, "2026-03-10T02:00:03Z"))
        answer = deliver(services, push(request, "m2", NIGHTLY, "2026-03-11T02:00:03Z"))
        assert answer["status"] == "started"

    def test_b12_every_attempt_has_its_own_submission_id(self) -> None:
        from testing.dashboard import Script

        life = Life()
        life.cloud.scripts = {1: Script(fail_at=5), 2: Script(fail_at=9)}
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        posted = [
            one["submission_id"]
            for one in life.cloud.submissions
            if "-a" in one["submission_id"] and "list" not in one["submission_id"]
        ]
        assert posted == [f"{run.run_id}-a{n}" for n in (1, 2, 3)]

    def test_g3_no_agent_just_after_the_head_is_up(self) -> None:
        text = b"Exception: No available agent to submit job, please try again later."
        life = Life()

        def prepare(name: str, call: dict[str, Any]) -> None:
            if name == "submit_ray_job" and not prepared:
                prepared.append(1)
                head = life.cloud.clusters[0].kubernetes.head
                missing = RayReply(404, b"Job does not exist")
                head.answers = [RayReply(500, text), missing, RayReply(500, text), missing]

        prepared: list[int] = []
        life.before.append(prepare)
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert (run.outcome, run.attempt, run.mishaps) == ("SUCCEEDED", 1, [])
