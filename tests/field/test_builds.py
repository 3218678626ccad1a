"""Build logs made from public reports, each with the class it belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builds.paths import load

classify = load("classify")
LOGS = Path(__file__).parent / "builds"

RIGHT = {
    "b01": {"QUOTA"},
    "b02": {"CONFIG"},  # organisation policy, in the words of the machine API
    "b06": {"CONFIG"},
    "b07": {"INFRA_TRANSIENT"},  # calls per 100 seconds are no quota of machines
    "b09": {"INFRA_TRANSIENT", "STOCKOUT"},
    "b10": {"CONFIG"},
    "b11": {"INFRA_TRANSIENT"},
    "b13": {"INFRA_TRANSIENT"},
    "b16": {"STOCKOUT"},
    "b18": {"BUILD_ERROR"},
    "b19": {"INFRA_TRANSIENT"},
    "b21": {"CONFIG"},
}


class TestFieldBuilds:
    def test_every_log_has_its_right_value(self) -> None:
        assert {path.stem for path in LOGS.iterdir()} == set(RIGHT)

    @pytest.mark.parametrize("name", sorted(RIGHT))
    def test_class_of_a_build_log(self, name: str) -> None:
        assert classify.classify((LOGS / f"{name}.log").read_text())[0] in RIGHT[name]
