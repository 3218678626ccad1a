"""Access tokens and plain REST calls to Google Cloud, with timeouts."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import httpx

from lustrum.core.errors import ServiceError, from_status
from lustrum.core.failures import Failure
from lustrum.core.settings import Settings

TIMEOUT = httpx.Timeout(30.0, connect=5.0)  # seconds
# userinfo.email: Kubernetes RBAC matches the account by its e-mail address.
SCOPES = (
    "https://www.googleapis.com/auth/cloud-platform",
    "https://www.googleapis.com/auth/userinfo.email",
)
T = TypeVar("T")
_HOSTS = {
    "lustre": "https://lustre.googleapis.com",
    "cloudbuild": "https://cloudbuild.googleapis.com",
    "storage": "https://storage.googleapis.com",
    "compute": "https://compute.googleapis.com",
    "executions": "https://workflowexecutions.googleapis.com",
    "cloudresourcemanager": "https://cloudresourcemanager.googleapis.com",
}


@dataclass(frozen=True)
class CloudList(Generic[T]):
    """A listing, and the places that did not answer: then absence proves nothing."""

    items: list[T]
    missing: list[str] = field(default_factory=list)


class Tokens:
    """Bearer tokens of the function's own account; they live about an hour and are refreshed."""

    _credentials: Any = None

    def __init__(self, settings: Settings) -> None:
        self._local = settings.is_local
        self._lock = threading.Lock()

    def get(self, *, fresh: bool = False) -> str:
        """Return a valid access token; ``fresh`` asks for a new one after a 401.

        Raises:
            ServiceError: ACCESS, no credentials can be had.
        """
        if self._local:
            return "local"
        import google.auth
        import google.auth.exceptions
        import google.auth.transport.requests

        with self._lock:
            try:
                if self._credentials is None:
                    self._credentials, _ = google.auth.default(scopes=SCOPES)
                if fresh or not self._credentials.valid:
                    self._credentials.refresh(google.auth.transport.requests.Request())
            except google.auth.exceptions.GoogleAuthError as error:
                raise ServiceError(
                    Failure.ACCESS,
                    f"no Google credentials: {error}; run `gcloud auth application-default login`",
                ) from None
            return str(self._credentials.token)

    def quota_project(self) -> str:
        """Return the project that a person's credentials bill their calls to, "" if none.

        Some APIs (Cloud Quotas) refuse a person's call that names none; service accounts have one.
        """
        return str(getattr(self._credentials, "quota_project_id", None) or "")


class Rest:
    """Calls of Google's REST APIs. Every call has a timeout; a 401 is retried once with a fresh
    token.
    """

    def __init__(
        self, settings: Settings, tokens: Tokens, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._bases = {**_HOSTS, **settings.endpoints}
        self._tokens = tokens
        self._client = httpx.Client(timeout=TIMEOUT, transport=transport, trust_env=False)

    def call(
        self,
        service: str,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Call ``path`` of a service and return the decoded answer, {} when it is empty.

        Raises:
            NotFound: 404.
            ServiceError: anything else but a success; retryable when it may pass.
        """
        data = self.raw(
            service,
            method,
            path,
            params=params,
            content=None if body is None else json.dumps(body).encode(),
            content_type="application/json",
        )
        try:
            found = json.loads(data or b"{}")
        except ValueError:
            raise ServiceError(
                Failure.INFRA_TRANSIENT, f"{service} did not answer JSON", retryable=True
            ) from None
        return found if isinstance(found, dict) else {"items": found}

    def raw(
        self,
        service: str,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        content_type: str = "application/octet-stream",
        params: Mapping[str, str] | None = None,
    ) -> bytes:
        """The same, with bytes; ``path`` may also be a whole URL."""
        url = self._url(service, path)
        for fresh in (False, True):
            headers = {"Authorization": f"Bearer {self._tokens.get(fresh=fresh)}"}
            if quota_project := self._tokens.quota_project():
                headers["x-goog-user-project"] = quota_project
            if content is not None:
                headers["Content-Type"] = content_type
            try:
                answer = self._client.request(
                    method, url, content=content, params=params, headers=headers
                )
            except httpx.HTTPError as error:
                raise ServiceError(
                    Failure.INFRA_TRANSIENT,
                    f"{service} {method}: {type(error).__name__}: {error}",
                    retryable=True,
                ) from None
            if answer.status_code != 401 or fresh:
                break
        if not answer.is_success:
            raise from_status(service, answer.status_code, answer.text)
        return answer.content

    def _url(self, service: str, path: str) -> str:
        if not path.startswith("http"):
            return self._bases[service].rstrip("/") + path
        for name, host in _HOSTS.items():  # which a local run has elsewhere
            if path.startswith(host + "/"):
                return self._bases[name].rstrip("/") + path.removeprefix(host)
        return path


def pages(rest: Rest, service: str, path: str, params: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return all pages of a listing."""
    found, token = [], ""
    while True:
        page = rest.call(
            service, "GET", path, params={**params, **({"pageToken": token} if token else {})}
        )
        found.append(page)
        token = page.get("nextPageToken", "")
        if not token:
            return found
