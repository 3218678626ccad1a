"""Runs beyond the network slots wait: by priority, then in order."""

from __future__ import annotations

from typing import Any

import pytest
from lustrum.core import queue
from lustrum.core.history import entered_at
from lustrum.core.record import State

from testing.life import Life
from testing.samples import run
from testing.services import FakeServices
from testing.stories import check_nothing_is_left

TWO_SLOTS, ONE_SLOT = ["us-east1-b"], ["us-central1-a"]


def order_of(life: Life, *requests: dict[str, Any]) -> list[str]:
    """Start one after the other; return the names of the runs in the order they got a slot."""

    async def story(life: Life) -> list[str]:
        ids = []
        for number, request in enumerate(requests):
            ids.append(await life.start({"zones": ONE_SLOT, **request}, f"m{number}"))
            await life.pass_time(5)
        runs = [await life.until_closed(one) for one in ids]
        for one in runs:
            check_nothing_is_left(life, one)
            assert one.outcome == "SUCCEEDED", one.reason
        runs.sort(key=lambda one: entered_at(one, State.PROVISIONING, 0.0))
        return [one.plan.name for one in runs]

    return list(life.run(story))


def patient(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "limits": {"capacity_wait_minutes": 1440.0, "hours": 24.0, "cost_usd": 1e5},
        **more,
    }


class TestQueue:
    def test_runs_wait_in_the_order_of_their_requests(self) -> None:
        asked = [patient(name) for name in ("a", "b", "c", "d")]
        assert order_of(Life(), *asked) == ["a", "b", "c", "d"]

    def test_priority_comes_first_and_stops_nobody(self) -> None:
        asked = [patient("a"), patient("b"), patient("c", priority=5)]
        assert order_of(Life(), *asked) == ["a", "c", "b"]

    def test_a_submitter_has_no_more_than_the_limit_and_holds_nobody_up(self) -> None:
        mine = [patient(name, submitter="mine", zones=TWO_SLOTS) for name in ("a", "b")]
        life = Life(FakeServices(LUSTRUM_RUNS_PER_SUBMITTER="1"))
        assert order_of(life, *mine, patient("other", zones=TWO_SLOTS)) == ["a", "other", "b"]


class TestPlace:
    SETTINGS = FakeServices().settings

    def waiting(self, name: str, now: float = 1000.0, **more: Any) -> Any:
        return run(State.QUEUED, run_id=f"rl-000000000{name}", asked_at=now, **more)

    @pytest.mark.parametrize(("silent", "place"), ((0.0, 2), (queue.SILENT + 1, 1)))
    def test_one_that_asks_no_more_holds_nobody_up(self, silent: float, place: int) -> None:
        first = self.waiting("1", 1000.0 - silent, created_at=1.0)
        second = self.waiting("2", created_at=2.0)
        found = queue.place_of(second, [first, second], {}, self.SETTINGS, 1000.0)
        assert found is not None and found.place == place

    def test_a_slot_is_expected_when_its_holder_must_be_gone(self) -> None:
        slots = [one for one in self.SETTINGS.slots if one.region == "us-east1"]
        holders = {one.name: f"rl-00000000a{n}" for n, one in enumerate(slots)}
        up = [
            run(State.TRAINING, run_id=holder, hard_deadline_at=5000.0 + 100 * n)
            for n, holder in enumerate(holders.values())
        ]
        first, second = self.waiting("1", created_at=1.0), self.waiting("2", created_at=2.0)
        runs = [*up, first, second]
        places = [
            queue.place_of(one, runs, holders, self.SETTINGS, 1000.0) for one in (first, second)
        ]
        assert [(one.place, one.start_by) for one in places if one] == [(1, 5000.0), (2, 5100.0)]
        assert queue.place_of(up[0], runs, holders, self.SETTINGS, 1000.0) is None
