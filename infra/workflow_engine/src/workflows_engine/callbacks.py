"""Callback endpoints of one execution: a slot for one payload each, and who waits for it.

A payload that arrives before anyone waits is kept. A second one, before the first is taken, is
refused with 429. After the end of the execution every endpoint answers 404.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from workflows_engine.errors import error, type_error, value_error
from workflows_engine.ports import RunningExecution
from workflows_engine.values import imported, measure

_TIMED_OUT = object()


class Callback:
    """One endpoint."""

    __slots__ = ("id", "method", "payload", "size", "waiters")

    def __init__(self, id_: str, method: str) -> None:
        self.id = id_
        self.method = method
        self.payload: dict[str, Any] | None = None
        self.size = 0
        self.waiters: deque[asyncio.Future[Any]] = deque()


class Callbacks:
    """All endpoints of an execution, by id."""

    __slots__ = ("_by_id", "_execution")

    def __init__(self, execution: RunningExecution) -> None:
        self._execution = execution
        self._by_id: dict[str, Callback] = {}

    def create(self, method: str) -> str:
        """Open an endpoint for an HTTP method; gives its URL."""
        id_ = self._execution.uuid()
        self._by_id[id_] = Callback(id_, method)
        engine = self._execution.engine
        url = f"{engine.base_url}/v1/{self._execution.name}/callbacks/{id_}"
        engine.callback_created(url, method)
        return url

    def __iter__(self) -> Any:
        return iter(self._by_id.values())

    def send(
        self, id_: str, method: str, headers: dict[str, str], query: dict[str, str], body: Any
    ) -> int:
        """Deliver a request; gives the HTTP status of the answer: 200, 404, 405 or 429."""
        execution = self._execution
        callback = self._by_id.get(id_)
        if callback is None or execution.state != "ACTIVE":
            return 404
        if method.upper() != callback.method:
            return 405
        payload = {
            "http_request": {
                "body": imported(body),
                "headers": dict(headers),
                "method": method.upper(),
                "query": dict(query),
                "url": f"/v1/{execution.name}/callbacks/{id_}",
            },
            "received_time": execution.engine.timestamp(),
            "type": "HTTP",
        }
        while callback.waiters:
            waiter = callback.waiters.popleft()
            if not waiter.done():
                waiter.set_result(payload)
                return 200
        if callback.payload is not None:
            return 429
        callback.payload = payload
        callback.size = measure(payload)
        execution.memory += callback.size  # pending events count against memory
        return 200

    async def wait(self, url: Any, timeout: float) -> Any:
        """Take the payload of an endpoint, waiting up to ``timeout`` seconds.

        Raises TimeoutError when it passes, ValueError for an endpoint of another execution.
        """
        if not isinstance(url, str):
            raise type_error("events.await_callback: callback must be the map that was created")
        callback = self._by_id.get(url.rsplit("/", 1)[-1])
        if callback is None or self._execution.name not in url:
            raise value_error(
                "events.await_callback: this callback was not created by this execution"
            )
        if callback.payload is not None:
            payload, callback.payload = callback.payload, None
            self._execution.memory -= callback.size
            return payload
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Any] = loop.create_future()
        callback.waiters.append(waiter)
        timer = loop.call_later(timeout, _expire, waiter)
        try:
            result = await waiter
        finally:
            timer.cancel()
            if waiter in callback.waiters:
                callback.waiters.remove(waiter)
        if result is _TIMED_OUT:
            raise error("TimeoutError", f"no callback was received within {timeout:g} s")
        return result


def _expire(waiter: asyncio.Future[Any]) -> None:
    if not waiter.done():
        waiter.set_result(_TIMED_OUT)
