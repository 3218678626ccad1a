"""The engine: deployed workflows and their executions, in one event loop.

Time, HTTP, connectors and tokens are injected. On asyncio's own loop it runs in real time; on
``virtual.VirtualLoop`` the same engine runs in virtual time.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from workflows_engine import connectors as builtin_connectors
from workflows_engine import filters, limits
from workflows_engine.connector_call import ConnectorCall
from workflows_engine.deployment import Deployment, check_argument, check_env, check_labels
from workflows_engine.errors import ApiError, error
from workflows_engine.execution import Execution
from workflows_engine.ports import ConnectorHandler, HttpAnswer, HttpCall, HttpHandler, TokenSource
from workflows_engine.scope import Scope
from workflows_engine.values import imported, printable, to_json
from workflows_engine.virtual import VirtualLoop
from workflows_engine.workflow import Workflow

_LOG = logging.getLogger("workflows")

# Calls nest 20 deep, each with its own nested steps; Python's default is too shallow for that.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 4000))


LogSink = Callable[[Execution, str, Any], None]


def _local_token(auth: dict[str, Any], _url: str) -> str:
    return f"local-{auth['type'].lower()}"


class Engine:
    """Deploys workflows and runs executions of them; must be used inside a running event loop.

    :param clock: gives Unix time; by default the running virtual loop's, else the wall clock.
    :param http: answers http.* calls; by default aiohttp does, in real time only.
    :param connectors: handlers by connector name or pattern (``googleapis.container.*``).
    :param endpoints: base URL by service, for the built-in connectors (``cloudbuild``, ``gke``).
        One that gives NotImplemented leaves the call to the built-in connector.
    :param on_callback: called with the engine, URL and method of each new callback endpoint.
    :param env: environment variables of every workflow.
    :param seed: decides ids, the order of parallel branches and nothing else.
    :param history: how many step entries an execution keeps; 0 is fastest.
    :param detail: step entries know their place and their result too.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] | None = None,
        http: HttpHandler | None = None,
        connectors: Mapping[str, ConnectorHandler] | None = None,
        endpoints: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        project: str = "local-project",
        project_number: str = "123456789012",
        location: str = "us-central1",
        service_account: str = "workflows@local-project.iam.gserviceaccount.com",
        seed: int | str = 0,
        base_url: str = "https://workflowexecutions.googleapis.com",
        token_source: TokenSource = _local_token,
        on_log: LogSink | None = None,
        on_callback: Callable[[Engine, str, str], None] | None = None,
        history: int = 1000,
        detail: bool = False,
        max_concurrent: int = limits.CONCURRENT_EXECUTIONS,
        max_backlog: int = limits.BACKLOG,
    ) -> None:
        self.now = clock or _clock()
        self._http = http
        self._connectors = dict(connectors or {})
        self.endpoints = {name: url.rstrip("/") for name, url in (endpoints or {}).items()}
        self._env = dict(env or {})
        self.project = project
        self.project_number = project_number
        self.location = location
        self.service_account = service_account
        self.base_url = base_url.rstrip("/")
        self.token_source = token_source
        self._on_log = on_log
        self._on_callback = on_callback
        self._history = history
        self._detail = detail
        self._max_concurrent = max_concurrent
        self._max_backlog = max_backlog
        self._seed = seed
        self._random = random.Random(f"ids {seed}")
        self._deployments: dict[str, list[Deployment]] = {}
        self._executions: dict[str, Execution] = {}
        self._by_workflow: dict[str, list[Execution]] = {}
        self._queue: deque[Execution] = deque()
        self._active = 0
        self._created = 0
        self.faults: list[tuple[Execution, BaseException]] = []

    # Workflows

    def parent(self) -> str:
        """The location's resource name."""
        return f"projects/{self.project}/locations/{self.location}"

    def deploy(
        self,
        name: str,
        workflow: Workflow,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        description: str = "",
        extra: Mapping[str, Any] | None = None,
    ) -> Deployment:
        """Create or update a workflow; running executions keep the revision they began with."""
        variables = {**self._env, **(env or {})}
        check_env(variables)
        check_labels(dict(labels or {}))
        revisions = self._deployments.setdefault(name, [])
        suffix = f"{self._random.getrandbits(12):03x}"
        now = self.now()
        deployment = Deployment(
            id=name,
            name=f"{self.parent()}/workflows/{name}",
            revision_id=f"{len(revisions) + 1:06d}-{suffix}",
            text=workflow.text,
            routines=workflow.routines,
            env=variables,
            labels=dict(labels or {}),
            description=description,
            created=revisions[0].created if revisions else now,
            updated=now,
            extra=dict(extra or {}),
        )
        revisions.append(deployment)
        return deployment

    def deployment(self, name: str, revision_id: str = "") -> Deployment:
        """A deployed workflow by id or full name. Raises ApiError 404."""
        for found in reversed(self._deployments.get(_short(name), [])):
            if revision_id in ("", found.revision_id):
                return found
        raise ApiError(404, "NOT_FOUND", f"workflow {name!r} is not deployed")

    def deployments(self) -> list[Deployment]:
        """The newest revision of every workflow."""
        return [revisions[-1] for _, revisions in sorted(self._deployments.items())]

    def revisions(self, name: str) -> list[Deployment]:
        """Every revision of a workflow, newest first. Raises ApiError 404."""
        self.deployment(name)
        return self._deployments[_short(name)][::-1]

    def delete(self, name: str) -> None:
        """Delete a workflow: cancels and forgets all its executions (workflows.proto)."""
        self.deployment(name)
        for execution in self._by_workflow.pop(_short(name), []):
            execution.cancel()
            self._executions.pop(execution.id, None)
        del self._deployments[_short(name)]

    # Executions

    def create(
        self,
        name: str,
        argument: Any = None,
        labels: Mapping[str, str] | None = None,
        *,
        argument_json: str | None = None,
        call_log_level: str = "",
        overflow_buffering: bool = True,
    ) -> Execution:
        """Start an execution, or queue it when too many run.

        ``argument`` is a value, ``argument_json`` its JSON text. There is no deduplication, as
        in the service. Raises ApiError 404 (no such workflow), 400 (argument or labels), 429.
        """
        deployment = self.deployment(name)
        text = argument_json
        if text is None and argument is not None:
            text = to_json(imported(argument))
        if text is not None:
            check_argument(text)
        merged = {**deployment.labels, **(labels or {})}
        check_labels(merged)
        self._created += 1
        execution = Execution(
            self,
            deployment,
            self._new_id(),
            text,
            merged,
            f"{self._seed} execution {self._created}",
            self._history,
            self._detail,
        )
        if call_log_level:
            execution.call_log_level = call_log_level
        if self._active >= self._max_concurrent and (
            not overflow_buffering or len(self._queue) >= self._max_backlog
        ):
            raise ApiError(429, "RESOURCE_EXHAUSTED", "too many concurrent executions")
        self._executions[execution.id] = execution
        self._by_workflow.setdefault(deployment.id, []).append(execution)
        if self._active >= self._max_concurrent:
            self._queue.append(execution)
        else:
            self._active += 1
            execution.start()
        return execution

    def get(self, name: str) -> Execution:
        """An execution by full name or id. Raises ApiError 404."""
        execution = self._executions.get(_short(name))
        if execution is None or ("/" in name and execution.name != name):
            raise ApiError(404, "NOT_FOUND", f"execution {name!r} does not exist")
        return execution

    def list(self, name: str, filter: str = "", order_by: str = "") -> list[Execution]:
        """Executions of a workflow, newest first, by the API's filter and order."""
        self.deployment(name)
        newest_first = self._by_workflow.get(_short(name), [])[::-1]
        chosen = filters.compile_filter(filter)
        return filters.ordered([e for e in newest_first if chosen(e)], order_by)

    def cancel(self, name: str) -> Execution:
        """Cancel an execution. Raises ApiError 404, 400 when it has ended."""
        execution = self.get(name)
        if execution.state not in ("ACTIVE", "QUEUED"):
            raise ApiError(
                400, "FAILED_PRECONDITION", f"execution {name!r} has ended: {execution.state}"
            )
        execution.cancel()
        return execution

    def callback(
        self,
        url: str,
        body: Any = None,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> int:
        """Send a request to a callback URL; gives 200, 404 (over), 405 or 429 (one waits)."""
        name, _, id_ = url.partition("?")[0].rpartition("/callbacks/")
        try:
            execution = self.get(name[name.index("projects/") :])
        except (ApiError, ValueError):
            return 404
        return execution.callbacks.send(id_, method, dict(headers or {}), dict(query or {}), body)

    async def close(self) -> None:
        """Cancel what runs and wait until it has stopped."""
        running = [e for e in self._executions.values() if e.state in ("ACTIVE", "QUEUED")]
        for execution in running:
            execution.cancel()
        await asyncio.sleep(0)

    # What executions use

    async def sleep(self, seconds: float) -> None:
        """Let seconds of the loop's time pass."""
        await asyncio.sleep(seconds)

    def timestamp(self, moment: float | None = None) -> str:
        """RFC 3339 text of a time, by default now."""
        when = self.now() if moment is None else moment
        utc = datetime.datetime.fromtimestamp(when, datetime.UTC)
        return utc.isoformat().replace("+00:00", "Z")

    async def http(self, *call: *HttpCall) -> HttpAnswer:
        """One HTTP exchange of a step. Raises RuntimeError when no handler was given."""
        if self._http is None:
            raise RuntimeError("no HTTP handler: give Engine(http=...)")
        return await self._http(*call)

    async def connect(self, scope: Scope, name: str, args: dict[str, Any]) -> Any:
        """Run a connector: an injected handler, else a built-in one."""
        handler = self._connectors.get(name)
        if handler is None:
            patterns = (p for p in self._connectors if "*" in p and fnmatchcase(name, p))
            handler = next((self._connectors[p] for p in patterns), None)
        call = ConnectorCall(scope, name, args)
        if handler is None:
            return await builtin_connectors.run(call)
        params = call.params
        plain = {key: value for key, value in args.items() if key != "connector_params"}
        try:
            async with asyncio.timeout(params.timeout):
                answer = await handler(name, imported(plain), params.given)
        except TimeoutError:
            raise error("TimeoutError", f"{name} took over {params.timeout:g} s") from None
        except ApiError as exc:
            raise builtin_connectors.refused(exc) from None
        if answer is NotImplemented:
            return await builtin_connectors.run(call)
        return imported(answer)

    def callback_created(self, url: str, method: str) -> None:
        """Tell who wants to know that an endpoint exists: who sends to it."""
        if self._on_callback is not None:
            self._on_callback(self, url, method)

    def log(self, execution: Execution, severity: str, payload: Any) -> None:
        """What sys.log writes."""
        if self._on_log is not None:
            self._on_log(execution, severity, printable(payload))

    def report(self, execution: Execution, exc: BaseException) -> None:
        """Remember a fault that is not the workflow's: of the engine or of a handler."""
        self.faults.append((execution, exc))
        _LOG.error("execution %s: internal error", execution.name, exc_info=exc)

    def ended(self, execution: Execution) -> None:
        """Called once by an execution that has ended: gives its place to the next in the queue."""
        if execution in self._queue:
            self._queue.remove(execution)
            return
        self._active -= 1
        while self._queue and self._active < self._max_concurrent:
            self._active += 1
            self._queue.popleft().start()

    def _new_id(self) -> str:
        bits = f"{self._random.getrandbits(128):032x}"
        return f"{bits[:8]}-{bits[8:12]}-{bits[12:16]}-{bits[16:20]}-{bits[20:]}"


def _clock() -> Callable[[], float]:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return time.time
    return loop.now if isinstance(loop, VirtualLoop) else time.time


def _short(name: str) -> str:
    return name.rsplit("/", 1)[-1]
