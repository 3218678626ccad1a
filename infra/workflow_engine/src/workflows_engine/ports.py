"""What the parts of a running engine ask of one another, so that none imports who uses it.

``EngineServices`` is what an execution needs of its engine; ``RunningExecution`` is what steps,
scopes, callbacks, filters and resources need of an execution. The handlers are what a program
injects to stand for the world.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

HttpAnswer = tuple[int, Mapping[str, str], Any]
# method, url, headers, query, body, auth, timeout: the arguments of an HTTP handler
HttpCall = tuple[str, str, dict[str, Any], dict[str, Any], Any, "dict[str, Any] | None", float]


class HttpHandler(Protocol):
    """Answers the HTTP calls of workflows: (status, headers, decoded body)."""

    async def __call__(
        self,
        method: str,
        url: str,
        headers: dict[str, Any],
        query: dict[str, Any],
        body: Any,
        auth: dict[str, Any] | None,
        timeout: float,
        /,
    ) -> HttpAnswer:
        """Answer one call; ``body`` is the workflow's value (or str or bytes).

        Raise HttpConnectionFailed when the request did not arrive, HttpConnectionBroken when that
        is unknown, TimeoutError when it took over ``timeout`` seconds.
        """
        ...


# async (connector name, arguments, connector_params) -> result
ConnectorHandler = Callable[[str, dict[str, Any], dict[str, Any]], Awaitable[Any]]
TokenSource = Callable[[dict[str, Any], str], "str | Awaitable[str]"]


class Recorder(Protocol):
    """Keeps what steps did."""

    def begin(self, op: Any, scope: Any) -> Any:
        """A step begins; gives its entry."""

    def end(self, entry: Any, scope: Any, signal: Any) -> None:
        """The step of an entry has ended well."""

    def fail(self, entry: Any, value: Any) -> None:
        """The step of an entry has raised ``value``."""


class CallbackSlots(Protocol):
    """The callback endpoints of an execution."""

    def create(self, method: str) -> str:
        """Open an endpoint for an HTTP method; gives its URL."""
        ...

    async def wait(self, url: Any, timeout: float) -> Any:
        """Take the payload of an endpoint; TimeoutError after ``timeout`` seconds."""


class RunningExecution(Protocol):
    """An execution as its steps, its callbacks and the API's resources see it."""

    id: str
    name: str
    revision_id: str
    argument: str | None
    labels: dict[str, str]
    state: str
    result: str | None
    error: dict[str, Any] | None
    created_time: float
    start_time: float | None
    end_time: float | None
    call_log_level: str
    steps: int
    external_steps: int
    memory: int
    pause_at: int
    random: random.Random
    current: dict[Any, Any]
    environment: dict[str, str]

    @property
    def engine(self) -> EngineServices:
        """The engine it runs in."""
        ...

    @property
    def history(self) -> Recorder | None:
        """Where its steps are kept; None: nowhere."""
        ...

    @property
    def callbacks(self) -> CallbackSlots:
        """Its callback endpoints."""
        ...

    @property
    def current_steps(self) -> list[dict[str, str]]:
        """The call stack of the main strand, outermost first."""
        ...

    def uuid(self) -> str:
        """A random id, decided by the engine's seed."""
        ...


class EngineServices(Protocol):
    """An engine as its executions and their connectors see it."""

    project: str
    project_number: str
    location: str
    service_account: str
    base_url: str
    endpoints: dict[str, str]
    token_source: TokenSource
    now: Callable[[], float]

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""

    def timestamp(self, moment: float | None = None) -> str:
        """RFC 3339 text of a time, by default now."""
        ...

    async def http(self, *call: Any) -> HttpAnswer:
        """One HTTP exchange, with the arguments of an HttpHandler."""
        ...

    async def connect(self, scope: Any, name: str, args: dict[str, Any]) -> Any:
        """Run a connector for the step that ``scope`` belongs to."""

    def create(
        self,
        name: str,
        argument: Any = None,
        labels: Mapping[str, str] | None = None,
        *,
        argument_json: str | None = None,
        call_log_level: str = "",
        overflow_buffering: bool = True,
    ) -> RunningExecution:
        """Start or queue an execution. Raises ApiError."""
        ...

    def get(self, name: str) -> RunningExecution:
        """An execution by its name. Raises ApiError 404."""
        ...

    def cancel(self, name: str) -> RunningExecution:
        """Cancel an execution. Raises ApiError."""
        ...

    def list(self, name: str, filter: str = "", order_by: str = "") -> Sequence[RunningExecution]:
        """Executions of a workflow. Raises ApiError."""
        ...

    def callback_created(self, url: str, method: str) -> None:
        """A callback endpoint of an execution exists."""

    def log(self, execution: Any, severity: str, payload: Any) -> None:
        """What sys.log writes."""

    def report(self, execution: Any, exc: BaseException) -> None:
        """A fault that is not the workflow's."""

    def ended(self, execution: Any) -> None:
        """An execution has ended; the next of the queue may run."""
