"""Workflow executions without an engine: what was started, what lives, what was rung."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lustrum.adapters.workflows import Workflows


@dataclass
class FakeExecution:
    """One execution."""

    name: str
    workflow: str
    run_id: str
    argument: Mapping[str, Any]
    state: str = "ACTIVE"


@dataclass
class FakeWorkflows(Workflows):
    """Like the service, CreateExecution knows no request id: two calls make two executions."""

    executions: list[FakeExecution] = field(default_factory=list)
    rung: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    broken: Exception | None = None
    lost_replies: int = 0  # creations that succeed and yet raise
    _lock: Any = field(default_factory=threading.Lock)

    def ensure(self, workflow: str, run_id: str, argument: Mapping[str, Any]) -> str:
        self._check()
        live = self.live(workflow, run_id)
        if live:
            return live[0]
        with self._lock:
            name = f"projects/p/locations/r/workflows/{workflow}/executions/{len(self.executions)}"
            self.executions.append(FakeExecution(name, workflow, run_id, dict(argument)))
            if self.lost_replies:
                self.lost_replies -= 1
                raise TimeoutError("the answer was lost")
        return name

    def live(self, workflow: str, run_id: str) -> list[str]:
        self._check()
        return [
            one.name
            for one in self.executions
            if one.workflow == workflow and one.run_id == run_id and one.state == "ACTIVE"
        ]

    def is_live(self, execution: str) -> bool:
        self._check()
        return any(one.name == execution and one.state == "ACTIVE" for one in self.executions)

    def cancel(self, execution: str) -> None:
        self._check()
        self.end(execution, "CANCELLED")

    def ring(self, callback_url: str, body: Mapping[str, Any]) -> None:
        self._check()
        self.rung.append((callback_url, dict(body)))

    def end(self, execution: str, state: str = "FAILED") -> None:
        """Let an execution end without a word."""
        for one in self.executions:
            if one.name == execution and one.state == "ACTIVE":
                one.state = state

    def of(self, workflow: str) -> list[FakeExecution]:
        """Return the executions of a workflow."""
        return [one for one in self.executions if one.workflow == workflow]

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken
