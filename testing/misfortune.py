"""Lets the faults of a schedule happen in a life: arranged before it, or struck while it runs."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from lustrum.core.errors import ServiceError
from workflows_engine.errors import HttpConnectionBroken, HttpConnectionFailed

from testing.checks.trial import FEW, Trial
from testing.cloud import Cluster, Deploy, LustreInstance, unavailable
from testing.fake_cluster import FakeKubernetes
from testing.ledger import MemoryLedger
from testing.life import Life
from testing.schedule import Fault, Schedule
from testing.seam import Killed, Strike

CALLS = ("call", "list", "shape", "denied", "kill", "meanwhile", "reaper")
NEW_FIELDS = ("lustrum_version", "secured", "unfit", "full_since", "wandb", "schema_version")
DELIVERIES = 30  # of a request that is not acknowledged


def arrange(life: Life, schedule: Schedule) -> None:
    """Make the world of a life as its schedule says."""
    cloud, world = life.cloud, schedule.world
    cloud.deploys = [Deploy(**one) for one in world.deploys]
    cloud.destroys, cloud.exports = list(world.destroys), list(world.exports)
    cloud.export_seconds, cloud.linger = world.export_seconds, world.linger
    cloud.scripts = {number: world.script(number) for number in range(1, 12)}
    life.deliver_events, life.event_delay = world.deliver_events, world.event_delay
    if world.skew:
        now = life.services.now
        life.services.now = lambda: now() + world.skew  # type: ignore[method-assign]
    for number, one in enumerate(life.services.settings.slots if world.slots else ()):
        if one.region == "us-east1":
            life.services.memory.lease_slot([one.name], f"rl-00000000c{number}")
    for thing in [*world.strangers, *world.orphans]:
        if thing.kind == "cluster":
            kubernetes = FakeKubernetes(life.agenda, thing.name, lambda session: None)  # type: ignore[arg-type, return-value]
            cluster = Cluster(thing.name, "us-east1-b", dict(thing.labels), kubernetes, "RUNNING")
            cloud.clusters.append(cluster)
        else:
            instance = LustreInstance(thing.name, "us-east1-b", dict(thing.labels))
            instance.state = "ACTIVE"
            cloud.instances.append(instance)


class Misfortune:
    """Strikes a life's faults at their moments, and remembers in which state each one did."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.life = trial.life
        self.cells: set[tuple[str, str]] = set()  # state, kind: faults that are no failed call
        self._tasks: set[Any] = set()
        self._waiting = list(trial.schedule.faults)
        self._entries: dict[str, int] = {}  # how often each state was entered

    def watch(self, run_id: str, state: str) -> None:
        """A run entered a state: what waits for it is on its way."""
        self.trial.seam.state = state
        self._entries[state] = self._entries.get(state, 0) + 1
        for fault in [one for one in self._waiting if one.state == state]:
            if fault.detail.get("entry", 1) > self._entries[state]:
                continue
            self._waiting.remove(fault)
            self._later(fault.after, fault)

    def begin(self) -> None:
        """The run exists: what belongs to its last hour is on its way."""
        run = self.trial.record()
        if run is None:
            return
        self.watch(run.run_id, str(run.state))
        left = max(0.0, run.deadline_at - 3600 - self.trial.now)
        for fault in [one for one in self._waiting if one.state == "LAST_HOUR"]:
            self._waiting.remove(fault)
            self._later(left + fault.after, fault)

    def _later(self, seconds: float, fault: Fault) -> None:
        async def wait() -> None:
            await asyncio.sleep(seconds)
            await self._strike(fault)

        task = asyncio.ensure_future(wait())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def end(self) -> None:
        """Nothing more goes wrong."""
        for task in self._tasks:
            task.cancel()

    async def _strike(self, fault: Fault) -> None:
        trial, life = self.trial, self.life
        life._catch_up()
        run = trial.record()
        if run is None or run.is_over:
            return
        if fault.kind in CALLS:
            self._arm(fault)
            return
        if fault.kind in ("user", "forged", "alert"):
            self.cells.add((str(run.state), fault.kind))
        await getattr(self, "_" + fault.kind.replace(" ", "_"))(fault.detail)

    def _arm(self, fault: Fault) -> None:
        detail = fault.detail
        found = {key: value for key, value in detail.items() if key != "act"}
        strike = Strike(**found, fault=fault.kind)
        if "act" in detail:
            strike.meanwhile = lambda: self._meanwhile(detail["act"])
        self.trial.seam.arm(strike)

    def _meanwhile(self, act: str) -> None:
        """Something else acts while a function is in the middle of its work."""
        trial, life = self.trial, self.life
        if act == "reap":
            with suppress(Killed):
                life.reap()
        elif act in ("cancel", "extend"):
            life.deliver_request(self._request(act, 1), f"meanwhile-{act}")
        else:
            life.kill("teardown")
            with suppress(Killed):  # it is the sweep that dies, not the function in the middle
                life.reap()
            run = trial.record()
            living = [one for one in life.living() if "/teardown/" in one]
            if run is not None and living:
                call = {"run_id": run.run_id, "execution": living[-1], "step": "claim_teardown"}
                life.call_function("advance_run", call)

    def _request(self, what: str, number: int) -> dict[str, Any] | bytes:
        run_id = self.trial.run_id
        if what in ("cancel", "discard"):
            return {"action": "cancel", "run_id": run_id, "export": what == "cancel"}
        if what == "extend":
            return {"action": "extend", "run_id": run_id, "hours": 1}
        if what == "extend much":
            return {"action": "extend", "run_id": run_id, "hours": 100}
        if what == "costly":
            return {"limits": {"hours": 150, "cost_usd": 10 + number / 1000}}
        return f'{{"nodez": {number}}}'.encode()

    async def _user(self, detail: dict[str, Any]) -> None:
        what, number = detail["what"], detail["number"]
        if what == "again":
            await self.deliver(self.trial.schedule.request, "1", **self.trial.schedule.attributes)
            return
        if what in ("garbage", "costly"):
            self.trial.refused.add(f"user-{what}-{number}")
        for _ in range(1 + detail["twice"]):
            await self.deliver(self._request(what, number), f"user-{what}-{number}")

    async def deliver(self, request: Any, message_id: str, **attributes: str) -> None:
        """Deliver a request until it is acknowledged, as Pub/Sub does."""
        for _ in range(DELIVERIES):
            if self.life.deliver_request(request, message_id, **attributes):
                return
            await asyncio.sleep(30)

    async def _lose(self, detail: dict[str, Any]) -> None:
        name, side, left = detail["function"], detail["side"], [detail["times"]]

        def gate(function: str, call: dict[str, Any]) -> None:
            if function == name and left[0] > 0:
                left[0] -= 1
                self.trial.seam.note("lose", who=name)
                raise (
                    HttpConnectionFailed("refused")
                    if side == "before"
                    else (HttpConnectionBroken("the answer was lost"))
                )

        (self.life.before if side == "before" else self.life.after).append(gate)

    async def _execution(self, detail: dict[str, Any]) -> None:
        self.trial.seam.note("execution")
        self.life.kill(detail["workflow"])

    async def _second_teardown(self, detail: dict[str, Any]) -> None:
        run = self.trial.record()
        if run is not None and detail.get("workflow") == "rl-run":
            self._second_life(run.run_id)
            return
        if run is None or (run.teardown is None and not detail["final"]):
            return  # only leave_zone asks for a teardown that is not final
        if run.teardown is None and run.cancel is None:
            return  # nobody begins one beside a living run
        self.trial.seam.note("second teardown")
        argument = {"run_id": run.run_id, "final": detail["final"] and run.teardown is not None}
        with suppress(ServiceError):
            self.life.services.workflows.create("teardown", run.run_id, argument)  # type: ignore[attr-defined]

    def _second_life(self, run_id: str) -> None:
        """Another execution of rl_run, as a redelivered start may create it."""
        self.trial.seam.note("second teardown")
        with suppress(ServiceError):
            self.life.services.workflows.create("rl-run", run_id, {"run_id": run_id})  # type: ignore[attr-defined]

    async def _away(self, detail: dict[str, Any]) -> None:
        memory: MemoryLedger = self.life.services.memory
        self.trial.seam.note("away", lasts=detail["seconds"])
        memory.broken = unavailable("Firestore")
        try:
            await asyncio.sleep(detail["seconds"])
        finally:
            memory.broken = None

    async def _contention(self, detail: dict[str, Any]) -> None:
        self.trial.seam.note("contention")
        if detail["conflicts"] > FEW:
            self.trial.seam.note("many writers")
        self.life.services.memory.conflicts += detail["conflicts"]

    def _cluster(self) -> Cluster | None:
        found = [one for one in self.life.cloud.clusters if one.name == self.trial.run_id]
        return found[0] if found else None

    async def _preempt(self, detail: dict[str, Any]) -> None:
        cluster = self._cluster()
        if cluster is not None and cluster.kubernetes.nodes:
            self.trial.seam.note("preempt")
            cluster.kubernetes.preempt(detail["count"], leaves_events=detail["events"])

    async def _head(self, detail: dict[str, Any]) -> None:
        cluster = self._cluster()
        if cluster is not None and cluster.kubernetes.head is not None:
            self.trial.seam.note("head", lasts=detail["seconds"])
            cluster.kubernetes.lose_head(detail["seconds"])

    async def _room(self, detail: dict[str, Any]) -> None:
        cluster = self._cluster()
        if cluster is not None:
            self.trial.seam.note("room")
            cluster.kubernetes.room = detail["room"]

    async def _alert(self, detail: dict[str, Any]) -> None:
        incident = {
            "version": "1.2",
            "incident": {
                "incident_id": f"i{detail['number']}",
                "state": "open",
                "started_at": int(self.trial.now),
                "resource": {"labels": {"instance_id": self.trial.run_id}},
                "policy_name": "Lustre",
                "policy_user_labels": {"lustrum-action": detail["action"]},
                "summary": "it fills up",
            },
        }
        for _ in range(1 + detail["twice"]):
            await self.life._deliver(json.dumps(incident).encode(), {})

    async def _forged(self, detail: dict[str, Any]) -> None:
        run = self.trial.record()
        if run is None:
            return
        what, step = detail["what"], detail["step"]
        event: dict[str, Any] = {
            "type": "checkpoint.saved",
            "run_id": run.run_id,
            "attempt": run.attempt,
            "step": step,
            "checkpoint": {"step": step, "bytes": 1, "files": 1, "seconds": 1.0},
            "event_id": f"forged-{what}-{step}",
        }
        if what == "other run":
            event["run_id"] = "rl-eeeeeeeeee"
        elif what == "later attempt":
            event["attempt"] = run.attempt + 1
        elif what == "earlier attempt":
            event.update(type="job.completed", attempt=max(0, run.attempt - 1), exit_code=0)
            event["run_id"] = run.run_id if run.attempt > 1 else "rl-eeeeeeeeee"
        elif what == "replay":
            kept = self.life.services.memory._events.get(run.run_id, {})
            jobs = [one for one in kept.values() if "type" in one]
            event = {**jobs[len(jobs) // 2], "at": None} if jobs else event | {"run_id": "rl-e"}
            event["class"] = event.pop("failure", None)
        elif what == "build":
            notice = {
                "id": "build-999",
                "status": "SUCCESS",
                "steps": [],
                "substitutions": {"_RUN_ID": run.run_id, "_ACTION": "deploy"},
            }
            attributes = {"buildId": "build-999", "status": "SUCCESS"}
            await self.life._deliver(json.dumps(notice).encode(), attributes)
            return
        elif what == "no end":
            event = {
                "type": "job.completed",
                "run_id": run.run_id,
                "attempt": run.attempt,
                "exit_code": 0,
                "event_id": "forged-end",
            }
        elif what == "junk":
            await self.life._deliver(b"\xff{", {})
            return
        await self.life._deliver(json.dumps(event).encode(), {})


def age_record(life: Life, run_id: str) -> None:
    """Store the record as an early release wrote it: without the fields that came later."""
    found = json.loads(life.record(run_id).model_dump_json())
    for name in NEW_FIELDS:
        found.pop(name, None)
    life.services.memory.replace_text(run_id, json.dumps(found))
