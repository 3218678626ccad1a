"""Records of runs for the tests of what shows them."""

from __future__ import annotations

from typing import Any

from lustrum.core import names
from lustrum.core.cost import Usage
from lustrum.core.failures import Failure
from lustrum.core.money import account
from lustrum.core.plan import make_plan
from lustrum.core.record import Mishap, Moment, Outcome, Run, State
from lustrum.core.record_parts import (
    Checkpoint,
    Export,
    Job,
    Placement,
    Progress,
    Teardown,
    Worked,
)
from lustrum.core.request import StartRequest
from lustrum.show.formatting import dollars

BEGAN = 1_789_650_000.0  # 2026-09-17
RUN_ID = names.run_id("records")


def new_run(**request: Any) -> Run:
    """A run that was just requested."""
    asked = StartRequest.model_validate(request)
    plan = make_plan(asked, RUN_ID, "exports")
    return Run(
        run_id=RUN_ID,
        key="records",
        request=asked,
        plan=plan,
        created_at=BEGAN,
        deadline_at=BEGAN + plan.hours * 3600,
        hard_deadline_at=BEGAN + plan.hard_hours * 3600,
        history=[Moment(state=State.REQUESTED, at=BEGAN)],
    )


def eventful_run() -> Run:
    """A run of the original recipe: a stock-out, a preemption, a resume, a success, an export."""
    run = new_run(zones=["us-east1-b", "us-central1-b", "europe-west4-b"], name="nightly")
    minutes = [
        (State.PROVISIONING, 1, "us-east1-b, slot east-1"),
        (State.STARTING_HEAD, 22, ""),
        (State.STAGING, 25, ""),
        (State.WAITING_FOR_GPUS, 31, ""),
        (State.DESTROYING, 62, ""),
        (State.PROVISIONING, 75, "us-central1-b, slot central-1"),
        (State.STARTING_HEAD, 97, ""),
        (State.STAGING, 99, ""),
        (State.WAITING_FOR_GPUS, 106, ""),
        (State.TRAINING, 112, ""),
        (State.RECOVERING, 203, ""),
        (State.TRAINING, 214, ""),
        (State.RELEASING, 290, ""),
        (State.EXPORTING, 293, ""),
        (State.DESTROYING, 305, ""),
        (State.VERIFYING, 321, ""),
        (State.CLOSED, 325, "step 20 of 20"),
    ]
    run.history += [
        Moment(state=state, at=BEGAN + at * 60, note=note) for state, at, note in minutes
    ]
    run.series = [
        Progress(
            step=step,
            reward=0.18 + 0.021 * step + (0.02 if step % 3 else -0.01),
            at=BEGAN + (112 + 8 * step) * 60,
            attempt=1,
        )
        for step in range(1, 12)
    ] + [
        Progress(
            step=step,
            reward=0.2 + 0.022 * step + (0.015 if step % 2 else -0.01),
            at=BEGAN + (214 + 7 * (step - 10)) * 60,
            attempt=2,
        )
        for step in range(11, 21)
    ]
    run.progress = run.series[-1].model_copy(update={"max_steps": 20})
    run.saves = [
        Checkpoint(
            step=step,
            bytes=(947 << 30) + step * 1_000_000,
            files=530,
            seconds=41.0 + step % 7,
            at=BEGAN + (112 + 8 * step if step <= 10 else 144 + 7 * step) * 60,
        )
        for step in range(2, 21, 2)
    ]
    run.worked = {
        1: Worked(since=BEGAN + 112 * 60, until=BEGAN + 200 * 60),
        2: Worked(since=BEGAN + 214 * 60, until=BEGAN + 284 * 60),
    }
    run.checkpoint = run.saves[-1]
    run.mishaps = [
        Mishap(
            failure=Failure.STOCKOUT,
            at=BEGAN + 61 * 60,
            state=State.WAITING_FOR_GPUS,
            zone="us-east1-b",
            sentence="0 of 8 nodes came in 30 minutes: GCE_STOCKOUT a4-highgpu-8g",
        ),
        Mishap(
            failure=Failure.PREEMPTED,
            at=BEGAN + 202 * 60,
            state=State.TRAINING,
            zone="us-central1-b",
            attempt=1,
            sentence="a node was lost and the job ended: gke-a4-7f node was preempted",
        ),
    ]
    run.zone_attempts, run.zones_tried = 2, ["us-east1-b", "us-central1-b"]
    run.placement = Placement(
        zone_attempt=2, zone="us-central1-b", slot="central-1", since=BEGAN + 75 * 60
    )
    run.attempt = 2
    run.job = Job(submission_id=f"{RUN_ID}-a2", attempt=2, submitted_at=BEGAN + 214 * 60)
    run.export = Export(
        step=20,
        uri=f"gs://exports/runs/{RUN_ID}/step_20/",
        bytes=run.saves[-1].bytes,
        files=530,
        started_at=BEGAN + 293 * 60,
        tries=1,
        verified_at=BEGAN + 304 * 60,
    )
    run.teardown = Teardown(
        execution="t",
        final=True,
        claimed_at=BEGAN + 290 * 60,
        lease_until=BEGAN + 330 * 60,
        problems=["DESTROYING: gcluster destroy exit 1: subnetwork is in use; tried again"],
    )
    rates = run.plan.rates()
    for name, since, until in (
        ("lustre", 1, 75),
        ("system", 1, 75),
        ("lustre", 75, 318),
        ("system", 75, 318),
        ("accelerators", 108, 291),
    ):
        pieces, rate = rates[name]
        run.usage.append(
            Usage(
                resource=name,
                pieces=pieces,
                rate=rate,
                since=BEGAN + since * 60,
                until=BEGAN + until * 60,
            )
        )
    run.state, run.outcome, run.reason = State.CLOSED, Outcome.SUCCEEDED, "step 20 of 20 is saved"
    run.closed_at = BEGAN + 325 * 60
    run.report_uri = f"gs://reports/runs/{RUN_ID}/report.html"
    run.log_uri = f"gs://reports/runs/{RUN_ID}/logs/"
    return run


def cost(run: Run) -> str:
    """What a run did cost, as people read it; prices change, so no test holds a figure."""
    return dollars(account(run, run.closed_at or BEGAN).dollars)


def events() -> list[dict[str, Any]]:
    """Events as the ledger keeps them, oldest first."""
    common = {"run_id": RUN_ID, "attempt": 2, "exit_code": None, "message": "", "steps": []}
    return [
        {
            "build_id": "b-1",
            "status": "SUCCESS",
            "run_id": RUN_ID,
            "action": "deploy",
            "event_id": "build-b-1-SUCCESS",
        },
        {
            **common,
            "type": "checkpoint.saved",
            "step": 18,
            "max_steps": 20,
            "event_id": "a2-18",
            "checkpoint": {"step": 18, "bytes": 947 << 30, "files": 530, "seconds": 45.0},
            "at": BEGAN + 270 * 60,
        },
        {
            **common,
            "type": "job.completed",
            "step": 20,
            "max_steps": 20,
            "event_id": "a2-done",
            "at": BEGAN + 289 * 60,
            "exit_code": 0,
        },
        {
            "incident_id": "i-7",
            "state": "open",
            "action": "notify",
            "policy": "Lustre is 80% full",
            "summary": "capacity 81 %",
            "run_id": RUN_ID,
            "event_id": "alert-i-7-open",
        },
    ]
