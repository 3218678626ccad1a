"""Objects in Cloud Storage, by the JSON API."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from lustrum.adapters.google import Rest, pages
from lustrum.core.errors import NotFound


@dataclass(frozen=True)
class StoredObject:
    """One object: full ``gs://`` name and bytes."""

    uri: str
    size: int


def split(uri: str) -> tuple[str, str]:
    """Return bucket and object name of a ``gs://`` URI.

    Raises:
        ValueError: it is not one.
    """
    if not uri.startswith("gs://"):
        raise ValueError(f"{uri!r} is not a gs:// URI")
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    return bucket, name


class Storage:
    """Reads, writes and lists objects."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    def list(self, uri: str) -> list[StoredObject]:
        """Return all objects whose name begins so."""
        bucket, prefix = split(uri)
        found = pages(self._rest, "storage", f"/storage/v1/b/{bucket}/o", {"prefix": prefix})
        return [
            StoredObject(f"gs://{bucket}/{item['name']}", int(item.get("size", 0)))
            for page in found
            for item in page.get("items", [])
        ]

    def read(self, uri: str) -> bytes:
        """Return the content of an object. Raises NotFound."""
        bucket, name = split(uri)
        return self._rest.raw(
            "storage",
            "GET",
            f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}",
            params={"alt": "media"},
        )

    def write(self, uri: str, content: bytes, content_type: str) -> None:
        """Write an object, replacing what was there."""
        bucket, name = split(uri)
        self._rest.raw(
            "storage",
            "POST",
            f"/upload/storage/v1/b/{bucket}/o",
            params={"uploadType": "media", "name": name},
            content=content,
            content_type=content_type,
        )

    def delete(self, uri: str) -> None:
        """Delete an object; one that is not there is fine."""
        bucket, name = split(uri)
        try:
            self._rest.raw("storage", "DELETE", f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}")
        except NotFound:
            return
