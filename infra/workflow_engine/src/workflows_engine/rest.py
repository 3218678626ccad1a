"""The REST APIs over HTTP: what ``serve`` listens with."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from workflows_engine.api import Api, invalid
from workflows_engine.engine import Engine
from workflows_engine.errors import ApiError
from workflows_engine.http_client import decode

Query = dict[str, str]

_PARENT = r"(?P<parent>projects/[^/]+/locations/[^/]+)"
_WORKFLOW = r"(?P<name>projects/[^/]+/locations/[^/]+/workflows/[^/:]+)"
_EXECUTION = r"(?P<name>projects/[^/]+/locations/[^/]+/workflows/[^/]+/executions/[^/:]+)"
_CALLBACK = re.compile(rf"{_EXECUTION}/callbacks/(?P<id>[^/:]+)")


def application(engine: Engine, api: Api | None = None) -> web.Application:
    """An aiohttp application that serves an engine's APIs and its callbacks."""
    app = web.Application(client_max_size=4 * 1024 * 1024)
    app.router.add_route("*", "/v1/{path:.*}", _Rest(engine, api or Api(engine)).handle)
    app.router.add_get("/healthz", _healthy)
    return app


async def _healthy(_request: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


class _Rest:
    def __init__(self, engine: Engine, api: Api) -> None:
        self._engine = engine
        self._api = api
        one = self._api
        # method, path, function of (names in the path, query, body)
        table: list[tuple[str, str, Callable[[dict[str, str], Query, Any], Any]]] = [
            (
                "POST",
                f"{_WORKFLOW}/executions",
                lambda p, q, b: one.create_execution(p["name"], b),
            ),
            ("GET", f"{_WORKFLOW}/executions", lambda p, q, b: self._list(p["name"], q)),
            ("GET", _EXECUTION, lambda p, q, b: one.get_execution(p["name"], q.get("view", ""))),
            ("POST", f"{_EXECUTION}:cancel", lambda p, q, b: one.cancel_execution(p["name"])),
            ("GET", f"{_EXECUTION}:exportData", lambda p, q, b: one.export_data(p["name"])),
            (
                "GET",
                f"{_EXECUTION}/callbacks",
                lambda p, q, b: one.list_callbacks(p["name"], *_paging(q)),
            ),
            (
                "GET",
                f"{_EXECUTION}/stepEntries",
                lambda p, q, b: one.list_step_entries(p["name"], *_paging(q)),
            ),
            (
                "GET",
                rf"(?P<name>{_EXECUTION.replace('?P<name>', '')}/stepEntries/\d+)",
                lambda p, q, b: one.get_step_entry(p["name"]),
            ),
            (
                "POST",
                f"{_WORKFLOW}:triggerPubsubExecution",
                lambda p, q, b: one.trigger_pubsub_execution(p["name"], b),
            ),
            (
                "POST",
                f"{_PARENT}/workflows",
                lambda p, q, b: one.create_workflow(p["parent"], q.get("workflowId", ""), b),
            ),
            (
                "GET",
                f"{_PARENT}/workflows",
                lambda p, q, b: one.list_workflows(p["parent"], *_paging(q)),
            ),
            (
                "GET",
                _WORKFLOW,
                lambda p, q, b: one.get_workflow(p["name"], q.get("revisionId", "")),
            ),
            (
                "GET",
                f"{_WORKFLOW}:listRevisions",
                lambda p, q, b: one.list_revisions(p["name"], *_paging(q)),
            ),
            (
                "PATCH",
                _WORKFLOW,
                lambda p, q, b: one.update_workflow(p["name"], b, q.get("updateMask", "")),
            ),
            ("DELETE", _WORKFLOW, lambda p, q, b: one.delete_workflow(p["name"])),
            (
                "GET",
                r"(?P<name>projects/[^/]+/locations/[^/]+/operations/[^/]+)",
                lambda p, q, b: one.get_operation(p["name"]),
            ),
            ("GET", f"{_PARENT}/operations", lambda p, q, b: one.list_operations()),
            ("GET", _PARENT, lambda p, q, b: one.location()),
            ("GET", r"projects/[^/]+/locations", lambda p, q, b: one.locations()),
        ]
        self._table = [(verb, re.compile(path), call) for verb, path, call in table]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        callback = _CALLBACK.fullmatch(path)
        if callback is not None:
            return await self._callback(request, callback)
        try:
            for verb, pattern, call in self._table:
                match = pattern.fullmatch(path)
                if match is not None and verb == request.method:
                    query = dict(request.query)
                    result = call(match.groupdict(), query, await _body(request))
                    return web.json_response(await result if _waits(result) else result)
            raise ApiError(404, "NOT_FOUND", f"no method {request.method} /v1/{path}")
        except ApiError as exc:
            error = {"code": exc.code, "message": exc.message, "status": exc.status}
            return web.json_response({"error": error}, status=exc.code)

    def _list(self, parent: str, query: Query) -> Any:
        size, token = _paging(query)
        return self._api.list_executions(
            parent,
            size,
            token,
            query.get("view", ""),
            query.get("filter", ""),
            query.get("orderBy", ""),
        )

    async def _callback(self, request: web.Request, match: re.Match[str]) -> web.Response:
        body = decode(await request.read(), request.headers)
        status = self._engine.callback(
            f"/v1/{match[0]}", body, request.method, dict(request.headers), dict(request.query)
        )
        if status == 200:
            return web.Response(status=200)
        reasons = {
            404: ("NOT_FOUND", "the execution has ended or has no such callback"),
            405: ("INVALID_ARGUMENT", "the callback was created for another HTTP method"),
            429: ("RESOURCE_EXHAUSTED", "an earlier request has not been taken yet"),
        }
        name, message = reasons[status]
        error = {"code": status, "message": message, "status": name}
        return web.json_response({"error": error}, status=status)


def _waits(result: Any) -> bool:
    return isinstance(result, Awaitable)


def _paging(query: Query) -> tuple[int, str]:
    try:
        return int(query.get("pageSize", "0") or 0), query.get("pageToken", "")
    except ValueError:
        raise invalid("pageSize is not a number") from None


async def _body(request: web.Request) -> Any:
    raw = await request.read()
    if not raw:
        return {}
    try:
        body = json.loads(raw)
    except ValueError:
        raise invalid("the body is not JSON") from None
    if not isinstance(body, dict):
        raise invalid("the body is not a JSON object")
    return body
