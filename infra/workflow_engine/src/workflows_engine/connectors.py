"""The built-in connectors: which request each makes, and how its operation is waited for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from workflows_engine import connector_executions, connector_gke, connector_secrets
from workflows_engine.connector_call import ConnectorCall, Operation
from workflows_engine.connector_table import POSITIONAL, Row, row_for
from workflows_engine.errors import ApiError, WorkflowError, error, http_error, type_error

_RESOURCE_NAMES = ("name", "parent", "topic", "subscription", "resource")


def refused(exc: ApiError) -> WorkflowError:
    """The HttpError a workflow sees when an API in this process refuses."""
    body = {"error": {"code": exc.code, "message": exc.message, "status": exc.status}}
    return http_error(exc.code, {"Content-Type": "application/json"}, body)


def knows(name: str, args: dict[str, Any]) -> bool:
    """Whether a connector is built in: it has a module or a row, or its name says its request."""
    if name in connector_gke.NAMES or name in POSITIONAL or connector_executions.named(name):
        return True
    return row_for(name, args) is not None


async def run(call: ConnectorCall) -> Any:
    """Run to the end of the operation. Raises TimeoutError, OperationError, HttpError."""
    try:
        async with asyncio.timeout(call.params.timeout):
            return await _run(call)
    except TimeoutError:
        raise error("TimeoutError", f"{call.name} took over {call.params.timeout:g} s") from None
    except ApiError as exc:
        raise refused(exc) from None


async def _run(call: ConnectorCall) -> Any:
    if call.name.startswith("gke."):
        return await connector_gke.run(call)
    if connector_executions.handles(call):
        return await connector_executions.run(call)
    if call.name in POSITIONAL:
        return await connector_secrets.run(call)
    row = row_for(call.name, call.args)
    if row is None:
        raise error(
            "SystemError",
            f"this engine does not know the connector {call.name}: give it a handler, or a "
            "row in connector_table.py",
        )
    answer = await _send(call, row)
    operation = row.operation
    if operation == "google?":  # known from its name only: look at what came back
        named = isinstance(answer, dict) and "operations/" in str(answer.get("name", ""))
        operation = "google" if named else None
    if operation is None or call.params.skip_polling:
        return answer
    return await call.wait(answer, _KINDS[operation](call, row))


async def _send(call: ConnectorCall, row: Row) -> Any:
    used: set[str] = {"body"}

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        used.add(name)
        value = call.args.get(name)
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise type_error(f"{call.name} needs the argument {name!r}")
        # A resource name keeps its slashes; a single id inside a longer path does not.
        return quote(str(value), safe="/" if name in _RESOURCE_NAMES else "")

    path = re.sub(r"\{(\w+)\}", fill, row.path)
    query = {
        key: value
        for key, value in call.args.items()
        if key not in used and value is not None and not isinstance(value, dict)
    }
    return await call.api(row.method, row.service, path, query, call.args.get("body"))


def _field(call: ConnectorCall, state: Any, name: str) -> Any:
    """A field of an operation; ResponseTypeError when what came back is no operation."""
    if not isinstance(state, dict) or name not in state:
        raise error("ResponseTypeError", f"{call.name}: the answer is not an operation: {state!r}")
    return state[name]


def _google(call: ConnectorCall, row: Row) -> Operation:
    async def poll(state: Any) -> Any:
        name = call.answered(state, "name", str)
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
            found = state["error"]
            return found if isinstance(found, dict) else {"message": found}
        return {"message": state["statusMessage"]} if state.get("statusMessage") else None

    return Operation(lambda state: _field(call, state, "status") == "DONE", failure, poll)


def _compute(call: ConnectorCall, row: Row) -> Operation:
    async def poll(state: Any) -> Any:
        path = re.sub(r"^https?://[^/]+", "", call.answered(state, "selfLink", str))
        return await call.api("GET", row.service, path)

    def failure(state: Any) -> dict[str, Any] | None:
        failed = state.get("error")
        errors = failed.get("errors") if isinstance(failed, dict) else failed
        if not errors:
            return None
        first = errors[0] if isinstance(errors, list) else errors
        message = first.get("message", "") if isinstance(first, dict) else first
        return {"message": message, "errors": errors}

    return Operation(lambda state: _field(call, state, "status") == "DONE", failure, poll)


def _bigquery(call: ConnectorCall, _row: Row) -> Operation:
    async def poll(state: Any) -> Any:
        ref = call.answered(state, "jobReference")
        project, job = (call.answered(ref, name, str) for name in ("projectId", "jobId"))
        path = f"/bigquery/v2/projects/{project}/jobs/{job}"
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
