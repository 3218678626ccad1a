"""Lustre alerts during a training, replayed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lustrum.core.record import Run

from testing.life import Life
from testing.services import push
from testing.stories import (
    check_nothing_is_left,
    check_the_newest_is_safe,
)
from tests.replay.messages import alert, tell


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
            life.cloud.instance(run_id).files.used = 0.96
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
            life.cloud.instance(run_id).files.used = 0.96
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
