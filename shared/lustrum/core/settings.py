"""Where a function runs and what it may use, as values (`lustrum.wiring.settings` reads them)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# The service's own host, also its regional and locational forms.
_CALLBACK = re.compile(
    r"https://([a-z0-9-]+-)?workflowexecutions(\.[a-z0-9-]+\.rep)?\.googleapis\.com/"
)


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
    rdma: Mapping[str, str] = field(default_factory=dict)  # zone -> its RDMA network
    runs_per_submitter: int = 0  # that hold a network slot at once; 0: no limit
    node_account: str = ""
    scripts: str = ""
    gcluster_sha256: str = ""
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

    def is_callback(self, url: str) -> bool:
        """Say whether a doorbell may be rung there: it is rung with an access token."""
        local = self.endpoints.get("executions")
        if local is not None and url.startswith(local.rstrip("/") + "/"):
            return True
        return _CALLBACK.match(url) is not None

    def topic(self, name: str) -> str:
        """Return the full name of a topic."""
        return f"projects/{self.project}/topics/{name}"

    def workflow(self, name: str) -> str:
        """Return the full name of a workflow."""
        return f"projects/{self.project}/locations/{self.region}/workflows/{name}"

    def link(self, uri: str) -> str:
        """Return the address at which a browser opens one of our objects.

        Their names hold nothing that an address would have to escape.
        """
        bucket, _, name = uri.removeprefix("gs://").partition("/")
        local = self.endpoints.get("storage")
        if local is not None:
            escaped = name.replace("/", "%2F")
            return f"{local.rstrip('/')}/storage/v1/b/{bucket}/o/{escaped}?alt=media"
        return f"https://storage.cloud.google.com/{bucket}/{name}"
