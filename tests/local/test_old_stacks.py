"""The working folders of `make run` do not pile up."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lustrum.core import names

from infra.local.run import STACKS, forget_old_stacks, publish_anew

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


class CountsFromOne:
    """A stack whose emulator gives every first message the same id."""

    def __init__(self) -> None:
        self.attributes: dict[str, str] = {}

    def publish(self, body: bytes, **attributes: str) -> str:
        self.attributes = attributes
        return "1"


def test_two_runs_never_share_an_id_though_their_messages_do() -> None:
    stacks: list[Any] = [CountsFromOne() for _ in range(2)]
    (first, one), (second, other) = (publish_anew(stack, b"{}") for stack in stacks)
    assert first == second == "1" and one != other
    # start_run must come to the same id.
    assert one == names.run_id(names.message_key(stacks[0].attributes, "1", None))
