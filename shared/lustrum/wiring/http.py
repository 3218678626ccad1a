"""The HTTP side of a function: JSON in, JSON out, errors with class, message and whether to try
again.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from lustrum.core import names
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.failures import Failure
from lustrum.core.plain_text import shorten
from lustrum.core.record import Refused

Call = Mapping[str, Any]
Answer = dict[str, Any]  # of a handler, as JSON
Reply = tuple[str, int, dict[str, str]]
_HEADERS = {"Content-Type": "application/json"}
MAX_BODY = 256 * 1024  # bytes


class BodyOf(Protocol):
    """What is needed of a Flask request."""

    def get_data(self) -> bytes:
        """Return the raw body."""


def answer_call(
    function: str, request: BodyOf, handler: Callable[[Call], Mapping[str, Any]]
) -> Reply:
    """Answer one call of a workflow.

    The body must be a JSON object with a valid ``run_id``. `Refused` is an answer, not an error:
    ``go`` false, with ``stop`` and ``why``.
    """
    run_id = ""
    try:
        call = read_call(request.get_data())
        run_id = call["run_id"]
        reply: Mapping[str, Any] = {"go": True, **handler(call)}
        status = 200
    except Refused as refused:
        reply, status = {"go": False, "stop": refused.stop, "why": str(refused)}, 200
    except ServiceError as error:
        reply, status = _problem(error)
    except Exception as error:  # nothing else may leave as HTML
        logging.getLogger("lustrum").exception("%s failed", function)
        reply, status = _problem(_unexpected(error))
    log(function, run_id, status, reply)
    return json.dumps(reply), status, _HEADERS


def answer_push(
    function: str, request: BodyOf, handler: Callable[[bytes], Mapping[str, Any]]
) -> Reply:
    """Answer one Pub/Sub push: 2xx acknowledges, 503 asks for another delivery.

    A message that can never be used was dealt with by the handler; what raises here may pass.
    """
    try:
        reply, status = handler(request.get_data()), 200
    except ServiceError as error:
        reply, status = _problem(error)
        status = 503
    except Exception as error:
        logging.getLogger("lustrum").exception("%s failed", function)
        reply, status = _problem(_unexpected(error))
        status = 503
    log(function, str(reply.get("run_id") or ""), status, reply)
    return json.dumps(reply), status, _HEADERS


def read_call(body: bytes) -> dict[str, Any]:
    """Read the body of a call.

    Raises:
        ServiceError: CONFIG, naming what is wrong.
    """
    if len(body) > MAX_BODY:
        raise ServiceError(Failure.CONFIG, f"body: {len(body)} bytes; at most {MAX_BODY}")
    try:
        call = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ServiceError(Failure.CONFIG, f"body: is not JSON: {error}") from None
    if not isinstance(call, dict):
        raise ServiceError(Failure.CONFIG, "body: must be a JSON object")
    run_id = call.get("run_id")
    if not isinstance(run_id, str) or not names.is_run_id(run_id):
        raise ServiceError(
            Failure.CONFIG, f"run_id: {shorten(repr(run_id), 80)}; must be rl- and 10 hex digits"
        )
    execution = call.get("execution")
    if not isinstance(execution, str) or not execution:
        raise ServiceError(Failure.CONFIG, "execution: must be the name of the calling execution")
    return call


def log(function: str, run_id: str, status: int, reply: Mapping[str, Any]) -> None:
    """Write one structured log line."""
    line = {
        "severity": "INFO" if status < 400 else "WARNING" if status < 500 else "ERROR",
        "message": shorten(
            f"{function} {run_id or '-'}: " + json.dumps(reply, default=str, sort_keys=True), 1000
        ),
        "function": function,
        "run_id": run_id,
        "status": status,
    }
    print(json.dumps(line), file=sys.stdout, flush=True)


# Faults of ours: the same call fails again, so asking again only keeps the accelerators waiting.
_OURS = (AssertionError, TypeError, AttributeError, NameError)


def _unexpected(error: Exception) -> ServiceError:
    retryable = not isinstance(error, _OURS)
    return ServiceError(Failure.UNKNOWN, f"{type(error).__name__}: {error}", retryable=retryable)


def _problem(error: ServiceError) -> tuple[dict[str, Any], int]:
    if isinstance(error, NotFound):
        status = 404
    elif error.retryable:
        status = 503
    else:
        status = 400
    return {
        "error": {
            "class": error.failure.value,
            "message": shorten(str(error)),
            "retryable": error.retryable,
        }
    }, status
