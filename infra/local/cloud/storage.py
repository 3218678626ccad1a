"""Cloud Storage (JSON API v1): a bucket is a folder below `buckets/`, an object a file in it.

Generations are kept in memory and begin anew for files that were there, or were copied there by a
Lustre export. Not kept: content types of files found on disk, metadata, versions, ACLs.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections.abc import Mapping
from email.parser import BytesParser
from pathlib import Path
from typing import Any

from infra.local.cloud.state import Problem, State, now, unique

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
PAGE = 1000


class Storage:
    """The buckets of the cloud. Every method may raise Problem."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._known: dict[tuple[str, str], dict[str, Any]] = {}
        (state.root / "buckets").mkdir(parents=True, exist_ok=True)

    def buckets(self) -> dict[str, Any]:
        """Return all buckets."""
        folders = sorted(path for path in (self._state.root / "buckets").iterdir())
        return {"kind": "storage#buckets", "items": [_bucket(path.name) for path in folders]}

    def bucket(self, name: str) -> dict[str, Any]:
        """Return one bucket."""
        self._folder(name)
        return {**_bucket(name), "projectNumber": self._state.number}

    def policy(self, name: str) -> dict[str, Any]:
        """Return who may do what with a bucket: Managed Lustre's agent writes, unless a fault
        says otherwise.
        """
        self._folder(name)
        agent = f"service-{self._state.number}@gcp-sa-lustre.iam.gserviceaccount.com"
        usual = [{"role": "roles/storage.objectUser", "members": [f"serviceAccount:{agent}"]}]
        found = self._state.faults.value("storage.policy")
        return {"kind": "storage#policy", "bindings": usual if found is None else found}

    def create_bucket(self, name: str) -> dict[str, Any]:
        """Make a bucket."""
        if not _BUCKET.fullmatch(name):
            raise Problem("INVALID_ARGUMENT", f"Invalid bucket name: '{name}'")
        try:
            (self._state.root / "buckets" / name).mkdir()
        except FileExistsError:
            raise Problem(
                "ALREADY_EXISTS",
                "Your previous request to create the named bucket "
                "succeeded and you already own it.",
            ) from None
        self._state.log("storage", f"create gs://{name}")
        return _bucket(name)

    def objects(self, bucket: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return a page of objects: `prefix`, `delimiter`, `maxResults`, `pageToken`."""
        self._check("list")
        folder, prefix = self._folder(bucket), query.get("prefix", "")
        delimiter = query.get("delimiter", "")
        names = sorted(
            name
            for path in folder.rglob("*")
            if path.is_file() and (name := path.relative_to(folder).as_posix()).startswith(prefix)
        )
        prefixes: dict[str, None] = {}
        kept = []
        for name in names:
            head, found, _ = (
                name[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            )
            if found:
                prefixes[prefix + head + found] = None
            else:
                kept.append(name)
        token, size = query.get("pageToken", ""), int(query.get("maxResults") or PAGE)
        kept = [name for name in kept if name > _decode(token)]
        page = kept[:size]
        answer: dict[str, Any] = {"kind": "storage#objects"}
        if page:
            answer["items"] = [self._metadata(bucket, name) for name in page]
        if prefixes and not token:
            answer["prefixes"] = list(prefixes)
        if len(kept) > size:
            answer["nextPageToken"] = base64.urlsafe_b64encode(page[-1].encode()).decode()
        return answer

    def metadata(self, bucket: str, name: str) -> dict[str, Any]:
        """Return what is known of an object."""
        self._check("get")
        self._file(bucket, name)
        return self._metadata(bucket, name)

    def file(self, bucket: str, name: str) -> tuple[Path, dict[str, Any]]:
        """Return the file that holds an object, and its metadata."""
        self._check("get")
        return self._file(bucket, name), self._metadata(bucket, name)

    def insert(
        self, bucket: str, name: str, content: bytes, content_type: str, query: Mapping[str, str]
    ) -> dict[str, Any]:
        """Write an object; `ifGenerationMatch` is honoured, 0 meaning "only if absent"."""
        self._check("insert")
        if not name or name.startswith("/") or any(p in ("", ".", "..") for p in name.split("/")):
            # A folder cannot hold what the service could: said, not written somewhere else.
            raise Problem(
                "INVALID_ARGUMENT",
                f"object name {name!r} has an empty or dotted part, which a folder cannot hold.",
            )
        path = self._folder(bucket) / name
        with self._state.lock:
            present = self._metadata(bucket, name)["generation"] if path.is_file() else "0"
            _match(query, present)
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_name(f".{unique(12)}.part")
            fresh.write_bytes(content)
            fresh.replace(path)
            self._known.pop((bucket, name), None)
            answer = self._metadata(bucket, name, content_type or "application/octet-stream")
        self._state.log("storage", f"insert gs://{bucket}/{name} {len(content)} B")
        return answer

    def delete(self, bucket: str, name: str, query: Mapping[str, str]) -> None:
        """Delete an object."""
        self._check("delete")
        with self._state.lock:
            path = self._file(bucket, name)
            _match(query, self._metadata(bucket, name)["generation"])
            path.unlink()
            self._known.pop((bucket, name), None)
        self._state.log("storage", f"delete gs://{bucket}/{name}")

    def _metadata(self, bucket: str, name: str, content_type: str = "") -> dict[str, Any]:
        path = self._folder(bucket) / name
        stat = path.stat()
        stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        with self._state.lock:
            known = self._known.get((bucket, name))
            if known is None or known["stamp"] != stamp:
                generation = str(time.time_ns() // 1000)
                digest = base64.b64encode(hashlib.md5(path.read_bytes()).digest()).decode()
                known = {
                    "stamp": stamp,
                    "generation": generation,
                    "at": now(),
                    "md5": digest,
                    "type": content_type or "application/octet-stream",
                }
                self._known[bucket, name] = known
        return {
            "kind": "storage#object",
            "id": f"{bucket}/{name}/{known['generation']}",
            "name": name,
            "bucket": bucket,
            "generation": known["generation"],
            "metageneration": "1",
            "contentType": known["type"],
            "size": str(stat.st_size),
            "md5Hash": known["md5"],
            "timeCreated": known["at"],
            "updated": known["at"],
            "storageClass": "STANDARD",
            "etag": known["generation"],
        }

    def _file(self, bucket: str, name: str) -> Path:
        folder = self._folder(bucket)
        path = folder / name
        if ".." in name.split("/") or not path.is_file():
            raise Problem("NOT_FOUND", f"No such object: {bucket}/{name}")
        return path

    def _folder(self, bucket: str) -> Path:
        folder = self._state.root / "buckets" / bucket
        if not _BUCKET.fullmatch(bucket) or not folder.is_dir():
            raise Problem("NOT_FOUND", "The specified bucket does not exist.")
        return folder

    def _check(self, call: str) -> None:
        refused = self._state.faults.refusal(f"storage.{call}")
        if refused is not None:
            raise Problem("UNAVAILABLE", refused[1], refused[0])


def multipart(content_type: str, body: bytes) -> tuple[dict[str, Any], bytes, str]:
    """Take a `multipart/related` upload apart: metadata, content, content type. Raises Problem."""
    message = BytesParser().parsebytes(
        b"MIME-Version: 1.0\r\nContent-Type: " + content_type.encode() + b"\r\n\r\n" + body
    )
    parts = message.get_payload()
    if not message.is_multipart() or not isinstance(parts, list) or len(parts) != 2:
        raise Problem("INVALID_ARGUMENT", "a multipart upload has two parts: metadata and media")
    metadata = json.loads(bytes(parts[0].get_payload(decode=True) or b"{}"))  # type: ignore[union-attr]
    # The parser decodes text; the media's bytes are taken as they came.
    boundary = b"--" + (message.get_boundary() or "").encode()
    media = body.split(boundary)[2]
    content = media.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
    return metadata, content, parts[1].get_content_type()  # type: ignore[union-attr]


def _bucket(name: str) -> dict[str, Any]:
    return {
        "kind": "storage#bucket",
        "id": name,
        "name": name,
        "location": "US-EAST1",
        "storageClass": "STANDARD",
        "metageneration": "1",
    }


def _match(query: Mapping[str, str], present: str) -> None:
    wanted = query.get("ifGenerationMatch")
    if wanted is not None and wanted != present:
        raise Problem(
            "FAILED_PRECONDITION",
            "At least one of the pre-conditions you specified did not hold.",
            412,
        )


def _decode(token: str) -> str:
    return base64.urlsafe_b64decode(token.encode()).decode() if token else ""
