"""The simulation must find what it is there to find."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from lustrum.handlers import closing, inventory

from infra.local.functions import ROOT
from testing.simulation import Tally, one_life


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
