"""Virtual time: no waiting, one order, an honest end when nothing can happen."""

from __future__ import annotations

import asyncio
import time

import pytest
from workflows_engine import Engine, virtual

from engine_tests.support import Web, drive, workflow


class TestVirtualTime:
    def test_a_year_takes_no_time(self) -> None:
        began = time.perf_counter()

        async def main() -> float:
            loop = asyncio.get_running_loop()
            await asyncio.sleep(365 * 24 * 3600)
            return loop.time()

        assert virtual.run(main) == pytest.approx(365 * 24 * 3600)
        assert time.perf_counter() - began < 5

    def test_the_epoch_is_the_first_moment(self) -> None:
        async def main() -> tuple[float, str]:
            engine = Engine()
            return engine.now(), engine.timestamp()

        assert virtual.run(main, epoch=0.0) == (0.0, "1970-01-01T00:00:00Z")

    def test_two_runs_of_one_seed_are_the_same(self) -> None:
        source = workflow("""
            - init: {assign: [{log: []}]}
            - run:
                parallel:
                  shared: [log]
                  for:
                    value: v
                    range: [1, 10]
                    steps:
                      - ask: {call: http.get, args: {url: "http://a.b/"}, result: r}
                      - note: {assign: [{log: "${list.concat(log, [v, r.body, sys.now()])}"}]}
            - give: {return: "${log}"}
        """)

        def run(seed: int) -> object:
            count = iter(range(100))

            async def answer(_: object) -> tuple[int, int]:
                number = next(count)
                await asyncio.sleep((number * 7) % 5)
                return 200, number

            return drive(source, http=Web(answer), seed=seed).value

        assert run(1) == run(1)
        assert run(1) != run(2)

    def test_what_can_never_end_says_so(self) -> None:
        async def main() -> None:
            await asyncio.get_running_loop().create_future()

        with pytest.raises(virtual.NothingCanHappen):
            virtual.run(main)

    def test_what_is_left_is_cancelled(self) -> None:
        ended = []

        async def left() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                ended.append(True)

        async def main() -> None:
            task = asyncio.ensure_future(left())
            await asyncio.sleep(1)
            assert not task.done()

        virtual.run(main)
        assert ended == [True]

    def test_threads_are_refused(self) -> None:
        async def main() -> None:
            await asyncio.to_thread(time.time)

        with pytest.raises(RuntimeError, match="threads"):
            virtual.run(main)

    def test_a_thousand_executions_share_one_thread(self) -> None:
        async def main() -> list[str]:
            engine = Engine(history=0)
            source = (
                "main: {params: [n], steps: [{s: {call: sys.sleep, args: {seconds: '${n}'}}}]}"
            )
            engine.deploy("w", workflow(source))
            runs = [engine.create("w", n) for n in range(1000)]
            await asyncio.gather(*(run.wait() for run in runs))
            assert engine.now() - runs[0].created_time == pytest.approx(999)
            return [run.state for run in runs]

        assert set(virtual.run(main)) == {"SUCCEEDED"}
