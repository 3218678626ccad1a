"""Managed Lustre v1 (REST): an instance is a folder, an export copies it into a bucket's folder.

Shapes and rules: facts of google/cloud/lustre/v1: one transfer per instance (else ABORTED),
incremental copies, counters that leave out what was skipped, an operation that can end without an
error and yet with failed objects.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.local.cloud.state import Problem, State, now, unique

_ID = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_URI = re.compile(r"gs://([^/]+)/(.*)")
# MB/s per TiB -> (least GiB, step): the table of performance tiers, not the proto's older text.
TIERS = {1000: (9_000, 9_000), 500: (18_000, 18_000), 250: (36_000, 36_000), 125: (72_000, 72_000)}
GIB = 2**30


class Lustre:
    """The Lustre instances of one project. Every method may raise Problem.

    Args:
        state: the memory of the cloud.
        given: the file system of any instance, not ours to delete.
    """

    def __init__(self, state: State, given: Path | None = None) -> None:
        self._state = state
        self._given = given
        self._requests: dict[str, tuple[float, dict[str, Any]]] = {}
        self._cancelled: set[str] = set()

    def folder(self, instance: str) -> Path:
        """Return the folder that is an instance's file system."""
        return self._given or self._state.root / "lustre" / instance

    def listing(self, location: str) -> dict[str, Any]:
        """Return the instances of a location, or of all (`-`), and who did not answer."""
        self._check("list")
        missing = self._state.faults.value("lustre.unreachable") or []
        with self._state.lock:
            found = [
                item
                for name, item in self._state.instances.items()
                if location in ("-", _zone(name)) and _zone(name) not in missing
            ]
        unreachable = [f"projects/{self._state.project}/locations/{zone}" for zone in missing]
        return {"instances": found, **({"unreachable": unreachable} if unreachable else {})}

    def get(self, name: str) -> dict[str, Any]:
        """Return one instance."""
        self._check("get")
        return self._instance(name)

    def create(
        self, location: str, identity: str, request_id: str | None, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Begin to create an instance; the same request id within 60 minutes is the same call."""
        self._check("create")
        if location == "-" or location.count("-") != 2:
            raise Problem("INVALID_ARGUMENT", f"Location {location!r} is not a zone.")
        name = f"projects/{self._state.project}/locations/{location}/instances/{identity}"
        known = self._requests.get(request_id or "")
        if known is not None and time.monotonic() - known[0] < 3600:
            return known[1]
        _check_instance(identity, body)
        with self._state.lock:
            if name in self._state.instances:
                raise Problem("ALREADY_EXISTS", f"Resource '{name}' already exists.")
            instance = {
                **body,
                "name": name,
                "state": "CREATING",
                "createTime": now(),
                "updateTime": now(),
                "uid": unique(32),
                "capacityGib": str(body["capacityGib"]),
                "mountPoint": f"10.199.{len(self._state.instances)}.2@tcp:/{body['filesystem']}",
            }
            self._state.instances[name] = instance
            operation = self._operation(name, "create", {})
            error = self._state.failure("lustre.create")

            def done() -> None:
                if error:
                    self._state.instances.pop(name, None)
                    self._finish(operation, error=error)
                    return
                self.folder(identity).mkdir(parents=True, exist_ok=True)
                instance["state"] = "ACTIVE"
                self._finish(operation, response=instance)

            self._state.later(
                self._state.seconds("lustre.create", self._state.timings.lustre_create), done
            )
        self._state.log("lustre", f"create {name}")
        if request_id:
            self._requests[request_id] = (time.monotonic(), operation)
        return operation

    def delete(self, name: str) -> dict[str, Any]:
        """Begin to delete an instance with everything in it."""
        self._check("delete")
        with self._state.lock:
            instance = self._instance(name)
            if instance["state"] in ("CREATING", "DELETING"):
                raise Problem("FAILED_PRECONDITION", f"Instance {name} is {instance['state']}.")
            if self._running(name):
                raise Problem("FAILED_PRECONDITION", f"Instance {name} has a running transfer.")
            instance["state"] = "DELETING"
            operation = self._operation(name, "delete", {})
            error = self._state.failure("lustre.delete")

            def done() -> None:
                if error:
                    instance["state"] = "ACTIVE"
                    self._finish(operation, error=error)
                    return
                # Away in one rename: nobody may see half of it, nor wait for the removal.
                gone = self._state.root / "trash" / unique(12)
                gone.parent.mkdir(exist_ok=True)
                folder = self.folder(name.rsplit("/", 1)[-1])
                if folder.exists() and self._given is None:
                    folder.rename(gone)
                    threading.Thread(target=shutil.rmtree, args=(gone, True), daemon=True).start()
                self._state.instances.pop(name, None)
                self._finish(operation, response={})

            self._state.later(
                self._state.seconds("lustre.delete", self._state.timings.lustre_delete), done
            )
        self._state.log("lustre", f"delete {name}")
        return operation

    def patch(self, name: str, mask: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Change labels, description or capacity."""
        self._check("patch")
        fields = [item for item in mask.split(",") if item] or list(body)
        wrong = set(fields) - {"labels", "description", "capacityGib", "capacity_gib"}
        if wrong:
            raise Problem("INVALID_ARGUMENT", f"update_mask: {sorted(wrong)} cannot be changed.")
        with self._state.lock:
            instance = self._instance(name)
            for key in fields:
                key = "capacityGib" if key == "capacity_gib" else key
                if key in body:
                    instance[key] = body[key]
            instance["updateTime"] = now()
            operation = self._operation(name, "update", {})
            self._finish(operation, response=instance)
        self._state.log("lustre", f"patch {name}")
        return operation

    def transfer(self, name: str, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Begin an export (`exportData`) or import (`importData`)."""
        self._check(verb)
        uri = str((body.get("gcsPath") or {}).get("uri", ""))
        inside = str((body.get("lustrePath") or {}).get("path", "/"))
        match = _URI.fullmatch(uri)
        if match is None or (match[2] and not match[2].endswith("/")):
            raise Problem(
                "INVALID_ARGUMENT", f"gcs_path.uri {uri!r} must be gs://BUCKET/ or end with '/'."
            )
        if not inside.startswith("/") or ".." in inside.split("/"):
            raise Problem("INVALID_ARGUMENT", f"lustre_path.path {inside!r} must be absolute.")
        bucket = self._state.root / "buckets" / match[1]
        with self._state.lock:
            if self._instance(name)["state"] != "ACTIVE":
                raise Problem("FAILED_PRECONDITION", f"Instance {name} is not ACTIVE.")
            if self._running(name):
                raise Problem(
                    "ABORTED", f"Instance {name} already has an active import or export operation."
                )
            if not bucket.is_dir():
                raise Problem(
                    "NOT_FOUND",
                    f"The bucket {match[1]} does not exist, or the Lustre "
                    "service agent has no access to it.",
                )
            lustre = self.folder(name.rsplit("/", 1)[-1]) / inside.strip("/")
            if verb == "importData" and not lustre.is_dir():
                raise Problem("INVALID_ARGUMENT", f"lustre_path {inside} does not exist.")
            counters: dict[str, str] = {}
            operation = self._operation(name, verb, counters)
        far = bucket / match[2]
        source, target = (lustre, far) if verb == "exportData" else (far, lustre)
        error = self._state.failure(f"lustre.{verb}")
        seconds = self._state.seconds(f"lustre.{verb}", self._state.timings.transfer)
        threading.Thread(
            target=self._copy,
            args=(operation, source, target, counters, error, seconds),
            daemon=True,
        ).start()
        self._state.log("lustre", f"{verb} {name}{inside} {uri}")
        return operation

    def operations(self, location: str) -> dict[str, Any]:
        """Return the operations of a location."""
        with self._state.lock:
            return {
                "operations": [
                    item
                    for name, item in self._state.lustre_operations.items()
                    if location in ("-", _zone(name))
                ]
            }

    def operation(self, name: str) -> dict[str, Any]:
        """Return one operation."""
        with self._state.lock:
            found = self._state.lustre_operations.get(name)
        if found is None:
            raise Problem("NOT_FOUND", f"Resource '{name}' was not found")
        return found

    def cancel(self, name: str) -> dict[str, Any]:
        """Ask a running operation to stop; only transfers do."""
        found = self.operation(name)
        if not found["done"]:
            found["metadata"]["requestedCancellation"] = True
            self._cancelled.add(name)
        self._state.log("lustre", f"cancel {name}")
        return {}

    def _copy(
        self,
        operation: dict[str, Any],
        source: Path,
        target: Path,
        counters: dict[str, str],
        error: str | None,
        seconds: float,
    ) -> None:
        ends = time.monotonic() + seconds
        count = {
            f"{what}{outcome}": 0
            for outcome in ("Found", "Skipped", "Copied", "Failed")
            for what in ("objects", "bytes")
        }
        to_fail = int(self._state.faults.value("lustre.failed_objects") or 0)
        samples: list[dict[str, Any]] = []
        files = sorted(path for path in source.rglob("*") if path.is_file()) if not error else []
        while True:
            for file in files:
                if operation["name"] in self._cancelled:
                    break
                size, there = file.stat().st_size, target / file.relative_to(source)
                outcome = _copy_file(file, there, fail=to_fail > 0)
                to_fail -= outcome == "Failed"
                if outcome == "Failed" and len(samples) < 5:
                    samples.append(
                        {
                            "objectUri": str(file.relative_to(source)),
                            "errorDetails": ["injected fault"],
                        }
                    )
                # What was skipped is not found (facts F).
                for what in {outcome} | ({"Found"} if outcome != "Skipped" else set()):
                    count[f"objects{what}"] += 1
                    count[f"bytes{what}"] += size
                counters.update({f"{key}Count": str(value) for key, value in count.items()})
            files = []
            if operation["name"] in self._cancelled or time.monotonic() >= ends:
                break
            time.sleep(min(0.02, seconds))
        with self._state.lock:
            counters.update({f"{key}Count": str(value) for key, value in count.items()})
            if samples:
                operation["metadata"]["operationMetadata"]["errorSummaries"] = [
                    {
                        "errorCode": "PERMISSION_DENIED",
                        "errorCount": str(count["objectsFailed"]),
                        "errorLogEntries": samples,
                    }
                ]
            if operation["name"] in self._cancelled:
                self._finish(operation, error="The operation was cancelled.", code=1)
            elif error:
                self._finish(operation, error=error)
            else:
                self._finish(operation, response={})

    def _operation(self, target: str, verb: str, counters: dict[str, str]) -> dict[str, Any]:
        name = f"{target.rsplit('/instances/', 1)[0]}/operations/operation-{unique(16)}"
        operation: dict[str, Any] = {
            "name": name,
            "done": False,
            "metadata": {
                "@type": "type.googleapis.com/google.cloud.lustre.v1.OperationMetadata",
                "createTime": now(),
                "target": target,
                "verb": verb,
                "apiVersion": "v1",
                "requestedCancellation": False,
            },
        }
        if verb.endswith("Data"):
            operation["metadata"]["operationMetadata"] = {"counters": counters}
        self._state.lustre_operations[name] = operation
        return operation

    def _finish(
        self,
        operation: dict[str, Any],
        *,
        response: dict[str, Any] | None = None,
        error: str | None = None,
        code: int = 13,
    ) -> None:
        operation["metadata"]["endTime"] = now()
        if error is None:
            operation["response"] = response or {}
        else:
            denied, full = "PERMISSION_DENIED" in error, "RESOURCE_EXHAUSTED" in error
            operation["error"] = {"code": 7 if denied else 8 if full else code, "message": error}
        operation["done"] = True
        self._state.log("lustre", f"done {operation['name']} {error or ''}".rstrip())

    def _running(self, instance: str) -> bool:
        return any(
            not item["done"]
            and item["metadata"]["target"] == instance
            and item["metadata"]["verb"].endswith("Data")
            for item in self._state.lustre_operations.values()
        )

    def _instance(self, name: str) -> dict[str, Any]:
        with self._state.lock:
            found = self._state.instances.get(name)
        if found is None:
            raise Problem("NOT_FOUND", f"Resource '{name}' was not found")
        return found

    def _check(self, call: str) -> None:
        refused = self._state.faults.refusal(f"lustre.{call}")
        if refused is not None:
            code = {
                403: "PERMISSION_DENIED",
                404: "NOT_FOUND",
                409: "ABORTED",
                429: "RESOURCE_EXHAUSTED",
                500: "INTERNAL",
            }.get(refused[0], "UNAVAILABLE")
            raise Problem(code, refused[1], refused[0])


def _copy_file(source: Path, target: Path, *, fail: bool) -> str:
    if (
        target.is_file()
        and target.stat().st_size == source.stat().st_size
        and target.stat().st_mtime_ns >= source.stat().st_mtime_ns
    ):
        return "Skipped"
    if fail:
        return "Failed"
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    return "Copied"


def _check_instance(identity: str, body: Mapping[str, Any]) -> None:
    if not _ID.fullmatch(identity):
        raise Problem(
            "INVALID_ARGUMENT",
            f"instance_id {identity!r}: 1-63 lowercase letters, "
            "digits or hyphens, beginning with a letter.",
        )
    missing = [key for key in ("filesystem", "capacityGib", "network") if not body.get(key)]
    if missing:
        raise Problem("INVALID_ARGUMENT", f"instance: {', '.join(missing)} must be given.")
    if not re.fullmatch(r"[a-zA-Z0-9]{1,8}", str(body["filesystem"])):
        raise Problem(
            "INVALID_ARGUMENT", f"filesystem {body['filesystem']!r}: at most 8 letters or digits."
        )
    tier = int(body.get("perUnitStorageThroughput") or 1000)
    if tier not in TIERS:
        raise Problem(
            "INVALID_ARGUMENT", f"per_unit_storage_throughput {tier}: one of {sorted(TIERS)}."
        )
    least, step = TIERS[tier]
    capacity = int(body["capacityGib"])
    if capacity < least or capacity % step:
        raise Problem(
            "INVALID_ARGUMENT",
            f"capacity_gib {capacity}: at least {least} and a "
            f"multiple of {step} at {tier} MB/s per TiB.",
        )


def _zone(name: str) -> str:
    return name.split("/")[3]
