"""What other stories only reach in the end: how soon, in which order, and how often.

A later rung (the next sweep, the next delivery, the destroy build) mends many a bug; these tests
look before it does.
"""

from __future__ import annotations

import pytest
from lustrum.core.record import Run
from lustrum.handlers.start import handle_push

from testing.cloud import LustreInstance
from testing.dashboard import Script
from testing.fake_cluster import FakeKubernetes
from testing.life import REAP_EVERY, Life
from testing.services import FakeServices, push
from testing.stories import (
    TWO_REGIONS,
    check_nothing_is_left,
    check_the_newest_is_safe,
    to_the_end,
)


class TestOrder:
    def test_no_accelerator_is_there_when_the_export_begins(self) -> None:
        """Asked of the cloud: the record would believe what it is told."""
        left: list[object] = []

        def look(run_id: str, state: str) -> None:
            if state == "EXPORTING":
                cluster = life.cloud.cluster(run_id)
                left.extend([*cluster.kubernetes.nodes, *cluster.pools])

        life = Life()
        life.watchers.append(look)
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert "EXPORTING" in [state for _, _, state in life.states]
        assert not [one for one in left if one != "system"], left

    def test_it_closes_after_two_empty_inventories_and_not_before(self) -> None:
        life = Life()
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        names = [name for _, name, _ in life.calls]
        looks = [reply for name, _, reply in life.replies if name.startswith("take_inventory")]
        assert names.count("close_run") == 1
        assert [one["times"] for one in looks[-2:]] == [1, 2]
        assert all(one["empty"] for one in looks[-2:])
        assert names.index("close_run") > max(
            at for at, name in enumerate(names) if name == "take_inventory"
        )


class TestTime:
    def test_gpus_that_never_come_are_waited_for_as_long_as_was_asked(self) -> None:
        """No event says that the zone is sold out: the wait alone ends it."""

        def never(kubernetes: FakeKubernetes) -> None:
            kubernetes.node_seconds = 1e9

        async def story(life: Life) -> Run:
            run_id = await life.start({"limits": {"capacity_wait_minutes": 30}})
            return await life.until_closed(run_id)

        life = Life()
        life.cloud.on_cluster = never
        run = life.run(story)
        check_nothing_is_left(life, run)
        at = {state: when for when, _, state in life.states}
        assert run.mishaps[0].failure == "STOCKOUT"
        assert 1700 <= at["RELEASING"] - at["WAITING_FOR_GPUS"] <= 1900

    def test_a_dead_rl_run_is_followed_within_two_sweeps(self) -> None:
        async def story(life: Life) -> None:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            life.kill("rl-run")
            await life.pass_time(2 * REAP_EVERY)
            assert [one for one in life.living() if "/rl-run/" in one], life.story()

        life = Life()
        life.cloud.scripts = {n: Script(step_seconds=300) for n in range(1, 9)}
        life.run(story)

    def test_the_dead_teardown_of_a_zone_is_followed_within_two_sweeps(self) -> None:
        """rl_run lives and waits for it."""

        async def story(life: Life) -> None:
            run_id = await life.start({**TWO_REGIONS, "limits": {"capacity_wait_minutes": 5}})
            await life.until(lambda: life.record(run_id).teardown is not None, every=0.5)
            assert not life.record(run_id).teardown.final  # type: ignore[union-attr]
            life.services.workflows.broken = True  # rl_run cannot start another itself
            life.kill("teardown")
            await life.pass_time(30)
            life.services.workflows.broken = False
            life.reap()
            assert [one for one in life.living() if "/teardown/" in one], life.story()

        life = Life(reaps=False)
        life.cloud.on_cluster = lambda kubernetes: setattr(kubernetes, "room", 0)
        life.run(story)

    def test_an_event_ends_the_wait_of_rl_run(self) -> None:
        life = Life(event_delay=0.2)
        life.run(to_the_end())
        (job,) = [one for one in life.cloud.jobs if one.mode == "train"]
        at = {state: when for when, _, state in life.states}
        assert job.ended is not None and at["RELEASING"] - job.ended < 15, life.story()


class TestOnce:
    def test_hours_come_once_per_message_and_are_on_the_labels_before_it_comes_again(
        self,
    ) -> None:
        services = FakeServices()
        limits = {"hours": 4, "cost_usd": 100_000}
        run_id = str(handle_push(services, push({"limits": limits}, "1"))["run_id"])
        labels = {"lustrum-run": run_id, "managed-by": "lustrum", "lustrum-expires": "1"}
        services.cloud._new_cluster(run_id, "us-east1-b", labels)
        services.cloud._new_instance(run_id, "us-east1-b", labels)
        before = services.memory.peek(run_id).deadline_at
        for delivery in ("extended", "duplicate"):
            message = push({"action": "extend", "run_id": run_id, "hours": 1}, "x")
            assert handle_push(services, message)["status"] == delivery
            run = services.memory.peek(run_id)
            assert run.deadline_at == before + 3600
            expires = str(int(run.hard_deadline_at))
            assert services.cloud.cluster(run_id).labels["lustrum-expires"] == expires
            assert services.cloud.instance(run_id).labels["lustrum-expires"] == expires

    @pytest.mark.parametrize("times", (1, 3))
    def test_the_end_is_told_once_though_close_run_is_asked_again(self, times: int) -> None:
        async def story(life: Life) -> None:
            run = await life.until_closed(await life.start())
            assert run.teardown is not None
            for _ in range(times):
                await life.pass_time(60)
                call = {"run_id": run.run_id, "execution": run.teardown.execution}
                _, status, _ = life.call_function("close_run", call)
                assert status == 200

        life = Life()
        life.run(story)
        assert len(life.services.outbox.kinds("run.closed")) == 1

    def test_what_has_our_run_label_and_another_owner_is_told_as_a_strangers(self) -> None:
        labels = {"lustrum-run": "rl-0123456789", "managed-by": "terraform"}

        async def story(life: Life) -> None:
            name = "shared-data"
            life.cloud.instances.append(LustreInstance(name, "us-east1-b", labels, state="ACTIVE"))
            for _ in range(2):
                assert life.reap()[1]["strangers"] == ["Lustre shared-data"]

        life = Life(reaps=False)
        life.run(story)
        told = life.services.outbox.kinds("stranger")
        assert [one["thing"] for one in told] == ["Lustre shared-data"]


class TestCheckpoints:
    def test_what_nobody_told_of_is_asked_of_the_disk_when_the_head_is_back(self) -> None:
        """The training is mute and the head is away while the job is stopped."""

        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            await life.pass_time(310)
            assert life.record(run_id).checkpoint is None
            await life.publish({"action": "cancel", "run_id": run_id}, "c")
            life.cloud.kubernetes(run_id).lose_head(200)
            return await life.until_closed(run_id)

        life = Life()
        life.cloud.scripts = {1: Script(mute=True)}
        run = life.run(story)
        check_nothing_is_left(life, run)
        check_the_newest_is_safe(life, run, 4)
