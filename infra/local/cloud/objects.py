"""The objects of one Kubernetes API server: versions, generations, apply, selectors, deletion.

Server-side apply is kept to what matters to a caller: a field not given any more by the manager
that set it is removed, a field of another manager is a conflict unless forced, lists are replaced
whole (as in a custom resource), and an apply that changes nothing changes no version.
"""

from __future__ import annotations

import copy
import itertools
import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from infra.local.cloud import schema
from infra.local.cloud.object_values import (
    Object,
    at,
    fields_agree,
    labels_agree,
    leaves,
    merge,
    prune,
    remove,
    settle,
)


@dataclass(frozen=True)
class Resource:
    """A kind that the API serves."""

    plural: str
    kind: str
    version: str = "v1"  # group/version
    namespaced: bool = True


_RBAC = "rbac.authorization.k8s.io/v1"
RESOURCES = {
    item.plural: item
    for item in (
        Resource("namespaces", "Namespace", namespaced=False),
        Resource("nodes", "Node", namespaced=False),
        Resource("persistentvolumes", "PersistentVolume", namespaced=False),
        Resource("pods", "Pod"),
        Resource("services", "Service"),
        Resource("endpoints", "Endpoints"),
        Resource("events", "Event"),
        Resource("secrets", "Secret"),
        Resource("configmaps", "ConfigMap"),
        Resource("serviceaccounts", "ServiceAccount"),
        Resource("persistentvolumeclaims", "PersistentVolumeClaim"),
        Resource("roles", "Role", _RBAC),
        Resource("rolebindings", "RoleBinding", _RBAC),
        Resource("clusterroles", "ClusterRole", _RBAC, namespaced=False),
        Resource("clusterrolebindings", "ClusterRoleBinding", _RBAC, namespaced=False),
        Resource(
            "customresourcedefinitions",
            "CustomResourceDefinition",
            "apiextensions.k8s.io/v1",
            namespaced=False,
        ),
        Resource("rayclusters", "RayCluster", "ray.io/v1"),
    )
}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class Refusal(Exception):
    """What a Kubernetes API answers instead of an object: a `Status`."""

    def __init__(
        self, code: int, reason: str, message: str, details: Object | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        self.details = details or {}

    def body(self) -> Object:
        """Return the Status object."""
        given = {"reason": self.reason, "details": self.details}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
            **{key: value for key, value in given.items() if value},
        }


class Store:
    """All objects of one cluster. Not locked: the caller holds the cloud's lock."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._owners: dict[str, dict[str, Object]] = {}  # uid -> field manager -> what it applied
        self._versions = itertools.count(1000)
        self.history: list[tuple[int, str, str, Object]] = []  # version, event, plural, object

    def select(
        self, resource: Resource, namespace: str, labels: str = "", fields: str = ""
    ) -> list[Object]:
        """Return objects that agree with the selectors."""
        return [
            item
            for (plural, where, _), item in sorted(self._objects.items(), key=lambda pair: pair[0])
            if plural == resource.plural
            and namespace in ("", where)
            and labels_agree(labels, item["metadata"].get("labels") or {})
            and fields_agree(fields, item)
        ]

    def find(self, plural: str, namespace: str, name: str) -> Object | None:
        """Return an object or None."""
        return self._objects.get((plural, namespace, name))

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """Return an object. Raises Refusal 404."""
        found = self.find(resource.plural, namespace, name)
        if found is None:
            raise not_found(resource, name)
        return found

    def create(
        self, resource: Resource, namespace: str, body: Object, *, strict: bool = False
    ) -> Object:
        """Add an object. Raises Refusal 400, 409 or 422."""
        body = copy.deepcopy(body)
        meta = body.setdefault("metadata", {})
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + uuid.uuid4().hex[:5]
        self._check(resource, namespace, body, strict)
        name = meta["name"]
        if (resource.plural, namespace, name) in self._objects:
            raise Refusal(
                409,
                "AlreadyExists",
                f'{_title(resource)} "{name}" already exists',
                _details(resource, name),
            )
        body["kind"], body["apiVersion"] = resource.kind, resource.version
        if resource.namespaced:
            meta["namespace"] = namespace
        meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": stamp(), "generation": 1}
        meta.setdefault("labels", {})
        settle(body)
        self._objects[resource.plural, namespace, name] = body
        self.touch(resource.plural, body, "ADDED")
        return body

    def replace(
        self, resource: Resource, namespace: str, name: str, body: Object, *, strict: bool = False
    ) -> Object:
        """Put an object in the place of another. Raises Refusal, 409 on an old version."""
        found = self.get(resource, namespace, name)
        self._check(resource, namespace, body, strict)
        version = body["metadata"].get("resourceVersion")
        if version and version != found["metadata"]["resourceVersion"]:
            raise Refusal(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {_title(resource)} "{name}": '
                "the object has been modified; please apply your changes to the latest version "
                "and try again",
                _details(resource, name),
            )
        return self._change(resource, found, copy.deepcopy(body))

    def merge(
        self, resource: Resource, namespace: str, name: str, patch: Object, *, strict: bool = False
    ) -> Object:
        """Apply a JSON merge patch (RFC 7386). Raises Refusal."""
        found = self.get(resource, namespace, name)
        body = merge(copy.deepcopy(found), patch)
        self._check(resource, namespace, body, strict)
        return self._change(resource, found, body)

    def apply(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Object,
        *,
        manager: str,
        force: bool,
        strict: bool,
    ) -> tuple[Object, bool]:
        """Apply server-side; return the object, and whether it is new. Raises Refusal."""
        if not manager:
            raise Refusal(
                422,
                "Invalid",
                'PatchOptions.meta.k8s.io "" is invalid: fieldManager:'
                " Required value: is required for apply patch",
            )
        body = copy.deepcopy(body)
        body.setdefault("metadata", {}).setdefault("name", name)
        if body["metadata"]["name"] != name:
            raise Refusal(
                400,
                "BadRequest",
                "the name of the object "
                f"({body['metadata']['name']}) does not match the name on the URL "
                f"({name})",
            )
        untyped = schema.untyped_field(resource.kind, body, strict=strict)
        if untyped is not None:  # a real server calls it an internal error, without a reason
            where = f"{namespace}/{name}; {resource.version}, Kind={resource.kind}"
            raise Refusal(500, "", f"failed to create typed patch object ({where}): {untyped}")
        self._check(resource, namespace, body, strict)
        found = self.find(resource.plural, namespace, name)
        if found is None:
            made = self.create(resource, namespace, body)
            self._own(made, manager, body)
            return made, True
        owners = self._owners.setdefault(found["metadata"]["uid"], {})
        settled = settle(copy.deepcopy(body))
        conflicts = [
            f'conflict with "{other}": .{".".join(path)}'
            for other, theirs in owners.items()
            if other != manager
            for path, value in leaves(settled)
            if at(theirs, path) not in (None, value)
        ]
        if conflicts and not force:
            raise Refusal(
                409,
                "Conflict",
                f"Apply failed with {len(conflicts)} conflict(s): " + ", ".join(conflicts),
            )
        fresh = remove(copy.deepcopy(found), owners.get(manager, {}), settled)
        changed = self._change(resource, found, merge(fresh, settled))
        self._own(changed, manager, settled)
        return changed, False

    def set_status(self, plural: str, item: Object, status: Object) -> None:
        """Write a status, if it differs; the generation stays."""
        if item.get("status") != status:
            item["status"] = status
            self.touch(plural, item)

    def remove(self, plural: str, item: Object) -> None:
        """Take an object out."""
        meta = item["metadata"]
        if self._objects.pop((plural, meta.get("namespace", ""), meta["name"]), None) is not None:
            self._owners.pop(meta["uid"], None)
            self.touch(plural, item, "DELETED")

    def touch(self, plural: str, item: Object, event: str = "MODIFIED") -> None:
        """Give an object a new version, and tell watchers."""
        version = next(self._versions)
        item["metadata"]["resourceVersion"] = str(version)
        self.history.append((version, event, plural, copy.deepcopy(item)))
        del self.history[:-500]

    @property
    def version(self) -> str:
        """Return the version of the newest change."""
        return str(self.history[-1][0]) if self.history else "1"

    def _change(self, resource: Resource, found: Object, body: Object) -> Object:
        kept = found["metadata"]
        settle(body)
        body["kind"], body["apiVersion"] = resource.kind, resource.version
        for key in (
            "uid",
            "creationTimestamp",
            "generation",
            "namespace",
            "resourceVersion",
            "deletionTimestamp",
            "name",
        ):
            if key in kept:
                body["metadata"][key] = kept[key]
        if "status" in found:
            body["status"] = found["status"]
        if body == found:
            return found
        if body.get("spec") != found.get("spec"):
            body["metadata"]["generation"] = kept["generation"] + 1
        found.clear()
        found.update(body)
        self.touch(resource.plural, found)
        return found

    def _own(self, item: Object, manager: str, applied: Object) -> None:
        meta = item["metadata"]
        self._owners.setdefault(meta["uid"], {})[manager] = applied
        meta["managedFields"] = (
            [
                {
                    "manager": name,
                    "operation": "Apply",
                    "apiVersion": item["apiVersion"],
                    "fieldsType": "FieldsV1",
                    "time": stamp(),
                }
                for name in self._owners[meta["uid"]]
            ]
            if manager not in {m["manager"] for m in meta.get("managedFields", [])}
            else meta["managedFields"]
        )

    def _check(self, resource: Resource, namespace: str, body: Object, strict: bool) -> None:
        if body.get("kind", resource.kind) != resource.kind:
            raise Refusal(
                400,
                "BadRequest",
                f"{body.get('kind')} in version "
                f'"{body.get("apiVersion")}" cannot be handled as a {resource.kind}',
            )
        given = (body.get("metadata") or {}).get("namespace")
        if resource.namespaced and given not in (None, namespace):
            raise Refusal(
                400,
                "BadRequest",
                "the namespace of the provided object does not match "
                "the namespace sent on the request",
            )
        unknown = schema.unknown_fields(resource.kind, body)
        if unknown and strict:
            text = ", ".join(f'unknown field "{path}"' for path in unknown)
            raise Refusal(
                400,
                "BadRequest",
                f"{resource.kind} in version "
                f'"{resource.version.rsplit("/", 1)[-1]}" cannot be handled as a '
                f"{resource.kind}: strict decoding error: {text}",
            )
        for path in unknown:
            prune(body, path)
        name = body["metadata"].get("name", "")
        invalid = schema.invalid_fields(resource.kind, body)
        if not _NAME.fullmatch(str(name)):
            invalid.append(
                f'metadata.name: Invalid value: "{name}": a lowercase RFC 1123 '
                "subdomain must consist of lower case alphanumeric characters, '-' or "
                "'.', and must start and end with an alphanumeric character"
            )
        invalid += schema.label_problems(body["metadata"].get("labels") or {})
        if invalid:
            raise Refusal(
                422,
                "Invalid",
                f"{resource.kind}"
                f"{'.' + resource.version.split('/')[0] if '/' in resource.version else ''}"
                f' "{name}" is invalid: {", ".join(invalid)}',
                _details(resource, name),
            )


def not_found(resource: Resource, name: str) -> Refusal:
    """Return the 404 of an object."""
    return Refusal(
        404, "NotFound", f'{_title(resource)} "{name}" not found', _details(resource, name)
    )


def stamp() -> str:
    """Return now as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _title(resource: Resource) -> str:
    group = resource.version.split("/")[0] if "/" in resource.version else ""
    return f"{resource.plural}.{group}" if group else resource.plural


def _details(resource: Resource, name: str) -> Object:
    group = {"group": resource.version.split("/")[0]} if "/" in resource.version else {}
    return {"name": name, "kind": resource.plural, **group}
