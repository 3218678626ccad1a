"""More messages of the products, in `more_messages.json`: each with the class it belongs to.

Written after public reports of Terraform's Google provider, GKE, NeMo-RL, verl, Ray and the
Hugging Face hub; names and numbers are made up.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lustrum.core.failures import classify_text
from lustrum.head.last_error import last_error

from tests.builds.paths import load

classify = load("classify").classify
FOUND = json.loads((Path(__file__).parent / "more_messages.json").read_text())


class TestMoreMessages:
    def test_there_are_many(self) -> None:
        assert sum(map(len, FOUND.values())) >= 80

    @pytest.mark.parametrize(("right", "text"), FOUND["builds"])
    def test_build(self, right: str, text: str) -> None:
        assert classify(text)[0] == right

    @pytest.mark.parametrize(("right", "began", "text"), FOUND["logs"])
    def test_training(self, right: str | None, began: bool, text: str) -> None:
        assert last_error(text.splitlines(), began=began).failure == right

    @pytest.mark.parametrize(("right", "text"), FOUND["events"])
    def test_event_of_the_cluster(self, right: str, text: str) -> None:
        assert classify_text(text) == right
