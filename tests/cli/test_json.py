"""What start, cancel and extend print for machines, and the page that documents every field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lustrum.cli import app
from lustrum.core.record import Run, State
from lustrum.core.record_parts import Cancel

from testing import records
from tests.cli.conftest import Shell

PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
FIELDS = {"run_id", "message_id", "accepted", "state", "deadline_at", "worst_cost_usd"}


def cancelled(run: Run) -> None:
    run.cancel = Cancel(at=records.BEGAN, export=True, event_id="e")


class TestJson:
    def test_start_without_waiting_prints_one_object(self, lustrum: Shell, tmp_path: Path) -> None:
        path = tmp_path / "request.json"
        path.write_text('{"name": "x"}')
        result = lustrum("start", str(path), "--no-wait", "--json")
        found = json.loads(result.stdout)
        assert set(found) == FIELDS
        assert found["accepted"] is None and found["worst_cost_usd"] > 0
        assert found["message_id"] and found["run_id"].startswith("rl-")

    @pytest.mark.parametrize("other", ["--watch", "--dry-run"])
    def test_start_json_and_what_prints_otherwise_are_refused_before_anything_is_sent(
        self, lustrum: Shell, tmp_path: Path, other: str
    ) -> None:
        path = tmp_path / "request.json"
        path.write_text("{}")
        result = lustrum("start", str(path), "--json", other)
        assert result.exit_code == 2 and "cannot go together" in result.stderr
        assert not lustrum.sent

    def test_cancel_says_what_came_of_it(self, lustrum: Shell) -> None:
        lustrum.ledger.create(records.new_run())
        lustrum.on_sleep = lambda: lustrum.ledger.change(records.RUN_ID, cancelled)
        found = json.loads(lustrum("cancel", records.RUN_ID, "--json").stdout)
        assert set(found) == FIELDS and found["accepted"] is True
        assert found["state"] == State.REQUESTED

    def test_cancel_of_what_is_over_needs_no_message(self, lustrum: Shell) -> None:
        lustrum.ledger.create(records.eventful_run())
        found = json.loads(lustrum("cancel", records.RUN_ID, "--json").stdout)
        assert found["message_id"] is None and found["state"] == State.CLOSED
        assert not lustrum.sent

    def test_extend_says_what_was_asked(self, lustrum: Shell) -> None:
        lustrum.ledger.create(records.new_run())
        found = json.loads(lustrum("extend", records.RUN_ID, "2", "--no-wait", "--json").stdout)
        assert set(found) == FIELDS and found["message_id"]


class TestPage:
    def test_every_command_has_a_row(self) -> None:
        for command in app.registered_commands:
            assert f"| `{command.name}" in PAGE, command.name

    def test_every_field_of_the_answers_has_a_row(self, lustrum: Shell) -> None:
        lustrum.ledger.create(records.eventful_run())
        shown = json.loads(lustrum("show", records.RUN_ID, "--json").stdout)
        public = set(shown) - set(Run.model_fields)
        for name in FIELDS | public | {"attempt", "line"}:
            assert f"`{name}`" in PAGE, name

    def test_no_documented_field_is_missing(self, lustrum: Shell) -> None:
        lustrum.ledger.create(records.eventful_run())
        shown = set[str]()
        for command in ("show", "report", "watch"):
            shown |= set(json.loads(lustrum(command, records.RUN_ID, "--json").stdout))
        rows = PAGE.split("| of | field | meaning |")[1].split("| `start`")[0].splitlines()
        fields = [
            one for row in rows if row.count("|") == 4 for one in row.split("|")[2].split("`")
        ]
        named = [one for one in fields if one.replace("_", "").isalpha()]
        assert len(named) > 15 and not set(named) - shown
