"""The Kubernetes API as plain JSON: what tests and stand-ins of this tier read and write.

On purpose not the client that the product uses: a test must not inherit the product's mistakes.
"""

from __future__ import annotations

import ssl
from typing import Any

import httpx

JSON = dict[str, Any]

# kind -> (API root, plural, namespaced)
_KINDS: dict[str, tuple[str, str, bool]] = {
    "Node": ("/api/v1", "nodes", False),
    "Namespace": ("/api/v1", "namespaces", False),
    "Pod": ("/api/v1", "pods", True),
    "Event": ("/api/v1", "events", True),
    "Secret": ("/api/v1", "secrets", True),
    "Service": ("/api/v1", "services", True),
    "Endpoints": ("/api/v1", "endpoints", True),
    "ConfigMap": ("/api/v1", "configmaps", True),
    "ServiceAccount": ("/api/v1", "serviceaccounts", True),
    "PersistentVolume": ("/api/v1", "persistentvolumes", False),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims", True),
    "RayCluster": ("/apis/ray.io/v1", "rayclusters", True),
    "RayJob": ("/apis/ray.io/v1", "rayjobs", True),
    "Role": ("/apis/rbac.authorization.k8s.io/v1", "roles", True),
    "RoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "rolebindings", True),
    "ClusterRole": ("/apis/rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
    "CustomResourceDefinition": (
        "/apis/apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        False,
    ),
}


class ApiError(RuntimeError):
    """An answer of 400 or more; ``status`` is the code, the message is the server's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """One user's connection to an API server."""

    def __init__(self, url: str, ca_file: str, token: str, impersonate: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        if impersonate is not None:
            headers["Impersonate-User"] = impersonate
        self.http = httpx.Client(
            base_url=url,
            headers=headers,
            verify=ssl.create_default_context(cafile=ca_file),
            timeout=httpx.Timeout(30.0),
            trust_env=False,
        )

    def request(self, method: str, path: str, **options: Any) -> JSON:
        """One call; returns the decoded answer.

        Raises:
            ApiError: the server answered 400 or more.
        """
        answer = self.http.request(method, path, **options)
        if answer.status_code >= 400:
            raise ApiError(answer.status_code, answer.text)
        decoded: JSON = answer.json()
        return decoded

    def path(self, kind: str, name: str = "", namespace: str = "default") -> str:
        """Where objects of a kind live."""
        root, plural, namespaced = _KINDS[kind]
        where = f"/namespaces/{namespace}" if namespaced and namespace else ""
        return f"{root}{where}/{plural}" + (f"/{name}" if name else "")

    def get(self, kind: str, name: str, namespace: str = "default") -> JSON:
        """One object; ApiError 404 if it does not exist."""
        return self.request("GET", self.path(kind, name, namespace))

    def find(self, kind: str, name: str, namespace: str = "default") -> JSON | None:
        """One object, or None if it does not exist."""
        try:
            return self.get(kind, name, namespace)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind: str, *, namespace: str = "default", **query: str) -> list[JSON]:
        """Objects of a kind; ``query`` as the API has it (``labelSelector``). "" = everywhere."""
        path = self.path(kind, namespace=namespace)
        items: list[JSON] = self.request("GET", path, params=query)["items"]
        return items

    def create(self, kind: str, body: JSON, namespace: str = "default", sub: str = "") -> JSON:
        """POST an object (or to a subresource path like ``name/binding``)."""
        return self.request("POST", self.path(kind, sub, namespace), json=body)

    def apply(self, manifest: JSON) -> JSON:
        """Server-side apply under strict field validation; returns what was stored."""
        meta = manifest["metadata"]
        path = self.path(manifest["kind"], meta["name"], meta.get("namespace", "default"))
        return self.request(
            "PATCH",
            path,
            params={"fieldManager": "cluster-tier", "force": "true", "fieldValidation": "Strict"},
            headers={"Content-Type": "application/apply-patch+yaml"},
            json=manifest,
        )

    def patch(self, kind: str, name: str, body: JSON, namespace: str = "default") -> JSON:
        """Merge patch; ``name`` may end in ``/status``."""
        headers = {"Content-Type": "application/merge-patch+json"}
        return self.request("PATCH", self.path(kind, name, namespace), headers=headers, json=body)

    def delete(self, kind: str, name: str, namespace: str = "default", **options: Any) -> None:
        """Delete an object with DeleteOptions; absent is fine."""
        try:
            self.request("DELETE", self.path(kind, name, namespace), json=options)
        except ApiError as error:
            if error.status != 404:
                raise
