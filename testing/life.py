"""Whole runs in virtual time: the real workflows, the real functions, a fake cloud.

The engine runs `workflows/*.yaml`; its HTTP calls reach `functions/*/main.py` directly; Pub/Sub
is a delivery after a second. A run of six hours takes some tens of milliseconds.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, nullcontext, redirect_stdout, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

from lustrum.adapters.builds import Build
from lustrum.core import names
from lustrum.core.errors import ServiceError
from lustrum.core.record import Run
from lustrum.handlers import reactions as event_steps
from lustrum.handlers import start as request_steps
from lustrum.show import index, live, report
from workflows_engine import virtual
from workflows_engine.engine import Engine
from workflows_engine.errors import ApiError, HttpConnectionBroken
from workflows_engine.execution import Execution

from testing.agenda import Agenda
from testing.deployed import FUNCTIONS, function, workflow
from testing.engine_workflows import EngineWorkflows
from testing.seam import Killed, Seam
from testing.services import PROJECT, REGION, FakeServices, push

REAP_EVERY = 600.0


@dataclass
class Body:
    """A request as a function sees it."""

    data: bytes

    def get_data(self) -> bytes:
        return self.data


@dataclass
class Life:
    """One project over time.

    ``before`` and ``after`` see every call of a function by a workflow and may raise: before,
    the request never arrives; after, its answer is lost.
    """

    services: FakeServices = field(default_factory=FakeServices)
    deliver_events: bool = True
    event_delay: float = 1.0
    reaps: bool = True
    latency: float = 0.3
    draws_pages: bool = False  # the real pages of living runs, not one line each
    executions: list[Execution] = field(default_factory=list)
    rings: list[int] = field(default_factory=list)
    calls: list[tuple[float, str, str]] = field(default_factory=list)
    replies: list[tuple[str, int, Any]] = field(default_factory=list)
    reaped: list[tuple[int, Any]] = field(default_factory=list)
    states: list[tuple[float, str, str]] = field(default_factory=list)
    watchers: list[Callable[[str, str], None]] = field(default_factory=list)
    before: list[Callable[[str, dict[str, Any]], None]] = field(default_factory=list)
    after: list[Callable[[str, dict[str, Any]], None]] = field(default_factory=list)
    log: io.StringIO = field(default_factory=io.StringIO)  # what the functions printed
    seam: Seam | None = None
    on_call: Callable[[str, str, str], None] = lambda *call: None  # function, step, execution
    on_reply: Callable[[str, str, str, Any], None] = lambda *reply: None
    on_trigger: Callable[[Mapping[str, str]], None] = lambda subs: None
    on_sweep: Callable[[int, Any], None] = lambda *answer: None
    _first_published: dict[str, float] = field(default_factory=dict)
    _modules: dict[str, Any] = field(default_factory=dict)
    _tasks: set[Any] = field(default_factory=set)
    _closing: bool = False
    _seen: dict[str, str] = field(default_factory=dict)

    @property
    def cloud(self) -> Any:
        return self.services.cloud

    @property
    def agenda(self) -> Agenda:
        return self.services.agenda

    @property
    def notifications(self) -> list[dict[str, Any]]:
        return self.services.outbox.notifications

    def run(self, main: Callable[[Life], Awaitable[Any]]) -> Any:
        """Play a story in virtual time."""

        async def play() -> Any:
            self._open()
            try:
                return await main(self)
            finally:
                await self.engine.close()
                self._closing = True
                self._changed.set()
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)

        with ExitStack() as stack:
            stack.enter_context(patch.object(report, "render", self._render))
            if not self.draws_pages:
                stack.enter_context(patch.object(live, "render_live", self._render_live))
                stack.enter_context(patch.object(index, "render_index", lambda *_: "<html>"))
            stack.enter_context(redirect_stdout(self.log))
            return virtual.run(play, epoch=self.agenda.time)

    def _open(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, virtual.VirtualLoop)
        self.loop = loop
        self._changed = asyncio.Event()
        self.agenda.wake = self._changed.set
        parent = f"projects/{PROJECT}/locations/{REGION}"
        self.engine = Engine(
            http=self._http,
            connectors={"googleapis.cloudbuild.v1.projects.locations.triggers.run": self._trigger},
            env={
                "LUSTRUM_FUNCTIONS_URL": "https://functions.test",
                "LUSTRUM_BUILD_TRIGGER": f"{parent}/triggers/lustrum",
            },
            project=PROJECT,
            location=REGION,
            history=0,
        )
        self.engine.deploy("rl-run", workflow("rl_run"))
        self.engine.deploy("teardown", workflow("teardown"))
        self.services.workflows = EngineWorkflows(self.engine, self.executions, self.rings)
        for name in FUNCTIONS:
            module = function(name)
            module.services = lambda: self.services
            self._modules[name] = module
        if self.seam is not None:
            self.seam.adopt(self.services)
        self.cloud.published = self._published
        self.cloud.build_changed = self._build_changed
        self._spawn(self._drive())
        if self.reaps:
            self._spawn(self._reap_forever())

    # What a story does.

    async def publish(
        self, request: Mapping[str, Any] | bytes, message_id: str = "1", **attributes: str
    ) -> dict[str, Any]:
        """Deliver one message of lustrum-requests."""
        body = self._pushed(request, message_id, attributes)
        with self._acting("start_run"):
            return request_steps.handle_push(self.services, body)

    def deliver_request(
        self, request: Mapping[str, Any] | bytes, message_id: str, **attributes: str
    ) -> bool:
        """Push one message of lustrum-requests; say whether it was acknowledged."""
        body = self._pushed(request, message_id, attributes)
        try:
            with self._acting("start_run"):
                request_steps.handle_push(self.services, body)
        except (Exception, Killed):
            return False
        return True

    def _pushed(
        self, request: Mapping[str, Any] | bytes, message_id: str, attributes: Mapping[str, str]
    ) -> bytes:
        """Return a delivery; a message keeps its publish time, however often it is delivered."""
        self._catch_up()
        data = request if isinstance(request, bytes) else json.dumps(request)
        first = self._first_published.setdefault(message_id, self.services.now())
        when = datetime.fromtimestamp(first, UTC).isoformat()
        return push(data, message_id, attributes, when)

    async def start(self, request: Mapping[str, Any] | None = None, message_id: str = "1") -> str:
        """Publish a request and return the run's id."""
        return str((await self.publish(request or {}, message_id))["run_id"])

    async def until(
        self, condition: Callable[[], bool], hours: float = 48.0, every: float = 1.0
    ) -> None:
        """Wait for something, in virtual time; fail when it does not come."""
        end = self.loop.now() + hours * 3600
        while not condition():
            if self.loop.now() > end:
                raise AssertionError(f"it did not happen within {hours:g} h\n{self.story()}")
            await asyncio.sleep(every)
            self._catch_up()

    async def until_state(self, run_id: str, state: str, hours: float = 48.0) -> None:
        """Wait until a run was in a state."""
        await self.until(lambda: any(one[1:] == (run_id, state) for one in self._look()), hours)

    async def until_closed(self, run_id: str, hours: float = 72.0) -> Run:
        """Wait for the end of a run and of its teardown; return its record."""
        await self.until(lambda: self.record(run_id).is_over, hours, every=20.0)
        await self.pass_time(120)
        return self.record(run_id)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)
        self._catch_up()

    def record(self, run_id: str) -> Run:
        """Return a run's record, also while the ledger is away."""
        return self.services.memory.peek(run_id)

    def kill(self, workflow_name: str) -> None:
        """End the living executions of a workflow without a word."""
        for one in self.executions:
            if one.deployment.id == workflow_name and one.state in ("ACTIVE", "QUEUED"):
                one.cancel()

    def living(self) -> list[str]:
        """Return the executions that still run."""
        return [one.name for one in self.executions if one.state in ("ACTIVE", "QUEUED")]

    def reap(self) -> tuple[int, Any]:
        """Sweep once, now."""
        self._catch_up()
        with self._acting("reap_runs"):
            text, status, _ = self._modules["reap_runs"].reap_runs(Body(b"{}"))
        self.reaped.append((status, json.loads(text)))
        self.on_sweep(*self.reaped[-1])
        return self.reaped[-1]

    def story(self) -> str:
        """Return what happened, for a failed test."""
        start = self.states[0][0] if self.states else 0.0
        lines = [f"{when - start:9.0f} {run} {state}" for when, run, state in self.states]
        lines += [f"living: {self.living()}", f"left: {self.cloud.left()}"]
        lines += [f"{name} {status} {reply}" for name, status, reply in self.replies[-12:]]
        for one in self.executions:
            if one.state == "FAILED":
                lines.append(f"{one.deployment.id} failed: {one.failure}")
        lines += [f"fault: {fault!r}" for _, fault in self.engine.faults]
        return "\n".join(lines)

    # How it runs.

    @staticmethod
    def _render(run: Run, events: Any) -> str:
        """The report draws plots for seconds; its own tests do that."""
        return f"<html>{run.run_id} {run.outcome} {len(events)}</html>"

    @staticmethod
    def _render_live(run: Run, now: float, **more: Any) -> str:
        return f"<html>{run.run_id} {run.state} {now:.0f}</html>"

    def _look(self) -> list[tuple[float, str, str]]:
        for run_id in self.services.memory.run_ids():
            state = str(self.record(run_id).state)
            if self._seen.get(run_id) != state:
                self._seen[run_id] = state
                self.states.append((self.loop.now(), run_id, state))
                for watcher in self.watchers:
                    watcher(run_id, state)
        return self.states

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _catch_up(self) -> None:
        self.agenda.reach(self.loop.now())

    async def _drive(self) -> None:
        while not self._closing:
            self._changed.clear()
            self._catch_up()
            moment = self.agenda.next_time()
            if moment is None:
                await self._changed.wait()
                continue
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), max(moment - self.loop.now(), 0.001))

    async def _reap_forever(self) -> None:
        while True:
            await asyncio.sleep(REAP_EVERY)
            try:
                self.reap()
            except Killed:
                pass
            except Exception as error:  # the scheduler sees a 500 and comes again
                told = {"acted": [], "problems": [f"crashed: {type(error).__name__}: {error}"]}
                self.on_sweep(500, told)
            self._look()

    async def _http(
        self, method: str, url: str, headers: Any, query: Any, body: Any, auth: Any, timeout: float
    ) -> tuple[int, Mapping[str, str], Any]:
        name = url.rsplit("/", 1)[-1].replace("-", "_")
        assert auth == {"type": "OIDC"}, "functions are private"
        await asyncio.sleep(self.latency)
        self._catch_up()
        call = json.loads(json.dumps(body))
        self.calls.append((self.loop.now(), name, str(call.get("step") or "")))
        self.on_call(name, str(call.get("step") or ""), str(call.get("execution") or ""))
        for gate in self.before:
            gate(name, call)
        text, status, _ = self.call_function(name, call)
        self.replies.append((f"{name} {call.get('step') or ''}", status, json.loads(text)))
        self._look()
        self.on_reply(
            name,
            str(call.get("step") or ""),
            str(call.get("execution") or ""),
            self.replies[-1][2],
        )
        for gate in self.after:
            gate(name, call)
        await asyncio.sleep(self.latency)
        return status, {"content-type": "application/json"}, json.loads(text)

    def call_function(self, name: str, call: Mapping[str, Any]) -> Any:
        """Let a function answer a call of a workflow.

        Raises:
            HttpConnectionBroken: its instance died.
        """
        try:
            with self._acting(name, str(call.get("step") or ""), str(call.get("execution") or "")):
                return getattr(self._modules[name], name)(Body(json.dumps(call).encode()))
        except Killed:
            raise HttpConnectionBroken("the instance died") from None

    def _acting(self, name: str, step: str = "", execution: str = "") -> Any:
        return nullcontext() if self.seam is None else self.seam.acting(name, step, execution)

    async def _trigger(self, name: str, args: dict[str, Any], params: dict[str, Any]) -> Any:
        await asyncio.sleep(self.latency)
        self._catch_up()
        self.on_trigger(args["body"]["source"]["substitutions"])
        try:
            identity = self.cloud.run_trigger(args["body"]["source"]["substitutions"])
        except ServiceError as error:
            raise ApiError(error.status or 503, "UNAVAILABLE", str(error)) from None
        await asyncio.sleep(self.latency)
        return {"name": f"operations/{identity}", "metadata": {"build": {"id": identity}}}

    def _published(self, event: dict[str, Any]) -> None:
        if self.deliver_events:
            data = json.dumps(event).encode()
            self._spawn(self._deliver(data, {}, self.event_key(str(event["run_id"]))))

    def _build_changed(self, build: Build, subs: Mapping[str, str]) -> None:
        if not self.deliver_events:
            return
        notice = {
            "id": build.build_id,
            "status": build.status,
            "steps": [],
            "tags": build.tags,
            "substitutions": dict(subs),
        }
        attributes = {"buildId": build.build_id, "status": build.status}
        self._spawn(self._deliver(json.dumps(notice).encode(), attributes))

    def event_key(self, run_id: str) -> str:
        """Return the key that is mounted in a run's pods."""
        for cluster in self.cloud.clusters:
            secret = cluster.kubernetes.objects.get(("Secret", names.TOKENS_SECRET))
            if cluster.name == run_id and secret is not None:
                return str(secret["stringData"].get("event_key", ""))
        return ""

    async def _deliver(self, data: bytes, attributes: dict[str, str], key: str = "") -> None:
        for attempt in range(8):
            await asyncio.sleep(self.event_delay if attempt == 0 else 10)
            self._catch_up()
            try:
                with self._acting("react_to_event"):
                    body = push(data, f"m{len(self.rings)}", attributes, key=key)
                    event_steps.handle_push(self.services, body)
            except (Exception, Killed):
                continue  # Pub/Sub delivers again
            self._look()
            return
