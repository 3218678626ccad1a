"""What people are told: in words, once, in a shape that relays take."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lustrum.core.failures import Failure
from lustrum.core.record import Mishap, Outcome, Run, State
from lustrum.show.notices import AT_MOST_EVERY, FRESH, news, notice

from testing import records
from testing.checks.ending import KNOWN
from tests.core.test_pages import AT, training_run
from tests.core.test_report import HOSTILE


def kinds(run: Run, now: float) -> list[str]:
    return [one.kind for one in news(run, now)]


class TestNews:
    def test_of_a_life_they_come_in_its_order(self) -> None:
        run = records.eventful_run()
        found = news(run, records.BEGAN + 230 * 60)
        assert [one.kind for one in found] == [
            "run.gpus_up", "run.degraded", "run.recovered", "run.safe",
        ]  # fmt: skip
        assert "PREEMPTED" in found[1].says and "step 20 is saved and safe" in found[3].says

    def test_what_is_long_ago_is_no_news(self) -> None:
        run = training_run()
        assert kinds(run, AT) == ["run.degraded", "run.recovered"]
        assert kinds(run, AT + FRESH) == []

    def test_of_what_repeats_one_is_told_in_a_while(self) -> None:
        run = training_run()
        begin = AT // AT_MOST_EVERY * AT_MOST_EVERY
        run.mishaps = [
            Mishap(failure=Failure.HANG, at=begin + at, state=State.TRAINING, sentence=f"no {at}")
            for at in (10, 20, 30, 40, AT_MOST_EVERY + 1)
        ]
        told = [one.says for one in news(run, AT) if one.kind == "run.degraded"]
        assert [one.rsplit(" ", 1)[1] for one in told] == ["10", str(AT_MOST_EVERY + 1)]

    def test_a_mishap_of_the_teardown_is_not_of_the_run(self) -> None:
        run = training_run()
        run.mishaps = [
            Mishap(failure=Failure.BUILD_ERROR, at=AT, state=State.DESTROYING, sentence="x")
        ]
        assert "run.degraded" not in kinds(run, AT)

    def test_an_export_that_is_not_verified_is_not_safe(self) -> None:
        run = records.eventful_run()
        assert run.export is not None
        run.export.verified_at = None
        assert "run.safe" not in kinds(run, records.BEGAN + 310 * 60)


class TestNotice:
    def test_it_says_price_page_and_command(self) -> None:
        run = training_run()
        told = notice(
            {"kind": "run.gpus_up", "run_id": run.run_id}, run, "https://page.test/x", "GPUs up"
        )
        assert told["text"] == (
            f"{run.run_id} (nightly): GPUs up. Costs $334.86/h now. "
            f"To act: lustrum cancel {run.run_id} Page: https://page.test/x"
        )
        assert told["usd_per_hour"] == 334.86 and told["page"] == "https://page.test/x"
        assert told["command"] == f"lustrum cancel {run.run_id}" and not told["needs_person"]

    def test_a_failed_run_needs_a_person_and_one_that_succeeded_does_not(self) -> None:
        run = records.eventful_run()
        closed = {"kind": "run.closed", "run_id": run.run_id, "reason": "no quota"}
        for outcome, person in ((Outcome.FAILED, True), (Outcome.SUCCEEDED, False)):
            told = notice({**closed, "outcome": outcome, "cost_usd_estimate": 7.0}, run)
            assert told["needs_person"] is person
            assert told["text"].startswith("A person is needed.") is person
            assert told["command"] == f"lustrum report {run.run_id} --open"

    def test_what_is_left_behind_comes_with_the_commands_that_end_it(self) -> None:
        things = [{"name": "a", "command": "gcloud a"}, {"name": "b", "command": "gcloud b"}]
        told = notice({"kind": "run.remains", "run_id": records.RUN_ID, "things": things})
        assert told["command"] == "gcloud a && gcloud b" and told["needs_person"]

    @pytest.mark.parametrize("kind", sorted(KNOWN))
    def test_every_kind_has_words_even_without_its_fields(self, kind: str) -> None:
        told: dict[str, Any] = json.loads(json.dumps(notice({"kind": kind, "run_id": None})))
        assert told["text"] and {"page", "usd_per_hour", "command", "needs_person"} <= set(told)

    def test_hostile_text_mentions_nobody(self) -> None:
        run = training_run()
        run.plan.name = "<!channel> <users/all>\n" + HOSTILE
        text = notice({"kind": "run.degraded", "run_id": run.run_id}, run, says="<@U1>\nx")["text"]
        assert not set("<>\n") & set(text)
