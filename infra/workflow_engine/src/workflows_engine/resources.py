"""Executions, workflows and step entries as the JSON resources of the REST APIs."""

from __future__ import annotations

from typing import Any

from workflows_engine.callbacks import Callback
from workflows_engine.deployment import Deployment
from workflows_engine.filters import duration
from workflows_engine.history import Entry
from workflows_engine.ports import RunningExecution
from workflows_engine.values import printable


def execution_resource(execution: RunningExecution, view: str = "FULL") -> dict[str, Any]:
    """An Execution. The BASIC view leaves argument, result and error out."""
    engine = execution.engine
    seconds = duration(execution)
    resource: dict[str, Any] = {
        "name": execution.name,
        "createTime": engine.timestamp(execution.created_time),
        "state": execution.state,
        "workflowRevisionId": execution.revision_id,
        "callLogLevel": execution.call_log_level,
        "labels": execution.labels,
        "status": {"currentSteps": execution.current_steps},
    }
    if execution.start_time is not None:
        resource["startTime"] = engine.timestamp(execution.start_time)
        resource["duration"] = f"{seconds:.9f}s"
    if execution.end_time is not None:
        resource["endTime"] = engine.timestamp(execution.end_time)
    if view != "BASIC":
        if execution.argument is not None:
            resource["argument"] = execution.argument
        if execution.result is not None:
            resource["result"] = execution.result
        if execution.error is not None:
            resource["error"] = execution.error
    return resource


def entry_resource(execution: RunningExecution, entry: Entry) -> dict[str, Any]:
    """A StepEntry."""
    resource: dict[str, Any] = {
        "name": f"{execution.name}/stepEntries/{entry.id}",
        "entryId": str(entry.id),
        "createTime": execution.engine.timestamp(entry.created),
        "updateTime": execution.engine.timestamp(entry.updated),
        "routine": entry.op.routine,
        "step": entry.op.name,
        "stepType": entry.op.kind,
        "state": entry.state,
    }
    if entry.exception is not None:
        resource["exception"] = {"payload": printable(entry.exception)}
    return resource


def callback_resource(execution: RunningExecution, callback: Callback) -> dict[str, Any]:
    """A Callback: what waits for it and what waits in it."""
    return {
        "name": f"{execution.name}/callbacks/{callback.id}",
        "method": callback.method,
        "waiters": [execution.current_steps[-1]["step"]] * len(callback.waiters),
        "availablePayloads": [] if callback.payload is None else [callback.id],
    }


def workflow_resource(deployment: Deployment, timestamp: Any) -> dict[str, Any]:
    """A Workflow of the Workflows API."""
    return {
        "callLogLevel": "CALL_LOG_LEVEL_UNSPECIFIED",
        **deployment.extra,
        "name": deployment.name,
        "description": deployment.description,
        "state": "ACTIVE",
        "revisionId": deployment.revision_id,
        "createTime": timestamp(deployment.created),
        "updateTime": timestamp(deployment.updated),
        "revisionCreateTime": timestamp(deployment.updated),
        "labels": deployment.labels,
        "sourceContents": deployment.text,
        "userEnvVars": deployment.env,
    }
