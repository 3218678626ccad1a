"""The working folders of `make run` do not pile up."""

from __future__ import annotations

import os
from pathlib import Path

from infra.local.run import STACKS, forget_old_stacks

NOBODY = 4_194_305  # beyond the largest process id of Linux


def test_all_but_the_newest_are_removed_and_none_that_is_in_use(tmp_path: Path) -> None:
    for day in range(10, 25):
        (tmp_path / f"stack-202601{day}-000000-{NOBODY}" / "logs").mkdir(parents=True)
    mine = tmp_path / f"stack-20250101-000000-{os.getpid()}"
    mine.mkdir()
    (tmp_path / "runs").mkdir()
    forget_old_stacks(tmp_path)
    left = sorted(one.name for one in tmp_path.glob("stack-2026*"))
    assert len(left) == STACKS - 1 and left[-1].startswith("stack-20260124")
    assert mine.exists() and (tmp_path / "runs").exists()
