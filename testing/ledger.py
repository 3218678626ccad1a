"""A ledger in memory with the real one's promises: records are copies, changes compare-and-set."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from lustrum.adapters.ledger import TRIES, Records, read_all
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.failures import Failure
from lustrum.core.record import Run, read_record

T = TypeVar("T")


class MemoryLedger:
    """Thread-safe. ``conflicts`` makes so many compare-and-sets lose against a writer that is
    faster; ``broken`` raises from every call, like a database that is away.
    """

    def __init__(self) -> None:
        self.conflicts = 0
        self.broken: Exception | None = None
        self.interfere: Callable[[Run], None] | None = None
        self._lock = threading.RLock()
        self._records: dict[str, tuple[int, str]] = {}
        self._events: dict[str, dict[str, dict[str, Any]]] = {}
        self.watch: Callable[[Run, Run], None] | None = None  # sees every change: before, after
        self.shares = False  # reads give the one parsed record, which nobody may change: fast
        self._peeked: dict[str, tuple[int, Run]] = {}
        self._slots: dict[str, str] = {}

    def create(self, run: Run) -> bool:
        with self._lock:
            self._check()
            if run.run_id in self._records:
                return False
            self._records[run.run_id] = (1, run.model_dump_json())
            return True

    def load(self, run_id: str) -> Run:
        if self.shares:
            with self._lock:
                self._check()
                if run_id in self._records:
                    return self.peek(run_id)
        return self._read(run_id)[1]

    def change(self, run_id: str, edit: Callable[[Run], T]) -> T:
        for _ in range(TRIES):
            version, run = self._read(run_id)
            result = edit(run)
            text = run.model_dump_json()
            before = self.peek(run_id) if self.watch is not None else None
            with self._lock:
                if self.conflicts > 0:
                    self.conflicts -= 1
                    self._bump(run_id)
                if self._records[run_id][0] != version:
                    continue
                self._records[run_id] = (version + 1, text)
            if before is not None and self.watch is not None:
                self.watch(before, self.peek(run_id))
            return result
        raise ServiceError(
            Failure.INFRA_TRANSIENT, f"{run_id} has too many writers at once", retryable=True
        )

    def unfinished(self) -> Records:
        if self.shares:
            with self._lock:
                self._check()
                runs = [self.peek(run_id) for run_id in self._records]
            return Records([run for run in runs if not run.is_over], {})
        found = self._all()
        return Records([run for run in found.runs if not run.is_over], found.unreadable)

    def recent(self, limit: int) -> Records:
        if self.shares:
            with self._lock:
                self._check()
                runs = [self.peek(run_id) for run_id in self._records]
            return Records(sorted(runs, key=lambda run: -run.created_at)[:limit], {})
        found = self._all()
        newest = sorted(found.runs, key=lambda run: -run.created_at)[:limit]
        return Records(newest, found.unreadable)

    def append_event(self, run_id: str, event_id: str, event: Mapping[str, Any]) -> bool:
        text = json.dumps(event)
        if len(text) > 1_000_000:
            raise ValueError("a Firestore document may hold 1 MiB")
        (run_id + event_id).encode()  # ids are UTF-8
        with self._lock:
            self._check()
            kept = self._events.setdefault(run_id, {})
            if event_id in kept:
                return False
            kept[event_id] = json.loads(text)
            return True

    def forget_event(self, run_id: str, event_id: str) -> None:
        with self._lock:
            self._check()
            self._events.get(run_id, {}).pop(event_id, None)

    def events(self, run_id: str) -> list[dict[str, Any]]:
        with self._lock:
            self._check()
            return list(self._events.get(run_id, {}).values())

    def lease_slot(self, slots: Iterable[str], run_id: str) -> str | None:
        wanted = list(slots)
        with self._lock:
            self._check()
            held = [slot for slot in wanted if self._slots.get(slot) == run_id]
            free = held or [slot for slot in wanted if slot not in self._slots]
            if not free:
                return None
            self._slots[free[0]] = run_id
            return free[0]

    def release_slot(self, run_id: str) -> None:
        with self._lock:
            self._check()
            self._slots = {slot: run for slot, run in self._slots.items() if run != run_id}

    def slot_holders(self) -> dict[str, str]:
        with self._lock:
            self._check()
            return dict(self._slots)

    def peek(self, run_id: str) -> Run:
        """Return a record, also while the ledger is away: for tests."""
        with self._lock:
            version, text = self._records[run_id]
            if self._peeked.get(run_id, (0, None))[0] != version:
                self._peeked[run_id] = (version, Run.model_validate_json(text))
            return self._peeked[run_id][1]

    def text(self) -> str:
        """Return all that is stored, for a search of what must not be there."""
        with self._lock:
            return json.dumps([self._records, self._events, self._slots])

    def run_ids(self) -> list[str]:
        """Return the ids of all records."""
        with self._lock:
            return list(self._records)

    def replace_text(self, run_id: str, text: str) -> None:
        """Store a record as another release would have: for tests of old and broken records."""
        with self._lock:
            self._records[run_id] = (self._records[run_id][0] + 1, text)

    def _all(self) -> Records:
        with self._lock:
            self._check()
            return read_all((run_id, text) for run_id, (_, text) in self._records.items())

    def _read(self, run_id: str) -> tuple[int, Run]:
        with self._lock:
            self._check()
            if run_id not in self._records:
                raise NotFound(f"there is no run {run_id}")
            version, text = self._records[run_id]
        return version, read_record(text)

    def _bump(self, run_id: str) -> None:
        version, text = self._records[run_id]
        if self.interfere is not None:
            run = Run.model_validate_json(text)
            self.interfere(run)
            text = run.model_dump_json()
        self._records[run_id] = (version + 1, text)

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken
