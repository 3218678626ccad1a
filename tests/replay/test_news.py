"""Through whole lives: people are told of each transition that matters, once, and never in the
way of the run.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from lustrum.core.record import Run
from lustrum.handlers.telling import with_news

from testing.gates import lose_answer
from testing.life import Life
from testing.stories import check_nothing_is_left, in_state

NEWS = ("run.gpus_up", "run.degraded", "run.recovered", "run.safe")


def told(life: Life) -> list[str]:
    return [one["kind"] for one in life.notifications]


async def plain(life: Life) -> Run:
    return await life.until_closed(await life.start())


class TestNews:
    def test_a_plain_life_is_told_in_four_messages(self) -> None:
        life = Life()
        run = life.run(plain)
        assert told(life) == ["run.requested", "run.gpus_up", "run.safe", "run.closed"]
        for one in life.notifications:
            assert one["text"].startswith(run.run_id) and one["page"].endswith("/index.html")
        up, safe = life.notifications[1:3]
        assert up["usd_per_hour"] > 100 and up["command"] == f"lustrum cancel {run.run_id}"
        assert str(run.safe_export and run.safe_export.uri) in safe["text"]
        assert life.notifications[-1]["usd_per_hour"] == 0

    def test_a_preemption_is_told_as_degraded_and_recovered(self) -> None:
        life = Life()

        def preempt(life: Life, run_id: str) -> None:
            life.cloud.kubernetes(run_id).preempt()

        run = life.run(in_state("TRAINING", preempt, seconds=330))
        kinds = [one for one in told(life) if one in NEWS]
        assert kinds == ["run.gpus_up", "run.degraded", "run.recovered", "run.safe"], run.mishaps

    def test_an_answer_that_is_lost_tells_nothing_twice(self) -> None:
        life = Life(after=[lose_answer("advance_run", times=40)])
        life.run(plain)
        assert max(Counter(told(life)).values()) == 1

    def test_another_process_tells_nothing_twice(self) -> None:
        life = Life()
        run = life.run(plain)
        before = len(life.notifications)
        life.services.pages.told.clear()  # a fresh process knows only the ledger
        with_news(life.services, {"run_id": run.run_id}, {})
        assert len(life.notifications) == before

    def test_a_publisher_that_is_away_while_it_lives_costs_nothing(self) -> None:
        life = Life()

        async def story(life: Life) -> Run:
            run_id = await life.start()
            life.services.outbox.broken = ConnectionError("pubsub is away")
            await life.until_state(run_id, "TRAINING")
            life.services.outbox.broken = None
            return await life.until_closed(run_id)

        run: Any = life.run(story)
        assert run.outcome == "SUCCEEDED" and not run.mishaps
        check_nothing_is_left(life, run)
        assert told(life)[-1] == "run.closed"
