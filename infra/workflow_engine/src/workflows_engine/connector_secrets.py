"""Secret Manager's two connectors for text: they encode and decode the payload themselves."""

from __future__ import annotations

import base64
from typing import Any

from workflows_engine.connector_call import ConnectorCall
from workflows_engine.errors import error, type_error


def _text(call: ConnectorCall, name: str, default: Any = None) -> str:
    value = call.args.get(name, default)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise type_error(f"{call.name} needs the argument {name!r}")
    return value


async def run(call: ConnectorCall) -> Any:
    """accessString gives the text of a version; addVersionString stores one."""
    project = _text(call, "project_id", call.engine.project)
    secret = f"/v1/projects/{project}/secrets/{_text(call, 'secret_id')}"
    if call.name.endswith(".addVersionString"):
        data = base64.b64encode(_text(call, "data").encode()).decode()
        body = {"payload": {"data": data}}
        return await call.api("POST", "secretmanager", f"{secret}:addVersion", None, body)
    version = _text(call, "version", "latest")
    answer = await call.api("GET", "secretmanager", f"{secret}/versions/{version}:access")
    try:
        return base64.b64decode(answer["payload"]["data"]).decode()
    except (KeyError, TypeError, ValueError):
        raise error(
            "ResponseTypeError", f"{call.name}: the answer holds no text payload"
        ) from None
