"""Sweeps of the reaper that the simulation found wanting."""

from __future__ import annotations

import pytest
from lustrum.adapters.gke import ClusterInfo
from lustrum.adapters.google import CloudList
from lustrum.handlers.reaping import ReapFailed, reap_runs

from testing.services import FakeServices


def test_an_answer_of_another_shape_does_not_end_the_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One listing that no adapter expects is a problem; what the others show is still judged."""
    services = FakeServices()

    def shapeless() -> CloudList[ClusterInfo]:
        raise ValueError("an answer of another shape")

    monkeypatch.setattr(services.gke, "list", shapeless)
    services.cloud._new_instance("rl-00000000aa", "us-east1-b", _ours("rl-00000000aa", 0))
    services.agenda.advance(700)
    with pytest.raises(ReapFailed) as caught:
        reap_runs(services)
    assert any("another shape" in one for one in caught.value.answer["problems"])
    services.agenda.advance(300)
    assert services.cloud.instances == []


def _ours(run_id: str, expires: int) -> dict[str, str]:
    return {"lustrum-run": run_id, "managed-by": "lustrum", "lustrum-expires": str(expires)}
