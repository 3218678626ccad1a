"""What the checker and the engine know by name beside plain functions.

Constants (retry policies, predicates), the predicates' behaviour, the parameters of the functions
that block, and the assembled table of all functions.
"""

from __future__ import annotations

from typing import Any, Final

from workflows_engine import stdlib, stdlib_encodings, stdlib_text
from workflows_engine.registry import FUNCTIONS, REQUIRED, Spec
from workflows_engine.values import Function

# Constants that are written like a member of a module.
BACKOFF: Final = {"initial_delay": 1.0, "max_delay": 60.0, "multiplier": 1.25}
ALWAYS: Final = Function("retry.always")
CONSTANTS: Final[dict[str, Any]] = {
    "http.default_retry_predicate": Function("http.default_retry_predicate"),
    "http.default_retry_predicate_non_idempotent": Function(
        "http.default_retry_predicate_non_idempotent"
    ),
    "retry.always": ALWAYS,
    "retry.never": Function("retry.never"),
    "retry.default_backoff": BACKOFF,
}
CONSTANTS["http.default_retry"] = {
    "predicate": CONSTANTS["http.default_retry_predicate"],
    "max_retries": 5,
    "backoff": BACKOFF,
}
CONSTANTS["http.default_retry_non_idempotent"] = {
    "predicate": CONSTANTS["http.default_retry_predicate_non_idempotent"],
    "max_retries": 5,
    "backoff": BACKOFF,
}


def retryable(name: str, value: Any) -> bool:
    """The built-in retry predicates, on the error that ``except`` would get."""
    if name == "retry.always":
        return True
    if name == "retry.never" or not isinstance(value, dict):
        return False
    tags, code = value.get("tags"), value.get("code")
    tags = tags if isinstance(tags, list) else []
    if name == "http.default_retry_predicate":
        codes: tuple[int, ...] = (429, 502, 503, 504)
        kinds: tuple[str, ...] = ("ConnectionError", "ConnectionFailedError", "TimeoutError")
    else:
        codes, kinds = (429, 503), ("ConnectionFailedError",)
    return any(tag in tags for tag in kinds) or ("HttpError" in tags and code in codes)


for _name in ("http.default_retry_predicate", "http.default_retry_predicate_non_idempotent"):
    FUNCTIONS[_name] = Spec(_name, (("e", REQUIRED),), lambda e, name=_name: retryable(name, e))
FUNCTIONS["retry.always"] = Spec("retry.always", (("e", REQUIRED),), lambda _: True)
FUNCTIONS["retry.never"] = Spec("retry.never", (("e", REQUIRED),), lambda _: False)

# Functions that block: only a `call` step may call them. The bodies are in calls.py.
_HTTP: Final[tuple[tuple[str, Any], ...]] = (
    ("url", REQUIRED),
    ("timeout", None),
    ("body", None),
    ("headers", None),
    ("query", None),
    ("auth", None),
    ("private_service_name", None),
    ("ca_certificate", None),
)
# The page of http.get has no body; one by name is taken all the same.
_GET: Final = (*(item for item in _HTTP if item[0] != "body"), ("body", None))
BLOCKING: Final[dict[str, tuple[tuple[str, Any], ...]]] = {
    "http.get": _GET,
    **{f"http.{verb}": _HTTP for verb in ("post", "put", "patch", "delete")},
    "http.request": (("method", REQUIRED), *_HTTP),
    "sys.sleep": (("seconds", REQUIRED),),
    "sys.sleep_until": (("time", REQUIRED),),
    "sys.log": (
        ("data", None),
        ("severity", "DEFAULT"),
        ("text", None),
        ("json", None),
        ("timeout", None),
    ),
    "events.create_callback_endpoint": (("http_callback_method", "POST"),),
    "events.await_callback": (("callback", REQUIRED), ("timeout", None)),
    "experimental.executions.run": (
        ("workflow_id", REQUIRED),
        ("location", None),
        ("project_id", None),
        ("argument", None),
    ),
    "experimental.executions.map": (
        ("workflow_id", REQUIRED),
        ("arguments", REQUIRED),
        ("location", None),
        ("project_id", None),
    ),
}

__all__ = [
    "BLOCKING",
    "CONSTANTS",
    "FUNCTIONS",
    "REQUIRED",
    "Spec",
    "retryable",
    "stdlib",
    "stdlib_encodings",
    "stdlib_text",
]
