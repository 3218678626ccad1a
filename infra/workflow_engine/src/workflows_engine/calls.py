"""The functions that wait: http, sys.sleep, events, and the way to connectors.

Each body takes the caller's scope and the arguments by name. All that touches the world goes
through the engine: its clock, its HTTP handler, its connectors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from workflows_engine import limits
from workflows_engine.builtins import BLOCKING, REQUIRED
from workflows_engine.errors import (
    HttpConnectionBroken,
    HttpConnectionFailed,
    error,
    http_error,
    resource_limit,
    type_error,
    value_error,
)
from workflows_engine.registry import need
from workflows_engine.scope import Scope
from workflows_engine.stdlib import parse_time
from workflows_engine.values import imported, measure, printable, to_json

Args = dict[str, Any]
Action = Callable[[Scope, Args], Awaitable[Any]]

USER_AGENT = "GoogleCloudWorkflows; (+https://cloud.google.com/workflows/docs)"
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH")
_CALLBACK_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
# Calls to these hosts bill as internal steps; loopback stands for them on one machine.
_INTERNAL = (".googleapis.com", ".run.app", ".cloudfunctions.net", ".appspot.com")


def _given(function: str, args: Args) -> Args:
    """The arguments with defaults filled in; refuses unknown and missing ones."""
    params = BLOCKING[function]
    names = [name for name, _ in params]
    for name in args:
        if name not in names:
            raise type_error(f"{function} has no argument {name!r}, only {', '.join(names)}")
    values: Args = {}
    for name, default in params:
        if name in args:
            values[name] = args[name]
        elif default is REQUIRED:
            raise type_error(f"{function} needs the argument {name!r}")
        else:
            values[name] = default
    return values


def _http(function: str) -> Action:
    fixed = function.split(".")[1].upper()

    async def call(scope: Scope, args: Args) -> Any:
        given = _given(function, args)
        method = fixed
        if function == "http.request":
            method = need(function, "method", given["method"], str).upper()
            if method not in _METHODS:
                raise value_error(f"{function}: unknown method {method!r}")
        url = need(function, "url", given["url"], str)
        try:
            parts = urlsplit(url)
        except ValueError as exc:
            raise value_error(f"{function}: {url!r} is not a URL: {exc}") from None
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise value_error(f"{function}: {url!r} is not an http or https URL")
        return await request(
            scope,
            method,
            url,
            headers=_headers(function, given["headers"]),
            query=query_map(function, given["query"]),
            body=given["body"],
            auth=_auth(function, given["auth"]),
            timeout=_timeout(function, given["timeout"]),
        )

    return call


_QUERY = (str, int, float, bool)


def _headers(function: str, value: Any) -> dict[str, Any]:
    """Headers: a map of strings (Google's page of http.request). Raises TypeError."""
    if value is None:
        return {}
    for key, item in need(function, "headers", value, dict).items():
        need(function, f"headers.{key}", item, str)
    return dict(value)


def query_map(function: str, value: Any) -> dict[str, Any]:
    """A query: strings, numbers, booleans or lists of those (the same page). Raises TypeError."""
    if value is None:
        return {}
    for key, item in need(function, "query", value, dict).items():
        for part in item if type(item) is list else [item]:
            need(function, f"query.{key}", part, *_QUERY)
    return dict(value)


def _auth(function: str, value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    need(function, "auth", value, dict)
    if value.get("type") not in ("OIDC", "OAuth2"):
        raise value_error(f"{function}: auth.type must be OIDC or OAuth2")
    for key in value:
        if key not in ("type", "audience", "scope", "scopes"):
            raise value_error(f"{function}: unknown auth.{key}")
    return dict(value)


def _timeout(function: str, value: Any) -> float:
    if value is None:
        return limits.HTTP_TIMEOUT_SECONDS
    need(function, "timeout", value, int, float)
    if not 0 < value <= limits.HTTP_TIMEOUT_MAX_SECONDS:
        raise value_error(
            f"{function}: timeout must be above 0 and at most "
            f"{limits.HTTP_TIMEOUT_MAX_SECONDS} s, not {value}"
        )
    return float(value)


async def request(
    scope: Scope,
    method: str,
    url: str,
    *,
    headers: dict[str, Any] | None = None,
    query: dict[str, Any] | None = None,
    body: Any = None,
    auth: dict[str, Any] | None = None,
    timeout: float = limits.HTTP_TIMEOUT_SECONDS,
) -> dict[str, Any]:
    """One HTTP exchange: {body, code, headers}, or the documented error."""
    engine = scope.frame.execution.engine
    try:
        host = urlsplit(url).hostname or ""
    except ValueError as exc:
        raise value_error(f"{url!r} is not a URL: {exc}") from None
    if not (host.endswith(_INTERNAL) or host in ("localhost", "::1") or host.startswith("127.")):
        scope.frame.execution.external_steps += 1
    sent = dict(headers or {})
    agent = next((key for key in sent if key.lower() == "user-agent"), "User-Agent")
    sent[agent] = f"{sent[agent]} {USER_AGENT}" if agent in sent else USER_AGENT
    if body is not None and not any(key.lower() == "content-type" for key in sent):
        kind = "octet-stream" if isinstance(body, bytes) else "json; charset=utf-8"
        sent["Content-Type"] = f"application/{kind}"
    if auth is not None:
        sent["Authorization"] = f"Bearer {await _token(scope, auth, url)}"
    try:
        async with asyncio.timeout(timeout):
            status, got, content = await engine.http(
                method, url, sent, dict(query or {}), imported(body), auth, timeout
            )
    except HttpConnectionFailed as exc:
        raise error("ConnectionFailedError", f"cannot connect to {url}: {exc}") from None
    except (HttpConnectionBroken, ConnectionResetError, BrokenPipeError) as exc:
        raise error("ConnectionError", f"the connection to {url} broke: {exc}") from None
    except TimeoutError:
        raise error("TimeoutError", f"no answer from {url} within {timeout:g} s") from None
    except OSError as exc:
        raise error("ConnectionFailedError", f"cannot connect to {url}: {exc}") from None
    answer = imported(content)
    size = len(answer) if isinstance(answer, str | bytes) else measure(answer)
    if size > limits.HTTP_RESPONSE_BYTES:
        raise resource_limit(
            f"an HTTP response of {size} bytes, {limits.HTTP_RESPONSE_BYTES} are allowed"
        )
    named = {str(key): str(value) for key, value in got.items()}
    if status >= 400:
        raise http_error(status, named, answer)
    return {"body": answer, "code": status, "headers": named}


async def _token(scope: Scope, auth: dict[str, Any], url: str) -> str:
    try:
        token = scope.frame.execution.engine.token_source(auth, url)
        return token if isinstance(token, str) else await token
    except Exception as exc:
        raise error("AuthError", f"no {auth['type']} token for {url}: {exc}") from None


async def _sleep(scope: Scope, args: Args) -> None:
    seconds = need("sys.sleep", "seconds", _given("sys.sleep", args)["seconds"], int, float)
    await _pause(scope, "sys.sleep", seconds)


async def _sleep_until(scope: Scope, args: Args) -> None:
    until = parse_time("sys.sleep_until", "time", _given("sys.sleep_until", args)["time"])
    now = scope.frame.execution.engine.now()
    await _pause(scope, "sys.sleep_until", max(0.0, until - now))


async def _pause(scope: Scope, function: str, seconds: float) -> None:
    if not 0 <= seconds <= limits.EXECUTION_SECONDS:
        raise value_error(f"{function}: {seconds} s is not between 0 and a year")
    await scope.frame.execution.engine.sleep(seconds)


_SEVERITIES = (
    "DEFAULT",
    "DEBUG",
    "INFO",
    "NOTICE",
    "WARNING",
    "ERROR",
    "CRITICAL",
    "ALERT",
    "EMERGENCY",
)


_LOGGED = (int, float, bool, str, list, dict)


async def _log(scope: Scope, args: Args) -> None:
    """One of data, text and json, which are not given when they are null (Google's page)."""
    given = _given("sys.log", args)
    names = [name for name in ("data", "text", "json") if given[name] is not None]
    if len(names) != 1:
        raise type_error(f"sys.log needs exactly one of data, text and json, not {names or None}")
    (name,) = names
    payload = given[name]
    need("sys.log", name, payload, *((dict,) if name == "json" else _LOGGED))
    if name == "text" and type(payload) is not str:
        payload = to_json(printable(payload))
    if given["timeout"] is not None:
        need("sys.log", "timeout", given["timeout"], int, float)
    severity = need("sys.log", "severity", given["severity"], str).upper()
    if severity not in _SEVERITIES:
        raise value_error(f"sys.log: severity {severity!r} is not one of {_SEVERITIES}")
    execution = scope.frame.execution
    execution.engine.log(execution, severity, payload)


async def _create_callback(scope: Scope, args: Args) -> dict[str, Any]:
    function = "events.create_callback_endpoint"
    method = need(
        function, "http_callback_method", _given(function, args)["http_callback_method"], str
    )
    if method not in _CALLBACK_METHODS:
        raise value_error(f"{function}: {method!r} is not one of {_CALLBACK_METHODS}")
    return {"url": scope.frame.execution.callbacks.create(method)}


async def _await_callback(scope: Scope, args: Args) -> Any:
    function = "events.await_callback"
    given = _given(function, args)
    callback = need(function, "callback", given["callback"], dict)
    timeout = given["timeout"]
    if timeout is None:
        timeout = limits.CALLBACK_TIMEOUT_SECONDS
    need(function, "timeout", timeout, int, float)
    if not 0 < timeout <= limits.EXECUTION_SECONDS:
        raise value_error(f"{function}: timeout must be above 0 and at most a year")
    execution = scope.frame.execution
    execution.external_steps += 1
    return await execution.callbacks.wait(callback.get("url"), float(timeout))


def connector(name: str) -> Action:
    """The action of a call to ``googleapis.*`` or ``gke.*``."""

    async def call(scope: Scope, args: Args) -> Any:
        return await scope.frame.execution.engine.connect(scope, name, args)

    return call


_RUN = "googleapis.workflowexecutions.v1.projects.locations.workflows.executions.run"


def _child(function: str, args: Args) -> Args:
    """The arguments of experimental.executions.* that are given, of the right types."""
    given = {key: value for key, value in _given(function, args).items() if value is not None}
    for name in ("workflow_id", "location", "project_id"):
        if name in given or name == "workflow_id":
            need(function, name, given.get(name), str)
    return given


async def _run(scope: Scope, args: Args) -> Any:
    return await connector(_RUN)(scope, _child("experimental.executions.run", args))


async def _run_each(scope: Scope, args: Args) -> list[Any]:
    common = _child("experimental.executions.map", args)
    arguments = need(
        "experimental.executions.map", "arguments", common.pop("arguments", None), list
    )
    runs = [
        asyncio.ensure_future(connector(_RUN)(scope, {**common, "argument": argument}))
        for argument in arguments
    ]
    try:
        return list(await asyncio.gather(*runs))
    finally:
        for one in runs:
            one.cancel()
        await asyncio.gather(*runs, return_exceptions=True)


BODIES: dict[str, Action] = {
    **{name: _http(name) for name in BLOCKING if name.startswith("http.")},
    "sys.sleep": _sleep,
    "sys.sleep_until": _sleep_until,
    "sys.log": _log,
    "events.create_callback_endpoint": _create_callback,
    "events.await_callback": _await_callback,
    "experimental.executions.run": _run,
    "experimental.executions.map": _run_each,
}
