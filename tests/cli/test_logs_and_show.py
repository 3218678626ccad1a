"""`lustrum logs` before and after teardown, `lustrum show` on one screen."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lustrum.adapters.ray_jobs import RayJob
from lustrum.core import names
from lustrum.core.errors import NotFound
from lustrum.core.record import Moment, Run, State
from lustrum.core.record_parts import Placement
from lustrum.show.next_steps import next_steps
from lustrum.show.plain_log import unseen
from lustrum.show.waiting import waiting

from testing import records
from tests.cli.conftest import Shell

RUN = records.RUN_ID


class Head:
    """A Ray head that knows some jobs' logs."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def get(self, identity: str) -> RayJob:
        if identity not in self.texts:
            raise NotFound(identity)
        return RayJob(identity, "RUNNING", None, "", None, {}, "", "node")

    def tail(self, job: RayJob, lines: int) -> str:
        return "\n".join(self.texts[job.submission_id].split("\n")[-lines:])

    def logs(self, identity: str) -> str:
        return self.texts[identity]


@pytest.fixture
def head(lustrum: Shell, monkeypatch: pytest.MonkeyPatch) -> Head:
    head = Head()
    made = lustrum.services

    def with_head(settings: Any) -> Any:
        services = made(settings)
        services.kubernetes = lambda run_id: None  # type: ignore[method-assign,assignment]
        services.ray = lambda kubernetes, run_id: head  # type: ignore[method-assign,assignment]
        return services

    monkeypatch.setattr(lustrum, "services", with_head)
    return head


def training(attempt: int = 1) -> Run:
    run = records.new_run()
    run.state, run.attempt = State.TRAINING, attempt
    run.placement = Placement(
        zone_attempt=1, zone="us-east1-b", slot="us-east1-0", since=records.BEGAN
    )
    run.history = [*run.history, Moment(state=State.TRAINING, at=records.BEGAN)]
    return run


class TestLogs:
    def test_logs_of_a_living_run_come_from_its_head_without_the_events(
        self, lustrum: Shell, head: Head
    ) -> None:
        lustrum.ledger.create(training())
        head.texts[names.submission_id(RUN, 1)] = 'one\nLUSTRUM {"type": "x"}\ntwo'
        assert lustrum("logs", RUN).stdout.splitlines() == ["one", "two"]
        assert lustrum("logs", RUN, "-n", "1").stdout.splitlines() == ["two"]
        assert len(lustrum("logs", RUN, "--events").stdout.splitlines()) == 3

    def test_logs_of_a_run_that_is_over_come_from_the_bucket(
        self, lustrum: Shell, head: Head
    ) -> None:
        run = records.eventful_run()
        lustrum.ledger.create(run)
        uri = names.report_folder("reports", RUN) + names.submission_id(RUN, 1) + ".log"
        lustrum.storage.objects[uri] = b"kept \xff line\n"
        result = lustrum("logs", RUN, "--attempt", "1", "--json")
        assert json.loads(result.stdout) == {"attempt": 1, "line": "kept � line"}

    def test_logs_of_an_attempt_before_a_lost_head_are_still_found_where_they_were_kept(
        self, lustrum: Shell, head: Head
    ) -> None:
        lustrum.ledger.create(training(attempt=2))
        uri = names.report_folder("reports", RUN) + names.submission_id(RUN, 1) + ".log"
        lustrum.storage.objects[uri] = b"of the first zone"
        assert lustrum("logs", RUN, "-a", "1").stdout == "of the first zone\n"

    def test_an_attempt_that_never_was_names_those_that_were(
        self, lustrum: Shell, head: Head
    ) -> None:
        lustrum.ledger.create(training())
        result = lustrum("logs", RUN, "--attempt", "7")
        assert result.exit_code == 2 and "had attempts 1 to 1" in result.stderr

    @pytest.mark.parametrize(
        ("run", "said"),
        [
            (records.new_run(), "no training yet"),
            (training(), "no log of attempt 1 yet (TRAINING): use --follow"),
            (records.eventful_run(), "its head was gone before teardown"),
        ],
    )
    def test_no_log_says_why(self, lustrum: Shell, head: Head, run: Run, said: str) -> None:
        lustrum.ledger.create(run)
        result = lustrum("logs", RUN)
        assert result.exit_code == 2 and said in result.stderr
        assert len(result.stderr.splitlines()) == 1

    def test_follow_goes_over_attempts_and_repeats_no_line(
        self, lustrum: Shell, head: Head
    ) -> None:
        lustrum.ledger.create(training())
        first, second = names.submission_id(RUN, 1), names.submission_id(RUN, 2)
        head.texts[first] = "a\nb"

        def proceed() -> None:
            if len(lustrum.slept) == 1:
                head.texts[first] = "a\nb\nc"
            if len(lustrum.slept) == 2:
                head.texts[first] += "\nthe last of it"
                head.texts[second] = "d"
                lustrum.ledger.change(RUN, lambda run: setattr(run, "attempt", 2))
            if len(lustrum.slept) == 3:
                lustrum.ledger.change(RUN, lambda run: setattr(run, "state", State.CLOSED))

        lustrum.on_sleep = proceed
        result = lustrum("logs", RUN, "--follow")
        assert result.exit_code == 0, result.stderr
        assert result.stdout.splitlines() == ["a", "b", "c", "the last of it", "d"]


class TestUnseen:
    @pytest.mark.parametrize(
        ("before", "now", "new"),
        [
            ([], ["a"], ["a"]),
            (["a", "b"], ["a", "b", "c"], ["c"]),
            (["a", "b"], ["a", "b"], []),
            (["a", "b", "c"], ["b", "c", "d"], ["d"]),  # the window moved
            (["a", "b", "hal"], ["a", "b", "half", "c"], ["half", "c"]),
            (["a", "b"], ["x", "y"], ["x", "y"]),
        ],
    )
    def test_unseen_is_what_follows(
        self, before: list[str], now: list[str], new: list[str]
    ) -> None:
        assert unseen(before, now) == new


class TestShow:
    def test_show_fits_one_screen_with_everything_in_it(self, lustrum: Shell) -> None:
        run = training()
        lustrum.ledger.create(run)
        lines = lustrum("show", RUN).stdout.splitlines()
        assert len(lines) <= 40
        text = "\n".join(lines)
        for word in ("TRAINING", "waits for", "step 1 of 20", "cost so far", f"cancel {RUN}"):
            assert word in text, word

    def test_show_of_the_most_eventful_run_fits_one_screen(self, lustrum: Shell) -> None:
        lustrum.ledger.create(records.eventful_run())
        lines = lustrum("show", RUN).stdout.splitlines()
        assert len(lines) <= 40 and lines[-1].startswith(f"run {RUN} CLOSED")

    def test_show_json_has_the_record_and_what_is_reckoned(self, lustrum: Shell) -> None:
        lustrum.ledger.create(training())
        found = json.loads(lustrum("show", RUN, "--json").stdout)
        assert found["run_id"] == RUN and "event_key" not in found
        assert found["waits_for"].startswith("step 1 of 20, for ")
        assert any("lustrum watch" in one for one in found["next_steps"])

    def test_unknown_run_is_one_line(self, lustrum: Shell) -> None:
        result = lustrum("show", "rl-0123456789")
        assert result.exit_code == 2 and "see `lustrum list`" in result.stderr


class TestWaiting:
    @pytest.mark.parametrize("state", State)
    def test_every_state_but_the_last_says_what_it_waits_for(self, state: State) -> None:
        run = training()
        run.state = state
        found = waiting(run)
        if state in (State.CLOSED, State.REJECTED):
            assert found is None
        else:
            assert found is not None and found.what and found.then
            assert "\n" not in found.sentence(records.BEGAN + 5)

    def test_next_steps_never_end_what_is_ending(self) -> None:
        run = training()
        assert any("cancel" in one for one in next_steps(run))
        run.state = State.CLOSED
        assert not any("cancel" in one or "extend" in one for one in next_steps(run))


class TestWatchSays:
    def test_watch_says_what_it_waits_for_after_half_a_minute_and_ever_more_rarely(
        self, lustrum: Shell
    ) -> None:
        run = records.new_run()
        lustrum.ledger.create(run)

        def end() -> None:
            if len(lustrum.slept) == 250:
                lustrum.ledger.change(
                    RUN, lambda one: one.__dict__.update(records.eventful_run().__dict__)
                )

        lustrum.on_sleep = end
        said = [
            line
            for line in lustrum("watch", RUN).stdout.splitlines()
            if "still waiting for its workflow to begin" in line
        ]
        assert [line.split(", for ")[1].split(";")[0] for line in said] == [
            "30 s",
            "1 min 00 s",
            "2 min 00 s",
            "4 min 00 s",
            "8 min 00 s",
        ]
