"""REST of the stand-in cloud for the stand-in commands. Standard library only: they start
often.
"""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote as quoted
from urllib.parse import urlencode, urlsplit

SECONDS = 30.0  # of one call


class Refused(Exception):
    """A call that was answered with an error: HTTP status, canonical code and text."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.status = status
        self.code = code
        self.text = text


def base(service: str) -> str:
    """Return the base URL of a service. Raises SystemExit if LUSTRUM_ENDPOINTS does not name
    it.
    """
    try:
        return str(json.loads(os.environ["LUSTRUM_ENDPOINTS"])[service]).rstrip("/")
    except (KeyError, ValueError):
        raise SystemExit(
            f"LUSTRUM_ENDPOINTS must be a JSON object that names {service!r}; "
            "this command stands in for the real one and works only in the local stack"
        ) from None


def raw(
    method: str,
    url: str,
    content: bytes | None = None,
    content_type: str = "application/json",
    query: Mapping[str, str] | None = None,
) -> bytes:
    """Send one request and return the body. Raises Refused."""
    parts = urlsplit(url)
    path = parts.path + ("?" + parts.query if parts.query else "")
    if query:
        path += ("&" if parts.query else "?") + urlencode(query)
    headers = {"Content-Type": content_type, "Authorization": "Bearer local"}
    # http.client: no proxy of the environment, and half the time of urllib.request to import.
    connection = http.client.HTTPConnection(parts.netloc, timeout=SECONDS)
    try:
        connection.request(method, path, body=content, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise Refused(503, "UNAVAILABLE", f"dial tcp: connection refused: {error}") from None
    finally:
        connection.close()
    if answer.status >= 400:
        code, text = _problem(body)
        raise Refused(answer.status, code, text)
    return body


def call(
    service: str,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    query: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Send one JSON request to a service and return its JSON. Raises Refused."""
    content = None if body is None else json.dumps(body).encode()
    found = json.loads(raw(method, base(service) + path, content, query=query) or b"{}")
    return dict(found)


def quote(name: str) -> str:
    """Return an object's name as one part of a path."""
    return quoted(name, safe="")


def _problem(body: bytes) -> tuple[str, str]:
    try:
        found = json.loads(body)
        error = found.get("error", found)
        return str(error.get("status") or error.get("reason") or "ERROR"), str(error["message"])
    except (ValueError, KeyError, AttributeError):
        return "ERROR", body.decode(errors="replace")[:500]
