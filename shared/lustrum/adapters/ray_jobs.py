"""Ray's Jobs API by plain REST with timeouts (Ray's own SDK has none, and costs 84 MB to import).

The submission id is a create-if-absent key for the life of the head: on a lost answer the job
is looked up, and "already exists" means it is ours: adopted, never submitted twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import httpx

from lustrum.core.errors import NotFound, ServiceError, from_status
from lustrum.core.failures import Failure
from lustrum.core.plain_text import shorten

TAIL_LINES = 400


@dataclass(frozen=True)
class RayReply:
    """An HTTP answer: status and body."""

    status: int
    body: bytes


class Send(Protocol):
    """Sends one request to a dashboard: the API server's service proxy, or a direct connection."""

    def __call__(self, method: str, path: str, body: bytes | None = None) -> RayReply:
        """Return the answer. Raises ServiceError when there is none."""


@dataclass(frozen=True)
class RayJob:
    """One job as Ray knows it. ``status``: PENDING RUNNING STOPPED SUCCEEDED FAILED."""

    submission_id: str
    status: str
    exit_code: int | None
    message: str
    error_type: str | None
    metadata: Mapping[str, str]
    entrypoint: str
    driver_node_id: str | None

    @property
    def is_over(self) -> bool:
        """Say whether the status can no longer change."""
        return self.status in ("STOPPED", "SUCCEEDED", "FAILED")


@dataclass(frozen=True)
class RayNodes:
    """What Ray counts: nodes alive (the head included) and GPUs of all of them."""

    alive: int
    gpus: float


class RayJobs:
    """A Ray head's dashboard."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def version(self) -> dict[str, Any]:
        """Return ``/api/version``: ``ray_version``, and ``session_name``, new with each head."""
        return self._json("GET", "api/version")

    def get(self, submission_id: str) -> RayJob:
        """Return a job. Raises NotFound when this head does not know it."""
        return _job(self._json("GET", f"api/jobs/{quote(submission_id, safe='')}"))

    def submit(
        self,
        submission_id: str,
        entrypoint: str,
        env: Mapping[str, str],
        metadata: Mapping[str, str],
    ) -> RayJob:
        """Submit a job, or adopt the one that has this id already.

        Raises:
            ServiceError: retryable when the answer was lost or the agent is not up yet; CONFIG
            when the id
                belongs to somebody else's job.
        """
        body = {
            "submission_id": submission_id,
            "entrypoint": entrypoint,
            "runtime_env": {"env_vars": dict(env)},
            "metadata": dict(metadata),
        }
        problem: ServiceError | None = None
        try:
            answer = self._send("POST", "api/jobs/", json.dumps(body).encode())
            text = answer.body.decode(errors="replace")
            if answer.status != 200 and not _exists(text):
                problem = _submit_problem(answer.status, text)
        except ServiceError as error:
            problem = error
        try:
            job = self.get(submission_id)
        except NotFound:
            raise problem or ServiceError(
                Failure.INFRA_TRANSIENT, f"{submission_id} is not visible yet", retryable=True
            ) from None
        if any(job.metadata.get(key) != value for key, value in metadata.items()):
            raise ServiceError(
                Failure.CONFIG, f"{submission_id} is another's job: {dict(job.metadata)}"
            )
        return job

    def stop(self, submission_id: str) -> None:
        """Ask Ray to stop a job (SIGTERM, then SIGKILL); one that is over or unknown is fine."""
        answer = self._send("POST", f"api/jobs/{quote(submission_id, safe='')}/stop", b"{}")
        if answer.status not in (200, 404):
            raise from_status("Ray", answer.status, answer.body.decode(errors="replace"))

    def logs(self, submission_id: str) -> str:
        """Return the whole log of a job; large for a long one. Raises NotFound."""
        found = self._json("GET", f"api/jobs/{quote(submission_id, safe='')}/logs")
        return str(found.get("logs") or "")

    def tail(self, job: RayJob, lines: int = TAIL_LINES) -> str:
        """Return the last lines of a job's log, "" when it has none yet. A few kB even of a
        large log.
        """
        if not job.driver_node_id:
            return ""
        query = urlencode(
            {
                "node_id": job.driver_node_id,
                "filename": f"job-driver-{job.submission_id}.log",
                "lines": lines,
            }
        )
        answer = self._send("GET", f"api/v0/logs/file?{query}")
        if answer.status != 200:
            return ""
        return answer.body.decode(errors="replace")

    def nodes(self) -> RayNodes:
        """Return what Ray counts."""
        found = self._json("GET", "nodes?view=summary")
        summary = (found.get("data") or {}).get("summary") or []
        alive = [node for node in summary if (node.get("raylet") or {}).get("state") == "ALIVE"]
        total = sum(
            float(((node.get("raylet") or {}).get("resourcesTotal") or {}).get("GPU", 0))
            for node in alive
        )
        return RayNodes(len(alive), total)

    def _json(self, method: str, path: str) -> dict[str, Any]:
        answer = self._send(method, path)
        text = answer.body.decode(errors="replace")
        if answer.status != 200:
            raise from_status("Ray", answer.status, shorten(text))
        try:
            found = json.loads(text)
        except ValueError:
            raise ServiceError(
                Failure.INFRA_TRANSIENT, "Ray did not answer JSON", retryable=True
            ) from None
        return found if isinstance(found, dict) else {"items": found}


def direct(base_url: str, headers: Callable[[], Mapping[str, str]] = dict) -> Send:
    """Return a sender straight to a dashboard, for instance ``http://127.0.0.1:8265``."""
    client = httpx.Client(timeout=httpx.Timeout(30.0, connect=5.0), trust_env=False)

    def send(method: str, path: str, body: bytes | None = None) -> RayReply:
        try:
            answer = client.request(
                method,
                f"{base_url.rstrip('/')}/{path}",
                content=body,
                headers={"Content-Type": "application/json", **headers()},
            )
        except httpx.HTTPError as error:
            raise ServiceError(
                Failure.INFRA_TRANSIENT, f"Ray: {type(error).__name__}: {error}", retryable=True
            ) from None
        return RayReply(answer.status_code, answer.content)

    return send


def _exists(text: str) -> bool:
    return "already exists" in text or "Please use a different submission_id" in text


def _submit_problem(status: int, text: str) -> ServiceError:
    if status >= 500:  # "No available agent to submit job" just after the head is up, and its like
        return ServiceError(
            Failure.INFRA_TRANSIENT, f"Ray answered {status}: {shorten(text, 300)}", retryable=True
        )
    return from_status("Ray", status, shorten(text, 300))


def _job(found: Mapping[str, Any]) -> RayJob:
    return RayJob(
        submission_id=str(found.get("submission_id") or ""),
        status=str(found.get("status") or "PENDING"),
        exit_code=found.get("driver_exit_code"),
        message=str(found.get("message") or "")[-2000:],
        error_type=found.get("error_type"),
        metadata=found.get("metadata") or {},
        entrypoint=str(found.get("entrypoint") or ""),
        driver_node_id=found.get("driver_node_id"),
    )
