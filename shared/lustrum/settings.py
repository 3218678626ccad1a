"""Where a function runs and what it may use: its environment, read once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from lustrum.errors import ServiceError
from lustrum.failures import Failure


@dataclass(frozen=True)
class Slot:
    """A network slot: the subnet, ranges and control-plane block that one run leases."""

    name: str
    region: str
    network: str
    subnetwork: str
    pods_range: str
    services_range: str
    control_plane_cidr: str


@dataclass(frozen=True)
class Settings:
    """The environment of a function, see docs/architecture.md."""

    project: str
    region: str
    database: str = "(default)"
    state_bucket: str = ""
    export_bucket: str = ""
    report_bucket: str = ""
    build_trigger: str = ""
    slots: tuple[Slot, ...] = ()
    node_account: str = ""
    scripts: str = ""
    requests_topic: str = "lustrum-requests"
    events_topic: str = "lustrum-events"
    notifications_topic: str = "lustrum-notifications"
    dead_letter_topic: str = "lustrum-dead-letters"
    life_workflow: str = "rl-run"
    teardown_workflow: str = "teardown"
    kubeconfig: str | None = None
    endpoints: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Say whether the cloud is the stand-in on this machine."""
        return bool(self.endpoints)

    def topic(self, name: str) -> str:
        """Return the full name of a topic."""
        return f"projects/{self.project}/topics/{name}"

    def workflow(self, name: str) -> str:
        """Return the full name of a workflow."""
        return f"projects/{self.project}/locations/{self.region}/workflows/{name}"


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
            node_account=env.get("LUSTRUM_NODE_ACCOUNT", ""),
            scripts=env.get("LUSTRUM_SCRIPTS", ""),
            kubeconfig=env.get("LUSTRUM_KUBECONFIG") or None,
            endpoints=_json(env, "LUSTRUM_ENDPOINTS", "{}"),
        )
    except TypeError as error:
        raise ServiceError(Failure.CONFIG, f"LUSTRUM_SLOTS: {error}") from None


@cache
def settings() -> Settings:
    """Return the settings of this process."""
    return read_settings(os.environ)


def _needed(env: Mapping[str, str], name: str) -> str:
    value = env.get(name)
    if not value:
        raise ServiceError(Failure.CONFIG, f"the environment variable {name} is not set")
    return value


def _json(env: Mapping[str, str], name: str, default: str) -> Any:
    try:
        found = json.loads(env.get(name) or default)
    except ValueError as error:
        raise ServiceError(Failure.CONFIG, f"{name} is not JSON: {error}") from None
    return found
