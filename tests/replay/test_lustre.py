"""What Lustre does to a training, replayed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from lustrum.core import kubernetes_objects
from lustrum.core.record import Run

from testing.life import Life
from testing.stories import (
    check_nothing_is_left,
    check_the_newest_is_safe,
    in_state,
    to_the_end,
)


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
