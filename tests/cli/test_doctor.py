"""`lustrum doctor`: what reaches the examination, and its exit code."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lustrum.doctor import checks
from lustrum.doctor.findings import Options

from tests.cli.conftest import Shell


class FakeRest:
    """Google's REST APIs; never asked here."""


@pytest.fixture
def examined(lustrum: Shell, monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    lustrum.rest = FakeRest()
    seen: list[Options] = []

    def run(options: Options, console: Any) -> int:
        seen.append(options)
        console.print_json(json.dumps({"as_json": options.as_json}))
        return 1

    monkeypatch.setattr(checks, "run", run)
    return seen


class TestDoctor:
    def test_doctor_examines_the_project_of_the_environment(
        self, lustrum: Shell, examined: list[Options]
    ) -> None:
        result = lustrum("doctor")
        assert result.exit_code == 1
        [options] = examined
        assert (options.project, options.region) == ("project-x", "us-east1")
        assert options.plan.nodes == 8

    def test_doctor_needs_no_environment_when_told_where(
        self, lustrum: Shell, examined: list[Options]
    ) -> None:
        lustrum.env.clear()
        lustrum("doctor", "--project", "other", "--region", "europe-west4", "--json")
        [options] = examined
        assert (options.project, options.region, options.as_json) == (
            "other",
            "europe-west4",
            True,
        )

    def test_doctor_examines_for_a_given_request(
        self, lustrum: Shell, examined: list[Options]
    ) -> None:
        lustrum("doctor", "-", stdin='{"nodes": 2}')
        assert examined[0].plan.nodes == 2

    def test_doctor_without_project_says_what_to_give(
        self, lustrum: Shell, examined: list[Options]
    ) -> None:
        lustrum.env.clear()
        result = lustrum("doctor")
        assert result.exit_code == 2 and "--project" in result.stderr and not examined
