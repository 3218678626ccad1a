"""The page of a run through whole lives: there from its first minute, right in each state, gone
quiet at the end; and a bucket that fails costs the run nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from lustrum.core import names
from lustrum.core.errors import ServiceError
from lustrum.core.failures import Failure
from lustrum.core.record import Run, State
from lustrum.handlers import pages

from testing.life import Life
from testing.services import FakeServices
from testing.stories import check_nothing_is_left

BUCKET = "report-bucket"


def page_of(life: Life, run_id: str) -> str:
    content = life.cloud.objects[names.page_uri(BUCKET, run_id)]
    assert isinstance(content, bytes)
    return content.decode()


def index_of(life: Life) -> str:
    content = life.cloud.objects[names.index_uri(BUCKET)]
    assert isinstance(content, bytes)
    return content.decode()


WAITED_FOR = {
    State.QUEUED: "a free network slot",
    State.PROVISIONING: "the build of cluster and file system in ",
    State.STARTING_HEAD: "the Ray head to answer",
    State.STAGING: "code, model and checkpoint to be on Lustre",
    State.WAITING_FOR_GPUS: "8 GPU nodes in ",
    State.TRAINING: "step ",
    State.RECOVERING: "a place to resume from step ",
    State.RELEASING: "the GPU nodes to go",
    State.EXPORTING: "step ",
    State.DESTROYING: "cluster and file system to go",
    State.VERIFYING: "two empty inventories",
}


class TestLife:
    def test_the_page_says_what_each_state_waits_for(self) -> None:
        seen: dict[str, str] = {}
        life = Life(draws_pages=True)
        original = life.services.storage.write

        def write(uri: str, content: bytes, content_type: str) -> None:
            if uri.endswith("/index.html") and "/rl-" in uri:
                run = life.record(life.services.memory.run_ids()[0])
                seen.setdefault(run.state, content.decode())
            original(uri, content, content_type)

        life.services.storage.write = write  # type: ignore[method-assign]

        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.pass_time(60)
            assert "Waiting for" in page_of(life, run_id)  # in its first minute
            return await life.until_closed(run_id)

        run = life.run(story)
        assert run.outcome == "SUCCEEDED"
        passed = [one.state for one in run.history if one.state is not State.REQUESTED]
        for state in passed:
            if state is State.CLOSED:
                continue
            assert f"Waiting for {WAITED_FOR[state]}" in seen[state], state
            assert 'http-equiv="refresh"' in seen[state]
            assert names.page_uri(BUCKET, run.run_id).split("//")[1] in seen[state]
        assert "lustrum cancel " + run.run_id in seen[State.TRAINING]
        closed = page_of(life, run.run_id)
        assert closed.encode() == life.cloud.objects[str(run.report_uri)]
        assert 'http-equiv="refresh"' not in closed
        assert "SUCCEEDED" in index_of(life) and f"/{run.run_id}/index.html" in index_of(life)

    def test_the_page_follows_the_training(self) -> None:
        life = Life(draws_pages=True)
        found: list[str] = []

        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            await life.until(lambda: len(life.record(run_id).saves) > 1)
            await life.pass_time(life.record(run_id).plan.timing.doorbell + 5)
            found.append(page_of(life, run_id))
            return await life.until_closed(run_id)

        run = life.run(story)
        assert run.outcome == "SUCCEEDED"
        assert "a step</small>" in found[0] and "reward by step" in found[0]
        assert "Last save: step " in found[0] and "on Lustre alone" in found[0]

    def test_a_page_is_not_written_more_often_than_it_may(self) -> None:
        life = Life()
        times: list[tuple[float, str]] = []
        original = life.services.storage.write

        def write(uri: str, content: bytes, content_type: str) -> None:
            if "/rl-" in uri and uri.endswith("index.html"):
                times.append((life.agenda.now(), content.decode().split()[1]))
            original(uri, content, content_type)

        life.services.storage.write = write  # type: ignore[method-assign]
        life.reaps = False

        async def story(life: Life) -> Run:
            return await life.until_closed(await life.start())

        life.run(story)
        assert len(times) > 10
        for (before, old), (after, new) in pairwise(times):
            assert old != new or after - before >= pages.EVERY


class TestHarmless:
    def test_a_bucket_that_fails_costs_the_run_nothing(self) -> None:
        life = Life(draws_pages=True)
        tries: list[float] = []

        def write(uri: str, content: bytes, content_type: str) -> None:
            tries.append(life.agenda.now())
            raise ServiceError(Failure.ACCESS, "storage is away")

        life.services.storage.write = write  # type: ignore[method-assign]

        async def story(life: Life) -> Run:
            return await life.until_closed(await life.start())

        run = life.run(story)
        assert run.outcome == "SUCCEEDED" and not run.mishaps
        check_nothing_is_left(life, run)
        assert len(tries) < 60  # it is left alone for a while after each failure

    def test_a_page_that_cannot_be_drawn_costs_the_run_nothing(self, monkeypatch: Any) -> None:
        def fail(*_: Any, **__: Any) -> str:
            raise ZeroDivisionError

        monkeypatch.setattr("lustrum.show.live.render_live", fail)

        async def story(life: Life) -> Run:
            return await life.until_closed(await life.start())

        assert Life(draws_pages=True).run(story).outcome == "SUCCEEDED"


class TestLate:
    def test_a_slow_writer_leaves_the_report_in_place(self) -> None:
        """It read the run while it trained and writes when it is closed."""
        life = Life()

        async def story(life: Life) -> tuple[Run, Run]:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            early = life.record(run_id)
            return early, await life.until_closed(run_id)

        early, closed = life.run(story)
        life.services.pages.written.clear()
        pages.write_page(life.services, early)
        assert page_of(life, closed.run_id).encode() == life.cloud.objects[str(closed.report_uri)]

    def test_what_the_close_could_not_write_the_reaper_writes(self) -> None:
        life = Life()

        async def story(life: Life) -> Run:
            original = life.services.storage.write
            life.services.storage.write = _but_for_pages(original)  # type: ignore[method-assign]
            run = await life.until_closed(await life.start())
            life.services.storage.write = original  # type: ignore[method-assign]
            return run

        run = life.run(story)
        assert names.page_uri(BUCKET, run.run_id) not in life.cloud.objects
        life.services.pages.rests_until = 0.0
        pages.sweep_pages(life.services)
        assert page_of(life, run.run_id).encode() == life.cloud.objects[str(run.report_uri)]
        assert names.index_uri(BUCKET) in life.cloud.objects

    def test_without_a_report_bucket_nothing_is_written(self) -> None:
        services = FakeServices(LUSTRUM_REPORT_BUCKET="")
        pages.with_page(services, {"run_id": "rl-0123456789"}, {})
        pages.sweep_pages(services)
        assert not services.cloud.objects


def _but_for_pages(original: Callable[[str, bytes, str], None]) -> Any:
    def write(uri: str, content: bytes, content_type: str) -> None:
        if uri.endswith("index.html"):
            raise ServiceError(Failure.ACCESS, "storage is away")
        original(uri, content, content_type)

    return write
