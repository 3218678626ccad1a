"""A deployed workflow: one revision of it, and what the service refuses beside its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workflows_engine import limits
from workflows_engine.errors import ApiError
from workflows_engine.routines import CompiledRoutine
from workflows_engine.values import from_json


@dataclass
class Deployment:
    """One revision of a deployed workflow."""

    id: str
    name: str
    revision_id: str
    text: str
    routines: dict[str, CompiledRoutine]
    env: dict[str, str]
    labels: dict[str, str]
    description: str
    created: float
    updated: float
    extra: dict[str, Any] = field(default_factory=dict)


def check_argument(text: str) -> None:
    """Refuse the JSON text of an argument that is too long or no JSON. Raises ApiError 400."""
    size = len(text.encode("utf-8", "replace"))
    if size > limits.ARGUMENT_BYTES:
        raise ApiError(
            400,
            "INVALID_ARGUMENT",
            f"argument has {size} bytes, {limits.ARGUMENT_BYTES} are allowed",
        )
    try:
        from_json(text)
    except Exception:
        raise ApiError(400, "INVALID_ARGUMENT", "argument is not valid JSON") from None


def check_env(variables: Mapping[str, str]) -> None:
    """Refuse environment variables by the limits of workflows.proto. Raises ApiError 400."""
    if len(variables) > limits.ENV_VARS:
        raise ApiError(400, "INVALID_ARGUMENT", f"over {limits.ENV_VARS} environment variables")
    for key, value in variables.items():
        if key.startswith(("GOOGLE", "WORKFLOWS")):
            raise ApiError(
                400, "INVALID_ARGUMENT", f"environment variable {key} begins with a reserved word"
            )
        if len(value.encode()) > limits.ENV_VAR_BYTES:
            raise ApiError(400, "INVALID_ARGUMENT", f"environment variable {key} is over 4 KiB")


def check_labels(labels: Mapping[str, str]) -> None:
    """Refuse labels by the limits of executions.proto. Raises ApiError 400."""
    if len(labels) > limits.LABELS:
        raise ApiError(400, "INVALID_ARGUMENT", f"over {limits.LABELS} labels")
    for key, value in labels.items():
        for text in (key, value):
            if len(text) > limits.LABEL_CHARACTERS or text.lower() != text:
                raise ApiError(
                    400,
                    "INVALID_ARGUMENT",
                    f"label {key!r}={value!r}: at most {limits.LABEL_CHARACTERS} characters, "
                    "lower case",
                )
