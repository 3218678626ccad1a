"""What needs the built programs is marked ``rehearse`` and left out while one is missing."""

from __future__ import annotations

import pytest

from testing.rehearse.programs import missing


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose programs (``@pytest.mark.rehearse("gcluster", ...)``) are not built."""
    for mark in item.iter_markers("rehearse"):
        absent = [one.name for one in missing(tuple(mark.args))]
        if absent:
            pytest.skip(f"not built: {', '.join(absent)} (python -m testing.rehearse.build)")
