"""A local engine for Google Cloud Workflows; see docs/workflow-engine.md."""

from infra.local.workflows.engine import Engine
from infra.local.workflows.errors import (
    ApiError,
    Fault,
    FaultySource,
    HttpConnectionBroken,
    HttpConnectionFailed,
    WorkflowError,
)
from infra.local.workflows.execution import Deployment, Execution
from infra.local.workflows.workflow import Workflow

__all__ = [
    "ApiError",
    "Deployment",
    "Engine",
    "Execution",
    "Fault",
    "FaultySource",
    "HttpConnectionBroken",
    "HttpConnectionFailed",
    "Workflow",
    "WorkflowError",
]
