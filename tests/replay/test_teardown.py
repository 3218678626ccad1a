"""Cases A: teardown failures, leaks, orphans, surprise bills."""

from __future__ import annotations

from typing import Any

import pytest
from lustrum.adapters.compute import Machine
from lustrum.core import names
from lustrum.core.record import Run

from testing.cloud import Cluster, Deploy, LustreInstance, unavailable
from testing.fake_cluster import FakeKubernetes
from testing.gates import refuse
from testing.life import Life
from testing.stories import (
    TWO_REGIONS,
    check_nothing_is_left,
    check_the_newest_is_safe,
    in_state,
    to_the_end,
)
from tests.replay.messages import cancel


def foreign_cluster(life: Life, name: str, labels: dict[str, str]) -> Cluster:
    kubernetes = FakeKubernetes(life.agenda, name, lambda session: None)  # type: ignore[arg-type, return-value]
    cluster = Cluster(name, "us-east1-b", labels, kubernetes, status="RUNNING")
    life.cloud.clusters.append(cluster)
    return cluster


class TestTeardown:
    def test_a1_a_cluster_that_comes_after_the_cancel_is_destroyed(self) -> None:
        """The cancel lands in zone attempt two, just before the create goes through."""

        async def story(life: Life) -> Run:
            run_id = await life.start(TWO_REGIONS)
            await life.until(lambda: life.record(run_id).zone_attempts == 2)
            await life.pass_time(59.5)  # the build creates at 60 s
            await cancel(life, run_id)
            return await life.until_closed(run_id)

        life = Life(reaps=False)
        life.cloud.deploys = [Deploy("STOCKOUT", "GCE_STOCKOUT")]
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert run.outcome == "CANCELLED"
        assert not {"STARTING_HEAD", "TRAINING"} & {state for _, _, state in life.states}

    def test_a2_the_step_after_the_create_fails_and_the_destroy_begins(self) -> None:
        life = Life()
        life.cloud.on_cluster = lambda kubernetes: setattr(kubernetes, "kuberay_is_up", False)
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert (run.outcome, run.failure) == ("FAILED", "STOCKOUT")
        assert "rayclusters" in run.reason

    def test_a5_labels_are_part_of_every_create(self) -> None:
        seen: dict[str, dict[str, str]] = {}

        async def story(life: Life) -> list[Run]:
            life.cloud.on_cluster = lambda kubernetes: None
            ids = [await life.start({}, f"m{n}") for n in range(3)]

            def look(run_id: str, state: str) -> None:
                for one in [*life.cloud.clusters, *life.cloud.instances]:
                    seen[f"{type(one).__name__} {one.name}"] = one.labels

            life.watchers.append(look)
            return [await life.until_closed(one) for one in ids]

        life = Life()
        runs = life.run(story)
        assert len(seen) == 6
        for run in runs:
            for kind in ("Cluster", "LustreInstance"):
                labels = seen[f"{kind} {run.run_id}"]
                assert labels["lustrum-run"] == run.run_id
                assert labels["managed-by"] == "lustrum"
                assert int(labels["lustrum-expires"]) >= int(run.hard_deadline_at)

    def test_a7_a_destroy_that_fails_for_40_minutes_is_repeated_until_it_goes(self) -> None:
        def outage(life: Life, run_id: str) -> None:
            end = life.loop.now() + 2400

            def hook(service: str, method: str) -> None:
                deletes = method in ("delete", "run")
                if deletes and life.loop.now() < end:
                    raise unavailable(service)

            life.cloud.hooks.append(hook)

        life = Life(reaps=False)
        run = life.run(in_state("RELEASING", outage, seconds=1))
        check_nothing_is_left(life, run)
        assert run.closed_at is not None and run.closed_at - run.created_at > 2400

    def test_a8_a_destroy_that_lies_is_found_out_by_the_inventory(self) -> None:
        life = Life(reaps=False)
        life.cloud.destroys = ["lies"]
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert ("gke", "delete") in life.cloud.calls
        assert ("lustre", "delete") in life.cloud.calls

    def test_a9_a_cluster_that_appears_after_the_destroy_is_caught(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "VERIFYING")
            labels = names.labels(run_id, life.record(run_id).hard_deadline_at)
            life.cloud._new_cluster(run_id, "us-east1-b", labels)  # PROVISIONING for 5 minutes
            return await life.until_closed(run_id)

        life = Life(reaps=False)
        run = life.run(story)
        check_nothing_is_left(life, run)

    def test_a9_a_deploy_build_that_begins_after_the_destroy_is_cancelled(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "PROVISIONING")
            await life.pass_time(30)
            subs = life.replies[-1][2] if "substitutions" in life.replies[-1][2] else None
            found = [reply for _, _, reply in life.replies if "substitutions" in reply]
            subs = subs or found[-1]
            await cancel(life, run_id)
            await life.until_state(run_id, "VERIFYING")
            life.cloud.run_trigger(subs["substitutions"])
            return await life.until_closed(run_id)

        life = Life(reaps=False)
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert run.closed_at is not None and run.closed_at - run.created_at < 1800

    def test_a12_a_job_that_says_running_for_ever_ends_at_the_deadline(self) -> None:
        from testing.dashboard import Script

        life = Life(deliver_events=False)
        life.cloud.scripts = {n: Script(hang_at=1, step_seconds=30) for n in range(1, 50)}
        run = life.run(to_the_end({"limits": {"hours": 1.5}}))
        check_nothing_is_left(life, run)
        assert run.closed_at is not None and run.closed_at < run.hard_deadline_at

    @pytest.mark.parametrize(
        "function",
        (
            "apply_ray_cluster",
            "stage_data",
            "submit_ray_job",
            "check_ray_job",
        ),
    )
    def test_a13_a_watcher_that_gives_up_takes_the_same_road_to_the_destroy(
        self, function: str
    ) -> None:

        life = Life(reaps=False)
        life.before.append(refuse(function))
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert run.outcome in ("FAILED", "PARTIAL", "SUCCEEDED")
        if function == "check_ray_job":
            check_the_newest_is_safe(life, run, 4)

    @pytest.mark.parametrize(
        "function",
        (
            "stop_ray_job",
            "release_accelerators",
            "delete_ray_cluster",
        ),
    )
    def test_a13_a_step_of_the_teardown_that_never_works_does_not_stop_the_next(
        self, function: str
    ) -> None:

        life = Life(reaps=False)
        life.before.append(refuse(function))
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert run.teardown is not None and any(
            function.replace("_", "-") in one for one in run.teardown.problems
        )

    def test_a16_no_name_is_part_of_another(self) -> None:
        ids = {names.run_id(f"key {number}") for number in range(2000)}
        assert len(ids) == 2000
        assert {len(one) for one in ids} == {13}

    def test_a16_a_neighbour_is_not_touched(self) -> None:
        async def story(life: Life) -> Run:
            ids = [await life.start({}, f"m{n}") for n in range(2)]
            await life.until_state(ids[1], "TRAINING")
            await cancel(life, ids[0])
            await life.until_closed(ids[0])
            return await life.until_closed(ids[1])

        life = Life()
        run = life.run(story)
        assert (run.outcome, run.attempt) == ("SUCCEEDED", 1)

    def test_a19_a_busy_cluster_is_asked_again(self) -> None:
        """The adapter swallows FAILED_PRECONDITION: the next round asks again."""
        left = [3]

        def hook(service: str, method: str) -> None:
            if (service, method) == ("gke", "delete") and left[0]:
                left[0] -= 1
                raise unavailable("gke: incompatible operation")

        life = Life(reaps=False)
        life.cloud.destroys = ["fails"] * 9
        life.cloud.hooks.append(hook)
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert left == [0]

    def test_a21_nothing_to_destroy_while_things_are_there_is_no_success(self) -> None:
        life = Life(reaps=False)
        life.cloud.destroys = ["lies"] * 9  # "No changes", exit 0: its state was lost
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)

    def test_a24_peering_that_is_still_used_only_delays(self) -> None:
        life = Life(reaps=False)
        life.cloud.destroys = ["fails", "fails", "fails"]
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        usage = {item.resource: item for item in run.usage}
        at = {state: when for when, _, state in life.states}
        assert usage["accelerators"].until is not None
        assert usage["accelerators"].until < at["DESTROYING"]


class TestReaper:
    def test_a27_a_delete_that_says_yes_and_does_nothing_pages_until_it_works(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            life.kill("rl-run")
            life.services.workflows.broken = True
            real = life.cloud.delete_cluster
            life.cloud.delete_cluster = lambda name: None
            hard = life.record(run_id).hard_deadline_at
            await life.until(lambda: life.loop.now() > hard + 3 * 3600, every=60)
            assert not life.record(run_id).is_over
            assert [status for status, _ in life.reaped][-3:] == [500, 500, 500]
            life.cloud.delete_cluster = real
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)

    def test_a27_accelerators_without_an_owner_are_reported_once_and_never_deleted(self) -> None:
        async def story(life: Life) -> None:
            life.cloud.machines.append(Machine("someone", "us-east1-b", "RUNNING", "notebook", 8))
            for _ in range(3):
                status, answer = life.reap()
                assert (status, answer["strangers"]) == (
                    200,
                    ["VM someone with 8 GPUs in us-east1-b"],
                )

        life = Life(reaps=False)
        life.run(story)
        assert len(life.services.outbox.kinds("stranger")) == 1

    @pytest.mark.parametrize("labels", ({}, {"managed-by": "terraform"}))
    def test_what_only_has_a_name_like_ours_is_never_deleted(self, labels: dict[str, str]) -> None:
        async def story(life: Life) -> None:
            name = "rl-0123456789"
            foreign_cluster(life, name, labels)
            life.cloud.instances.append(LustreInstance(name, "us-east1-b", labels, state="ACTIVE"))
            life.cloud.machines.append(Machine("vm", "us-east1-b", "RUNNING", name, 8))
            for _ in range(3):
                status, _ = life.reap()
                assert status == 500  # it looks like ours and is in no record: people must look
                await life.pass_time(600)
            assert {one.name for one in life.cloud.clusters} == {name}
            assert {one.name for one in life.cloud.instances} == {name}

        Life(reaps=False).run(story)

    def test_the_list_of_runs_cannot_be_read_and_a_living_run_lives_on(self) -> None:
        """A failed query is not an empty ledger: a training must not be deleted for it."""

        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            await life.pass_time(100)

            def fail() -> Any:
                raise ConnectionError("deadline exceeded")

            real = life.services.memory.unfinished
            life.services.memory.unfinished = fail  # type: ignore[method-assign]
            for _ in range(3):
                status, _ = life.reap()
                assert status == 500
                await life.pass_time(60)
            life.services.memory.unfinished = real  # type: ignore[method-assign]
            return await life.until_closed(run_id)

        life = Life(reaps=False)
        run = life.run(story)
        assert (run.outcome, run.attempt) == ("SUCCEEDED", 1)

    def test_the_ledger_is_gone_and_the_label_decides(self) -> None:
        async def story(life: Life) -> None:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            expires = life.record(run_id).hard_deadline_at
            life.kill("rl-run")
            life.services.memory.broken = ConnectionError("no ledger")
            await life.until(lambda: life.loop.now() > expires - 60, every=60)
            assert len(life.cloud.clusters) == 1  # it may still be somebody's living run
            await life.until(lambda: not life.cloud.left(), hours=3, every=60)

        life = Life()
        life.run(story)
        assert life.reaped[-1][0] == 500

    def test_a_cluster_of_a_closed_run_is_deleted_and_pages(self) -> None:
        async def story(life: Life) -> None:
            run = await life.until_closed(await life.start())
            life.cloud._new_cluster(run.run_id, "us-east1-b", names.labels(run.run_id, 0))
            await life.pass_time(400)
            status, answer = life.reap()
            assert status == 500 and "closed, yet there" in answer["problems"][0]
            await life.pass_time(400)
            assert life.cloud.left() == []
            assert life.reap()[0] == 200

        Life(reaps=False).run(story)

    def test_a_partial_answer_of_the_cloud_is_unknown_and_never_empty(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "VERIFYING")
            life.cloud.missing_zones = ["us-central1-a"]
            await life.pass_time(3600)
            assert not life.record(run_id).is_over
            assert life.reap()[0] == 500
            life.cloud.missing_zones = []
            return await life.until_closed(run_id)

        life = Life(reaps=False)
        check_nothing_is_left(life, life.run(story))

    def test_a_label_that_cannot_be_changed_does_not_keep_a_run_alive(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            life.cloud.cluster(run_id).labels["lustrum-expires"] = "1"
            life.kill("rl-run")

            def hook(service: str, method: str) -> None:
                if method == "relabel":
                    raise unavailable(service)

            life.cloud.hooks.append(hook)
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert run.closed_at is not None and run.closed_at < run.deadline_at

    def test_a28_a_failed_sweep_is_not_a_success(self) -> None:
        async def story(life: Life) -> None:
            life.cloud.hooks.append(lambda service, method: _raise(unavailable(service)))
            for _ in range(3):
                status, answer = life.reap()
                assert status == 500 and len(answer["problems"]) == 3

        Life(reaps=False).run(story)

    def test_a_run_whose_workflow_was_never_started_is_started(self) -> None:
        async def story(life: Life) -> Run:
            life.services.workflows.broken = True
            try:
                await life.publish({}, "m1")
            except Exception:
                life.services.workflows.broken = False
            await life.pass_time(700)
            return await life.until_closed(life.services.memory.run_ids()[0])

        life = Life()
        run = life.run(story)
        assert run.outcome == "SUCCEEDED"


def _raise(error: Exception) -> None:
    raise error
