"""The HTTP handler of real time: aiohttp, one session, no thread per call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from workflows_engine.errors import (
    HttpConnectionBroken,
    HttpConnectionFailed,
    WorkflowError,
    resource_limit,
    type_error,
    value_error,
)
from workflows_engine.limits import HTTP_RESPONSE_BYTES
from workflows_engine.ports import HttpAnswer, HttpCall
from workflows_engine.values import from_json, to_json, type_name


class HttpClient:
    """An engine's HTTP handler over real sockets; close it when done."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, *call: *HttpCall) -> HttpAnswer:
        """One exchange, as HttpHandler says; the engine enforces the timeout."""
        method, url, headers, query, body, _auth, _timeout = call
        if self._session is None:
            # No limit of connections: thousands of executions may call at once.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                auto_decompress=True,
            )
        sent = {key: _text(value) for key, value in headers.items() if value is not None}
        try:
            target = URL(url).update_query(_pairs(query)) if query else URL(url)
        except ValueError as exc:
            raise value_error(f"{url!r} is not a URL: {exc}") from None
        content = encode(body, sent)
        try:
            async with self._session.request(
                method, target, headers=sent, data=content, allow_redirects=True
            ) as response:
                raw = await _read(response)
                named = {_canonical(key): value for key, value in response.headers.items()}
                return response.status, named, decode(raw, response.headers)
        except aiohttp.ClientConnectorError as exc:
            raise HttpConnectionFailed(str(exc)) from exc
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as exc:
            raise HttpConnectionFailed(f"bad URL: {exc}") from exc
        except (aiohttp.ClientError, ConnectionError) as exc:
            raise HttpConnectionBroken(str(exc) or type(exc).__name__) from exc
        except ValueError as exc:  # a header with a line break, a host name that cannot be one
            raise value_error(f"the request to {url} cannot be sent: {exc}") from None

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(0)
            self._session = None


async def _read(response: aiohttp.ClientResponse) -> bytes:
    raw = bytearray()
    async for chunk in response.content.iter_any():
        raw += chunk
        if len(raw) > HTTP_RESPONSE_BYTES:
            raise resource_limit(
                f"an HTTP response of over {HTTP_RESPONSE_BYTES} bytes, the limit"
            )
    return bytes(raw)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _pairs(query: dict[str, Any]) -> list[tuple[str, str]]:
    pairs = []
    for key, value in query.items():
        for item in value if isinstance(value, list) else [value]:
            if item is not None:
                pairs.append((key, _text(item)))
    return pairs


def _canonical(name: str) -> str:
    return "-".join(part.capitalize() for part in name.split("-"))


def encode(body: Any, headers: Mapping[str, str]) -> bytes | None:
    """The bytes of a request body: JSON, unless it is bytes or a string of a stated type."""
    if body is None:
        return None
    if isinstance(body, bytes):
        return body
    kind = next((v for k, v in headers.items() if k.lower() == "content-type"), "")
    if isinstance(body, dict) and kind.lower().startswith("application/x-www-form-urlencoded"):
        return _form(body)
    stated = kind and kind != "application/json; charset=utf-8"
    if isinstance(body, str) and stated:
        return body.encode("utf-8", "replace")
    return to_json(body).encode("utf-8", "replace")


def _form(body: dict[str, Any]) -> bytes:
    """A map as a form: scalars, and lists of them. Raises WorkflowError (TypeError) for others."""
    for key, value in body.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, list | dict | bytes):
                raise type_error(f"body.{key} of a form cannot hold a {type_name(item)}")
    return urlencode(_pairs(body)).encode()


def decode(raw: bytes, headers: Mapping[str, str]) -> Any:
    """The value of a body: JSON by its type, text as a string, anything else as bytes."""
    named = CIMultiDict(headers)
    kind, _, rest = named.get("Content-Type", "").partition(";")
    kind = kind.strip().lower()
    if not raw and kind in ("", "application/json"):
        return None
    if kind == "application/json":
        try:
            return from_json(raw)
        except WorkflowError:
            return raw.decode("utf-8", "replace")
    if kind.startswith("text/"):
        charset = rest.partition("charset=")[2].strip('" ') or "utf-8"
        try:
            return raw.decode(charset, "replace")
        except LookupError:
            return raw.decode("utf-8", "replace")
    return raw
