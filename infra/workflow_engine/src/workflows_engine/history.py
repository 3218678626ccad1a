"""The step entries of an execution: what ran, when, and how it ended.

Only the newest entries are kept, so that an execution of 100,000 steps stays small.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from workflows_engine.blocks import Op, Returned
from workflows_engine.scope import Scope


class Entry:
    """One step that was begun."""

    __slots__ = ("created", "exception", "id", "op", "place", "result", "state", "updated")

    def __init__(self, id_: int, op: Op, created: float) -> None:
        self.id = id_
        self.op = op
        self.created = created
        self.updated = created
        self.state = "STATE_IN_PROGRESS"
        self.exception: Any = None
        self.place: list[str] = []
        self.result: Any = None


class History:
    """The newest ``keep`` step entries, by the clock ``now`` (Unix seconds).

    With ``detail`` an entry knows its place and the value that its step returned or assigned.
    """

    __slots__ = ("_count", "_detail", "_now", "entries")

    def __init__(self, keep: int, now: Callable[[], float], detail: bool = False) -> None:
        self._detail = detail
        self.entries: deque[Entry] = deque(maxlen=keep)
        self._now = now
        self._count = 0

    def begin(self, op: Op, scope: Scope) -> Entry:
        """Add the entry of a step that begins; gives it."""
        self._count = number = self._count + 1
        entry = Entry(number, op, self._now())
        if self._detail:
            entry.place = scope.place()
        self.entries.append(entry)
        return entry

    def end(self, entry: Entry, scope: Scope, signal: Any) -> None:
        """Mark an entry as succeeded."""
        entry.updated = self._now()
        entry.state = "STATE_SUCCEEDED"
        if self._detail:
            if isinstance(signal, Returned) and entry.op.kind == "STEP_RETURN":
                entry.result = signal.value
            elif entry.op.result is not None:
                entry.result = scope.find(entry.op.result)

    def fail(self, entry: Entry, value: Any) -> None:
        """Mark an entry as failed with the error value that was raised."""
        entry.updated = self._now()
        entry.state = "STATE_FAILED"
        entry.exception = value

    def cancel(self) -> None:
        """Mark what was under way when the execution was cancelled."""
        for entry in self.entries:
            if entry.state == "STATE_IN_PROGRESS":
                entry.updated = self._now()
                entry.state = "STATE_CANCELLED"
