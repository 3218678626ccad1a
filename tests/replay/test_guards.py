"""Single guards, each by itself: what one writer may do while another one was faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lustrum.adapters.compute import Machine
from lustrum.adapters.workflows import Workflows
from lustrum.core import kubernetes_objects
from lustrum.core.cost import Usage
from lustrum.core.errors import ServiceError
from lustrum.core.failures import Failure
from lustrum.core.record import Refused, Run, State, check_live
from lustrum.core.record_parts import Cancel, Placement, Teardown
from lustrum.handlers import training
from lustrum.handlers.closing import close
from lustrum.handlers.inventory import look_around, take_inventory
from lustrum.handlers.reaping import ReapFailed, reap_runs
from lustrum.handlers.start import handle_push
from lustrum.handlers.transitions import advance_run

from testing import samples
from testing.dashboard import Script
from testing.life import Life
from testing.services import FakeServices, push

HOUR = 3600.0


def started(services: FakeServices, request: dict[str, Any] | None = None) -> str:
    return str(handle_push(services, push(request or {}, "1"))["run_id"])


def edited(services: FakeServices, run_id: str, edit: Callable[[Run], None]) -> None:
    services.memory.change(run_id, edit)


def cancelled(run: Run) -> None:
    run.cancel = Cancel(at=1.0, export=True, event_id="c")


def torn_down(services: FakeServices, run_id: str, final: bool = True) -> str:
    """Let a living teardown own the run."""
    execution = services.executions.ensure("teardown", run_id, {})
    call = {"run_id": run_id, "execution": execution, "step": "claim_teardown", "final": final}
    assert advance_run(services, call)["go"]
    return execution


class TestWriters:
    def test_no_state_is_entered_after_a_cancel(self) -> None:
        services = FakeServices()
        run_id = started(services)
        edited(services, run_id, cancelled)
        call = {"run_id": run_id, "execution": "e", "step": "enter", "state": "QUEUED"}
        assert advance_run(services, call)["stop"] == "cancelled"
        assert services.memory.peek(run_id).state is State.REQUESTED

    @pytest.mark.parametrize("function", ("submit_ray_job", "advance_run"))
    def test_a_cancel_between_look_and_write_wins(self, function: str) -> None:
        """The compare-and-set looks again, not only the function's beginning."""

        async def story(life: Life) -> Run:
            run_id = await life.start()
            return await life.until_closed(run_id)

        life = Life()
        memory = life.services.memory

        def overtake(name: str, call: dict[str, Any]) -> None:
            if name == function and call.get("step") in (None, "place"):
                life.before.remove(overtake)
                # Place writes its preflight first; the second write is the one that decides.
                memory.conflicts, memory.interfere = 1, cancelled

        life.before.append(overtake)
        run = life.run(story)
        assert run.outcome == "CANCELLED"
        assert run.attempt == 0
        assert life.cloud.submissions == [] or function == "submit_ray_job"
        assert run.placement is None or function == "submit_ray_job"

    def test_the_next_attempt_waits_for_the_end_of_the_one_before(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever judged it may not have reached the head: who submits makes sure."""
        monkeypatch.setattr(training, "_stop_quietly", lambda ray, identity: None)

        async def story(life: Life) -> Run:
            return await life.until_closed(await life.start())

        life = Life()
        life.cloud.scripts = {1: Script(hang_at=3)}
        assert life.run(story).outcome == "SUCCEEDED"
        first, second = [one for one in life.cloud.jobs if one.mode == "train"]
        assert first.ended is not None and first.ended <= second.began

    def test_the_first_cancel_stands(self) -> None:
        services = FakeServices()
        run_id = started(services)
        for number, export in enumerate((True, False)):
            wish = {"action": "cancel", "run_id": run_id, "export": export}
            handle_push(services, push(wish, f"c{number}"))
        cancel = services.memory.peek(run_id).cancel
        assert cancel is not None and cancel.export
        assert len(services.outbox.kinds("run.cancelling")) == 1

    def test_a_run_that_ends_gets_no_more_hours(self) -> None:
        services = FakeServices()
        run_id = started(services)
        torn_down(services, run_id)
        answer = handle_push(
            services, push({"action": "extend", "run_id": run_id, "hours": 1}, "x")
        )
        assert answer["status"] == "rejected"

    def test_a_failure_told_twice_counts_once(self) -> None:
        services = FakeServices()
        run_id = started(services)
        call = {
            "run_id": run_id,
            "execution": "e",
            "step": "failed",
            "why": "x",
            "failure": "INFRA_TRANSIENT",
        }
        for _ in range(2):
            assert advance_run(services, call)["next"] == "retry"
        assert services.memory.peek(run_id).times(Failure.INFRA_TRANSIENT) == 1


class TestLease:
    def test_a_living_teardown_is_not_overtaken_and_a_silent_one_is(self) -> None:
        services = FakeServices()
        run_id = started(services)
        torn_down(services, run_id)
        other = {"run_id": run_id, "execution": "other", "step": "claim_teardown"}
        assert advance_run(services, other)["stop"] == "busy"
        services.agenda.advance(1801)
        assert advance_run(services, other)["go"]

    def test_a_final_teardown_stays_final(self) -> None:
        services = FakeServices()
        run_id = started(services)
        execution = torn_down(services, run_id)
        again = {
            "run_id": run_id,
            "execution": execution,
            "step": "claim_teardown",
            "final": False,
        }
        assert advance_run(services, {**again, "final": False})["final"] is True


class TestMoney:
    def test_an_extension_beyond_the_cost_is_refused(self) -> None:
        services = FakeServices()
        run_id = started(services)
        wish = {"action": "extend", "run_id": run_id, "hours": 100}
        assert "cost_usd" in handle_push(services, push(wish, "x"))["reason"]
        assert services.memory.peek(run_id).plan.hours == 6

    def test_extensions_together_make_no_more_than_a_week(self) -> None:
        services = FakeServices()
        run_id = started(services, {"limits": {"cost_usd": 1_000_000}})
        wish = {"action": "extend", "run_id": run_id, "hours": 100}
        assert handle_push(services, push(wish, "x"))["status"] == "extended"
        assert "168" in handle_push(services, push(wish, "y"))["reason"]

    def test_hours_come_once_per_message_are_told_and_are_on_the_labels_at_once(self) -> None:
        services = FakeServices()
        run_id = started(services)
        labels = {"lustrum-run": run_id, "managed-by": "lustrum", "lustrum-expires": "1"}
        services.cloud._new_cluster(run_id, "us-east1-b", labels)
        services.cloud._new_instance(run_id, "us-east1-b", labels)
        before = services.memory.peek(run_id).deadline_at
        for _ in range(2):
            handle_push(services, push({"action": "extend", "run_id": run_id, "hours": 1}, "x"))
        run = services.memory.peek(run_id)
        assert run.deadline_at == before + HOUR
        assert len(services.outbox.kinds("run.extended")) == 1
        expires = str(int(run.hard_deadline_at))
        assert services.cloud.cluster(run_id).labels["lustrum-expires"] == expires
        assert services.cloud.instance(run_id).labels["lustrum-expires"] == expires

    def test_lustre_is_billed_as_long_as_it_is_there(self) -> None:
        services = FakeServices()
        run_id = started(services)
        usage = Usage(resource="lustre", pieces=1, rate=1, since=services.now())
        edited(services, run_id, lambda run: run.usage.append(usage))
        services.cloud._new_instance(run_id, "us-east1-b", {})
        take_inventory(services, run_id, torn_down(services, run_id), sweep=False)
        assert [one.until for one in services.memory.peek(run_id).usage] == [None]


class TestEmpty:
    def test_machines_and_builds_are_something(self) -> None:
        services = FakeServices()
        run_id = started(services)
        services.cloud.machines.append(Machine("vm", "us-east1-b", "RUNNING", run_id, 0))
        assert not look_around(services, run_id).is_empty
        services.cloud.machines.clear()
        tags = {"_RUN_ID": run_id, "_ACTION": "destroy", "_ZONE_ATTEMPT": "1"}
        services.cloud.run_trigger(tags)
        assert not look_around(services, run_id).is_empty

    def test_close_looks_again(self) -> None:
        services = FakeServices()
        run_id = started(services)
        torn_down(services, run_id)
        services.cloud._new_cluster(run_id, "us-east1-b", {})
        with pytest.raises(ServiceError, match="is not empty"):
            close(services, services.memory.peek(run_id))

    def test_only_empty_answers_in_a_row_count(self) -> None:
        services = FakeServices()
        run_id = started(services)
        execution = torn_down(services, run_id)
        seen = []
        for machines in ([], [Machine("vm", "us-east1-b", "RUNNING", run_id, 0)], []):
            services.cloud.machines[:] = machines
            seen.append(take_inventory(services, run_id, execution, sweep=False)["times"])
        assert seen == [1, 0, 1]

    def test_the_job_is_stopped_before_the_export(self) -> None:
        async def story(life: Life) -> None:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            await life.pass_time(300)
            await life.publish({"action": "cancel", "run_id": run_id}, "c")
            await life.until_state(run_id, "EXPORTING")
            trainings = [one for one in life.cloud.jobs if one.mode == "train"]
            assert [one.status for one in trainings] == ["STOPPED"]

        Life().run(story)

    def test_the_slot_is_given_back_without_the_reaper(self) -> None:
        async def story(life: Life) -> Run:
            return await life.until_closed(await life.start())

        life = Life(reaps=False)
        run = life.run(story)
        assert life.services.memory.slot_holders() == {}
        assert run.report_uri in life.cloud.objects


class TestReaper:
    def test_it_deletes_nothing_before_the_hard_deadline_and_its_patience(self) -> None:
        services = FakeServices()
        run_id = started(services)
        labels = {"lustrum-run": run_id, "managed-by": "lustrum", "lustrum-expires": "9999999999"}
        services.cloud._new_cluster(run_id, "us-east1-b", labels)
        services.agenda.reach(services.memory.peek(run_id).deadline_at + 1801)
        reap_runs(services)
        services.agenda.advance(600)
        assert services.cloud.clusters

    def test_a_sweep_that_also_did_something_still_pages(self) -> None:
        services = FakeServices()
        started(services)
        services.executions.end(services.executions.executions[0].name)
        services.cloud._new_cluster(
            "rl-00000000aa",
            "us-east1-b",
            {
                "lustrum-run": "rl-00000000aa",
                "managed-by": "lustrum",
                "lustrum-expires": "0",
            },
        )
        services.agenda.advance(600)
        with pytest.raises(ReapFailed) as caught:
            reap_runs(services)
        assert caught.value.answer["acted"] and caught.value.answer["problems"]

    def test_what_no_record_knows_goes_in_the_end_whatever_the_export_does(self) -> None:
        services = FakeServices()
        labels = {
            "lustrum-run": "rl-00000000aa",
            "managed-by": "lustrum",
            "lustrum-expires": str(int(services.now())),
        }
        services.cloud._new_instance("rl-00000000aa", "us-east1-b", labels)
        services.cloud.export_seconds = 1e9
        services.agenda.advance(2 * 1800 + 1)
        with pytest.raises(ReapFailed):
            reap_runs(services)
        services.agenda.advance(600)
        assert services.cloud.instances == []


class TestTelling:
    def test_a_request_is_told_once_and_only_its_id_reaches_the_workflow(self) -> None:
        services = FakeServices()
        run_id = started(services)
        started(services)
        assert len(services.outbox.kinds("run.requested")) == 1
        assert [one.argument for one in services.executions.executions] == [{"run_id": run_id}]

    @pytest.mark.parametrize("status", (404, 429))
    def test_a_callback_that_is_over_is_no_error(self, status: int) -> None:
        class Rest:
            def raw(self, *_: Any, **__: Any) -> None:
                raise ServiceError(Failure.INFRA_TRANSIENT, "answered", status=status)

        workflows = object.__new__(Workflows)
        workflows._rest = Rest()  # type: ignore[assignment]
        workflows.ring("https://workflowexecutions.googleapis.com/x", {})

    def test_all_three_labels_are_on_what_is_made_in_the_cluster(self) -> None:
        services = FakeServices()
        run = services.memory.peek(started(services))
        labels = kubernetes_objects.account(run.plan, 7.0)["metadata"]["labels"]
        wanted = {"lustrum-run": run.run_id, "managed-by": "lustrum", "lustrum-expires": "7"}
        assert labels == wanted


def test_a_zone_is_not_left_while_its_teardown_is_at_work() -> None:
    services = FakeServices()
    run_id = started(services)

    def placed(run: Run) -> None:
        run.placement = Placement(zone_attempt=1, zone="us-east1-b", slot="a", since=1.0)
        run.teardown = Teardown(execution="t", final=False, claimed_at=1.0, lease_until=2.0)

    edited(services, run_id, placed)
    call = {"run_id": run_id, "execution": "e", "step": "leave_zone"}
    assert advance_run(services, call)["gone"] is False


def test_a_recovering_run_that_was_cancelled_makes_nothing() -> None:
    run = samples.run(State.RECOVERING, cancel=Cancel(at=1.0, export=True, event_id="c"))
    with pytest.raises(Refused, match="was cancelled"):
        check_live(run, "life", samples.NOW)


def test_a_run_belongs_to_one_execution_also_before_its_first_attempt() -> None:
    with pytest.raises(Refused, match="belongs to another"):
        check_live(samples.run(State.PROVISIONING, attempt=0), "other", samples.NOW)
