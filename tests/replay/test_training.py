"""Cases G, H, I, J and K: jobs, alerts, file system, cluster, and what is there afterwards."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lustrum.adapters.ray_jobs import RayReply
from lustrum.core import kubernetes_objects
from lustrum.core.record import Run

from testing.dashboard import Script, lost
from testing.life import Life
from testing.stories import (
    check_nothing_is_left,
    in_state,
    to_the_end,
)

TOKEN = "hf_ThisIsASecretOfTheUser123"


class TestRayJobs:
    def test_g1_a_supervisor_that_cannot_be_scheduled_is_tried_again(self) -> None:
        def act(life: Life, run_id: str) -> None:
            head = life.cloud.kubernetes(run_id).head
            head.end(
                head.jobs[f"{run_id}-a1"],
                "FAILED",
                None,
                "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE: Job supervisor actor",
            )

        life = Life()
        run = life.run(in_state("TRAINING", act, seconds=30))
        check_nothing_is_left(life, run)
        assert [one.failure for one in run.mishaps] == ["JOB_LOST"]
        assert (run.outcome, run.attempt) == ("SUCCEEDED", 2)

    def test_g7_a_log_that_ends_is_no_outcome(self) -> None:
        def act(life: Life, run_id: str) -> None:
            head = life.cloud.kubernetes(run_id).head
            head.jobs[f"{run_id}-a1"].log.clear()

        life = Life()
        run = life.run(in_state("TRAINING", act, seconds=200))
        assert (run.outcome, run.attempt) == ("SUCCEEDED", 1)

    def test_g13_a_job_that_is_unknown_is_lost_and_no_success(self) -> None:
        def act(life: Life, run_id: str) -> None:
            head = life.cloud.kubernetes(run_id).head
            head.jobs.pop(f"{run_id}-a1").status = "STOPPED"

        life = Life()
        run = life.run(in_state("TRAINING", act, seconds=200))
        check_nothing_is_left(life, run)
        assert [one.failure for one in run.mishaps] == ["JOB_LOST"]
        assert (run.outcome, run.attempt) == ("SUCCEEDED", 2)

    def test_g9_a_dashboard_that_never_answers_again_while_training_goes_on(self) -> None:
        """Events still come, so nothing is done; the events' progress is believed."""

        def act(life: Life, run_id: str) -> None:
            head = life.cloud.kubernetes(run_id).head
            real = head.send

            def send(method: str, path: str, body: bytes | None = None) -> RayReply:
                raise lost()

            head.send = send
            life.agenda.after(900, lambda: setattr(head, "send", real))

        life = Life()
        run = life.run(in_state("TRAINING", act, seconds=100))
        check_nothing_is_left(life, run)
        assert (run.outcome, run.attempt) == ("SUCCEEDED", 1)

    @pytest.mark.parametrize(
        "answers",
        (
            [RayReply(500, b"internal"), RayReply(404, b"")],
            [RayReply(502, b"<html>bad gateway</html>"), RayReply(404, b"")],
            [lost("ConnectionReset"), RayReply(404, b"")],
            [RayReply(500, b"ValueError: submission_id already exists"), RayReply(404, b"")],
            [RayReply(200, b"<html>"), RayReply(200, b"<html>")],
        ),
    )
    def test_g11_every_odd_answer_of_a_submission_is_survived(self, answers: list[Any]) -> None:
        done: list[int] = []

        def gate(name: str, call: dict[str, Any]) -> None:
            if name == "submit_ray_job" and not done:
                done.append(1)
                life.cloud.clusters[0].kubernetes.head.answers = list(answers)

        life = Life()
        life.before.append(gate)
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert (run.outcome, run.attempt, run.mishaps) == ("SUCCEEDED", 1, [])

    def test_g6_no_token_leaves_the_secret(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LUSTRUM_HF_TOKEN", TOKEN)
        monkeypatch.setenv("LUSTRUM_WANDB_API_KEY", TOKEN[::-1])
        secrets: list[dict[str, Any]] = []

        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            kubernetes = life.cloud.kubernetes(run_id)
            for one in kubernetes.applied:
                (secrets if one["kind"] == "Secret" else public).append(one)
            return await life.until_closed(run_id)

        public: list[dict[str, Any]] = []
        life = Life()
        run = life.run(story)
        assert run.outcome == "SUCCEEDED" and run.wandb
        assert TOKEN in json.dumps(secrets)
        places = {
            "ledger": life.services.memory.text(),
            "messages": str(life.services.outbox.sent),
            "workflow answers": json.dumps(life.replies),
            "arguments": str([one.argument for one in life.executions]),
            "job submissions": json.dumps(life.cloud.submissions),
            "other objects": json.dumps(public),
            "log lines": life.log.getvalue(),
            "bucket": str(life.cloud.objects),
        }
        for place, text in places.items():
            assert text, place
            assert TOKEN not in text and TOKEN[::-1] not in text, place

    def test_g6_an_api_that_quotes_the_token_is_not_quoted(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from lustrum.core.errors import ServiceError
        from lustrum.core.failures import Failure

        monkeypatch.setenv("LUSTRUM_HF_TOKEN", TOKEN)
        life = Life()

        def prepare(kubernetes: Any) -> None:
            real = kubernetes.apply

            def apply(one: Any) -> Any:
                if one["kind"] == "Secret":
                    raise ServiceError(Failure.CONFIG, f"422: {one['stringData']} is bad")
                return real(one)

            kubernetes.apply = apply

        life.cloud.on_cluster = prepare
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert "***" in run.reason
        assert TOKEN not in life.services.memory.text() + life.log.getvalue() + str(life.replies)


class TestCluster:
    def test_j3_applied_again_and_again_it_is_one_cluster_of_one_generation(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            kubernetes = life.cloud.kubernetes(run_id)
            clusters = [one for one in kubernetes.applied if one["kind"] == "RayCluster"]
            workers = [one["spec"]["workerGroupSpecs"][0]["replicas"] for one in clusters]
            assert workers == [0, 8]  # asked dozens of times, changed twice
            assert kubernetes._generation == 2
            return await life.until_closed(run_id)

        assert Life().run(story).outcome == "SUCCEEDED"

    def test_j7_the_kind_is_not_there_yet(self) -> None:
        def prepare(kubernetes: Any) -> None:
            kubernetes.kuberay_is_up = False
            life.agenda.after(1200, lambda: setattr(kubernetes, "kuberay_is_up", True))

        life = Life()
        life.cloud.on_cluster = prepare
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert run.outcome == "SUCCEEDED"

    def test_j9_nothing_is_open_to_the_outside(self) -> None:
        run = Life().run(to_the_end())
        body = kubernetes_objects.ray_cluster(run.plan, 0, 8)
        assert body["spec"]["headGroupSpec"]["serviceType"] == "ClusterIP"
        text = json.dumps(body)
        for word in ("LoadBalancer", "NodePort", "hostNetwork", "hostPort", "Ingress"):
            assert word not in text

    def test_the_image_runs_another_ray_than_the_plan_says(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "STARTING_HEAD")
            await life.until(lambda: life.cloud.kubernetes(run_id).head is not None)
            life.cloud.kubernetes(run_id).head.ray_version = "2.9.0"
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert run.failure == "CONFIG" and "2.9.0" in run.reason


class TestAfterwards:
    def test_k1_logs_are_in_the_bucket_when_the_cluster_is_gone(self) -> None:
        life = Life()
        life.cloud.scripts = {1: Script(fail_at=5)}
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        for attempt in (1, 2):
            log = life.cloud.objects[f"{run.log_uri}{run.run_id}-a{attempt}.log"]
            assert b"attempt.started" in log

    def test_k1_logs_that_cannot_be_saved_stop_nothing(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            head = life.cloud.kubernetes(run_id).head
            real = head.send

            def send(method: str, path: str, body: bytes | None = None) -> RayReply:
                if (
                    "-a1" in path
                    and ("/logs" in path)
                    and life.services.memory.peek(run_id).teardown
                ):
                    raise lost("ReadTimeout")
                return real(method, path, body)

            head.send = send
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert run.outcome == "SUCCEEDED"

    def test_k1_of_a_huge_log_the_end_is_saved(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            await life.pass_time(60)
            [job] = [
                one
                for name, one in life.cloud.kubernetes(run_id).head.jobs.items()
                if name.endswith("-a1")
            ]
            job.log[:0] = [f"line {number}" for number in range(60_000)]
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        log = life.cloud.objects[f"{run.log_uri}{run.run_id}-a1.log"]
        assert isinstance(log, bytes)
        assert log.startswith(b"(the last 50000 lines)")
        assert log.count(b"\n") == 50_000 and b"job.completed" in log

    def test_k3_people_are_told_once_of_each_thing(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            for _ in range(3):
                await life.publish({}, "1")
            await life.until_state(run_id, "TRAINING")
            for _ in range(3):
                await life.publish({"action": "cancel", "run_id": run_id}, "c")
            run = await life.until_closed(run_id)
            await life.publish({"action": "cancel", "run_id": run_id}, "c")
            return run

        life = Life()
        life.run(story)
        kinds = [one["kind"] for one in life.notifications]
        assert kinds == ["run.requested", "run.gpus_up", "run.cancelling", "run.closed"]

    def test_k4_the_cost_is_there_after_everything_is_gone(self) -> None:
        life = Life()
        run = life.run(to_the_end())
        closed = life.services.outbox.kinds("run.closed")[0]
        usage = {item.resource: item for item in run.usage}
        assert set(usage) == {"accelerators", "lustre", "system"}
        costs = closed["costs_usd"]
        for name, item in usage.items():
            assert item.until is not None
            billed = (item.until - item.since) / 3600 * item.rate * item.pieces
            assert costs[name] == pytest.approx(billed, abs=0.01)
        assert set(costs) - set(usage) == {"builds", "nat", "storage"}
        assert closed["cost_usd_estimate"] == pytest.approx(sum(costs.values()), abs=0.001)
        assert closed["prices_dated"]
        assert usage["accelerators"].pieces == 8
