"""Every change of a record: who may make it, when, and what it may say."""

from __future__ import annotations

from lustrum.core.record import Run

from testing.checks.trial import Trial
from testing.ray_job import Job
from testing.schedule import ENDING, LIVE

NOTED = {"usage", "wandb", "job", "placement", "unfit"}  # by a call that a cancel overtook
NEXT = {
    "REQUESTED": {"QUEUED", "PROVISIONING"},
    "QUEUED": {"PROVISIONING"},
    "PROVISIONING": {"STARTING_HEAD"},
    "STARTING_HEAD": {"STAGING"},
    "STAGING": {"WAITING_FOR_GPUS", "STARTING_HEAD"},
    "WAITING_FOR_GPUS": {"TRAINING", "STARTING_HEAD"},
    "TRAINING": {"RECOVERING"},
    "RECOVERING": {"TRAINING"},
}
LIMITS = {  # how often a run goes on after a failure of a class
    "HEAD_LOST": 3,
    "JOB_LOST": 3,
    "HANG": 3,
    "USER_OOM": 1,
    "BUILD_ERROR": 1,
    "INFRA_TRANSIENT": 3,
    "IMAGE_ERROR": 0,
    "LUSTRE_NETWORK": 0,
    "LUSTRE_CONFIG": 0,
    "LUSTRE_FULL": 0,
    "CONFIG": 0,
    "ACCESS": 0,
    "DEADLINE": 0,
    "BUDGET": 0,
    "UNKNOWN": 0,
}
LOST = ("PREEMPTED", "NODE_LOST", "HEAD_LOST")
TEARDOWN_FUNCTIONS = (
    "stop_ray_job",
    "release_accelerators",
    "export_checkpoints",
    "delete_ray_cluster",
    "take_inventory",
    "close_run",
)
LIFE = (
    "advance_run:place",
    "advance_run:enter",
    "advance_run:failed",
    "submit_ray_job",
    "stage_data",
    "apply_ray_cluster",
)
LOOKS = ("react_to_event", "check_ray_job", "stop_ray_job", "export_checkpoints", "close_run")
ENDS = ("close_run", "reap_runs")
# Field -> who may change it. A field that is not named here is nobody's business.
WRITERS: dict[str, tuple[str, ...]] = {
    "state": (
        "advance_run:place",
        "advance_run:enter",
        "advance_run:teardown",
        "advance_run:destroy",
        *ENDS,
    ),
    "outcome": ENDS,
    "closed_at": ENDS,
    "cancel": ("start_run",),
    "deadline_at": ("start_run",),
    "hard_deadline_at": ("start_run", "export_checkpoints"),
    "extended_by": ("start_run",),
    "plan": ("start_run", "export_checkpoints"),
    "request": (),
    "run_id": (),
    "key": (),
    "created_at": (),
    "execution": ("advance_run:claim", "reap_runs"),
    "placement": ("advance_run:place", "stage_data", "close_run"),
    "zone_attempts": ("advance_run:place",),
    "zones_tried": ("advance_run:place", "advance_run:failed"),
    "regions_closed": ("advance_run:failed",),
    "attempt": ("submit_ray_job",),
    "job": ("advance_run:place", "submit_ray_job", *LOOKS),
    "checkpoint": LOOKS,
    "progress": LOOKS,
    "export": ("export_checkpoints",),
    "secured": ("export_checkpoints",),
    "teardown": (
        "advance_run:claim_teardown",
        "advance_run:teardown",
        "advance_run:destroy",
        "take_inventory",
        "close_run",
        "reap_runs",
    ),
    "mishaps": ("advance_run:failed", "check_ray_job"),
    "full_since": ("react_to_event", "check_ray_job", "close_run"),
    "report_uri": ENDS,
    "log_uri": ("stop_ray_job",),
}


class Writes:
    """Judges every compare-and-set."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.completed: dict[str, float] = {}

    def see(self, before: Run, after: Run) -> None:
        """Judge one change."""
        trial, who = self.trial, self.trial.seam.who
        changed = {name for name in type(after).model_fields if _differ(before, after, name)}
        for name in changed & set(WRITERS):
            trial.expect(f"writer: {name}", who.name in WRITERS[name], f"{who.name} wrote it")
        self._guards(before, after, changed, who.name, who.execution)
        self._monotonic(before, after, changed)
        if "state" in changed:
            self._moved(before, after, who.name)
        if len(after.mishaps) > len(before.mishaps):
            self._failed(before, after)
        if "progress" in changed and who.name in ("react_to_event", "check_ray_job"):
            self._told(after)
        if "teardown" in changed and after.teardown is not None:
            self._counted(before, after)
            self._claimed(before, after, who.execution)
        if "reason" in changed and after.reason and not before.reason:
            self._concluded(before, after, who.name)
        self._truth(after, changed)
        self._money(before, after)

    def _guards(
        self, before: Run, after: Run, changed: set[str], who: str, execution: str
    ) -> None:
        trial = self.trial
        if before.state in ("CLOSED", "REJECTED"):
            more = changed - {"report_uri"}
            trial.expect("guard: nothing changes after the end", not more, f"{who}: {more}")
        begun = trial.seam.who.at + trial.schedule.world.skew - 1
        noted = changed <= NOTED and "attempt" not in changed
        meanwhile = before.cancel is not None and before.cancel.at >= begun
        if who in LIFE and changed - {"usage"} and not (noted and meanwhile):
            trial.expect(
                "guard: rl_run after a cancel", before.cancel is None, f"{who}: {changed}"
            )
            trial.expect("guard: rl_run in a teardown", before.teardown is None, who)
            trial.expect(
                "guard: rl_run past the deadline", trial.now < before.deadline_at + 61, who
            )
            trial.expect(
                "guard: rl_run of another execution", before.execution in (None, execution), who
            )
        strict = changed & {"state", "placement", "outcome"}
        if who in TEARDOWN_FUNCTIONS and strict and "outcome" not in changed:
            mine = before.teardown is not None and before.teardown.execution == execution
            trial.expect("guard: teardown of another execution", mine, f"{who}: {changed}")
        if who in ("advance_run:teardown", "advance_run:destroy") and changed:
            mine = before.teardown is not None and before.teardown.execution == execution
            trial.expect("guard: teardown step of another execution", mine, who)
        if "execution" in changed and before.execution is not None:
            alive = before.execution in trial.life.living()
            trial.expect("guard: a living execution keeps its run", not alive, who)

    def _monotonic(self, before: Run, after: Run, changed: set[str]) -> None:
        expect = self.trial.expect
        expect("only up: attempt", before.attempt <= after.attempt <= before.attempt + 1)
        expect(
            "only up: zone attempt",
            before.zone_attempts <= after.zone_attempts <= before.zone_attempts + 1,
        )
        expect("only up: deadline", after.deadline_at >= before.deadline_at)
        if before.cancel is not None:
            expect("stays: cancel", after.cancel == before.cancel)
        if "reason" in changed and before.reason:
            expect("stays: the first cause", after.state == "CLOSED", after.reason)
        was, now = before.safe_export, after.safe_export
        if was is not None:
            expect(
                "stays: a verified export",
                now is not None and now.step >= was.step,
                f"{was.step} -> {now}",
            )
        if before.teardown is not None and after.teardown is not None and before.teardown.final:
            expect("stays: a final teardown", after.teardown.final)
        if "extended_by" in changed or "deadline_at" in changed or "hard_deadline_at" in changed:
            added = after.hard_deadline_at - before.hard_deadline_at
            one = len(after.extended_by) - len(before.extended_by)
            if before.teardown is None:
                same = abs(after.deadline_at - before.deadline_at - added) < 1
                hours = abs((after.plan.hours - before.plan.hours) * 3600 - added) < 1
                expect("extend: once, both deadlines, the plan", one == 1 and same and hours)
            else:  # an export that needs longer: the training's deadline is past
                told = one == 1 or self.trial.seam.who.name == "export_checkpoints"
                same = after.deadline_at == before.deadline_at
                expect("extend: while it ends, the export alone", told and same and added > 0)

    def _moved(self, before: Run, after: Run, who: str) -> None:
        trial, was, to = self.trial, str(before.state), str(after.state)
        if to in ENDING:
            trial.expect("state: a teardown moves it", after.teardown is not None, f"{was}->{to}")
            if was in ENDING and after.teardown is not None:
                forward = ENDING.index(to) > ENDING.index(was)
                anew = after.teardown.claimed_at >= before.history[-1].at  # another's, since
                trial.expect("state: a teardown goes forward", forward or anew, f"{was}->{to}")
        elif to == "CLOSED":
            left, unseen = trial.left(), trial.unseen()
            trial.expect("closed: nothing is there", not left, left)
            trial.expect("closed: everything was seen", not unseen, unseen)
            ended = [one for one in after.usage if one.until is None]
            trial.expect("closed: nothing is billed on", not ended)
            trial.expect("closed: it says how and why", bool(after.outcome and after.reason))
        elif was in ENDING:
            again = to in ("QUEUED", "PROVISIONING") and before.teardown is None
            trial.expect("state: the next zone after a teardown", again, f"{was}->{to} by {who}")
        else:
            trial.expect("state: in order", to in NEXT.get(was, ()), f"{was}->{to} by {who}")
        if to == "PROVISIONING":
            self._placed(before, after)

    def _placed(self, before: Run, after: Run) -> None:
        trial, placement = self.trial, after.placement
        assert placement is not None
        region = placement.zone.rsplit("-", 1)[0]
        full = {one.zone for one in before.mishaps if one.failure == "STOCKOUT"}
        trial.expect("zone: not one that is full", placement.zone not in full, placement.zone)
        trial.expect("zone: not of a closed region", region not in before.regions_closed, region)
        trial.expect("zone: one of the request", placement.zone in after.plan.zones)
        slot = next(
            one for one in trial.life.services.settings.slots if one.name == placement.slot
        )
        trial.expect("zone: a slot of its region", slot.region == region, slot.name)
        held = trial.life.services.memory.slot_holders().get(placement.slot)
        trial.expect("zone: the slot is leased", held == after.run_id, held)
        things = [one for one in trial.left() if not one.startswith("build")]
        trial.expect(
            "zone: the one before is empty",
            not things or trial.went_wrong(frozenset({"hide", "stale"})) > 0,
            things,
        )
        if before.zone_attempts and not any(
            one.failure in ("STOCKOUT", "QUOTA", "BUILD_ERROR", "INFRA_TRANSIENT", "UNKNOWN")
            for one in before.mishaps
        ):
            trial.expect("zone: another one without a cause", False, before.mishaps)

    def _failed(self, before: Run, after: Run) -> None:
        trial, new = self.trial, after.mishaps[-1]
        limit = LIMITS.get(new.failure)
        if limit is not None:
            trial.expect(
                "limit: a failure class", after.times(new.failure) <= limit + 1, new.failure
            )
        job = self._job(after)
        if job is None or trial.seam.who.name != "check_ray_job":
            return
        lost = {"preempt", "room", "head"}
        heard = not trial.schedule.world.script(after.attempt).mute
        if trial.is_smooth and heard and not trial.went_wrong(frozenset(lost)):
            trial.expect("cause: a finished training is no failure", job.cause != "goal")
        if new.failure in ("USER_ERROR", "USER_OOM"):
            trial.expect(
                "cause: blamed the program",
                job.cause == "program",
                f"{new.failure}, but {job.cause or 'nothing'} ended it",
            )
        if new.failure == "PREEMPTED" or (new.failure == "NODE_LOST" and trial.is_smooth):
            trial.expect("cause: a node was lost", trial.went_wrong(frozenset(lost)) > 0)
        if new.failure == "HANG" and trial.is_smooth:
            stalled = trial.schedule.world.script(after.attempt)
            trial.expect(
                "cause: it hung",
                stalled.hang_at is not None or stalled.mute or bool(job.cause),
                job.cause,
            )

    def _concluded(self, before: Run, after: Run, who: str) -> None:
        """Given up: was there a cause?"""
        trial = self.trial
        if who == "reap_runs":
            trial.expect(
                "who: the reaper ends a run",
                not trial.is_smooth or trial.is_due(after),
                after.reason,
            )
        if who != "check_ray_job" or not after.mishaps or after.failure is None:
            return
        last = after.mishaps[-1]
        limit, count = LIMITS.get(last.failure), after.times(last.failure)
        if limit is not None and count > limit:
            return
        if after.attempt >= after.plan.attempts or trial.now >= after.deadline_at - 61:
            return
        if after.cancel is not None or after.full_since is not None:
            return
        blamed = [one for one in trial.life.cloud.jobs if one.mode == "train"][-2:]
        looped = len(blamed) == 2 and all(
            one.cause in ("program", "") or last.failure not in LOST for one in blamed
        )
        trial.expect("given up: with a cause", looped and last.failure not in LOST, after.reason)

    def _claimed(self, before: Run, after: Run, execution: str) -> None:
        trial, held = self.trial, before.teardown
        mine = after.teardown
        assert mine is not None
        if (
            held is None or held.lease_until != mine.lease_until
        ):  # else a problem is noted, no more
            lease = mine.lease_until - trial.seam.who.at  # a slow call claims as of its beginning
            trial.expect("lease: bounded", -61 < lease <= 1861, lease)
        if held is None or held.execution == mine.execution:
            return
        alive = held.execution in trial.life.living() and held.lease_until > trial.now + 61
        trial.expect("lease: taken from a living teardown", not alive, held.execution)

    def _truth(self, after: Run, changed: set[str]) -> None:
        """What the record says of the training must have happened."""
        trial = self.trial
        if not changed & {"checkpoint", "progress", "saves"}:
            return
        files = [one.files for one in trial.life.cloud.instances if one.name == after.run_id]
        if not files:
            return
        safe = after.safe_export.step if after.safe_export else 0
        saved = max([safe, *(one.newest for one in files)])
        reached = max([safe, *(max(one.reached, one.newest) for one in files)])
        told = after.checkpoint.step if after.checkpoint else 0
        trial.expect("truth: a checkpoint nobody saved", told <= saved, f"{told} > {saved}")
        trial.expect(
            "truth: a step nobody reached",
            after.progress.step <= max(reached, trial.schedule.world.steps_before),
            after.progress.step,
        )

    def _told(self, after: Run) -> None:
        """A record that knows of a later step knows of the checkpoint before it."""
        trial, world = self.trial, self.trial.schedule.world
        heard = world.event_delay <= 5 and not world.script(after.attempt).mute
        if not (trial.is_smooth and heard) or "forged" in trial.schedule.kinds:
            return
        saved = [
            step
            for one in trial.life.cloud.instances
            if one.name == after.run_id
            for step in one.files.checkpoints
            if step < after.progress.step - 1 and step <= one.files.newest
        ]
        known = after.checkpoint.step if after.checkpoint else 0
        newest = max(saved, default=0)
        trial.expect("truth: a checkpoint it was told of", known >= newest, f"{known} < {newest}")

    def _counted(self, before: Run, after: Run) -> None:
        """An inventory counts as empty only if every place was seen."""
        assert after.teardown is not None
        was = before.teardown.inventories if before.teardown is not None else 0
        if after.teardown.inventories > was:
            unseen = self.trial.unseen()
            self.trial.expect("truth: unseen is not empty", not unseen, unseen)
            self.trial.expect(
                "truth: one look counts once", after.teardown.inventories == was + 1, was
            )

    def _money(self, before: Run, after: Run) -> None:
        trial, plan = self.trial, after.plan
        if plan.hours != before.plan.hours:
            trial.expect("money: within the limit", plan.worst_cost <= plan.cost_limit + 0.01)
            most = plan.hourly_cost * plan.hours
            trial.expect("money: the worst case grows", plan.worst_cost >= most * 0.99, most)
            trial.expect("money: at most a week", plan.hours <= 168)
        open_ = {one.resource for one in after.usage if one.until is None}
        closed = {one.resource for one in before.usage if one.until is None} - open_
        cloud = trial.life.cloud
        nodes = [node for one in cloud.clusters for node in one.kubernetes.nodes]
        if "accelerators" in closed:
            blind = trial.went_wrong(frozenset({"hide", "stale"}))
            trial.expect("money: accelerators are billed while they run", not nodes or blind > 0)
        if "lustre" in closed and after.teardown is not None:
            blind = trial.went_wrong(frozenset({"hide", "stale", "partial"}))
            here = [one for one in cloud.instances if one.name == after.run_id]
            trial.expect("money: Lustre is billed while it is there", not here or blind > 0)

    def _job(self, run: Run) -> Job | None:
        identity = run.job.submission_id if run.job else ""
        return next(
            (one for one in reversed(self.trial.life.cloud.jobs) if one.identity == identity), None
        )


def _differ(before: Run, after: Run, name: str) -> bool:
    return bool(getattr(before, name) != getattr(after, name))


def is_live(run: Run) -> bool:
    """Say whether rl_run has the run."""
    return str(run.state) in LIVE and run.teardown is None and run.cancel is None
