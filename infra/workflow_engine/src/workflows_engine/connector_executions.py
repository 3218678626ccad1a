"""The connector to Workflows itself: executions of this engine, unless an endpoint is injected."""

from __future__ import annotations

from typing import Any

from workflows_engine.connector_call import ConnectorCall, Operation
from workflows_engine.errors import ApiError, type_error
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
        return await create(call, call.text("parent"), call.args.get("body") or {})
    if method == "get":
        view = _given(call.args, "view", str, "FULL")
        return execution_resource(engine.get(call.text("name")), view)
    if method == "cancel":
        return execution_resource(engine.cancel(call.text("name")))
    wanted = _given(call.args, "filter", str, "")
    order = _given(call.args, "orderBy", str, "")
    try:
        found = engine.list(call.text("parent"), wanted, order)
    except ValueError as exc:  # of the filter or the order
        raise ApiError(400, "INVALID_ARGUMENT", str(exc)) from None
    page = found[: max(0, _given(call.args, "pageSize", int, 0)) or 100]
    view = _given(call.args, "view", str, "BASIC")
    return {"executions": [execution_resource(one, view) for one in page]}


_KINDS = {str: "a string", int: "an integer", bool: "a boolean", dict: "a map"}


def _given(values: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    """A field of a request. Raises ApiError 400 for one of another kind, as the API does."""
    value = values.get(name)
    if value is None:
        return default
    if type(value) is not kind:
        raise ApiError(400, "INVALID_ARGUMENT", f"{name} must be {_KINDS[kind]}")
    return value


def _labels(values: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = _given(values, "labels", dict, {})
    for name in labels:
        _given(labels, name, str, "")
    return labels


async def create(call: ConnectorCall, parent: str, body: Any) -> dict[str, Any]:
    """Create an execution in this engine, or behind the endpoint."""
    if not isinstance(body, dict):
        raise type_error(f"{call.name}: body must be a map, not {type_name(body)}")
    if "workflowexecutions" in call.engine.endpoints:
        answer = await call.api("POST", "workflowexecutions", f"/v1/{parent}/executions", {}, body)
        found: dict[str, Any] = call.answered(answer)
        return found

    # A child started by a connector is not queued over quota, unless it asks for it.
    child = call.engine.create(
        parent,
        argument_json=_given(body, "argument", str, None),
        labels=_labels(body),
        call_log_level=_given(body, "callLogLevel", str, ""),
        overflow_buffering=not _given(
            body, "disableConcurrencyQuotaOverflowBuffering", bool, True
        ),
    )
    return execution_resource(child)


async def _run(call: ConnectorCall) -> Any:
    """Start a child execution, wait for its end by the polling policy, give its result."""
    engine = call.engine
    project = call.args.get("project_id") or engine.project
    location = call.args.get("location") or engine.location
    parent = f"projects/{project}/locations/{location}/workflows/{call.text('workflow_id')}"
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
            name = call.answered(state, "name", str)
            return await call.api("GET", "workflowexecutions", f"/v1/{name}")
        return execution_resource(engine.get(state["name"]))

    def failure(state: Any) -> dict[str, Any] | None:
        if state["state"] == "SUCCEEDED":
            return None
        return {"message": f"execution {state.get('name')} ended as {state['state']}"}

    def done(state: Any) -> bool:
        return call.answered(state, "state", str) not in ("ACTIVE", "QUEUED")

    ended = Operation(done, failure, poll)
    final = await call.wait(first, ended)
    return from_json(call.answered({"result": "null", **final}, "result", str))
