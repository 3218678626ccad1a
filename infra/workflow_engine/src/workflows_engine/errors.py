"""What can go wrong: faults of a source, errors a workflow can catch, and ends it cannot.

The error map that a workflow sees after ``except: as: e`` is ``WorkflowError.value``: a map with
``message`` and ``tags`` (and ``code``, ``headers``, ``body`` for HTTP), or whatever was raised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, order=True)
class Fault:
    """A reason why a source cannot be deployed, or a warning: place, and what to write instead."""

    line: int
    message: str
    instead: str
    path: str = "<source>"
    warning: bool = False  # the service takes it; it seldom means what it says

    def __str__(self) -> str:
        kind = "warning: " if self.warning else ""
        return f"{self.path}:{self.line}: {kind}{self.message}; write {self.instead} instead"


class Faults:
    """Collects the faults of one source; its readers and checkers are such collectors."""

    def __init__(self, path: str) -> None:
        self.faults: list[Fault] = []
        self._path = path

    def fault(self, line: int, message: str, instead: str) -> None:
        """Remember a reason to refuse the source."""
        self.faults.append(Fault(line, message, instead, self._path))

    def warn(self, line: int, message: str, instead: str) -> None:
        """Remember what the service takes and does not mean what it seems to."""
        self.faults.append(Fault(line, message, instead, self._path, warning=True))


class FaultySource(ValueError):
    """A source that Google Cloud would refuse, or that cannot do what it says."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = faults


# The tags that come with another one. Seen on real payloads: a key that is not there is tagged
# ["KeyError", "LookupError"].
_KIN = {
    "KeyError": ["LookupError"],
    "IndexError": ["LookupError"],
    "ZeroDivisionError": ["ArithmeticError"],
    "RecursionError": ["RuntimeError"],
    "UnhandledBranchError": ["RuntimeError"],
}


class WorkflowError(Exception):
    """An error that ``try`` catches; ``value`` is what ``except`` gets."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.value = value
        self.trace: list[tuple[str, str, int]] = []

    @property
    def tags(self) -> list[Any]:
        """The tags of the error map; none when a string or an odd map was raised."""
        tags = self.value.get("tags") if isinstance(self.value, dict) else None
        return tags if isinstance(tags, list) else []


class FatalError(Exception):
    """An end that no ``except`` sees: the execution is FAILED at once."""

    def __init__(self, value: dict[str, Any]) -> None:
        super().__init__(value["message"])
        self.value = value
        self.trace: list[tuple[str, str, int]] = []


class ApiError(Exception):
    """A refusal of the Executions or Workflows API (code is the HTTP status)."""

    def __init__(self, code: int, status: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.message = message


class HttpConnectionFailed(Exception):
    """For HTTP handlers: no connection was made, so the request never arrived."""


class HttpConnectionBroken(Exception):
    """For HTTP handlers: the connection broke; the request may or may not have been served."""


def error(tag: str, message: str, **more: Any) -> WorkflowError:
    """Build a catchable error with the documented tags of its kind."""
    value = {"message": f"{tag}: {message}", "tags": [tag, *_KIN.get(tag, [])], **more}
    return WorkflowError(value)


def type_error(message: str) -> WorkflowError:
    """A value of the wrong type, as the standard library raises it."""
    return error("TypeError", message)


def value_error(message: str) -> WorkflowError:
    """A value of the right type that cannot be used, as the standard library raises it."""
    return error("ValueError", message)


def resource_limit(message: str) -> FatalError:
    """A limit was hit: cannot be caught, ends the execution (Google's error page)."""
    return FatalError(
        {"message": f"ResourceLimitError: {message}", "tags": ["ResourceLimitError"]}
    )


def http_error(code: int, headers: dict[str, Any], body: Any) -> WorkflowError:
    """The error map of an HTTP answer of 400 or more."""
    return WorkflowError(
        {
            "message": f"HTTP server responded with error code {code}",
            "tags": ["HttpError"],
            "code": code,
            "headers": headers,
            "body": body,
        }
    )
