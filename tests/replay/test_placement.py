"""Cases D: stock-outs and placement."""

from __future__ import annotations

import pytest
from lustrum.core.failures import Failure, classify_text
from lustrum.core.record import Run

from testing.cloud import Deploy
from testing.fake_cluster import FakeKubernetes
from testing.life import Life
from testing.stories import TWO_REGIONS, check_nothing_is_left, in_state, to_the_end


class TestStockOut:
    @pytest.mark.parametrize(
        ("text", "failure"),
        (
            ("ZONE_RESOURCE_POOL_EXHAUSTED", Failure.STOCKOUT),
            ("code: ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", Failure.STOCKOUT),
            ("GCE_STOCKOUT", Failure.STOCKOUT),
            ("INSUFFICIENT_CAPACITY", Failure.STOCKOUT),
            ("resource_availability", Failure.STOCKOUT),
            ("Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: 0.0 globally.", Failure.QUOTA),
            ("QUOTA_EXCEEDED", Failure.QUOTA),
            ("something nobody has seen", Failure.UNKNOWN),
        ),
    )
    def test_d1_every_code_has_its_class(self, text: str, failure: Failure) -> None:
        assert classify_text(text) == failure

    def test_d1_a_stock_out_tries_the_next_zone_on_cleared_ground(self) -> None:
        life = Life()
        life.cloud.deploys = [Deploy("STOCKOUT", "GCE_STOCKOUT")]
        run = life.run(to_the_end(TWO_REGIONS))
        check_nothing_is_left(life, run)
        assert run.zones_tried == ["us-east1-b", "us-east1-c"]

    def test_a_placement_keeps_what_builds_it(self) -> None:
        """Review M5: its destroy asks the record, not the release of that day."""
        run = Life().run(to_the_end(TWO_REGIONS))
        assert run.placement is not None
        assert run.placement.scripts == "gs://state-bucket/scripts/1.zip"

    def test_d1_want_of_quota_leaves_the_region(self) -> None:
        life = Life()
        life.cloud.deploys = [Deploy("QUOTA", "Quota 'PREEMPTIBLE_NVIDIA_B200_GPUS' exceeded")]
        run = life.run(to_the_end(TWO_REGIONS))
        check_nothing_is_left(life, run)
        assert run.zones_tried == ["us-east1-b", "us-central1-a"]

    def test_d1_want_of_quota_is_not_waited_for_while_lustre_is_paid(self) -> None:
        def act(life: Life, run_id: str) -> None:
            kubernetes = life.cloud.kubernetes(run_id)
            kubernetes.room = 0
            kubernetes.event("Warning", "FailedScaleUp", "GCE quota exceeded")

        life = Life()
        run = life.run(in_state("WAITING_FOR_GPUS", act))
        check_nothing_is_left(life, run)
        assert run.failure == "QUOTA"
        assert run.closed_at is not None and run.closed_at - run.created_at < 3600

    def test_d1_what_is_unknown_ends_the_run(self) -> None:
        life = Life()
        life.cloud.deploys = [Deploy("UNKNOWN", "never seen before")]
        run = life.run(to_the_end(TWO_REGIONS))
        check_nothing_is_left(life, run)
        assert (run.outcome, run.zone_attempts) == ("FAILED", 1)

    def test_d1_no_result_can_be_read_and_the_text_decides(self) -> None:
        life = Life()
        life.cloud.deploys = [Deploy("STOCKOUT", "Error: GCE_STOCKOUT", output=False)]
        run = life.run(to_the_end(TWO_REGIONS))
        check_nothing_is_left(life, run)
        assert run.mishaps[0].failure == "STOCKOUT"

    @pytest.mark.parametrize(
        "deploy",
        (
            Deploy(status="TIMEOUT", output=False, seconds=9_000),
            Deploy(seconds=40_000),  # it never ends by itself
        ),
    )
    def test_d3_a_zone_that_takes_too_long_is_left(self, deploy: Deploy) -> None:
        life = Life()
        life.cloud.deploys = [deploy]
        run = life.run(to_the_end({**TWO_REGIONS, "limits": {"hours": 7}}))
        check_nothing_is_left(life, run)
        assert run.mishaps[0].failure == "STOCKOUT"
        assert run.outcome == "SUCCEEDED"

    @pytest.mark.parametrize(("zones", "minutes"), [(2, 15), (1, 61)])
    def test_nodes_that_are_sold_out_are_waited_for_only_without_another_zone(
        self, zones: int, minutes: float
    ) -> None:
        life = Life()
        life.cloud.on_cluster = lambda kubernetes: setattr(kubernetes, "room", 0)
        wanted = ["us-east1-b", "us-central1-a"][:zones]
        run = life.run(to_the_end({"zones": wanted}))
        check_nothing_is_left(life, run)
        began = [one.at for one in run.history if one.state == "WAITING_FOR_GPUS"]
        assert [mishap.failure for mishap in run.mishaps] == ["STOCKOUT"] * zones
        assert (run.mishaps[0].at - began[0]) / 60 == pytest.approx(minutes, abs=5)
        assert len(began) == zones

    def test_d4_every_zone_is_tried_once_and_then_it_ends(self) -> None:
        life = Life()
        life.cloud.deploys = [Deploy("STOCKOUT", "GCE_STOCKOUT")] * 9
        run = life.run(to_the_end(TWO_REGIONS))
        check_nothing_is_left(life, run)
        assert run.zones_tried == TWO_REGIONS["zones"]
        assert (run.outcome, run.failure) == ("FAILED", "STOCKOUT")

    def test_d4_a_zone_without_a_network_is_never_tried(self) -> None:
        life = Life()
        run = life.run(to_the_end({"zones": ["europe-west4-a"]}))
        check_nothing_is_left(life, run)
        assert life.cloud.deployments == 0
        assert (run.outcome, run.failure) == ("FAILED", "CONFIG")
        assert "LUSTRUM_SLOTS" in run.reason

    def test_d5_a_failed_zone_is_empty_before_the_next_costs_anything(self) -> None:
        alive: list[int] = []
        life = Life()
        life.cloud.deploys = [Deploy("STOCKOUT", "system pool", makes=True, seconds=1500)]
        life.cloud.on_cluster = lambda kubernetes: alive.append(
            len(life.cloud.instances) + len(life.cloud.clusters)
        )
        run = life.run(to_the_end(TWO_REGIONS))
        check_nothing_is_left(life, run)
        assert alive == [0, 0]

    def test_d5_a_second_teardown_of_a_zone_that_is_left_ends_at_once(self) -> None:
        """Asked for while the first one closed; if it took the run, the run would end."""
        from lustrum.handlers.transitions import advance_run

        life = Life()
        services = life.services
        twins: list[dict[str, object]] = []

        def gate(name: str, call: dict[str, object]) -> None:
            run_id = str(call["run_id"])
            if (
                name == "close_run"
                and services.memory.peek(run_id).placement is None
                and not twins
            ):
                claim = {
                    "run_id": run_id,
                    "execution": "late",
                    "step": "claim_teardown",
                    "final": False,
                }
                twins.append(advance_run(services, claim))

        life.after.append(gate)
        life.cloud.deploys = [Deploy("STOCKOUT", "GCE_STOCKOUT")]
        run = life.run(to_the_end(TWO_REGIONS))
        check_nothing_is_left(life, run)
        assert twins[0]["go"] is False
        assert (run.outcome, run.zone_attempts) == ("SUCCEEDED", 2)

    def test_d7_j8_no_job_before_ray_counts_every_gpu(self) -> None:
        seen: list[tuple[int, int]] = []

        def prepare(kubernetes: FakeKubernetes) -> None:
            kubernetes.room = 6
            life.agenda.after(3000, lambda: setattr(kubernetes, "room", 64))

        def gate(name: str, call: dict[str, object]) -> None:
            if name == "submit_ray_job":
                kubernetes = life.cloud.clusters[0].kubernetes
                seen.append((len(kubernetes.nodes), kubernetes.head.gpus_per_node))

        life = Life()
        life.cloud.on_cluster = prepare
        life.before.append(gate)
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert seen == [(8, 8)]

    def test_j8_kubernetes_says_ready_and_ray_sees_fewer_gpus(self) -> None:
        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "WAITING_FOR_GPUS")
            head = life.cloud.kubernetes(run_id).head
            head.gpus_per_node = 7
            await life.until(lambda: len(life.cloud.kubernetes(run_id).nodes) == 8)
            await life.pass_time(300)
            assert life.record(run_id).state == "WAITING_FOR_GPUS"
            head.gpus_per_node = 8
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert run.outcome == "SUCCEEDED"

    def test_gpus_that_never_come_send_the_run_to_the_next_zone(self) -> None:
        life = Life()
        rooms = iter([0, 64])
        life.cloud.on_cluster = lambda kubernetes: setattr(kubernetes, "room", next(rooms))
        run = life.run(to_the_end({**TWO_REGIONS, "limits": {"capacity_wait_minutes": 30}}))
        check_nothing_is_left(life, run)
        assert (run.outcome, run.zone_attempts) == ("SUCCEEDED", 2)
        assert run.mishaps[0].failure == "STOCKOUT"

    @pytest.mark.parametrize("failure", ("BUILD_ERROR", "INFRA_TRANSIENT"))
    def test_a_build_that_may_work_is_repeated_in_its_zone(self, failure: str) -> None:
        life = Life()
        life.cloud.deploys = [Deploy(failure, "terraform: connection reset")]
        run = life.run(to_the_end(TWO_REGIONS))
        check_nothing_is_left(life, run)
        assert run.zones_tried == ["us-east1-b"]
        assert (run.outcome, run.zone_attempts) == ("SUCCEEDED", 2)

    @pytest.mark.parametrize("failure", ("CONFIG", "ACCESS", "LUSTRE_CONFIG", "LUSTRE_NETWORK"))
    def test_i4_what_waiting_cannot_mend_ends_at_once(self, failure: str) -> None:
        life = Life()
        life.cloud.deploys = [Deploy(failure, "Allocated IP range is exhausted")]
        run = life.run(to_the_end(TWO_REGIONS))
        check_nothing_is_left(life, run)
        assert (run.outcome, run.failure, run.zone_attempts) == ("FAILED", failure, 1)

    def test_a_trigger_that_does_not_answer_is_asked_again(self) -> None:
        from testing.cloud import unavailable

        left = [2]

        def hook(service: str, method: str) -> None:
            if (service, method) == ("cloudbuild", "run") and left[0]:
                left[0] -= 1
                raise unavailable("Cloud Build")

        life = Life()
        life.cloud.hooks.append(hook)
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert run.outcome == "SUCCEEDED"
