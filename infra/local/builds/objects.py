"""Objects of the stand-in Cloud Storage, by ``gs://`` address."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase

from infra.local.builds.rest import base, call, quote, raw

_URL = re.compile(r"gs://([a-z0-9][a-z0-9._-]*)/?(.*)")


def parse(url: str) -> tuple[str, str]:
    """Return bucket and object name of an address. Raises ValueError."""
    match = _URL.fullmatch(url)
    if match is None:
        raise ValueError(f"{url!r} is not a gs:// address")
    return match[1], match[2]


def read(url: str) -> bytes:
    """Return an object's content. Raises Refused (404)."""
    bucket, name = parse(url)
    return raw("GET", f"{base('storage')}/storage/v1/b/{bucket}/o/{quote(name)}?alt=media")


def write(url: str, content: bytes, generation: str | None = None) -> None:
    """Write an object, only at a generation if one is given (0: only if absent). Raises
    Refused.
    """
    bucket, name = parse(url)
    query = {"uploadType": "media", "name": name}
    if generation is not None:
        query["ifGenerationMatch"] = generation
    raw(
        "POST",
        f"{base('storage')}/upload/storage/v1/b/{bucket}/o",
        content,
        "application/octet-stream",
        query,
    )


def delete(url: str) -> None:
    """Delete an object. Raises Refused (404)."""
    bucket, name = parse(url)
    raw("DELETE", f"{base('storage')}/storage/v1/b/{bucket}/o/{quote(name)}")


def generation(url: str) -> str:
    """Return an object's generation. Raises Refused (404)."""
    bucket, name = parse(url)
    return str(call("storage", "GET", f"/storage/v1/b/{bucket}/o/{quote(name)}")["generation"])


def matching(pattern: str) -> list[str]:
    """Return the addresses of the objects that a pattern matches: ``*`` within a part, ``**``
    across.
    """
    bucket, name = parse(pattern)
    prefix = name.split("*", 1)[0]
    found: list[str] = []
    token = ""
    while True:
        query = {"prefix": prefix, **({"pageToken": token} if token else {})}
        page = call("storage", "GET", f"/storage/v1/b/{bucket}/o", query=query)
        found += [str(item["name"]) for item in page.get("items", [])]
        token = page.get("nextPageToken", "")
        if not token:
            break
    parts = name.count("/")
    across = "**" in name
    return [
        f"gs://{bucket}/{one}"
        for one in found
        if fnmatchcase(one, name) and (across or one.count("/") == parts)
    ]


def read_json(url: str) -> dict[str, object]:
    """Return an object's content as JSON."""
    return dict(json.loads(read(url)))
