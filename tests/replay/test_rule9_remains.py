"""Rule 9: what a failed destroy leaves is said once a day, with its price and the command."""

from __future__ import annotations

from lustrum.core.record import Run

from testing.cloud import unavailable
from testing.life import Life
from testing.stories import check_nothing_is_left, in_state, to_the_end


def deletes_fail(hours: float) -> Life:
    """From VERIFYING on nothing can be deleted for so long."""
    life = Life()
    life.cloud.destroys = ["fails"] * 3
    end = life.agenda.now() + hours * 3600

    def hook(service: str, method: str) -> None:
        if method == "delete" and life.agenda.now() < end:
            raise unavailable(service)

    life.cloud.hooks.append(hook)
    return life


class TestRule9WhatRemainsIsSaid:
    def test_rule9_once_a_day_with_its_price_and_the_command(self) -> None:
        life = deletes_fail(30)
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        told = life.services.outbox.kinds("run.remains")
        assert len(told) == 2  # thirty hours touch two days
        things = {one["name"]: one for one in told[0]["things"]}
        cluster = things[f"cluster {run.run_id} in us-east1-b"]
        lustre = things[f"Lustre {run.run_id} in us-east1-b"]
        pieces, rate = run.plan.rates()["lustre"]
        assert lustre["price"] == f"${pieces * rate:,.2f}/h"
        assert lustre["command"] == (
            f"gcloud lustre instances delete {run.run_id} --location=us-east1-b "
            "--project=lustrum-test --quiet"
        )
        assert cluster["command"].startswith(f"gcloud container clusters delete {run.run_id} ")
        assert cluster["price"].startswith("$")

    def test_rule9_it_is_in_the_record_beside_the_main_error(self) -> None:
        def cancel(life: Life, run_id: str) -> object:
            return life.publish({"action": "cancel", "run_id": run_id}, "c")

        life = deletes_fail(12)
        run: Run = life.run(in_state("TRAINING", cancel))
        assert run.outcome == "CANCELLED" and run.reason
        problems = run.teardown.problems if run.teardown is not None else []
        assert any("gcloud lustre instances delete" in one for one in problems)
        assert any(one.startswith("Lustre ") and "503" in one for one in problems)
        (closed,) = life.services.outbox.kinds("run.closed")
        assert closed["problems"] == problems

    def test_rule9_a_destroy_that_goes_well_says_nothing(self) -> None:
        life = Life()
        life.run(to_the_end())
        assert life.services.outbox.kinds("run.remains") == []
