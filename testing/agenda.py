"""The one clock of the fakes, and what is going to happen by it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

EPOCH = 1_767_225_600.0  # 2026-01-01T00:00:00Z


class Agenda:
    """Time that moves when it is told to; what is due then happens, in order.

    ``wake`` is called when something is added, so that a driver in virtual time can look again.
    """

    def __init__(self, now: float = EPOCH) -> None:
        self.time = now
        self.wake: Callable[[], None] = lambda: None
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()

    def now(self) -> float:
        """Return the time, epoch seconds."""
        return self.time

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Let ``action`` happen in so many seconds."""
        heapq.heappush(self._heap, (self.time + seconds, next(self._number), action))
        self.wake()

    def next_time(self) -> float | None:
        """Return when the next thing happens, None when nothing will."""
        return self._heap[0][0] if self._heap else None

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.reach(self.time + seconds)

    def reach(self, moment: float) -> None:
        """Let time pass until a moment; never backwards."""
        while self._heap and self._heap[0][0] <= moment:
            when, _, action = heapq.heappop(self._heap)
            self.time = max(self.time, when)
            action()
        self.time = max(self.time, moment)
