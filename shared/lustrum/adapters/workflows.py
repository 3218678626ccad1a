"""Workflow executions through google-cloud-workflows: find, ensure, cancel,
and call their callback.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lustrum.adapters.google import Rest
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.failures import Failure
from lustrum.core.names import LABEL_RUN
from lustrum.core.settings import Settings

TIMEOUT = 20.0  # seconds


class Workflows:
    """The executions of Lustrum's two workflows.

    CreateExecution knows no request id: an execution is looked for by its label before one is
    made, and the first step of each workflow claims the run, so that a second one ends at once.
    """

    def __init__(self, settings: Settings, rest: Rest) -> None:
        self._settings = settings
        self._rest = rest
        self._client = _client(settings)

    def ensure(self, workflow: str, run_id: str, argument: Mapping[str, Any]) -> str:
        """Return a live execution for a run, made if there is none."""
        live = self.live(workflow, run_id)
        if live:
            return live[0]
        made = self._call(
            "create_execution",
            parent=self._settings.workflow(workflow),
            execution={"argument": json.dumps(argument), "labels": {LABEL_RUN: run_id}},
        )
        return str(made.name)

    def live(self, workflow: str, run_id: str) -> list[str]:
        """Return the executions for a run that are active or queued."""
        found = self._call(
            "list_executions",
            request={
                "parent": self._settings.workflow(workflow),
                "filter": f'label.{LABEL_RUN}="{run_id}"',
            },
        )
        return [item.name for item in found if item.state.name in ("ACTIVE", "QUEUED")]

    def is_live(self, execution: str) -> bool:
        """Say whether an execution still runs."""
        try:
            found = self._call("get_execution", request={"name": execution})
        except NotFound:
            return False
        return found.state.name in ("ACTIVE", "QUEUED")

    def cancel(self, execution: str) -> None:
        """Cancel an execution; one that is over is fine."""
        try:
            self._call("cancel_execution", request={"name": execution})
        except (NotFound, ServiceError) as error:
            if isinstance(error, ServiceError) and error.failure is Failure.ACCESS:
                raise

    def ring(self, callback_url: str, body: Mapping[str, Any]) -> None:
        """Call the callback of a waiting execution, which ends its wait.

        An OAuth2 token, not OIDC. 429: it was called already; 404: the execution is over. Both
        mean done.
        """
        try:
            self._rest.raw(
                "executions",
                "POST",
                callback_url,
                content=json.dumps(body).encode(),
                content_type="application/json",
            )
        except ServiceError as error:
            if error.status not in (404, 429):
                raise

    def _call(self, method: str, **arguments: Any) -> Any:
        from google.api_core import exceptions

        try:
            return getattr(self._client, method)(timeout=TIMEOUT, **arguments)
        except exceptions.NotFound as error:
            raise NotFound(f"Workflows: {error.message}") from None
        except (exceptions.PermissionDenied, exceptions.Unauthenticated) as error:
            raise ServiceError(Failure.ACCESS, f"Workflows {method}: {error.message}") from None
        except exceptions.GoogleAPICallError as error:
            raise ServiceError(
                Failure.INFRA_TRANSIENT, f"Workflows {method}: {error.message}", retryable=True
            ) from None


def _client(settings: Settings) -> Any:
    from google.cloud.workflows import executions_v1

    local = settings.endpoints.get("executions_grpc")
    if local is None:
        return executions_v1.ExecutionsClient()
    import grpc
    from google.cloud.workflows.executions_v1.services.executions.transports import (
        ExecutionsGrpcTransport,
    )

    return executions_v1.ExecutionsClient(
        transport=ExecutionsGrpcTransport(channel=grpc.insecure_channel(local))
    )
