"""The services of a step, all fake, on one clock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lustrum.adapters.kubernetes import Kubernetes
from lustrum.core.settings import Settings
from lustrum.head.signature import ATTRIBUTE, sign
from lustrum.wiring.services import Services
from lustrum.wiring.settings import read_settings

from testing.agenda import Agenda
from testing.cloud import Cloud
from testing.cloud_adapters import (
    FakeBuilds,
    FakeCompute,
    FakeGke,
    FakeLustre,
    FakeProject,
    FakeStorage,
)
from testing.executions import FakeWorkflows
from testing.ledger import MemoryLedger
from testing.publisher import FakePublisher

PROJECT, REGION = "lustrum-test", "us-east1"


def slot(name: str, region: str, number: int = 0) -> dict[str, str]:
    """Return a network slot as LUSTRUM_SLOTS holds it."""
    return {
        "name": name,
        "region": region,
        "network": "lustrum",
        "subnetwork": f"lustrum-{region}",
        "pods_range": f"pods-{name}",
        "services_range": f"services-{name}",
        "control_plane_cidr": f"172.16.{number}.0/28",
    }


SLOTS = [
    slot("a", "us-east1", 0),
    slot("b", "us-east1", 1),
    slot("c", "us-central1", 2),
]


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a function."""
    return {
        "LUSTRUM_PROJECT": PROJECT,
        "LUSTRUM_REGION": REGION,
        "LUSTRUM_STATE_BUCKET": "state-bucket",
        "LUSTRUM_EXPORT_BUCKET": "export-bucket",
        "LUSTRUM_REPORT_BUCKET": "report-bucket",
        "LUSTRUM_BUILD_TRIGGER": f"projects/{PROJECT}/locations/{REGION}/triggers/lustrum",
        "LUSTRUM_SLOTS": json.dumps(SLOTS),
        "LUSTRUM_NODE_ACCOUNT": f"nodes@{PROJECT}.iam.gserviceaccount.com",
        "LUSTRUM_SCRIPTS": "gs://state-bucket/scripts/1.zip",
        **more,
    }


class FakeServices(Services):
    """Fakes in every place; ``agenda`` is the clock, ``cloud`` the world."""

    def __init__(
        self, agenda: Agenda | None = None, settings: Settings | None = None, **env: str
    ) -> None:
        super().__init__(settings or read_settings(environment(**env)))
        self.agenda = agenda or Agenda()
        self.cloud = Cloud(self.agenda)
        self.ledger = self.memory = MemoryLedger()
        self.publisher = self.outbox = FakePublisher(self.settings)
        self.workflows = self.executions = FakeWorkflows()
        self.builds = FakeBuilds(self.cloud)
        self.gke = FakeGke(self.cloud)
        self.lustre = FakeLustre(self.cloud)
        self.compute = FakeCompute(self.cloud)
        self.project = FakeProject(self.cloud)
        self.storage = FakeStorage(self.cloud)

    def now(self) -> float:
        return self.agenda.now()

    def kubernetes(self, run_id: str) -> Kubernetes:
        info = self.gke.find(run_id)
        self.cloud.call("kubernetes", "connect")
        return self.cloud.cluster(info.name).kubernetes


def push(
    data: bytes | str | Mapping[str, Any] | None,
    message_id: str = "1",
    attributes: Mapping[str, str] | None = None,
    published: str = "2026-01-01T00:00:00.000Z",
    subscription: str | None = None,
    key: str = "",
) -> bytes:
    """Return the body of a Pub/Sub push, through the subscription that brings such a message;
    ``key`` signs it.
    """
    import base64

    subscription = subscription or f"projects/p/subscriptions/{topic_of(data, attributes)}-push"
    if isinstance(data, Mapping):
        data = json.dumps(data)
    if isinstance(data, str):
        data = data.encode()
    message: dict[str, Any] = {"messageId": message_id, "publishTime": published}
    if data is not None:
        message["data"] = base64.b64encode(data).decode()
    if key and isinstance(data, bytes):
        attributes = {**(attributes or {}), ATTRIBUTE: sign(key, data)}
    if attributes:
        message["attributes"] = dict(attributes)
    return json.dumps({"message": message, "subscription": subscription}).encode()


def topic_of(data: object, attributes: Mapping[str, str] | None) -> str:
    """Return the topic that a message belongs to, by what it says."""
    try:
        found = json.loads(data) if isinstance(data, (bytes, str)) else data
    except ValueError:
        return "lustrum-events"
    if "buildId" in (attributes or {}) or (
        isinstance(found, Mapping) and {"steps", "status"} <= found.keys()
    ):
        return "cloud-builds"
    if isinstance(found, Mapping) and "incident" in found and "type" not in found:
        return "lustrum-alerts"
    return "lustrum-events"
