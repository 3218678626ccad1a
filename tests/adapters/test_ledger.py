"""One contract, two ledgers: the fake of the tests, and Firestore's emulator."""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from lustrum.adapters.ledger import FirestoreLedger, Ledger
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.names import run_id
from lustrum.core.record import Refused, Run, State, Stop, advance

from infra.local import emulators
from infra.local.processes import Children, answers
from testing.ledger import MemoryLedger
from testing.samples import NOW, run


@pytest.fixture(scope="module")
def firestore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of a Firestore emulator of its own."""
    from google.cloud import firestore as library

    children = Children(tmp_path_factory.mktemp("firestore"))
    patch = pytest.MonkeyPatch()
    try:
        port = emulators.start_firestore(children)
        children.await_ready("firestore", lambda: answers(port), emulators.UP_WITHIN)
        patch.setenv("FIRESTORE_EMULATOR_HOST", f"127.0.0.1:{port}")
        yield library.Client(project="lustrum-test")
    except emulators.Missing as missing:
        pytest.skip(str(missing))
    finally:
        patch.undo()
        for _, child in children._children:  # only ours: stop() ends whatever this process has
            os.killpg(child.pid, signal.SIGKILL)
            child.wait(10)


@pytest.fixture(
    params=[pytest.param("memory"), pytest.param("firestore", marks=pytest.mark.stack)]
)
def ledger(request: pytest.FixtureRequest) -> Ledger:
    if request.param == "memory":
        return MemoryLedger()
    return FirestoreLedger(request.getfixturevalue("firestore"))


def fresh(**fields: Any) -> Run:
    """A run of an id nobody had."""
    identity = run_id(str(uuid.uuid4()))
    return run(State.REQUESTED, run_id=identity, **fields)


class TestRecords:
    def test_create_only_once(self, ledger: Ledger) -> None:
        one = fresh()
        assert ledger.create(one)
        assert not ledger.create(one.model_copy(update={"reason": "other"}))
        assert ledger.load(one.run_id) == one

    def test_load_what_is_not_there(self, ledger: Ledger) -> None:
        with pytest.raises(NotFound):
            ledger.load("rl-0000000000")
        with pytest.raises(NotFound):
            ledger.change("rl-0000000000", lambda one: None)

    def test_change_stores_and_returns(self, ledger: Ledger) -> None:
        one = fresh()
        ledger.create(one)

        def edit(found: Run) -> str:
            advance(found, State.PROVISIONING, NOW)
            return "done"

        assert ledger.change(one.run_id, edit) == "done"
        assert ledger.load(one.run_id).state is State.PROVISIONING

    def test_change_that_raises_stores_nothing(self, ledger: Ledger) -> None:
        one = fresh()
        ledger.create(one)

        def edit(found: Run) -> None:
            found.reason = "half done"
            raise Refused(Stop.STOPPED, "no")

        with pytest.raises(Refused):
            ledger.change(one.run_id, edit)
        assert ledger.load(one.run_id) == one

    def test_change_is_a_compare_and_set(self, ledger: Ledger) -> None:
        one = fresh()
        ledger.create(one)
        tries: list[str] = []

        def edit(found: Run) -> None:
            tries.append(found.reason)
            if len(tries) == 1:  # somebody else is faster
                ledger.change(one.run_id, lambda other: setattr(other, "reason", "first"))
            found.log_uri = f"after {found.reason}"

        ledger.change(one.run_id, edit)
        found = ledger.load(one.run_id)
        assert tries == ["", "first"]
        assert (found.reason, found.log_uri) == ("first", "after first")

    def test_change_by_eight_threads_loses_nothing(self, ledger: Ledger) -> None:
        one = fresh()
        ledger.create(one)
        failed: list[BaseException] = []

        def work() -> None:
            for _ in range(3):
                while True:
                    try:
                        ledger.change(
                            one.run_id, lambda found: setattr(found, "attempt", found.attempt + 1)
                        )
                        break
                    except ServiceError as error:  # many at once: asked again
                        assert error.retryable
                    except BaseException as error:
                        failed.append(error)
                        return

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert ledger.load(one.run_id).attempt == one.attempt + 24

    def test_unfinished_leaves_the_closed_out(self, ledger: Ledger) -> None:
        alive, dead = fresh(), fresh()
        dead.state = State.CLOSED
        ledger.create(alive)
        ledger.create(dead)
        found = {item.run_id for item in ledger.unfinished().runs}
        assert alive.run_id in found and dead.run_id not in found
        ledger.change(alive.run_id, lambda one: setattr(one, "state", State.CLOSED))
        assert alive.run_id not in {item.run_id for item in ledger.unfinished().runs}

    def test_recent_newest_first(self, ledger: Ledger) -> None:
        old, new = fresh(created_at=NOW + 10**6), fresh(created_at=NOW + 2 * 10**6)
        ledger.create(old)
        ledger.create(new)
        found = [item.run_id for item in ledger.recent(2).runs]
        assert found[0] == new.run_id
        assert len(found) == 2


class TestEvents:
    def test_append_event_once_by_id(self, ledger: Ledger) -> None:
        identity = fresh().run_id
        assert ledger.append_event(identity, "a", {"n": 1})
        assert not ledger.append_event(identity, "a", {"n": 2})
        assert ledger.append_event(identity, "b/../c", {"n": 3})
        assert ledger.events(identity) == [{"n": 1}, {"n": 3}]

    def test_append_event_odd_ids(self, ledger: Ledger) -> None:
        identity = fresh().run_id
        for event_id in (".", "..", "__x__", "x" * 2000, "é", "a b", "projects/p/x"):
            assert ledger.append_event(identity, event_id, {}), event_id
            assert not ledger.append_event(identity, event_id, {}), event_id

    def test_forget_event_lets_it_be_kept_again(self, ledger: Ledger) -> None:
        identity = fresh().run_id
        ledger.append_event(identity, "a", {"n": 1})
        ledger.forget_event(identity, "a")
        ledger.forget_event(identity, "never")
        assert ledger.append_event(identity, "a", {"n": 2})
        assert ledger.events(identity) == [{"n": 2}]

    def test_append_event_by_ten_threads_once(self, ledger: Ledger) -> None:
        identity = fresh().run_id
        won: list[bool] = []
        barrier = threading.Barrier(10)

        def work() -> None:
            barrier.wait()
            won.append(ledger.append_event(identity, "a", {}))

        threads = [threading.Thread(target=work) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(won) == [False] * 9 + [True]


class TestSlots:
    def test_lease_slot_one_a_run_until_it_is_given_back(self, ledger: Ledger) -> None:
        prefix = uuid.uuid4().hex[:8]
        slots = [f"{prefix}-a", f"{prefix}-b"]
        assert ledger.lease_slot(slots, "r1") == slots[0]
        assert ledger.lease_slot(slots, "r1") == slots[0]
        assert ledger.lease_slot(slots, "r2") == slots[1]
        assert ledger.lease_slot(slots, "r3") is None
        ledger.release_slot("r1")
        ledger.release_slot("r1")
        assert ledger.lease_slot(slots, "r3") == slots[0]
        assert {slots[0]: "r3", slots[1]: "r2"}.items() <= ledger.slot_holders().items()

    def test_lease_slot_by_ten_threads(self, ledger: Ledger) -> None:
        prefix = uuid.uuid4().hex[:8]
        slots = [f"{prefix}-{number}" for number in range(3)]
        got: list[str | None] = []
        barrier = threading.Barrier(10)

        def work(number: int) -> None:
            barrier.wait()
            got.append(ledger.lease_slot(slots, f"{prefix}-r{number}"))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        leased = [slot for slot in got if slot is not None]
        assert sorted(leased) == slots
