"""What a workflow tells of a failure, as a class and a sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lustrum.core.failures import Failure, classify_text, named
from lustrum.core.record import Run
from lustrum.handlers.build_failures import build_failure
from lustrum.wiring.services import Services


def classify(
    services: Services, run: Run, failure: object, why: str, *, build: bool = False
) -> tuple[Failure, str]:
    """Return failure class and sentence of what a workflow reports as failed.

    Args:
        failure: a class, when the reporter knew it.
        why: the sentence, or an error's text.
        build: the deploy build of the present zone attempt failed; its log decides.
    """
    given = named(failure)
    if given is not None:
        return given, why or given
    if build:
        return build_failure(services, run, why)
    return classify_text(why), why or "something failed without an error message"


def text_of(error: Any) -> str:
    """Return what an error of a workflow says, whatever its shape."""
    if isinstance(error, Mapping):
        body = error.get("body")
        inner = body.get("error") if isinstance(body, Mapping) else None
        if isinstance(inner, Mapping) and inner.get("message"):
            return str(inner["message"])
        parts = [str(error.get(key)) for key in ("message", "code") if error.get(key) is not None]
        return " ".join(parts) or json.dumps(error)[:500]
    return "" if error is None else str(error)
