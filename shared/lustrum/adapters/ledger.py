"""The ledger: one Firestore document a run, changed only by compare-and-set.

A document holds the record as JSON text (one unindexed field, far below 1 MiB) and beside it
the few fields that are asked for: ``state``, ``schedule``, ``expire_at`` (Firestore's TTL policy
deletes by it).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

from lustrum.core.errors import NotFound, ServiceError, UnreadableRecord
from lustrum.core.failures import Failure
from lustrum.core.record import KEPT_DAYS, TERMINAL, Run, read_record

T = TypeVar("T")
TRIES = 12  # of one compare-and-set, a few milliseconds apart


@dataclass
class Records:
    """Runs that were listed, and run id -> why of each record that could not be read: one bad
    record hides no other run.
    """

    runs: list[Run] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)


def read_all(stored: Iterable[tuple[str, str]]) -> Records:
    """Read (run id, record as JSON text) pairs, in their order."""
    found = Records()
    for run_id, text in stored:
        try:
            found.runs.append(read_record(text))
        except UnreadableRecord as error:
            found.unreadable[run_id] = str(error)
    return found


class Ledger(Protocol):
    """What the steps need of a ledger; the simulation has one in memory."""

    def create(self, run: Run) -> bool:
        """Store a new run; False if it exists already."""

    def load(self, run_id: str) -> Run:
        """Return a run. Raises NotFound."""

    def change(self, run_id: str, edit: Callable[[Run], T]) -> T:
        """Apply ``edit`` (in place, may raise) to the newest record and store it if nobody else
        did.
        """

    def unfinished(self) -> Records:
        """Return every run that is not over, and which records cannot be read."""

    def recent(self, limit: int) -> Records:
        """Return the newest runs first, and which records cannot be read."""

    def append_event(self, run_id: str, event_id: str, event: Mapping[str, Any]) -> bool:
        """Keep an event; False if one of that id was kept before."""

    def forget_event(self, run_id: str, event_id: str) -> None:
        """Take an event back, so that it can be kept again; one that is not there is fine."""

    def events(self, run_id: str) -> list[dict[str, Any]]:
        """Return the events of a run, oldest first."""

    def lease_slot(self, slots: Iterable[str], run_id: str) -> str | None:
        """Lease the first free slot; the one already held if there is one; None if all are
        taken.
        """

    def release_slot(self, run_id: str) -> None:
        """Give back whatever slot a run holds."""

    def slot_holders(self) -> dict[str, str]:
        """Return slot -> run id of all leases."""


class FirestoreLedger:
    """The ledger in Firestore; the emulator is found by FIRESTORE_EMULATOR_HOST."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._runs = client.collection("runs")
        self._slots = client.collection("slots")

    def create(self, run: Run) -> bool:
        """Store a new run; False if it exists already."""
        from google.api_core.exceptions import AlreadyExists

        try:
            self._runs.document(run.run_id).create(_document(run))
        except AlreadyExists:
            return False
        return True

    def load(self, run_id: str) -> Run:
        """Return a run. Raises NotFound."""
        return _run(self._snapshot(run_id))

    def change(self, run_id: str, edit: Callable[[Run], T]) -> T:
        """Apply ``edit`` to the newest record and store it if nobody else did meanwhile.

        Raises:
            NotFound: no such run.
            ServiceError: INFRA_TRANSIENT, others kept changing it.
        """
        from google.api_core.exceptions import Aborted, FailedPrecondition

        for attempt in range(TRIES):
            snapshot = self._snapshot(run_id)
            run = _run(snapshot)
            result = edit(run)
            option = self._client.write_option(last_update_time=snapshot.update_time)
            try:
                self._runs.document(run_id).update(_document(run), option=option)
            except (FailedPrecondition, Aborted):
                time.sleep(0.005 * 2 ** min(attempt, 6))
                continue
            return result
        raise ServiceError(
            Failure.INFRA_TRANSIENT, f"{run_id} has too many writers at once", retryable=True
        )

    def unfinished(self) -> Records:
        """Return every run that is not over, and which records cannot be read."""
        from google.cloud.firestore_v1.base_query import FieldFilter

        query = self._runs.where(filter=FieldFilter("over", "==", False))
        return read_all((item.id, item.to_dict()["record"]) for item in query.stream())

    def recent(self, limit: int) -> Records:
        """Return the newest runs first, and which records cannot be read."""
        query = self._runs.order_by("created_at", direction="DESCENDING").limit(limit)
        return read_all((item.id, item.to_dict()["record"]) for item in query.stream())

    def append_event(self, run_id: str, event_id: str, event: Mapping[str, Any]) -> bool:
        """Keep an event; False if one of that id was kept before."""
        from google.api_core.exceptions import AlreadyExists

        document = self._runs.document(run_id).collection("events").document(_safe(event_id))
        try:
            document.create(
                {
                    "event": json.dumps(event),
                    "kept_at": datetime.now(UTC),
                    "expire_at": datetime.now(UTC) + timedelta(days=KEPT_DAYS),
                }
            )
        except AlreadyExists:
            return False
        return True

    def forget_event(self, run_id: str, event_id: str) -> None:
        """Take an event back, so that it can be kept again; one that is not there is fine."""
        self._runs.document(run_id).collection("events").document(_safe(event_id)).delete()

    def events(self, run_id: str) -> list[dict[str, Any]]:
        """Return the events of a run, oldest first."""
        found = self._runs.document(run_id).collection("events").order_by("kept_at").stream()
        return [json.loads(item.to_dict()["event"]) for item in found]

    def lease_slot(self, slots: Iterable[str], run_id: str) -> str | None:
        """Lease the first free slot; the one already held if there is one; None if all are
        taken.
        """
        from google.api_core.exceptions import AlreadyExists

        wanted = list(slots)
        holders = self.slot_holders()
        held = next((slot for slot in wanted if holders.get(slot) == run_id), None)
        if held is not None:
            return held
        for slot in wanted:
            if slot in holders:
                continue
            try:
                self._slots.document(slot).create({"run_id": run_id, "at": datetime.now(UTC)})
            except AlreadyExists:
                continue
            return slot
        return None

    def release_slot(self, run_id: str) -> None:
        """Give back whatever slot a run holds."""
        for slot, holder in self.slot_holders().items():
            if holder == run_id:
                self._slots.document(slot).delete()

    def slot_holders(self) -> dict[str, str]:
        """Return slot -> run id of all leases."""
        return {item.id: item.to_dict()["run_id"] for item in self._slots.stream()}

    def _snapshot(self, run_id: str) -> Any:
        snapshot = self._runs.document(run_id).get()
        if not snapshot.exists:
            raise NotFound(f"there is no run {run_id}")
        return snapshot


def _document(run: Run) -> dict[str, Any]:
    ended = run.closed_at if run.closed_at is not None else run.hard_deadline_at
    return {
        "record": run.model_dump_json(),
        "state": run.state.value,
        "over": run.state in TERMINAL,
        "schedule": run.schedule,
        "created_at": datetime.fromtimestamp(run.created_at, UTC),
        "expire_at": datetime.fromtimestamp(ended, UTC) + timedelta(days=KEPT_DAYS),
    }


def _run(snapshot: Any) -> Run:
    return read_record(snapshot.to_dict()["record"])


def _safe(event_id: str) -> str:
    """Firestore ids may hold no slash and not be ``.``, ``..`` or ``__x__``."""
    return "e-" + event_id.replace("/", "_")[:500]
