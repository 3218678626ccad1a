"""Cases G, H, I, J and K: jobs, alerts, file system, cluster, and what is there afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from lustrum.adapters.ray_jobs import Answer
from lustrum.core import kubernetes_objects
from lustrum.core.record import Run
from lustrum.handlers import reactions as event_steps

from testing.dashboard import Script, lost
from testing.life import Life
from testing.services import push
from testing.stories import (
    check_nothing_is_left,
    check_the_newest_is_safe,
    in_state,
    to_the_end,
)

TOKEN = "hf_ThisIsASecretOfTheUser123"


def alert(run_id: str, action: str, state: str = "open", incident: str = "i1") -> bytes:
    body = {
        "version": "1.2",
        "incident": {
            "incident_id": incident,
            "state": state,
            "started_at": 1767226000,
            "ended_at": None if state == "open" else 1767227000,
            "policy_name": "Lustre is full",
            "policy_user_labels": {"lustrum-action": action},
            "resource": {"type": "lustre", "labels": {"instance_id": run_id}},
            "summary": "capacity",
            "observed_value": "0.96",
            "threshold_value": "0.95",
        },
    }
    return push(body)


def tell(life: Life, body: bytes) -> dict[str, Any]:
    return event_steps.handle_push(life.services, body)


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

            def send(method: str, path: str, body: bytes | None = None) -> Answer:
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
            [Answer(500, b"internal"), Answer(404, b"")],
            [Answer(502, b"<html>bad gateway</html>"), Answer(404, b"")],
            [lost("ConnectionReset"), Answer(404, b"")],
            [Answer(500, b"ValueError: submission_id already exists"), Answer(404, b"")],
            [Answer(200, b"<html>"), Answer(200, b"<html>")],
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


class TestAlerts:
    def test_h1_the_consoles_test_does_nothing(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            body = json.loads(alert(run_id, "stop"))
            answer = tell(
                life,
                push(
                    {
                        "version": "test",
                        "incident": {
                            "incident_id": "x",
                            "state": "OPEN",
                            "started_at": 0,
                            "ended_at": 0,
                            "observed_value": "1.0",
                            "resource": {"type": "t", "labels": {}},
                        },
                    }
                ),
            )
            assert body and answer["status"] == "test"
            return await life.until_closed(run_id)

        life = Life()
        assert life.run(story).outcome == "SUCCEEDED"
        assert life.services.outbox.kinds("run.alert") == []

    @pytest.mark.parametrize("order", (("open", "closed"), ("closed", "open")))
    def test_h2_an_incident_that_is_over_stops_nothing(self, order: tuple[str, str]) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            for state in order:
                tell(life, alert(run_id, "stop", state))
            assert life.record(run_id).full_since is None
            return await life.until_closed(run_id)

        assert Life().run(story).outcome == "SUCCEEDED"

    @pytest.mark.parametrize("state", ("acknowledged", None, "OPEN", 7))
    def test_h4_an_unknown_state_does_nothing(self, state: Any) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            tell(life, alert(run_id, "stop", state))
            assert life.record(run_id).full_since is None
            return await life.until_closed(run_id)

        assert Life().run(story).outcome == "SUCCEEDED"

    def test_i9_lustre_at_80_percent_is_pruned_to_the_newest(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            await life.pass_time(370)
            files = life.cloud.instance(run_id).files
            assert sorted(files.checkpoints) == [2, 4, 6]
            for _ in range(5):
                tell(life, alert(run_id, "prune"))
            await life.pass_time(30)
            assert sorted(files.checkpoints) == [6]
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert run.outcome == "SUCCEEDED"
        assert len(life.services.outbox.kinds("run.alert")) == 1

    def test_i9_lustre_at_95_percent_ends_after_the_save(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            await life.pass_time(310)  # step 4 is saved, 6 comes in a minute
            tell(life, alert(run_id, "stop"))
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 6)
        assert (run.outcome, run.failure) == ("PARTIAL", "LUSTRE_FULL")

    def test_i9_a_stop_whose_first_delivery_failed_is_not_lost(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            await life.pass_time(310)
            change = life.services.memory.change

            def fail(*_: Any) -> Any:
                raise ConnectionError("firestore")

            life.services.memory.change = fail
            with pytest.raises(ConnectionError):
                tell(life, alert(run_id, "stop"))
            life.services.memory.change = change
            tell(life, alert(run_id, "stop"))
            assert life.record(run_id).full_since is not None
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        assert run.failure == "LUSTRE_FULL"
        assert len(life.services.outbox.kinds("run.alert")) == 1

    def test_an_alert_after_the_end_is_only_kept(self) -> None:
        async def story(life: Life) -> None:
            run = await life.until_closed(await life.start())
            assert tell(life, alert(run.run_id, "stop"))["status"] == "late"

        Life().run(story)


def check_damage_is_noticed(
    file: str, damage: Callable[[dict[str, bytes | int], str], object]
) -> None:
    """Do damage to a file of the export as soon as it is there: the newest step is safe yet."""

    async def story(life: Life) -> Run:
        run_id = await life.start()
        await life.until_state(run_id, "EXPORTING")
        await life.until(lambda: any(file in key for key in life.cloud.objects))
        damage(life.cloud.objects, next(key for key in life.cloud.objects if file in key))
        return await life.until_closed(run_id)

    life = Life()
    run = life.run(story)
    check_nothing_is_left(life, run)
    check_the_newest_is_safe(life, run, 20)


class TestLustre:
    def test_i1_no_pod_before_the_claim_is_bound(self) -> None:
        seen: list[str] = []

        def gate(name: str, call: dict[str, Any]) -> None:
            if name == "apply_ray_cluster" and len(seen) < 5:
                kubernetes = life.cloud.clusters[0].kubernetes
                claim = kubernetes.objects["PersistentVolumeClaim", "lustre-pvc"]
                claim["status"] = {"phase": "Pending" if len(seen) < 4 else "Bound"}
                seen.append(claim["status"]["phase"])
                assert not [one for one in kubernetes.applied if one["kind"] == "RayCluster"]

        life = Life()
        life.before.append(gate)
        run = life.run(to_the_end())
        assert (run.outcome, len(seen)) == ("SUCCEEDED", 5)

    def test_i1_the_claim_has_one_name(self) -> None:
        run = Life().run(to_the_end())
        body = json.dumps(kubernetes_objects.ray_cluster(run.plan, 0, 8))
        assert body.count('"claimName": "lustre-pvc"') == 2

    def test_i2_a_mount_that_cannot_work_ends_at_once(self) -> None:
        def act(life: Life, run_id: str) -> None:
            kubernetes = life.cloud.kubernetes(run_id)
            kubernetes.head_seconds = 1e9
            kubernetes.head = None
            kubernetes.event(
                "Warning",
                "FailedMount",
                "mount.lustre: ... exit 5: Is the MGS running?",
                name=f"{run_id}-head",
            )

        life = Life()
        run = life.run(in_state("STARTING_HEAD", act))
        check_nothing_is_left(life, run)
        assert (run.outcome, run.failure) == ("FAILED", "LUSTRE_NETWORK")
        assert run.closed_at is not None and run.closed_at - run.created_at < 2400

    @pytest.mark.parametrize("how", ("partial", "objects could not be copied"))
    def test_i6_an_export_that_only_says_done_is_not_believed(self, how: str) -> None:
        life = Life()
        life.cloud.exports = [how, how]
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 20)
        assert run.export is not None and run.export.tries == 3

    def test_i6_a_small_file_that_is_missing_is_noticed(self) -> None:
        """The manifest's own bytes must not stand for training_info.json."""
        check_damage_is_noticed("training_info", lambda objects, key: objects.pop(key))

    def test_i6_another_file_does_not_stand_for_one_that_is_missing(self) -> None:
        """As many objects and bytes as there should be, and yet a file of the step is not."""

        def rename(objects: dict[str, bytes | int], key: str) -> None:
            objects[key + ".part"] = objects.pop(key)

        check_damage_is_noticed("shard_1", rename)

    def test_i5_a_bucket_that_does_not_exist_is_no_file_system_that_is_gone(self) -> None:
        life = Life()
        life.cloud.buckets = {"report-bucket"}
        run = life.run(to_the_end({"limits": {"hours": 2}}))
        check_nothing_is_left(life, run)
        assert run.outcome == "FAILED"
        assert run.closed_at is not None and run.closed_at > run.hard_deadline_at
        assert "bucket export-bucket does not exist" in run.reason

    def test_i5_an_operation_that_is_forgotten_is_begun_anew(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "EXPORTING")
            await life.until(lambda: bool(life.cloud.operations))
            life.cloud.operations.clear()
            life.cloud.instance(run_id).transfer = None
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 20)

    def test_i7_a_second_teardown_adopts_the_export_that_runs(self) -> None:
        async def story(life: Life) -> Run:
            life.cloud.export_seconds = 900
            run_id = await life.start()
            await life.until_state(run_id, "EXPORTING")
            await life.until(lambda: bool(life.cloud.operations))
            life.kill("teardown")
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 20)
        assert len(life.cloud.operations) == 1

    def test_i7_nothing_is_destroyed_while_an_export_runs(self) -> None:
        life = Life()
        life.cloud.export_seconds = 3000
        run = life.run(to_the_end())
        at = {state: when for when, _, state in life.states}
        assert at["DESTROYING"] - at["EXPORTING"] > 3000
        check_the_newest_is_safe(life, run, 20)

    def test_i11_no_role_on_the_bucket_is_named(self) -> None:
        life = Life()
        life.cloud.exports = ["PERMISSION_DENIED: the Lustre service agent"] * 10_000
        run = life.run(to_the_end({"limits": {"hours": 2}}))
        check_nothing_is_left(life, run)
        assert (run.outcome, run.failure) == ("FAILED", "ACCESS")

    def test_i12_only_a_complete_step_is_exported(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            await life.pass_time(310)
            from testing.files import Folder

            life.cloud.instance(run_id).files.checkpoints[6] = Folder({"half": 5})
            await life.publish({"action": "cancel", "run_id": run_id}, "c")
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 4)
        assert run.safe_export is not None and run.safe_export.step == 4

    @pytest.mark.parametrize("failures", (1, 2))
    def test_staging_that_failed_is_staged_again(self, failures: int) -> None:
        from testing.fake_cluster import FakeKubernetes

        def prepare(kubernetes: FakeKubernetes) -> None:
            real = kubernetes._new_head

            def new(session: str) -> Any:
                head = real(session)
                head.stage_failures = [("INFRA_TRANSIENT", "hub: 503")] * failures
                return head

            kubernetes._new_head = new  # type: ignore[method-assign]

        life = Life()
        life.cloud.on_cluster = prepare
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert (run.outcome, len(run.mishaps)) == ("SUCCEEDED", failures)


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

            def send(method: str, path: str, body: bytes | None = None) -> Answer:
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
        assert kinds == ["run.requested", "run.cancelling", "run.closed"]

    def test_k4_the_cost_is_there_after_everything_is_gone(self) -> None:
        life = Life()
        run = life.run(to_the_end())
        closed = life.services.outbox.kinds("run.closed")[0]
        usage = {item.resource: item for item in run.usage}
        assert set(usage) == {"accelerators", "lustre", "system"}
        expected = sum(
            (item.until - item.since) / 3600 * item.rate * item.pieces
            for item in run.usage
            if item.until is not None
        )
        assert closed["cost_usd_estimate"] == pytest.approx(expected, abs=0.01)
        assert closed["prices_dated"]
        assert usage["accelerators"].pieces == 8
