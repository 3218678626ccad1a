"""The bill of a run: by hand to the cent, and its parts against the whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lustrum.core.cost import Extras, Usage, prices, use_prices
from lustrum.core.failures import Failure
from lustrum.core.money import (
    AFTER,
    BEFORE,
    BETWEEN,
    SAVING,
    TRAINING,
    account,
    minute_of_waiting,
    recipe_order,
    saves_cost,
    to_cents,
)
from lustrum.core.progress import absorb
from lustrum.core.record import Mishap, Moment, Run, State
from lustrum.core.record_parts import Checkpoint, Export, Job, Worked
from lustrum.wiring.settings import read_prices

from testing.records import BEGAN, new_run

NODE, LUSTRE, SYSTEM = 40.0, 15.0, 1.0  # dollars an hour: 2 nodes, one instance, head and cluster
EXTRAS = Extras(
    build_minute=0.006,
    nat_vm_hour=0.0014,
    nat_gib=0.045,
    storage_gib_month=0.02,
    hours_per_month=730,
)


def at(minute: float) -> float:
    return BEGAN + 60 * minute


def life(history: list[tuple[State, float]], usage: list[tuple[str, float, float | None]]) -> Run:
    """A run of 2 nodes at round prices; minutes since its request."""
    run = new_run(nodes=2)
    priced = {"accelerators": (2, NODE), "lustre": (1, LUSTRE), "system": (1, SYSTEM)}
    run.plan = run.plan.model_copy(
        update={"extras": EXTRAS, "model_gib": 200.0, "fetched_gib": 100.0}
    )
    run.history += [Moment(state=state, at=at(minute)) for state, minute in history]
    run.usage = [
        Usage(
            resource=name,
            pieces=priced[name][0],
            rate=priced[name][1],
            since=at(since),
            until=None if until is None else at(until),
        )
        for name, since, until in usage
    ]
    run.state = history[-1][0]
    return run


def exported(run: Run, gib: float, minute: float) -> None:
    run.export = Export(
        step=20, uri="gs://e/step_20/", bytes=int(gib * 2**30), verified_at=at(minute)
    )


def plain() -> Run:
    """Up 60 to 180; first step 70, last 160; two saves of 3 minutes; export at 195; end 210."""
    run = life(
        [
            (State.PROVISIONING, 0),
            (State.STARTING_HEAD, 30),
            (State.STAGING, 35),
            (State.WAITING_FOR_GPUS, 50),
            (State.TRAINING, 65),
            (State.RELEASING, 165),
            (State.EXPORTING, 180),
            (State.DESTROYING, 195),
            (State.VERIFYING, 205),
            (State.CLOSED, 210),
        ],
        [("lustre", 0, 205), ("system", 0, 205), ("accelerators", 60, 180)],
    )
    run.worked = {1: Worked(since=at(70), until=at(160))}
    run.saves = [
        Checkpoint(step=10, at=at(115), seconds=180),
        Checkpoint(step=20, at=at(160), seconds=180),
    ]
    exported(run, 730, 195)
    return run


class TestBillsByHand:
    def test_account_of_a_plain_life(self) -> None:
        found = account(plain(), at(210))
        # 2 nodes at $40: $80 an hour, $4/3 a minute.
        assert found.parts == {
            TRAINING: 11200,  # 84 min
            SAVING: 800,  # 6 min
            BEFORE: 1333,  # 10 min
            BETWEEN: 0,
            AFTER: 2667,  # 20 min
        }
        assert found.resources == {
            "accelerators": 16000,  # 2 h
            "lustre": 5125,  # 205 min at $15/h
            "system": 342,  # 205 min at $1/h: $3.41667
            "builds": 24,  # 30 + 10 min at $0.006
            # 4 node-hours and 3.4167 head-hours at $0.0014: $0.01038; 100 GiB at $0.045: $4.50
            "nat": 451,
            "storage": 0,  # 730 GiB for a quarter of an hour: $0.005
        }
        assert found.total == 21942
        assert found.waiting == 4000 and found.idle_share == pytest.approx(30 / 120)
        assert found.kept_month == pytest.approx(14.60)
        assert found.hourly == 0

    def test_account_of_a_preempted_life(self) -> None:
        run = plain()
        # The node is lost at 100: the second attempt's first step begins at 112.
        run.history[6:6] = [
            Moment(state=State.RECOVERING, at=at(100)),
            Moment(state=State.TRAINING, at=at(108)),
        ]
        run.worked = {
            1: Worked(since=at(70), until=at(98)),
            2: Worked(since=at(112), until=at(160)),
        }
        run.mishaps = [mishap(Failure.PREEMPTED, 100)]
        run.saves = [Checkpoint(step=20, at=at(160), seconds=180)]
        found = account(run, at(210))
        assert found.parts == {
            TRAINING: 10000,  # 30 + 45 min: until the loss was noted
            SAVING: 400,
            BEFORE: 1333,
            BETWEEN: 1600,  # 12 min
            AFTER: 2667,
        }
        assert found.resources["accelerators"] == 16000

    def test_account_of_a_zone_failover(self) -> None:
        run = life(
            [
                (State.PROVISIONING, 0),
                (State.STARTING_HEAD, 20),
                (State.STAGING, 25),
                (State.WAITING_FOR_GPUS, 30),
                (State.DESTROYING, 60),  # one of two nodes came at 45: a stock-out
                (State.PROVISIONING, 70),
                (State.STARTING_HEAD, 95),
                (State.STAGING, 100),
                (State.WAITING_FOR_GPUS, 110),
                (State.TRAINING, 120),
                (State.RELEASING, 180),
                (State.DESTROYING, 190),
                (State.CLOSED, 200),
            ],
            [
                ("lustre", 0, 68),
                ("system", 0, 68),
                ("accelerators", 45, 60),
                ("lustre", 70, 198),
                ("system", 70, 198),
                ("accelerators", 115, 181),
            ],
        )
        run.worked = {1: Worked(since=at(125), until=at(175))}
        found = account(run, at(200))
        assert found.parts == {
            TRAINING: 6667,  # 50 min
            SAVING: 0,
            BEFORE: 3333,  # 15 min in the first zone, 10 in the second
            BETWEEN: 0,
            AFTER: 800,  # 6 min
        }
        assert found.resources == {
            "accelerators": 10800,  # 81 min
            "lustre": 4900,  # 196 min
            "system": 327,  # $3.2667
            "builds": 39,  # 20 + 10 + 25 + 10 min at $0.006
            "nat": 901,  # twice 100 GiB; 2.7 node-hours and 3.267 head-hours: $9.00835
        }
        assert found.total == sum(found.resources.values()) == 16967


def mishap(failure: Failure, minute: float, attempt: int = 1) -> Mishap:
    return Mishap(
        failure=failure, at=at(minute), state=State.TRAINING, sentence="s", attempt=attempt
    )


class TestWhileItRuns:
    def running(self) -> Run:
        run = life(
            [(State.PROVISIONING, 0), (State.WAITING_FOR_GPUS, 30), (State.TRAINING, 65)],
            [("lustre", 0, None), ("system", 0, None), ("accelerators", 60, None)],
        )
        run.attempt = 1
        run.job = Job(submission_id="s", attempt=1, submitted_at=at(66))
        return run

    def test_account_before_the_first_step_is_all_waiting(self) -> None:
        found = account(self.running(), at(69))
        assert found.parts == {TRAINING: 0, SAVING: 0, BEFORE: 1200, BETWEEN: 0, AFTER: 0}
        assert found.hourly == pytest.approx(2 * NODE + LUSTRE + SYSTEM + 3 * 0.0014)

    def test_account_during_a_step_counts_it_as_training(self) -> None:
        run = self.running()
        run.worked = {1: Worked(since=at(70), until=at(80))}
        assert account(run, at(90)).parts[TRAINING] == 2667
        assert account(run, at(90)).parts[AFTER] == 0

    def test_account_after_the_job_told_its_end_waits(self) -> None:
        run = self.running()
        run.worked = {1: Worked(since=at(70), until=at(80))}
        assert run.job is not None
        run.job.completed_at = at(81)
        assert account(run, at(90)).parts[AFTER] == 1200

    def test_account_of_a_silent_attempt_ends_with_its_last_step(self) -> None:
        run = self.running()
        run.worked = {1: Worked(since=at(70), until=at(80))}
        run.mishaps = [mishap(Failure.HANG, 110)]
        seconds = account(run, at(110)).seconds  # of two nodes
        assert (seconds[TRAINING], seconds[AFTER]) == (10 * 60 * 2, 30 * 60 * 2)

    def test_account_of_a_closed_run_is_that_of_its_end_whatever_the_clock(self) -> None:
        run = plain()
        run.closed_at = at(210)
        for now in (at(0), at(210) + 90 * 86400):
            assert account(run, now) == account(plain(), at(210))


class TestWhole:
    spans = st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 200), st.floats(0, 500)), max_size=6
    )

    @given(
        usage=st.lists(
            st.tuples(
                st.sampled_from(["accelerators", "lustre", "system"]),
                st.floats(0, 400),
                st.one_of(st.none(), st.floats(0, 400)),
                st.floats(0, 1000, allow_subnormal=False),
            ),
            max_size=8,
        ),
        worked=spans,
        saves=spans,
        failed=st.lists(st.integers(0, 500), max_size=4),
        now=st.floats(0, 900),
    )
    def test_account_parts_are_the_whole(
        self, usage: Any, worked: Any, saves: Any, failed: Any, now: float
    ) -> None:
        run = life([(State.PROVISIONING, 0), (State.TRAINING, 30)], [])
        run.usage = [
            Usage(
                resource=name,
                pieces=3,
                rate=rate,
                since=at(since),
                until=None if long is None else at(since + long),
            )
            for name, since, long, rate in usage
        ]
        run.worked = {
            number: Worked(since=at(since), until=at(since + long))
            for number, (since, long, _) in enumerate(worked)
        }
        run.saves = [
            Checkpoint(step=step, at=at(when), seconds=took)
            for step, (when, _, took) in enumerate(saves)
        ]
        run.mishaps = [
            mishap(Failure.PREEMPTED, minute, attempt) for attempt, minute in enumerate(failed)
        ]
        found = account(run, at(now))
        assert sum(found.resources.values()) == found.total
        assert sum(found.parts.values()) == found.resources.get("accelerators", 0)
        up = sum(
            max(0.0, (at(now) if one.until is None else one.until) - one.since) * one.pieces
            for one in run.usage
            if one.resource == "accelerators"
        )
        assert sum(found.seconds.values()) == pytest.approx(up, abs=1e-3)
        assert min(found.seconds.values()) >= 0

    @given(st.dictionaries(st.text(max_size=3), st.floats(0, 1e6), min_size=1, max_size=9))
    def test_to_cents_gives_each_less_than_a_cent_too_much_or_little(self, amounts: Any) -> None:
        total = round(sum(amounts.values()) * 100)
        found = to_cents(amounts, total)
        assert sum(found.values()) == total
        assert all(abs(found[name] - amounts[name] * 100) <= 1.01 for name in amounts)


class TestRecipeOrder:
    def test_recipe_order_has_its_accelerators_up_from_deployment_to_destruction(self) -> None:
        found = recipe_order(plain(), at(210))
        assert found is not None
        # Deployed at 30, destruction begins at 195; 10 min none were to be had; 90 min of work.
        assert found.idle_seconds == pytest.approx((165 - 10 - 90) * 60 * 2)
        assert found.our_seconds == pytest.approx(30 * 60 * 2)
        rate = plain().plan.rates()["accelerators"][1]
        assert found.idle_dollars == pytest.approx(65 / 60 * 2 * rate)
        assert found.sentence == (
            "the order of the original recipe would have idled 65 minutes "
            f"(${found.idle_dollars:,.2f}); this run idled 30"
        )

    def test_recipe_order_of_a_run_without_training_is_not_told(self) -> None:
        assert recipe_order(new_run(), at(10)) is None


class TestPlanned:
    def test_saves_cost_counts_the_last_save(self) -> None:
        plan = plain().plan.model_copy(
            update={"max_num_steps": 5, "save_period": 2, "checkpoint_gib": 100.0}
        )
        count, each, cost = saves_cost(plan, 2**30)
        assert (count, each) == (3, 100)
        assert cost == pytest.approx(5 * minute_of_waiting(plan))


class TestWorked:
    def test_absorb_takes_the_first_step_from_its_duration(self) -> None:
        from lustrum.core.events import JobEvent

        run = life([(State.TRAINING, 0)], [])
        run.attempt = 1
        for minute, step in ((20, 2), (10, 1)):  # out of order
            event = {
                "type": "job.progress",
                "run_id": run.run_id,
                "attempt": 1,
                "event_id": f"e{step}",
                "at": at(minute),
                "step": step,
                "steps": [{"step": step, "seconds": 240}],
            }
            absorb(run, JobEvent.model_validate(event), at(30))
        assert run.worked == {1: Worked(since=at(6), until=at(20))}


class TestOwnPrices:
    @pytest.fixture(autouse=True)
    def shipped(self) -> Any:
        yield
        use_prices(None)

    def test_read_prices_lays_a_file_over_the_shipped_list(self, tmp_path: Any) -> None:
        file = tmp_path / "prices.yaml"
        file.write_text("dated: 2026-12-01\nnode_hour:\n  a4-highgpu-8g/spot: 30.5\n")
        read_prices({"LUSTRUM_PRICES": str(file)})
        assert prices().node("a4-highgpu-8g", "spot") == 30.5
        assert prices().node("n2d-highmem-16", "on-demand") == 0.912
        plan = new_run().plan
        assert plan.prices_dated == "2026-12-01"
        assert plan.rates()["accelerators"] == (8, 30.5)
        read_prices({"LUSTRUM_PRICES": file.read_text().replace("30.5", "31")})
        assert prices().node("a4-highgpu-8g", "spot") == 31
        read_prices({})
        assert prices().node("a4-highgpu-8g", "spot") == 39.6336

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("node_hour: {}", "dated: must be the day"),
            ("dated: 2026-12-01\nnode_hours: {a/spot: 1}", "node_hours: is not a price"),
            ("dated: 2026-12-01\nnat_gib: -1", "nat_gib: -1: must be dollars"),
            ("dated: 2026-12-01\nnode_hour: {a/spot: free}", "node_hour.a/spot: 'free': must"),
            ("dated: 2026-12-01\nhours_per_month: 0", "hours_per_month: 0: must be above 0"),
            ("dated: [", "is not YAML"),
        ],
    )
    def test_use_prices_names_what_is_wrong(self, text: str, why: str) -> None:
        with pytest.raises(ValueError, match=why.replace(".", r"\.")):
            use_prices(text)
        assert prices().dated.startswith("2026-09")


class TestFetched:
    @pytest.mark.parametrize(
        ("profile", "share"), [("qwen2.5-72b-grpo", 0.5), ("llama3.1-8b-grpo", 1.0)]
    )
    def test_a_megatron_conversion_does_not_pass_the_nat(self, profile: str, share: float) -> None:
        plan = new_run(profile=profile).plan
        assert plan.model_gib
        assert plan.downloaded_gib == plan.model_gib * share

    def test_a_plan_of_older_code_fetches_its_whole_model(self) -> None:
        plan = new_run().plan.model_copy(update={"fetched_gib": None})
        assert plan.downloaded_gib == plan.model_gib
