"""Connectors: one call to a Google API, its retries, and the wait for its operation.

All requests go through the engine's HTTP handler, to ``https://SERVICE.googleapis.com`` or to the
endpoint injected for the service.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from workflows_engine import (
    connector_executions,
    connector_gke,
    connector_secrets,
    limits,
)
from workflows_engine.builtins import retryable
from workflows_engine.calls import request
from workflows_engine.connector_table import POSITIONAL, Row, row_for
from workflows_engine.errors import (
    ApiError,
    WorkflowError,
    error,
    http_error,
    type_error,
    value_error,
)
from workflows_engine.scope import Scope
from workflows_engine.values import from_json, type_name

_RESOURCE_NAMES = ("name", "parent", "topic", "subscription", "resource")

__all__ = ["ConnectorCall", "from_json", "refused"]


@dataclass(frozen=True)
class Params:
    """``connector_params`` with the documented defaults; times in seconds."""

    given: dict[str, Any]
    timeout: float = limits.CONNECTOR_TIMEOUT_SECONDS
    initial_delay: float = 1.0
    multiplier: float = 1.25
    max_delay: float = 60.0
    skip_polling: bool = False
    scopes: Any = None


def read_params(value: Any) -> Params:
    """Read ``connector_params``. Raises TypeError or ValueError tagged as such."""
    if value is None:
        return Params({})
    if type(value) is not dict:
        raise type_error(f"connector_params must be a map, not {type_name(value)}")
    _only("connector_params", value, ("timeout", "polling_policy", "skip_polling", "scopes"))
    policy = value.get("polling_policy") or {}
    if type(policy) is not dict:
        raise type_error(f"polling_policy must be a map, not {type_name(policy)}")
    _only("polling_policy", policy, ("initial_delay", "multiplier", "max_delay"))
    defaults = Params({})
    skip = value.get("skip_polling", False)
    if type(skip) is not bool:
        raise type_error(f"skip_polling must be bool, not {type_name(skip)}")
    return Params(
        given=value,
        timeout=_positive(
            "timeout", value, defaults.timeout, limits.CONNECTOR_TIMEOUT_MAX_SECONDS
        ),
        initial_delay=_positive("initial_delay", policy, defaults.initial_delay, 86_400),
        multiplier=_positive("multiplier", policy, defaults.multiplier, 1000),
        max_delay=_positive("max_delay", policy, defaults.max_delay, 86_400),
        skip_polling=skip,
        scopes=value.get("scopes"),
    )


def _only(where: str, value: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in value:
        if name not in names:
            raise value_error(f"{where} has no {name!r}, only {', '.join(names)}")


def _positive(name: str, values: dict[str, Any], default: float, most: float) -> float:
    value = values.get(name, default)
    if type(value) not in (int, float):
        raise type_error(f"{name} must be a number, not {type_name(value)}")
    if not 0 < value <= most:
        raise value_error(f"{name} must be above 0 and at most {most}, not {value}")
    return float(value)


def refused(exc: ApiError) -> WorkflowError:
    """The HttpError a workflow sees when an API in this process refuses."""
    body = {"error": {"code": exc.code, "message": exc.message, "status": exc.status}}
    return http_error(exc.code, {"Content-Type": "application/json"}, body)


class ConnectorCall:
    """One call of a connector by one step."""

    def __init__(self, scope: Scope, name: str, args: dict[str, Any]) -> None:
        self.scope = scope
        self.name = name
        self.execution = scope.frame.execution
        self.engine = self.execution.engine
        self.params = read_params(args.get("connector_params"))
        self.args = {key: value for key, value in args.items() if key != "connector_params"}

    async def run(self) -> Any:
        """Run to the end of the operation. Raises TimeoutError, OperationError, HttpError."""
        try:
            async with asyncio.timeout(self.params.timeout):
                return await self._run()
        except TimeoutError:
            raise error(
                "TimeoutError", f"{self.name} took over {self.params.timeout:g} s"
            ) from None
        except ApiError as exc:
            raise refused(exc) from None

    async def _run(self) -> Any:
        if self.name.startswith("gke."):
            return await connector_gke.run(self)
        if connector_executions.handles(self):
            return await connector_executions.run(self)
        if self.name in POSITIONAL:
            return await connector_secrets.run(self)
        row = row_for(self.name, self.args)
        if row is None:
            raise error(
                "SystemError",
                f"this engine does not know the connector {self.name}: give it a handler, or a "
                "row in connector_table.py",
            )
        answer = await self._send(row)
        operation = row.operation
        if operation == "google?":  # known from its name only: look at what came back
            named = isinstance(answer, dict) and "operations/" in str(answer.get("name", ""))
            operation = "google" if named else None
        if operation is None or self.params.skip_polling:
            return answer
        return await self.wait(answer, _KINDS[operation](self, row))

    async def _send(self, row: Row) -> Any:
        used: set[str] = {"body"}

        def fill(match: re.Match[str]) -> str:
            name = match[1]
            used.add(name)
            value = self.args.get(name)
            if not isinstance(value, str | int) or isinstance(value, bool):
                raise type_error(f"{self.name} needs the argument {name!r}")
            # A resource name keeps its slashes; a single id inside a longer path does not.
            return quote(str(value), safe="/" if name in _RESOURCE_NAMES else "")

        path = re.sub(r"\{(\w+)\}", fill, row.path)
        query = {
            key: value
            for key, value in self.args.items()
            if key not in used and value is not None and not isinstance(value, dict)
        }
        return await self.api(row.method, row.service, path, query, self.args.get("body"))

    async def api(
        self,
        method: str,
        service: str,
        path: str,
        query: dict[str, Any] | None = None,
        body: Any = None,
    ) -> Any:
        """One request to a service, with the connectors' retries; gives the body."""
        base = self.engine.endpoints.get(service, f"https://{service}.googleapis.com")
        return (await self.exchange(method, base + path, query, body))["body"]

    async def exchange(
        self, method: str, url: str, query: dict[str, Any] | None = None, body: Any = None
    ) -> dict[str, Any]:
        """One request with retries: the idempotent policy for GET, else the other one."""
        policy = "http.default_retry_predicate"
        if method != "GET":
            policy += "_non_idempotent"
        auth: dict[str, Any] = {"type": "OAuth2"}
        if self.params.scopes is not None:
            auth["scopes"] = self.params.scopes
        delay = 1.0
        for retry in range(6):
            try:
                return await request(
                    self.scope,
                    method,
                    url,
                    query=query,
                    body=body,
                    auth=auth,
                    timeout=limits.HTTP_TIMEOUT_MAX_SECONDS,
                )
            except WorkflowError as exc:
                if retry == 5 or not retryable(policy, exc.value):
                    raise
            await self.engine.sleep(delay)
            delay = min(delay * 1.25, 60.0)
        raise AssertionError("unreachable")

    async def wait(self, first: Any, operation: Operation) -> Any:
        """Poll an operation by the polling policy until it is done; each poll is a step."""
        state = first
        delay = min(self.params.initial_delay, self.params.max_delay)
        while not operation.done(state):
            await self.engine.sleep(delay)
            delay = min(delay * self.params.multiplier, self.params.max_delay)
            self.execution.steps += 1
            state = await operation.poll(state)
        failure = operation.failure(state)
        if failure is not None:
            raise error(
                "OperationError",
                f"{self.name}: {failure.get('message', failure)}",
                operation=state,
                error=failure,
            )
        return state


@dataclass(frozen=True)
class Operation:
    """How to see that an operation is done, how it failed, and how to ask again."""

    done: Callable[[Any], bool]
    failure: Callable[[Any], dict[str, Any] | None]
    poll: Callable[[Any], Awaitable[Any]]


def _field(call: ConnectorCall, state: Any, name: str) -> Any:
    """A field of an operation; ResponseTypeError when what came back is no operation."""
    if not isinstance(state, dict) or name not in state:
        raise error("ResponseTypeError", f"{call.name}: the answer is not an operation: {state!r}")
    return state[name]


def _google(call: ConnectorCall, row: Row) -> Operation:
    async def poll(state: Any) -> Any:
        name = _field(call, state, "name")
        version = row.path.split("/")[1]
        return await call.api("GET", row.service, f"/{version}/{quote(name, safe='/')}")

    def done(state: Any) -> bool:
        _field(call, state, "name")
        return bool(state.get("done", False))

    return Operation(done, lambda state: state.get("error"), poll)


def _container(call: ConnectorCall, row: Row) -> Operation:
    where = re.match(
        r"/v1/(projects/[^/]+/(?:locations|zones)/[^/]+)",
        re.sub(r"\{(\w+)\}", lambda m: str(call.args.get(m[1], "")), row.path),
    )
    location = where[1] if where else ""

    async def poll(state: Any) -> Any:
        name = _field(call, state, "name")
        return await call.api("GET", "container", f"/v1/{location}/operations/{name}")

    def failure(state: Any) -> dict[str, Any] | None:
        if state.get("error"):
            return dict(state["error"])
        return {"message": state["statusMessage"]} if state.get("statusMessage") else None

    return Operation(lambda state: _field(call, state, "status") == "DONE", failure, poll)


def _compute(call: ConnectorCall, row: Row) -> Operation:
    async def poll(state: Any) -> Any:
        path = re.sub(r"^https?://[^/]+", "", _field(call, state, "selfLink"))
        return await call.api("GET", row.service, path)

    def failure(state: Any) -> dict[str, Any] | None:
        errors = (state.get("error") or {}).get("errors")
        return None if not errors else {"message": errors[0].get("message", ""), "errors": errors}

    return Operation(lambda state: _field(call, state, "status") == "DONE", failure, poll)


def _bigquery(call: ConnectorCall, _row: Row) -> Operation:
    async def poll(state: Any) -> Any:
        ref = _field(call, state, "jobReference")
        path = f"/bigquery/v2/projects/{ref['projectId']}/jobs/{ref['jobId']}"
        location = ref.get("location")
        query = {"location": location} if location else None
        return await call.api("GET", "bigquery", path, query)

    def done(state: Any) -> bool:
        status = _field(call, state, "status")
        return isinstance(status, dict) and status.get("state") == "DONE"

    return Operation(done, lambda state: state["status"].get("errorResult"), poll)


_KINDS: dict[str, Callable[[ConnectorCall, Row], Operation]] = {
    "google": _google,
    "container": _container,
    "compute": _compute,
    "bigquery": _bigquery,
}
