"""Managed Lustre, by its REST API (v1): instances, imports and exports."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lustrum.adapters.google import CloudList, Rest, pages
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.names import LABEL_EXPIRES
from lustrum.core.settings import Settings


@dataclass(frozen=True)
class Instance:
    """One Lustre instance."""

    name: str  # short
    zone: str
    state: str
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Transfer:
    """An import or export: done, its problem ("" if none), files and bytes copied or already
    there.
    """

    operation: str
    done: bool
    problem: str = ""
    files: int = 0
    bytes: int = 0


class Lustre:
    """The Lustre instances of one project."""

    def __init__(self, rest: Rest, settings: Settings) -> None:
        self._rest = rest
        self._project = f"projects/{settings.project}"

    def list(self) -> CloudList[Instance]:
        """Return the instances of all locations."""
        found = pages(self._rest, "lustre", f"/v1/{self._project}/locations/-/instances", {})
        return CloudList(
            [_instance(item) for page in found for item in page.get("instances", [])],
            [place for page in found for place in page.get("unreachable", [])],
        )

    def delete(self, zone: str, name: str) -> None:
        """Begin to delete an instance; one that is gone or going is fine."""
        try:
            self._rest.call("lustre", "DELETE", "/v1/" + self._path(zone, name))
        except NotFound:
            return
        except ServiceError as error:
            if error.status not in (400, 409):  # being created or deleted already
                raise

    def relabel(self, zone: str, name: str, expires: float) -> None:
        """Store a new expiry on an instance."""
        path = "/v1/" + self._path(zone, name)
        labels = self._rest.call("lustre", "GET", path).get("labels", {})
        self._rest.call(
            "lustre",
            "PATCH",
            path,
            params={"updateMask": "labels"},
            body={"labels": {**labels, LABEL_EXPIRES: str(int(expires))}},
        )

    def export(self, zone: str, name: str, folder: str, uri: str) -> str:
        """Begin to copy a folder (path inside the file system) to a bucket; return the operation.

        One transfer per instance: while another runs, that one's operation is returned.
        """
        return self._transfer(
            zone,
            name,
            ":exportData",
            {"lustrePath": {"path": folder}, "gcsPath": {"uri": uri}},
        )

    def import_(self, zone: str, name: str, uri: str, folder: str) -> str:
        """Begin to copy a bucket folder onto the file system; the folder must exist there."""
        return self._transfer(
            zone,
            name,
            ":importData",
            {"gcsPath": {"uri": uri}, "lustrePath": {"path": folder}},
        )

    def transfer(self, operation: str) -> Transfer:
        """Return how far an import or export is. Raises NotFound.

        An operation can end without error and yet have failed objects: that is a problem too.
        """
        found = self._rest.call("lustre", "GET", f"/v1/{operation}")
        counters = ((found.get("metadata") or {}).get("operationMetadata") or {}).get(
            "counters"
        ) or {}
        failed = int(counters.get("objectsFailedCount", 0))
        problem = str((found.get("error") or {}).get("message", ""))
        if failed and not problem:
            problem = f"{failed} objects could not be copied"
        return Transfer(
            operation=operation,
            done=bool(found.get("done")),
            problem=problem,
            files=_sum(counters, "objectsCopiedCount", "objectsSkippedCount"),
            bytes=_sum(counters, "bytesCopiedCount", "bytesSkippedCount"),
        )

    def _transfer(self, zone: str, name: str, verb: str, body: dict[str, Any]) -> str:
        path = self._path(zone, name)
        request = {**body, "requestId": str(uuid.uuid4())}
        try:
            return str(
                self._rest.call("lustre", "POST", f"/v1/{path}{verb}", body=request)["name"]
            )
        except ServiceError as error:
            running = self._running(zone, path) if error.status == 409 else None
            if running is None:
                raise
            return running

    def _running(self, zone: str, path: str) -> str | None:
        found = self._rest.call(
            "lustre", "GET", f"/v1/{self._project}/locations/{zone}/operations"
        )
        for item in found.get("operations", []):
            if not item.get("done") and (item.get("metadata") or {}).get("target") == path:
                return str(item["name"])
        return None

    def _path(self, zone: str, name: str) -> str:
        return f"{self._project}/locations/{zone}/instances/{name}"


def _instance(item: Mapping[str, Any]) -> Instance:
    parts = item["name"].split("/")
    return Instance(parts[-1], parts[3], item.get("state", ""), item.get("labels", {}))


def _sum(counters: Mapping[str, Any], *keys: str) -> int:
    return sum(int(counters.get(key, 0)) for key in keys)
