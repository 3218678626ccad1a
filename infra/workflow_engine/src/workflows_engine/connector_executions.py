"""The connector to Workflows itself: executions of this engine, unless an endpoint is injected."""

from __future__ import annotations

from typing import Any

from workflows_engine.connector_call import ConnectorCall, Operation
from workflows_engine.errors import type_error
from workflows_engine.resources import execution_resource
from workflows_engine.values import from_json, to_json, type_name

_PREFIX = "googleapis.workflowexecutions.v1.projects.locations.workflows.executions."
_METHODS = ("run", "create", "get", "list", "cancel")


def named(name: str) -> bool:
    """Whether this module knows a connector."""
    return name.startswith(_PREFIX) and name.removeprefix(_PREFIX) in _METHODS


def handles(call: ConnectorCall) -> bool:
    """Whether this module answers the call; `run` it always does."""
    if not named(call.name):
        return False
    return call.name == f"{_PREFIX}run" or "workflowexecutions" not in call.engine.endpoints


async def run(call: ConnectorCall) -> Any:
    """Run the call."""
    method = call.name.removeprefix(_PREFIX)
    if method == "run":
        return await _run(call)

    engine = call.engine
    if method == "create":
        return await create(call, _text(call, "parent"), call.args.get("body") or {})
    if method == "get":
        return execution_resource(engine.get(_text(call, "name")), call.args.get("view", "FULL"))
    if method == "cancel":
        return execution_resource(engine.cancel(_text(call, "name")))
    found = engine.list(
        _text(call, "parent"), call.args.get("filter", ""), call.args.get("orderBy", "")
    )
    page = found[: call.args.get("pageSize") or 100]
    view = call.args.get("view", "BASIC")
    return {"executions": [execution_resource(one, view) for one in page]}


def _text(call: ConnectorCall, name: str) -> str:
    value = call.args.get(name)
    if not isinstance(value, str):
        raise type_error(f"{call.name} needs the argument {name!r}")
    return value


async def create(call: ConnectorCall, parent: str, body: Any) -> dict[str, Any]:
    """Create an execution in this engine, or behind the endpoint."""
    if not isinstance(body, dict):
        raise type_error(f"{call.name}: body must be a map, not {type_name(body)}")
    if "workflowexecutions" in call.engine.endpoints:
        answer = await call.api("POST", "workflowexecutions", f"/v1/{parent}/executions", {}, body)
        return dict(answer)

    # A child started by a connector is not queued over quota, unless it asks for it.
    child = call.engine.create(
        parent,
        argument_json=body.get("argument"),
        labels=body.get("labels"),
        call_log_level=body.get("callLogLevel", ""),
        overflow_buffering=not body.get("disableConcurrencyQuotaOverflowBuffering", True),
    )
    return execution_resource(child)


async def _run(call: ConnectorCall) -> Any:
    """Start a child execution, wait for its end by the polling policy, give its result."""
    engine = call.engine
    project = call.args.get("project_id") or engine.project
    location = call.args.get("location") or engine.location
    parent = f"projects/{project}/locations/{location}/workflows/{_text(call, 'workflow_id')}"
    body: dict[str, Any] = {
        "argument": to_json(call.args.get("argument")),
        "labels": call.args.get("labels") or {},
    }
    for name in ("callLogLevel", "disableConcurrencyQuotaOverflowBuffering"):
        if name in call.args:
            body[name] = call.args[name]
    first = await create(call, parent, body)
    if call.params.skip_polling:
        return first

    async def poll(state: Any) -> Any:
        if "workflowexecutions" in engine.endpoints:
            return await call.api("GET", "workflowexecutions", f"/v1/{state['name']}")
        return execution_resource(engine.get(state["name"]))

    def failure(state: Any) -> dict[str, Any] | None:
        if state["state"] == "SUCCEEDED":
            return None
        return {"message": f"execution {state['name']} ended as {state['state']}"}

    ended = Operation(lambda state: state["state"] not in ("ACTIVE", "QUEUED"), failure, poll)
    final = await call.wait(first, ended)
    return from_json(final.get("result") or "null")
