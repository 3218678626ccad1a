"""The functions as functions-framework serves them, over fake services."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lustrum.wiring.services
import pytest
from functions_framework import create_app

from testing.services import FakeServices

ROOT = Path(__file__).parents[2] / "functions"
NAMES = sorted(path.parent.name for path in ROOT.glob("*/main.py"))
PUSHED = ("start_run", "react_to_event")
CALLED = tuple(name for name in NAMES if name not in (*PUSHED, "reap_runs"))


def client(name: str, services: FakeServices, patch: pytest.MonkeyPatch) -> Any:
    """Return a test client of one function; what it raises becomes a 500, as when deployed."""
    patch.setattr(lustrum.wiring.services, "services", lambda: services)
    app = create_app(name, str(ROOT / name / "main.py"))
    return app.test_client()


def post(
    app: Any,
    body: bytes,
    content_type: str | None = "application/json",
    headers: Mapping[str, str] | None = None,
) -> Any:
    """Post raw bytes."""
    more = {} if content_type is None else {"content_type": content_type}
    return app.post("/", data=body, headers=dict(headers or {}), **more)
