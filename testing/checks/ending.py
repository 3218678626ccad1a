"""What must be true when a life is over."""

from __future__ import annotations

from collections import Counter

from lustrum.core.record import Run

from testing.checks.trial import BROKEN, DEATHS, Trial
from testing.life import REAP_EVERY

ONCE = ("run.requested", "run.closed", "run.cancelling", "run.skipped")
NEWS = ("run.gpus_up", "run.degraded", "run.recovered", "run.safe")
KNOWN = {
    *ONCE,
    *NEWS,
    "run.extended",
    "run.alert",
    "run.revived",
    "run.remains",
    "request.rejected",
    "event.rejected",
    "stranger",
    "alert",
}


class Ending:
    """Judges the end."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial

    def see(self, run: Run) -> None:
        """Judge one life that is over."""
        trial, life = self.trial, self.trial.life
        trial.expect("end: CLOSED", run.state == "CLOSED" and run.outcome is not None, run.state)
        held = life.services.memory.slot_holders().values()
        trial.expect("end: no slot is held", run.run_id not in held)
        trial.expect("end: no execution lives", not life.living(), life.living())
        trial.expect("end: one run", len(life.services.memory.run_ids()) == 1)
        trial.expect("end: the engine", not life.engine.faults, life.engine.faults[:1])
        self._outcome(run)
        self._report(run)
        self._told(run)
        self._executions()
        self._strangers()
        self._lasted(run)

    def _outcome(self, run: Run) -> None:
        trial = self.trial
        safe = run.safe_export
        if safe is not None:
            trial.expect(
                "truth: what is called exported is there",
                trial.stored(safe.uri, safe.step),
                safe.uri,
            )
        goal = run.plan.max_num_steps
        if run.outcome == "SUCCEEDED":
            done = safe is not None and safe.step >= goal
            trial.expect("truth: succeeded", done or not run.plan.export_required, safe)
            trial.expect("truth: succeeded without a failure", run.failure is None)
        else:
            trial.expect("truth: a failure is named", run.failure is not None, run.reason)
        if run.outcome == "CANCELLED":
            trial.expect("truth: cancelled", run.cancel is not None)
        if run.outcome == "FAILED":
            trial.expect("truth: failed", safe is None)
        # A program that succeeds in a quiet life makes a run that succeeds.
        finished = any(job.cause == "goal" for job in trial.life.cloud.jobs)
        quiet = trial.is_quiet and not trial.schedule.world.exports
        if finished and quiet and run.cancel is None and run.plan.export_required:
            reached = run.progress.step >= goal
            trial.expect(
                "truth: a finished training succeeds",
                not reached or run.outcome == "SUCCEEDED",
                run.reason,
            )
        if trial.is_smooth and not trial.schedule.faulty:
            trial.expect(
                "end: nothing went wrong, so it succeeds", run.outcome == "SUCCEEDED", run.reason
            )

    def _report(self, run: Run) -> None:
        trial, objects = self.trial, self.trial.life.cloud.objects
        hurt = trial.went_wrong(BROKEN | DEATHS) or any(
            one.service in ("storage", "ledger") for one in trial.seam.struck
        )
        trial.expect("end: a report", bool(hurt) or (run.report_uri in objects), run.report_uri)
        trained = any(job.mode == "train" for job in trial.life.cloud.jobs)
        worldly = {"preempt", "head", "room"}
        if trained and not hurt and not trial.went_wrong(frozenset(worldly)) and run.log_uri:
            last = f"{run.log_uri}{run.run_id}-a{run.attempt}.log"
            trial.expect(
                "end: the log of the last attempt", last in objects or run.zone_attempts > 1, last
            )
        if trained and trial.is_quiet and not trial.went_wrong(frozenset(worldly)):
            trial.expect("end: a log", bool(run.log_uri))

    def _told(self, run: Run) -> None:
        trial = self.trial
        told = Counter(str(one["kind"]) for one in trial.life.notifications)
        trial.expect("told: known kinds", set(told) <= KNOWN, sorted(told))
        doubtful = any(
            one.kind in ("after", "kill", "denied", "shape", "away") for one in trial.seam.struck
        )
        wanted = {
            "run.requested": 1,
            "run.closed": 1,
            "run.cancelling": int(run.cancel is not None),
            "run.extended": len(run.extended_by),
        }
        for kind, count in wanted.items():
            trial.expect(
                f"told: {kind}",
                told[kind] == count or (doubtful and (kind != "run.closed" or told[kind] >= 1)),
                f"{told[kind]} instead of {count}",
            )
        self._news(run)
        refused = Counter(
            str(one.get("message_id"))
            for one in trial.life.notifications
            if one["kind"] == "request.rejected"
        )
        for identity in trial.refused:
            trial.expect(
                "told: request.rejected",
                refused[identity] == 1 or (doubtful and refused[identity] > 0),
                identity,
            )
        unheard = sum(one.service in ("publisher", "ledger") for one in trial.seam.struck)
        trial.expect(
            "told: the end no oftener than it was unheard", told["run.closed"] <= 1 + unheard
        )
        for one in trial.life.notifications:
            if one["kind"] == "run.closed":
                trial.expect(
                    "told: as it is recorded",
                    one["outcome"] == run.outcome and one["run_id"] == run.run_id,
                )

    def _news(self, run: Run) -> None:
        """Each news once; nobody is told that a training begins which did not."""
        trial = self.trial
        marks = Counter(
            str(one["mark"]) for one in trial.life.notifications if one["kind"] in NEWS
        )
        struck = trial.seam.struck
        unheard = sum(one.service in ("publisher", "ledger", "*") for one in struck)
        trial.expect(
            "told: news once each", all(count <= 1 + unheard for count in marks.values()), marks
        )
        trained = any(one.state == "TRAINING" for one in run.history)
        up = any(mark.startswith("gpus-up") for mark in marks)
        trial.expect("told: GPUs up", not up or trained, marks)
        if trained and trial.is_quiet and len(run.history) < 150:
            trial.expect("told: GPUs up, when they are", up, marks)

    def _executions(self) -> None:
        trial = self.trial
        failed = [
            f"{one.deployment.id}: {one.failure}"
            for one in trial.life.executions
            if one.state == "FAILED"
        ]
        trial.expect("end: no execution failed", not failed or not trial.is_smooth, failed)
        lives = [one for one in trial.life.executions if one.deployment.id == "rl-run"]
        blind = trial.went_wrong(BROKEN | DEATHS)
        trial.expect("doubled: rl_run of one run", len(lives) <= 1 or blind > 0, len(lives))

    def _strangers(self) -> None:
        trial, world = self.trial, self.trial.schedule.world
        cloud = trial.life.cloud
        here = {one.name for one in [*cloud.clusters, *cloud.instances]}
        for one in world.strangers:
            trial.expect("who: a stranger is left alone", one.name in here, one.name)
        told = Counter(
            str(one["thing"]) for one in trial.life.notifications if one["kind"] == "stranger"
        )
        hurt = trial.went_wrong(BROKEN) + trial.went_wrong(frozenset({"before", "after"}))
        if world.strangers and not hurt and self.trial.life.reaped:
            trial.expect(
                "told: strangers once each",
                set(told.values()) == {1} and len(told) == len(world.strangers),
                told,
            )
        for one in world.orphans:
            overdue = trial.now >= trial.orphans_due() + 1800
            gone = one.name not in here
            trial.expect(
                "who: what outlived its run goes", gone or not overdue or hurt > 0, one.name
            )

    def _lasted(self, run: Run) -> None:
        trial = self.trial
        assert run.closed_at is not None
        over = run.closed_at - run.hard_deadline_at
        outage = sum(one.lasts for one in trial.seam.struck)
        # A sweep that dies follows no dead teardown: the next one, a period later, may.
        outage += REAP_EVERY * sum("reap_runs" in one.who for one in trial.seam.struck)
        trial.expect("time: closed", over <= 2 * 3600 + outage, over)
        trial.expect(
            "money: billed no longer than it lasted",
            all(one.until is not None and one.until <= run.closed_at + 61 for one in run.usage),
        )
        paid = sum(
            (one.until or 0) - one.since for one in run.usage if one.resource == "accelerators"
        )
        trained = any(job.mode == "train" for job in trial.life.cloud.jobs)
        trial.expect("money: a training is billed", paid > 0 or not trained or not trial.is_smooth)
