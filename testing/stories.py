"""Stories that many replays share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from lustrum.core.record import Run

from testing.life import Life

TWO_REGIONS = {"zones": ["us-east1-b", "us-east1-c", "us-central1-a"]}
LIVE_STATES = (
    "REQUESTED",
    "PROVISIONING",
    "STARTING_HEAD",
    "STAGING",
    "WAITING_FOR_GPUS",
    "TRAINING",
)
TEARDOWN_STATES = ("RELEASING", "EXPORTING", "DESTROYING", "VERIFYING")
Story = Callable[[Life], Awaitable[Any]]


def to_the_end(request: Mapping[str, Any] | None = None) -> Story:
    """A run from its request to its end."""

    async def story(life: Life) -> Run:
        return await life.until_closed(await life.start(request))

    return story


def in_state(
    state: str,
    act: Callable[[Life, str], Any],
    seconds: float = 20.0,
    request: Mapping[str, Any] | None = None,
) -> Story:
    """A run in which something happens some seconds after it entered a state."""

    async def story(life: Life) -> Run:
        run_id = await life.start(request)
        await life.until_state(run_id, state)
        await life.pass_time(seconds)
        found = act(life, run_id)
        if isinstance(found, Awaitable):
            await found
        return await life.until_closed(run_id)

    return story


def check_nothing_is_left(life: Life, run: Run) -> None:
    """Hold the promises that every end of every run keeps."""
    story = life.story()
    assert run.state == "CLOSED", story
    assert life.cloud.left() == [], story
    assert life.cloud.most_alive <= 1, story
    assert life.living() == [], story
    assert life.services.memory.slot_holders() == {}, story
    assert not life.engine.faults, story
    assert all(item.until is not None for item in run.usage), story
    closed = [
        one for one in life.services.outbox.kinds("run.closed") if one["run_id"] == run.run_id
    ]
    assert len(closed) == 1, story
    assert closed[0]["outcome"] == run.outcome
    assert run.outcome is not None and run.reason, story
    if run.outcome == "SUCCEEDED":
        assert run.failure is None
    else:
        assert run.failure is not None, story


def check_the_newest_is_safe(life: Life, run: Run, at_least: int) -> None:
    """The exported step is whole in the bucket: training_info, weights, every byte."""
    safe = run.safe_export
    assert safe is not None and safe.step >= at_least, life.story()
    found = {key for key in life.cloud.objects if key.startswith(safe.uri)}
    names = {key.removeprefix(safe.uri) for key in found}
    whole = {"training_info.json", "config.yaml", "lustrum-manifest.json"}
    assert whole | {f"policy/weights/shard_{number}.bin" for number in (0, 1)} <= names
