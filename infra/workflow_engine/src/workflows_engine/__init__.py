"""A local engine for Google Cloud Workflows; see the README."""

from workflows_engine.deployment import Deployment
from workflows_engine.engine import Engine
from workflows_engine.errors import (
    ApiError,
    Fault,
    FaultySource,
    HttpConnectionBroken,
    HttpConnectionFailed,
    WorkflowError,
)
from workflows_engine.execution import Execution
from workflows_engine.workflow import Workflow

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
