"""The Kubernetes API of a run's cluster, through the `kubernetes` client's configuration and
connections.

Reached by the cluster's DNS endpoint with a Google token (public CA, no cluster CA), or by a
kubeconfig.
No tunnel is ever kept open: the Ray dashboard is reached through the API server's service proxy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import urllib3
from kubernetes import client as kube
from kubernetes import config as kube_config

from lustrum.adapters.google import Tokens
from lustrum.adapters.ray_jobs import RayReply
from lustrum.core import names
from lustrum.core.errors import NotFound, ServiceError, from_status
from lustrum.core.failures import Failure
from lustrum.core.settings import Settings

FIELD_MANAGER = "lustrum"
CONNECT, READ = 5.0, 30.0  # seconds
_PATHS = {
    "Secret": "/api/v1/namespaces/{}/secrets",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Event": "/api/v1/namespaces/{}/events",
    "RayCluster": "/apis/ray.io/v1/namespaces/{}/rayclusters",
}


class Kubernetes:
    """One cluster's API. Every call has a timeout; a 401 is retried once with a fresh token."""

    def __init__(self, api: kube.ApiClient, tokens: Tokens | None) -> None:
        self._api = api
        self._tokens = tokens

    @classmethod
    def connect(cls, settings: Settings, tokens: Tokens, endpoint: str) -> Kubernetes:
        """Return the API at a cluster's DNS endpoint, or of ``LUSTRUM_KUBECONFIG`` if that is
        set.
        """
        if settings.kubeconfig:
            api = kube_config.new_client_from_config(settings.kubeconfig)  # type: ignore[no-untyped-call]
            return cls(api, None)
        configuration = kube.Configuration()
        scheme = "http" if settings.is_local else "https"
        configuration.host = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        configuration.retries = False
        return cls(kube.ApiClient(configuration), tokens)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return one object. Raises NotFound."""
        return self._json("GET", f"{self._path(kind)}/{name}")

    def items(self, kind: str, **query: str) -> list[dict[str, Any]]:
        """Return objects of a kind; ``labelSelector`` and ``fieldSelector`` narrow it."""
        return list(self._json("GET", self._path(kind), query=query).get("items") or [])

    def apply(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create or change an object server-side; an unknown field is an error, not a silent
        loss.
        """
        path = f"{self._path(manifest['kind'])}/{manifest['metadata']['name']}"
        return self._json(
            "PATCH",
            path,
            body=manifest,
            content_type="application/apply-patch+yaml",
            query={"fieldManager": FIELD_MANAGER, "force": "true", "fieldValidation": "Strict"},
        )

    def delete(self, kind: str, name: str) -> None:
        """Delete an object and, first, what it owns; one that is not there is fine."""
        try:
            self._json(
                "DELETE", f"{self._path(kind)}/{name}", query={"propagationPolicy": "Foreground"}
            )
        except NotFound:
            return

    def pods(self, run_id: str) -> list[dict[str, Any]]:
        """Return the Ray pods of a run."""
        return self.items("Pod", labelSelector=f"ray.io/cluster={run_id}")

    def events(self) -> list[dict[str, Any]]:
        """Return the namespace's events."""
        return self.items("Event")

    def proxy(self, service: str, port: int, path: str) -> str:
        """Return the API server's path to a port of a service."""
        return (
            f"/api/v1/namespaces/{names.NAMESPACE}/services/http:{service}:{port}/proxy"
            f"/{path.lstrip('/')}"
        )

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
        read: float = READ,
    ) -> RayReply:
        """Send one request and return whatever came back.

        Raises:
            ServiceError: no answer (retryable), or no credentials.
        """
        url = self._api.configuration.host.rstrip("/") + path
        if query:
            url += "?" + urlencode(query)
        pool = self._api.rest_client.pool_manager
        for fresh in (False, True):
            headers = {"Accept": "application/json", **self._authorization(fresh)}
            if body is not None:
                headers["Content-Type"] = content_type
            try:
                answer = pool.request(
                    method,
                    url,
                    body=body,
                    headers=headers,
                    retries=False,
                    timeout=urllib3.Timeout(connect=CONNECT, read=read),
                )
            except urllib3.exceptions.HTTPError as error:
                raise ServiceError(
                    Failure.INFRA_TRANSIENT,
                    f"Kubernetes {method}: {type(error).__name__}: {str(error)[:200]}",
                    retryable=True,
                ) from None
            if answer.status != 401 or self._tokens is None:
                break
        return RayReply(answer.status, answer.data)

    def _authorization(self, fresh: bool) -> dict[str, str]:
        if self._tokens is not None:
            return {"Authorization": f"Bearer {self._tokens.get(fresh=fresh)}"}
        found = self._api.configuration.auth_settings().get("BearerToken")
        return {found["key"]: found["value"]} if found else {}

    def _json(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        # No escapes: a YAML reader, which an apply patch meets, does not join surrogate pairs.
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        answer = self.request(method, path, body=data, content_type=content_type, query=query)
        text = answer.body.decode(errors="replace")
        if not 200 <= answer.status < 300:
            message = _status_message(text)
            if "typed patch object" in message:  # our own manifest is wrong, and it answers 500
                raise ServiceError(Failure.CONFIG, f"Kubernetes: {message}", status=answer.status)
            raise from_status("Kubernetes", answer.status, message)
        found: dict[str, Any] = json.loads(text or "{}")
        return found

    def _path(self, kind: str) -> str:
        return _PATHS[kind].format(names.NAMESPACE)


def _status_message(text: str) -> str:
    try:
        return str(json.loads(text).get("message", text))
    except (ValueError, AttributeError):
        return text
