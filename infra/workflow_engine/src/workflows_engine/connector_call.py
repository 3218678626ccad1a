"""One call of a connector: its requests with their retries, and the wait for its operation.

All requests go through the engine's HTTP handler, to ``https://SERVICE.googleapis.com`` or to the
endpoint injected for the service.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from workflows_engine import limits
from workflows_engine.builtins import retryable
from workflows_engine.calls import query_map, request
from workflows_engine.connector_params import read_params
from workflows_engine.errors import WorkflowError, error, type_error
from workflows_engine.scope import Scope

_KINDS: dict[type, str] = {dict: "map", str: "string"}


def _message(failure: Any) -> Any:
    return failure.get("message", failure) if isinstance(failure, dict) else failure


@dataclass(frozen=True)
class Operation:
    """How to see that an operation is done, how it failed, and how to ask again."""

    done: Callable[[Any], bool]
    failure: Callable[[Any], Any]
    poll: Callable[[Any], Awaitable[Any]]


class ConnectorCall:
    """One call of a connector by one step. Raises TypeError or ValueError for bad params."""

    def __init__(self, scope: Scope, name: str, args: dict[str, Any]) -> None:
        self.scope = scope
        self.name = name
        self.execution = scope.frame.execution
        self.engine = self.execution.engine
        self.params = read_params(args.get("connector_params"))
        self.args = {key: value for key, value in args.items() if key != "connector_params"}

    def answered(self, value: Any, name: str | None = None, kind: type = dict) -> Any:
        """An answer, or its field ``name``, when it is of a kind that can be gone on with.

        Raises WorkflowError tagged ResponseTypeError for another one.
        """
        found = value
        if name is not None:
            found = value.get(name) if isinstance(value, dict) else None
        if isinstance(found, kind):
            return found
        what = "the answer" if name is None else f"{name!r} of the answer"
        raise error(
            "ResponseTypeError",
            f"{self.name}: {what} is not a {_KINDS[kind]}: {str(value)[:200]}",
        )

    def text(self, name: str, default: str | None = None) -> str:
        """An argument that must be a string. Raises WorkflowError (TypeError)."""
        value = self.args.get(name, default)
        if not isinstance(value, str):
            raise type_error(f"{self.name} needs the argument {name!r}, a string")
        return value

    async def api(
        self,
        method: str,
        service: str,
        path: str,
        query: dict[str, Any] | None = None,
        body: Any = None,
    ) -> Any:
        """One request to a service, with the connectors' retries; gives the body."""
        base = self.engine.endpoints.get(service, f"https://{service}.googleapis.com")
        return (await self.exchange(method, base + path, query, body))["body"]

    async def exchange(
        self, method: str, url: str, query: dict[str, Any] | None = None, body: Any = None
    ) -> dict[str, Any]:
        """One request with retries: the idempotent policy for GET, else the other one."""
        policy = "http.default_retry_predicate"
        if method != "GET":
            policy += "_non_idempotent"
        auth: dict[str, Any] = {"type": "OAuth2"}
        if self.params.scopes is not None:
            auth["scopes"] = self.params.scopes
        asked = query_map(self.name, query)
        delay = 1.0
        for retry in range(6):
            try:
                return await request(
                    self.scope,
                    method,
                    url,
                    query=asked,
                    body=body,
                    auth=auth,
                    timeout=limits.HTTP_TIMEOUT_MAX_SECONDS,
                )
            except WorkflowError as exc:
                if retry == 5 or not retryable(policy, exc.value):
                    raise
            await self.engine.sleep(delay)
            delay = min(delay * 1.25, 60.0)
        raise AssertionError("unreachable")

    async def wait(self, first: Any, operation: Operation) -> Any:
        """Poll an operation by the polling policy until it is done; each poll is a step."""
        state = first
        delay = min(self.params.initial_delay, self.params.max_delay)
        while not operation.done(state):
            await self.engine.sleep(delay)
            delay = min(delay * self.params.multiplier, self.params.max_delay)
            self.execution.steps += 1
            state = await operation.poll(state)
        failure = operation.failure(state)
        if failure is not None:
            raise error(
                "OperationError",
                f"{self.name}: {_message(failure)}",
                operation=state,
                error=failure,
            )
        return state
