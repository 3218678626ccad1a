"""The Workflows and Executions APIs as functions from JSON to JSON; REST and gRPC call these."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from workflows_engine.engine import Engine
from workflows_engine.errors import ApiError, FaultySource
from workflows_engine.execution import Execution
from workflows_engine.resources import (
    callback_resource,
    entry_resource,
    execution_resource,
    workflow_resource,
)
from workflows_engine.workflow import Workflow

T = TypeVar("T")
Json = dict[str, Any]

_WORKFLOW_TYPE = "type.googleapis.com/google.cloud.workflows.v1.Workflow"


def invalid(message: str) -> ApiError:
    """The refusal of a request that is not valid."""
    return ApiError(400, "INVALID_ARGUMENT", message)


def _page(
    items: Sequence[T], size: int, token: str, most: int, default: int
) -> tuple[Sequence[T], str]:
    """A page of items and the token of the next one."""
    if size < 0:
        raise invalid("page_size must not be negative")
    size = min(size or default, most)
    try:
        start = int(base64.urlsafe_b64decode(token).decode()) if token else 0
    except ValueError:
        raise invalid(f"page_token {token!r} is not one of this API") from None
    end = start + size
    more = base64.urlsafe_b64encode(str(end).encode()).decode() if end < len(items) else ""
    return items[start:end], more


class Api:
    """The two APIs of one engine. Raises ApiError."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._operations: dict[str, Json] = {}
        self._triggered: dict[tuple[str, str], str] = {}

    # Executions

    def create_execution(self, parent: str, body: Json) -> Json:
        """Start an execution. Raises ApiError 404 (no workflow), 400 (argument), 429."""
        execution = self._engine.create(
            self._owned(parent),
            argument_json=body.get("argument") or None,
            labels=body.get("labels") or {},
            call_log_level=body.get("callLogLevel") or "",
            overflow_buffering=not body.get("disableConcurrencyQuotaOverflowBuffering", False),
        )
        return execution_resource(execution)

    def get_execution(self, name: str, view: str = "") -> Json:
        """An execution, in the view BASIC or FULL. Raises ApiError 404."""
        return execution_resource(self._engine.get(name), view or "FULL")

    def list_executions(
        self,
        parent: str,
        page_size: int = 0,
        page_token: str = "",
        view: str = "",
        filter_: str = "",
        order_by: str = "",
    ) -> Json:
        """A page of a workflow's executions, newest first. Raises ApiError 404, 400."""
        found = self._engine.list(self._owned(parent), filter_, order_by)
        view = view if view == "FULL" else "BASIC"
        page, token = _page(found, page_size, page_token, 100 if view == "FULL" else 1000, 100)
        return {
            "executions": [execution_resource(execution, view) for execution in page],
            "nextPageToken": token,
        }

    def cancel_execution(self, name: str) -> Json:
        """Cancel an execution. Raises ApiError 404, and 400 when it has ended."""
        return execution_resource(self._engine.cancel(name))

    def export_data(self, name: str) -> Json:
        """What an execution holds, as text. Raises ApiError 404."""
        return {"data": str(execution_resource(self._engine.get(name)))}

    def list_callbacks(self, name: str, page_size: int = 0, page_token: str = "") -> Json:
        """A page of an execution's callback endpoints. Raises ApiError 404, 400 (page)."""
        execution = self._engine.get(name)
        page, token = _page(list(execution.callbacks), page_size, page_token, 100, 100)
        callbacks = [callback_resource(execution, callback) for callback in page]
        return {"callbacks": callbacks, "nextPageToken": token}

    def list_step_entries(self, name: str, page_size: int = 0, page_token: str = "") -> Json:
        """A page of the newest step entries, oldest first. Raises ApiError 404, 400 (page)."""
        execution = self._engine.get(name)
        entries = list(execution.history.entries) if execution.history is not None else []
        page, token = _page(entries, page_size, page_token, 1000, 1000)
        return {
            "stepEntries": [entry_resource(execution, entry) for entry in page],
            "nextPageToken": token,
            "totalSize": len(entries),
        }

    def get_step_entry(self, name: str) -> Json:
        """One step entry. Raises ApiError 404, also when it is no longer kept."""
        parent, _, id_ = name.rpartition("/stepEntries/")
        execution: Execution = self._engine.get(parent)
        for entry in execution.history.entries if execution.history is not None else ():
            if str(entry.id) == id_:
                return entry_resource(execution, entry)
        raise ApiError(404, "NOT_FOUND", f"step entry {name!r} does not exist")

    def trigger_pubsub_execution(self, workflow: str, body: Json) -> Json:
        """An execution for a Pub/Sub push; a message id seen within 24 hours starts none."""
        message = body.get("message") or {}
        key = (workflow, str(message.get("messageId") or message.get("message_id") or ""))
        known = self._triggered.get(key) if key[1] else None
        if known is not None:
            execution = self._engine.get(known)
            if self._engine.now() - execution.created_time < 24 * 3600:
                return execution_resource(execution)
        execution = self._engine.create(self._owned(workflow), body, overflow_buffering=False)
        self._triggered[key] = execution.name
        return execution_resource(execution)

    # Workflows

    def get_workflow(self, name: str, revision_id: str = "") -> Json:
        """A workflow, its newest revision or the one named. Raises ApiError 404."""
        return self._workflow(self._engine.deployment(self._owned(name), revision_id))

    def list_workflows(self, parent: str, page_size: int = 0, page_token: str = "") -> Json:
        """A page of the workflows of this location. Raises ApiError 400 (page)."""
        if parent not in (self._engine.parent(), f"projects/{self._engine.project}/locations/-"):
            return {"workflows": []}
        page, token = _page(self._engine.deployments(), page_size, page_token, 1000, 500)
        return {"workflows": [self._workflow(one) for one in page], "nextPageToken": token}

    def list_revisions(self, name: str, page_size: int = 0, page_token: str = "") -> Json:
        """A page of a workflow's revisions, newest first. Raises ApiError 404, 400 (page)."""
        found = self._engine.revisions(self._owned(name))
        page, token = _page(found, page_size, page_token, 100, 20)
        return {"workflows": [self._workflow(one) for one in page], "nextPageToken": token}

    def create_workflow(self, parent: str, workflow_id: str, body: Json) -> Json:
        """Deploy a new workflow. Raises ApiError 404, 409 (it exists), 400 (source, limits)."""
        if parent != self._engine.parent():
            raise ApiError(404, "NOT_FOUND", f"{parent} is not {self._engine.parent()}")
        if not workflow_id:
            raise invalid("workflow_id is empty")
        if any(one.id == workflow_id for one in self._engine.deployments()):
            raise ApiError(409, "ALREADY_EXISTS", f"workflow {workflow_id!r} exists")
        return self._deploy("create", workflow_id, body)

    def update_workflow(self, name: str, body: Json, mask: str = "") -> Json:
        """A new revision; fields outside the mask stay as they were."""
        old = self.get_workflow(name)
        fields = {_camel(field) for field in mask.split(",") if field} or set(body)
        merged = {**old, **{field: body.get(field) for field in fields}}
        return self._deploy("update", name.rsplit("/", 1)[-1], merged)

    def delete_workflow(self, name: str) -> Json:
        """Delete a workflow with its executions. Raises ApiError 404."""
        self._engine.delete(self._owned(name))
        return self._done("delete", name, {"@type": "type.googleapis.com/google.protobuf.Empty"})

    def get_operation(self, name: str) -> Json:
        """An operation of a deployment or a deletion. Raises ApiError 404."""
        if name not in self._operations:
            raise ApiError(404, "NOT_FOUND", f"operation {name!r} does not exist")
        return self._operations[name]

    def list_operations(self) -> Json:
        """Every operation; all are done."""
        return {"operations": list(self._operations.values())}

    def locations(self) -> Json:
        """The one location of this engine."""
        return {"locations": [self.location()]}

    def location(self) -> Json:
        """The location's resource."""
        return {"name": self._engine.parent(), "locationId": self._engine.location}

    def _owned(self, name: str) -> str:
        """The name of a workflow of this project and location. Raises ApiError 404."""
        if not name.startswith(f"{self._engine.parent()}/workflows/"):
            raise ApiError(404, "NOT_FOUND", f"{name!r} is not in {self._engine.parent()}")
        return name

    def _workflow(self, deployment: Any) -> Json:
        return workflow_resource(deployment, self._engine.timestamp)

    def _deploy(self, verb: str, workflow_id: str, body: Json) -> Json:
        try:
            workflow = Workflow(body.get("sourceContents") or "", workflow_id)
        except FaultySource as exc:
            raise invalid(str(exc)) from None
        kept = ("serviceAccount", "callLogLevel", "executionHistoryLevel", "tags")
        deployment = self._engine.deploy(
            workflow_id,
            workflow,
            env=body.get("userEnvVars") or {},
            labels=body.get("labels") or {},
            description=body.get("description") or "",
            extra={key: body[key] for key in kept if body.get(key)},
        )
        response = {"@type": _WORKFLOW_TYPE, **self._workflow(deployment)}
        return self._done(verb, deployment.name, response)

    def _done(self, verb: str, target: str, response: Json) -> Json:
        name = f"{self._engine.parent()}/operations/operation-{len(self._operations) + 1}"
        now = self._engine.timestamp()
        self._operations[name] = {
            "name": name,
            "metadata": {
                "@type": "type.googleapis.com/google.cloud.workflows.v1.OperationMetadata",
                "createTime": now,
                "endTime": now,
                "target": target,
                "verb": verb,
                "apiVersion": "v1",
            },
            "done": True,
            "response": response,
        }
        return self._operations[name]


def _camel(field: str) -> str:
    first, *rest = field.strip().split("_")
    return first + "".join(word.capitalize() for word in rest)


Handler = Callable[..., Json]
