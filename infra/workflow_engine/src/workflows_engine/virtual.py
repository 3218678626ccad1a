"""Time that passes only when nothing else can happen.

An asyncio loop whose selector never waits: when no task can run, the clock jumps to the next
timer. Whatever runs on asyncio (the engine, handlers, other simulated services) runs unchanged,
a year takes no time, and the order of events depends on nothing but the program and its seed.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

EPOCH = 1_767_225_600.0  # 2026-01-01T00:00:00Z


class NothingCanHappen(RuntimeError):
    """Every task waits and no timer is set: in real time this program would hang for ever."""


class _Selector(selectors.SelectSelector):
    """Moves the loop's clock instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise NothingCanHappen("every task waits for something that nobody will do")
        if timeout > 0:
            self.time += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time; ``epoch`` is the Unix time at which it begins."""

    def __init__(self, epoch: float = EPOCH) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)
        self._epoch = epoch
        # Timers closer together than this run in one go. It must exceed the spacing of doubles
        # at any time reached (4e-9 after a year), or a timer that is due never becomes ready.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Seconds since the loop began."""
        return self._clock.time

    def now(self) -> float:
        """Unix time in seconds."""
        return self._epoch + self._clock.time

    def run_in_executor(self, *_: Any) -> Any:  # type: ignore[override]
        """Refused. Raises RuntimeError."""
        raise RuntimeError("threads have no place in virtual time: call the function directly")


def run(main: Callable[[], Coroutine[Any, Any, T]], *, epoch: float = EPOCH) -> T:
    """Run a coroutine function to its end on a fresh virtual loop; cancels what it leaves.

    Raises NothingCanHappen when the main coroutine can never end.
    """
    loop = VirtualLoop(epoch)
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main())
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        loop.close()
