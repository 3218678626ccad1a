"""Errors that cross module borders."""

from __future__ import annotations

from lustrum.core.failures import Failure


class MalformedEvent(ValueError):
    """A message that cannot be read: kept in the dead-letter topic and acknowledged, never
    retried.

    Attributes:
        field: where it is wrong.
        reason: how.
        raw: the bytes that were found.
    """

    def __init__(self, field: str, reason: str, raw: bytes) -> None:
        self.field = field
        self.reason = reason
        self.raw = raw
        super().__init__(f"{field}: {reason}")


class ServiceError(Exception):
    """A cloud service, Kubernetes or Ray did not do what was asked.

    Attributes:
        failure: the failure class.
        retryable: whether the same call may go through later.
        status: HTTP status when there was one.
    """

    def __init__(
        self,
        failure: Failure,
        message: str,
        *,
        retryable: bool = False,
        status: int | None = None,
    ) -> None:
        self.failure = failure
        self.retryable = retryable
        self.status = status
        super().__init__(message)


class NotFound(ServiceError):
    """The thing that was asked for does not exist."""

    def __init__(self, message: str) -> None:
        super().__init__(Failure.UNKNOWN, message, status=404)


class UnreadableRecord(ServiceError):
    """A stored record that this release cannot read. Trying again does not help."""

    def __init__(self, message: str) -> None:
        super().__init__(Failure.CONFIG, f"the stored record cannot be read: {message}")


def from_status(service: str, status: int, text: str) -> ServiceError:
    """Return the error of an HTTP answer that is not a success.

    429 and 5xx may pass; 401 and 403 are ACCESS; 404 is `NotFound`; the rest is CONFIG.
    """
    message = f"{service} answered {status}: {' '.join(text.split())[:300]}"
    if status == 404:
        return NotFound(message)
    if status in (401, 403):
        return ServiceError(Failure.ACCESS, message, status=status)
    if status == 429 or status >= 500:
        return ServiceError(Failure.INFRA_TRANSIENT, message, retryable=True, status=status)
    return ServiceError(Failure.CONFIG, message, status=status)
