"""The order and the pace of what is asked of the functions, and what the reaper says."""

from __future__ import annotations

from typing import Any

from testing.checks.trial import Trial

ORDER = (
    "stop_ray_job",
    "release_accelerators",
    "export_checkpoints",
    "delete_ray_cluster",
    "advance_run:destroy",
    "take_inventory",
    "close_run",
)
BUGS = ("TypeError", "AttributeError", "NameError", "AssertionError", "UnboundLocalError")
SLACK = 150.0  # seconds: a poll, a retry, the latency of some calls


class Calls:
    """Judges what workflows ask for, and how long it takes."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.done: dict[str, list[str]] = {}  # execution -> what it asked for, in order
        self.empty: dict[str, int] = {}  # execution -> empty inventories in a row
        self.entered: dict[str, float] = {}
        self.released: set[str] = set()  # executions that were told: no accelerator is left
        self.sweeps = 0
        self.told_of: set[str] = set()
        self.build_ended: float | None = None

    def called(self, function: str, step: str, execution: str) -> None:
        """A function is about to be asked."""
        trial = self.trial
        name = f"{function}:{step}" if function == "advance_run" else function
        self.bounds()
        if name not in ORDER or "/teardown/" not in execution:
            return
        done = self.done.setdefault(execution, [])
        place = ORDER.index(name)
        if name == "release_accelerators" and done[-1:] == ["export_checkpoints"]:
            # What trained on during the export is released after it, and exported once more.
            unheard = trial.went_wrong(frozenset({"lose"}))  # released, and the answer was lost
            again = execution not in self.released or bool(unheard)
            trial.expect("order: released again for a cause", again, done)
            done.pop()
        if done:
            trial.expect(
                "order: a teardown goes forward",
                ORDER.index(done[-1]) <= place or (done[-1] == name),
                f"{name} after {done[-1]}",
            )
        if not done or done[-1] != name:
            done.append(name)
        if name in ("advance_run:destroy", "close_run") and len(done) > 1:
            upto = ORDER[: place + 1]
            placed = done[0] == "stop_ray_job"
            trial.expect(
                "order: a teardown skips nothing", not placed or tuple(done) == upto, done
            )
        run = trial.record()
        if name == "advance_run:destroy" and run is not None and run.placement is not None:
            trial.expect(
                "order: a teardown stops, releases, exports", done[0] == "stop_ray_job", done
            )
        if name == "close_run":
            unheard = trial.went_wrong(frozenset({"kill", "after"}))  # counted, not answered
            trial.expect(
                "order: empty twice before it closes",
                self.empty.get(execution, 0) >= 2 - bool(unheard),
            )

    def replied(self, function: str, step: str, execution: str, reply: Any) -> None:
        """A function answered."""
        if function == "release_accelerators" and reply.get("released"):
            self.released.add(execution)
        if function == "take_inventory":
            empty = bool(reply.get("empty"))
            if "empty" in reply:
                self.empty[execution] = self.empty.get(execution, 0) + 1 if empty else 0
            if empty:
                left = self.trial.left()
                blind = self.trial.went_wrong(frozenset({"hide", "stale"}))
                self.trial.expect("truth: an empty inventory", not left or blind > 0, left)
        self.bounds()

    def swept(self, status: int, answer: Any) -> None:
        """The reaper looked around."""
        trial, run = self.trial, self.trial.record()
        self.sweeps += 1
        self.bounds()
        problems, acted = answer["problems"], answer["acted"]
        bugs = [one for one in problems if any(bug in one for bug in BUGS)]
        shape = trial.went_wrong(frozenset({"shape"}))
        trial.expect("reaper: a part of it is broken", not bugs or shape > 0, bugs)
        world = trial.schedule.world
        named = any(one.name.startswith("rl-") for one in world.strangers)  # people must look
        if trial.is_quiet and not world.orphans and not named:
            late = run is None or trial.is_due(run) or trial.now >= run.hard_deadline_at
            trial.expect("reaper: has nothing to do", late or not acted, acted)
            trial.expect("reaper: has nothing to say", late or not problems, problems)
        overdue = [
            f"{one.name} until {one.labels.get('lustrum-expires')}"
            for one in [*trial.life.cloud.clusters, *trial.life.cloud.instances]
            if one.labels.get("managed-by") == "lustrum"
            and trial.now > float(one.labels.get("lustrum-expires") or 0) + 1900
        ]
        blind = trial.went_wrong(frozenset({"hide", "stale", "partial"}))
        trial.expect("reaper: is not silent", not overdue or status != 200 or blind > 0, overdue)

    def bounds(self) -> None:
        """Hold what time allows, at this moment."""
        trial, run = self.trial, self.trial.record()
        if run is None or run.is_over:
            return
        now = trial.now
        state = str(run.state)
        since = run.history[-1].at if run.history else run.created_at
        narrow = trial.is_smooth and not trial.schedule.world.slow_calls
        extra = SLACK if narrow else 4 * 3600.0
        timing = run.plan.timing
        wait = run.plan.capacity_wait_minutes * 60
        if run.teardown is None:
            late = now - run.deadline_at
            trial.expect(
                "time: the deadline ends a run", late <= timing.doorbell + extra + 61, late
            )
            if run.cancel is not None:
                trial.expect("time: a cancel is honoured", now - run.cancel.at <= extra, state)
            most = {
                "REQUESTED": 60.0,
                "QUEUED": wait + 60,
                "PROVISIONING": timing.build + timing.doorbell,
                "STARTING_HEAD": timing.head,
                "STAGING": timing.stage,
                "WAITING_FOR_GPUS": wait,
                "RECOVERING": wait,
            }.get(state)
            if most is not None:
                trial.expect(f"time: {state}", now - since <= most + extra, now - since)
            if state == "TRAINING":
                self._training(run, narrow)
        elif state == "RELEASING":
            trial.expect("time: RELEASING", now - since <= 2700 + extra + 600, now - since)
        elif state == "VERIFYING" and narrow and not trial.left():
            trial.expect("time: VERIFYING what is empty", now - since <= 7200, now - since)
        if run.teardown is not None:
            lapsed = now - run.teardown.lease_until
            dead = run.teardown.execution not in trial.life.living()
            outage = trial.went_wrong(frozenset({"away", "denied"})) * 3600.0
            failing = trial.went_wrong(frozenset({"kill", "before", "after", "shape"})) * 700.0
            trial.expect(
                "time: a dead teardown is followed",
                not dead or lapsed <= 1900 + outage + failing,
                lapsed,
            )
        over = now - run.hard_deadline_at
        trial.expect("time: everything ends", over <= 6 * 3600, over)

    def _training(self, run: Any, narrow: bool) -> None:
        trial, now, timing = self.trial, self.trial.now, run.plan.timing
        job = next(
            (
                one
                for one in reversed(trial.life.cloud.jobs)
                if run.job is not None and one.identity == run.job.submission_id
            ),
            None,
        )
        if job is not None and job.status == "RUNNING" and not job.cause:
            still = now - max(job.moved, job.began, run.progress.at)
            most = timing.stall + timing.doorbell + (SLACK if narrow else 4 * 3600.0)
            trial.expect("time: a hang is noticed", still <= most, still)
        if job is None or job.ended is None or not narrow:
            return
        late = now - job.ended
        heard = job.told and trial.life.deliver_events and trial.schedule.world.event_delay <= 5
        bound = timing.evidence + 60 if heard else timing.doorbell + timing.evidence + SLACK
        if job.cause in ("program", "goal"):
            trial.expect(
                "time: the end of a job is heard" if heard else "time: it is looked for",
                late <= bound + SLACK * 0.5,
                late,
            )
