from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lustrum.core.failures import Failure
from lustrum.core.record import (
    ALLOWED,
    TEARDOWN,
    TERMINAL,
    Outcome,
    Refused,
    Run,
    State,
    add_mishap,
    advance,
    check_live,
    check_owned,
    conclude,
    final_outcome,
)
from lustrum.core.record_parts import Cancel, Export, Teardown
from lustrum.core.usage import end_usage, start_usage

from testing.samples import NOW, run, saved

CANCEL = Cancel(at=NOW, export=True, event_id="c")
TEARS = Teardown(execution="t", final=True, claimed_at=NOW, lease_until=NOW)


class TestStates:
    def test_allowed_every_state_has_its_next(self) -> None:
        assert set(ALLOWED) == set(State)
        assert all(after <= set(State) for after in ALLOWED.values())

    @pytest.mark.parametrize("state", sorted(set(State) - TERMINAL))
    def test_allowed_a_teardown_may_begin_in_any_live_state(self, state: State) -> None:
        assert set(TEARDOWN) <= ALLOWED[state]
        assert State.CLOSED in ALLOWED[state]

    @pytest.mark.parametrize(("state", "to"), list(itertools.product(sorted(TERMINAL), State)))
    def test_advance_nothing_leaves_the_end(self, state: State, to: State) -> None:
        one = run(state)
        if to == state:
            advance(one, to, NOW)
            return
        with pytest.raises(Refused):
            advance(one, to, NOW)
        assert one.state == state

    @given(st.lists(st.sampled_from(State), max_size=30))
    def test_advance_any_walk_keeps_a_history_of_allowed_steps(self, walk: list[State]) -> None:
        one = run(State.REQUESTED, history=[])
        before = one.state
        for number, to in enumerate(walk):
            try:
                advance(one, to, NOW + number)
            except Refused:
                assert to not in ALLOWED[before]
            assert one.state == before or one.state in ALLOWED[before]
            before = one.state

    def test_a_record_survives_its_text(self) -> None:
        one = run(checkpoint=saved(4), cancel=CANCEL, teardown=TEARS)
        assert Run.model_validate_json(one.model_dump_json()) == one


class TestChecks:
    @pytest.mark.parametrize(
        ("fields", "stop"),
        (
            ({"state": State.CLOSED}, "over"),
            ({"teardown": TEARS}, "teardown"),
            ({"execution": "another"}, "owned"),
            ({"cancel": CANCEL}, "cancelled"),
            ({"deadline_at": NOW}, "deadline"),
        ),
    )
    def test_check_live_refuses(self, fields: dict[str, object], stop: str) -> None:
        with pytest.raises(Refused) as refused:
            check_live(run(**fields), "life", NOW)  # type: ignore[arg-type]
        assert refused.value.stop == stop

    def test_check_live_lets_a_living_run_go_on(self) -> None:
        check_live(run(), "life", NOW)
        check_live(run(execution=None), "life", NOW)

    @pytest.mark.parametrize(
        ("fields", "stop"),
        (
            ({"state": State.CLOSED, "teardown": TEARS}, "over"),
            ({"teardown": None}, "lost"),
            ({"teardown": TEARS.model_copy(update={"execution": "u"})}, "lost"),
        ),
    )
    def test_check_owned_refuses(self, fields: dict[str, object], stop: str) -> None:
        with pytest.raises(Refused) as refused:
            check_owned(run(**fields), "t")  # type: ignore[arg-type]
        assert refused.value.stop == stop


def export(step: int, verified: bool = True) -> Export:
    return Export(step=step, uri=f"gs://b/step_{step}/", verified_at=NOW if verified else None)


class TestOutcomes:
    @pytest.mark.parametrize(
        ("step", "export_", "secured", "cancel", "outcome"),
        (
            (20, export(20), None, None, Outcome.SUCCEEDED),
            (20, export(20), None, CANCEL, Outcome.SUCCEEDED),
            (20, export(20, False), None, None, Outcome.FAILED),
            (20, export(20, False), export(10), None, Outcome.PARTIAL),
            (20, None, None, CANCEL, Outcome.CANCELLED),
            (20, None, None, None, Outcome.FAILED),
            (12, export(12), None, None, Outcome.PARTIAL),
            (12, export(12), None, CANCEL, Outcome.CANCELLED),
            (12, export(12, False), export(4), None, Outcome.PARTIAL),
            (12, export(12, False), None, None, Outcome.FAILED),
            (0, None, None, None, Outcome.FAILED),
        ),
    )
    def test_final_outcome(
        self,
        step: int,
        export_: Export | None,
        secured: Export | None,
        cancel: Cancel | None,
        outcome: Outcome,
    ) -> None:
        checkpoint = saved(step) if step else None
        one = run(checkpoint=checkpoint, export=export_, secured=secured, cancel=cancel)
        assert final_outcome(one) == outcome

    def test_final_outcome_an_export_nobody_asked_for_is_not_needed(self) -> None:
        one = run(checkpoint=saved(20))
        one.plan.export_required = False
        assert final_outcome(one) == Outcome.SUCCEEDED

    def test_final_outcome_without_an_export_an_early_end_is_no_success(self) -> None:
        one = run(checkpoint=saved(12))
        one.plan.export_required = False
        assert final_outcome(one) != Outcome.SUCCEEDED

    def test_conclude_the_first_cause_stands(self) -> None:
        one = run()
        conclude(one, Failure.HANG, "first")
        conclude(one, Failure.UNKNOWN, "second")
        assert (one.failure, one.reason) == (Failure.HANG, "first")

    def test_add_mishap_counts_by_class(self) -> None:
        one = run()
        assert [add_mishap(one, Failure.HANG, "x", NOW) for _ in range(3)] == [0, 1, 2]
        assert add_mishap(one, Failure.PREEMPTED, "x" * 9999, NOW) == 0
        assert len(one.mishaps[-1].sentence) < 600


class TestUsage:
    def test_usage_is_counted_once_and_ends(self) -> None:
        one = run()
        for _ in range(3):
            start_usage(one, "accelerators", NOW)
        end_usage(one, NOW + 3600, "lustre")
        assert [item.until for item in one.usage] == [None]
        end_usage(one, NOW + 3600)
        end_usage(one, NOW + 7200)
        start_usage(one, "accelerators", NOW + 7200)
        assert [item.until for item in one.usage] == [NOW + 3600, None]
