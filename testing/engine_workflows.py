"""The executions of the engine behind the adapter's interface."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from lustrum.adapters.workflows import Workflows
from lustrum.core.errors import ServiceError
from lustrum.core.failures import Failure
from lustrum.core.names import LABEL_RUN
from workflows_engine.engine import Engine
from workflows_engine.errors import ApiError


class EngineWorkflows(Workflows):
    """The executions of the engine, as the adapter's users see them; calling a callback is the
    adapter's own.
    """

    def __init__(self, engine: Engine, executions: list[Any], rings: list[int]) -> None:
        self._engine = engine
        self._executions = executions
        self._rest = _Callbacks(engine, rings)  # type: ignore[assignment]
        self.broken = False

    def ensure(self, workflow: str, run_id: str, argument: Mapping[str, Any]) -> str:
        live = self.live(workflow, run_id)
        return live[0] if live else self.create(workflow, run_id, argument)

    def create(self, workflow: str, run_id: str, argument: Mapping[str, Any]) -> str:
        """Begin an execution, whether or not there is one."""
        self._check()
        made = self._engine.create(workflow, dict(argument), {LABEL_RUN: run_id})
        self._executions.append(made)
        return str(made.name)

    def live(self, workflow: str, run_id: str) -> list[str]:
        self._check()
        return [
            one.name
            for one in self._executions
            if one.deployment.id == workflow
            and one.labels.get(LABEL_RUN) == run_id
            and one.state in ("ACTIVE", "QUEUED")
        ]

    def is_live(self, execution: str) -> bool:
        self._check()
        try:
            return self._engine.get(execution).state in ("ACTIVE", "QUEUED")
        except ApiError:
            return False

    def cancel(self, execution: str) -> None:
        self._check()
        with suppress(ApiError):
            self._engine.cancel(execution)

    def ring(self, callback_url: str, body: Mapping[str, Any]) -> None:
        self._check()
        super().ring(callback_url, body)

    def _check(self) -> None:
        if self.broken:
            raise ServiceError(Failure.INFRA_TRANSIENT, "Workflows: 503", retryable=True)


class _Callbacks:
    """Where the adapter calls a callback: the engine, with the service's status codes."""

    def __init__(self, engine: Engine, rings: list[int]) -> None:
        self._engine, self._rings = engine, rings

    def raw(self, service: str, method: str, url: str, *, content: bytes, **_: Any) -> None:
        assert (service, method) == ("executions", "POST")
        status = self._engine.callback(url, json.loads(content))
        self._rings.append(status)
        if status >= 400:
            raise ServiceError(
                Failure.INFRA_TRANSIENT,
                f"executions answered {status}",
                status=status,
                retryable=status in (429, 503),
            )
