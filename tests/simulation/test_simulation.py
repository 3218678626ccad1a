"""The simulation must find what it is there to find."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from lustrum.handlers import closing, exporting, inventory
from lustrum.head import checkpoint_rule

from infra.local.functions import ROOT
from testing.coverage import as_markdown, coverage, shortest
from testing.draw import draw
from testing.schedule import World, read
from testing.simulation import Tally, live, one_life

SCHEDULES = Path(__file__).parent / "schedules"


class TestSimulation:
    def test_lives_keep_the_promises(self) -> None:
        tally = Tally()
        for seed in range(1001, 1011):
            one_life(seed, tally)
        assert tally.violations == []
        assert tally.faults > 0

    def test_blind_inventory_is_a_violation(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An inventory that sees nothing closes runs whose destroy lied."""

        def blind(services: object, run_id: str) -> inventory.Inventory:
            return inventory.Inventory()

        monkeypatch.setattr(inventory, "look_around", blind)
        monkeypatch.setattr(closing, "look_around", blind)
        tally = Tally()
        for seed in range(1, 25):
            one_life(seed, tally)
        assert tally.leaked > 0
        assert all(text.startswith("seed ") for text in tally.violations)

    @pytest.mark.parametrize("path", sorted(SCHEDULES.glob("*.json")), ids=lambda path: path.stem)
    def test_what_once_broke_a_promise(self, path: Path) -> None:
        """Schedules that failed, made short and kept."""
        assert live(read(path.read_text())).found == {}

    def test_a_schedule_is_decided_by_its_seed_and_survives_its_text(self) -> None:
        for seed in range(50):
            plan = draw(seed)
            assert plan == draw(seed)
            assert read(plan.text()) == plan

    def test_a_failing_schedule_is_made_short(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of everything that goes wrong in a life, what is left is what the breach needs."""
        monkeypatch.setattr(checkpoint_rule, "newest_complete", lambda found: None)
        monkeypatch.setattr(exporting, "newest_complete", lambda found: None)
        name = "order: exported before it is destroyed"
        plan = next(
            one
            for one in map(draw, range(1, 200))
            if len(one.faults) > 3 and name in live(one).found
        )
        small = shortest(plan, lambda one: name in live(one).found)
        assert name in live(small).found
        assert small.faults == [] and small.world == World()

    def test_the_table_tells_what_was_not_visited(self) -> None:
        table = coverage({("TRAINING", "kill", "SUCCEEDED"): 2, ("STAGING", "kill", "FAILED"): 1})
        assert table["table"]["kill"] == {"TRAINING": {"SUCCEEDED": 2}, "STAGING": {"FAILED": 1}}
        assert "kill in EXPORTING" in table["empty"]
        assert "preempt in STAGING" not in table["empty"]  # there is no node yet
        assert "STAGING" in table["unreachable"]["preempt"]["states"]
        assert all(one["why"] for one in table["unreachable"].values())
        assert "| kill | 0 | 0 | 0 | 0 | 1 F | 0 | 2 S |" in as_markdown(table["table"])

    def test_a_visited_cell_that_is_called_unreachable_is_said(self) -> None:
        """A table that hides what it met would call itself whole."""
        table = coverage(
            {("STAGING", "preempt", "FAILED"): 1, ("TRAINING", "preempt", "FAILED"): 1}
        )
        assert table["contradicted"] == ["preempt in STAGING"]

    def test_command_prints_one_line_of_json(self) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "testing.simulation", "3", "7"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        (line,) = done.stdout.splitlines()
        assert set(json.loads(line)) >= {
            "runs",
            "faults",
            "leaked",
            "lost_checkpoints",
            "duplicate_starts",
            "violations",
            "seconds",
        }
