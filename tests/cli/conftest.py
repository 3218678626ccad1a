"""The command line with everything at the rim in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from lustrum.adapters.storage import StoredObject
from lustrum.cli import app
from lustrum.cli.session import Session
from lustrum.core.errors import NotFound
from lustrum.core.settings import Settings
from lustrum.wiring.services import Services
from typer.testing import CliRunner

from testing import records
from testing.ledger import MemoryLedger
from testing.publisher import FakePublisher

ENV = {
    "LUSTRUM_PROJECT": "project-x",
    "LUSTRUM_REGION": "us-east1",
    "LUSTRUM_EXPORT_BUCKET": "exports",
    "LUSTRUM_REPORT_BUCKET": "reports",
    "LUSTRUM_SLOTS": json.dumps(
        [
            {
                "name": "us-east1-0",
                "region": "us-east1",
                "network": "n",
                "subnetwork": "s0",
                "pods_range": "p0",
                "services_range": "v0",
                "control_plane_cidr": "10.0.0.0/28",
            }
        ]
    ),
}


class FakeStorage:
    """Objects in memory."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.writes = 0

    def list(self, uri: str) -> list[StoredObject]:
        return [StoredObject(n, len(b)) for n, b in self.objects.items() if n.startswith(uri)]

    def read(self, uri: str) -> bytes:
        if uri not in self.objects:
            raise NotFound(uri)
        return self.objects[uri]

    def write(self, uri: str, content: bytes, content_type: str) -> None:
        self.writes += 1
        self.objects[uri] = content


class Shell:
    """The `lustrum` command in this process: what it was told, what it answered."""

    def __init__(self) -> None:
        self.now = records.BEGAN
        self.ledger = MemoryLedger()
        self.storage = FakeStorage()
        self.env = dict(ENV)
        self.slept: list[float] = []
        self.on_sleep: Callable[[], None] = lambda: None
        self.settings = Settings(project="project-x", region="us-east1")
        self.publisher = FakePublisher(self.settings)
        self.gke: Any = None
        self.rest: Any = None
        self.made = 0
        self.opened: list[str] = []

    def __call__(self, *words: str, stdin: str | None = None) -> Any:
        """Run one command."""
        session = Session(
            env=self.env,
            make_services=self.services,
            sleep=self._sleep,
            open_page=lambda address: not self.opened.append(address),  # type: ignore[func-returns-value]
        )
        return CliRunner().invoke(app, list(words), input=stdin, obj=session)

    @property
    def sent(self) -> list[tuple[dict[str, Any], dict[str, str]]]:
        """What was published: body and attributes."""
        return [(json.loads(data), attributes) for _, data, attributes in self.publisher.sent]

    def services(self, settings: Settings) -> Services:
        self.made += 1
        shell = self

        class Fakes(Services):
            def now(self) -> float:
                return shell.now

        services = Fakes(settings)
        services.ledger = self.ledger
        services.publisher = self.publisher
        services.storage = self.storage  # type: ignore[assignment]
        services.tokens = None  # type: ignore[assignment]
        services.gke = self.gke
        services.rest = self.rest
        return services

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)
        self.on_sleep()


@pytest.fixture
def lustrum(monkeypatch: pytest.MonkeyPatch) -> Shell:
    for name in ("LUSTRUM_PROJECT", "LUSTRUM_ENDPOINTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return Shell()
