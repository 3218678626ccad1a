"""A function's settings, read once from its environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from lustrum.core.cost import use_prices
from lustrum.core.errors import ServiceError
from lustrum.core.failures import Failure
from lustrum.core.settings import Settings, Slot


def read_settings(env: Mapping[str, str]) -> Settings:
    """Read the settings from an environment.

    Raises:
        ServiceError: CONFIG, a variable is missing or not readable, naming it.
    """
    slots = _json(env, "LUSTRUM_SLOTS", "[]")
    try:
        return Settings(
            project=_needed(env, "LUSTRUM_PROJECT"),
            region=_needed(env, "LUSTRUM_REGION"),
            database=env.get("LUSTRUM_DATABASE") or "(default)",
            state_bucket=env.get("LUSTRUM_STATE_BUCKET", ""),
            export_bucket=env.get("LUSTRUM_EXPORT_BUCKET", ""),
            report_bucket=env.get("LUSTRUM_REPORT_BUCKET", ""),
            build_trigger=env.get("LUSTRUM_BUILD_TRIGGER", ""),
            slots=tuple(Slot(**slot) for slot in slots),
            rdma=_json(env, "LUSTRUM_RDMA", "{}"),
            runs_per_submitter=_whole(env, "LUSTRUM_RUNS_PER_SUBMITTER"),
            node_account=env.get("LUSTRUM_NODE_ACCOUNT", ""),
            scripts=env.get("LUSTRUM_SCRIPTS", ""),
            gcluster_sha256=env.get("LUSTRUM_GCLUSTER_SHA256", ""),
            kubeconfig=env.get("LUSTRUM_KUBECONFIG") or None,
            endpoints=_json(env, "LUSTRUM_ENDPOINTS", "{}"),
        )
    except TypeError as error:
        raise ServiceError(Failure.CONFIG, f"LUSTRUM_SLOTS: {error}") from None


def read_prices(env: Mapping[str, str]) -> None:
    """Price from now on as ``LUSTRUM_PRICES`` says: the text of a price list, or its path.

    Raises:
        ServiceError: CONFIG, it is not there or not readable, naming the entry.
    """
    given = env.get("LUSTRUM_PRICES", "").strip()
    try:
        if given and "\n" not in given:
            given = Path(given).read_text()
        use_prices(given or None)
    except (OSError, ValueError) as error:
        raise ServiceError(Failure.CONFIG, f"LUSTRUM_PRICES: {error}") from None


@cache
def settings() -> Settings:
    """Return the settings of this process."""
    read_prices(os.environ)
    return read_settings(os.environ)


def _needed(env: Mapping[str, str], name: str) -> str:
    value = env.get(name)
    if not value:
        raise ServiceError(Failure.CONFIG, f"the environment variable {name} is not set")
    return value


def _whole(env: Mapping[str, str], name: str) -> int:
    value = env.get(name) or "0"
    if not value.isdecimal():
        raise ServiceError(Failure.CONFIG, f"{name} is {value!r}: it must be a whole number")
    return int(value)


def _json(env: Mapping[str, str], name: str, default: str) -> Any:
    try:
        found = json.loads(env.get(name) or default)
    except ValueError as error:
        raise ServiceError(Failure.CONFIG, f"{name} is not JSON: {error}") from None
    return found
