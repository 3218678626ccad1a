"""Cancel: from every state, uncatchable, with nothing that runs on afterwards."""

from __future__ import annotations

import asyncio

import pytest
from workflows_engine import ApiError, Engine, virtual

from engine_tests.support import Web, workflow

GUARDED = """
main:
  steps:
    - guarded:
        try:
          steps:
            - wait: {%s}
        retry: {predicate: "${retry.always}", max_retries: 99}
        except: {as: e, steps: [{h: {call: http.get, args: {url: "http://cleanup/"}}}]}
    - after: {call: http.get, args: {url: "http://after/"}}
"""
WAITS = {
    "sleep": "call: sys.sleep, args: {seconds: 1000}",
    "callback": "call: open_and_wait",
    "http": 'call: http.get, args: {url: "http://slow/"}',
    "operation": "call: googleapis.cloudbuild.v1.projects.triggers.run, "
    "args: {projectId: p, triggerId: t}",
    "retry": 'call: http.get, args: {url: "http://broken/"}',
    "child": "call: googleapis.workflowexecutions.v1.projects.locations.workflows.executions.run, "
    "args: {workflow_id: child}",
    "parallel": "parallel: {for: {value: v, range: [1, 30], steps: "
    "[{s: {call: sys.sleep, args: {seconds: 1000}}}]}}",
    "loop": "call: spin",
}
HELD = """
open_and_wait:
  steps:
    - open: {call: events.create_callback_endpoint, result: cb}
    - wait: {call: events.await_callback, args: {callback: "${cb}"}}
spin:
  steps:
    - s: {call: sys.sleep, args: {seconds: 1}, next: s}
"""


class TestCancel:
    @pytest.mark.parametrize("kind", sorted(WAITS))
    def test_while_waiting(self, kind: str) -> None:
        urls: list[str] = []

        async def answer(request: dict[str, object]) -> object:
            url = str(request["url"])
            urls.append(url)
            if "slow" in url:
                await asyncio.sleep(200)
            if "broken" in url:
                return 503, {}
            return 200, {"name": "operations/1"}

        async def main() -> None:
            engine = Engine(http=Web(answer))
            engine.deploy("child", workflow("- s: {call: sys.sleep, args: {seconds: 1000}}"))
            engine.deploy("w", workflow(GUARDED % WAITS[kind] + HELD))
            execution = engine.create("w")
            await asyncio.sleep(50)
            assert execution.state == "ACTIVE"
            engine.cancel(execution.name)
            assert execution.state == "CANCELLED"
            assert execution.end_time == engine.now()
            seen = len(urls)
            await execution.wait()
            await asyncio.sleep(10_000)
            assert len(urls) == seen
            assert not any("cleanup" in url or "after" in url for url in urls)
            assert execution.error is None
            assert execution.result is None
            states = {entry.state for entry in execution.history.entries}  # type: ignore[union-attr]
            assert "STATE_IN_PROGRESS" not in states
            assert engine.faults == []

        virtual.run(main)

    def test_before_the_first_step(self) -> None:
        async def main() -> None:
            http = Web(200)
            engine = Engine(http=http)
            engine.deploy("w", workflow('- a: {call: http.get, args: {url: "http://a/"}}'))
            execution = engine.create("w")
            engine.cancel(execution.name)
            await asyncio.sleep(10)
            assert (execution.state, http.requests) == ("CANCELLED", [])

        virtual.run(main)

    def test_after_the_end_is_refused_and_changes_nothing(self) -> None:
        async def main() -> None:
            engine = Engine()
            engine.deploy("w", workflow("- a: {return: 1}"))
            execution = await engine.create("w").wait()
            with pytest.raises(ApiError) as raised:
                engine.cancel(execution.name)
            assert raised.value.status == "FAILED_PRECONDITION"
            execution.cancel()
            assert (execution.state, execution.value) == ("SUCCEEDED", 1)

        virtual.run(main)

    def test_deleting_a_workflow_cancels_and_forgets_its_executions(self) -> None:
        async def main() -> None:
            engine = Engine()
            engine.deploy("w", workflow("- a: {call: sys.sleep, args: {seconds: 9}}"))
            execution = engine.create("w")
            engine.delete("w")
            assert execution.state == "CANCELLED"
            for gone in (lambda: engine.get(execution.name), lambda: engine.create("w")):
                with pytest.raises(ApiError):
                    gone()

        virtual.run(main)

    def test_an_update_does_not_touch_a_running_execution(self) -> None:
        async def main() -> None:
            engine = Engine()
            source = "- a: {call: sys.sleep, args: {seconds: 9}}\n- b: {return: %d}"
            first = engine.deploy("w", workflow(source % 1))
            execution = engine.create("w")
            second = engine.deploy("w", workflow(source % 2))
            assert (await execution.wait()).value == 1
            assert execution.revision_id == first.revision_id
            assert second.revision_id.startswith("000002-")
            assert (await engine.create("w").wait()).value == 2

        virtual.run(main)
