"""A stand-in cloud and a build runner in this process; the scripts run as they do in Cloud
Build.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.local.builds import objects
from infra.local.builds.local import environment, scripts, trigger
from infra.local.builds.runner import Runner
from infra.local.builds.server import CloudBuild, serve
from infra.local.cloud import Cloud, Timings

PROJECT = "my-project"
BUCKET = "my-project-state"
TRIGGER = f"projects/{PROJECT}/locations/us-east1/triggers/lustrum"
RUN = "rl-4f0c2a9d31"
ZONE = "us-east1-b"
FIXED = {
    "LUSTRUM_PROJECT": PROJECT,
    "LUSTRUM_STATE_BUCKET": BUCKET,
    "LUSTRUM_NODE_ACCOUNT": f"lustrum-node@{PROJECT}.iam.gserviceaccount.com",
    "LUSTRUM_SCRIPTS": f"gs://{BUCKET}/scripts/test.zip",
    "LUSTRUM_GCLUSTER_SHA256": "0" * 64,
}
SUBSTITUTIONS = {
    "_ACTION": "deploy",
    "_RUN_ID": RUN,
    "_ZONE_ATTEMPT": "1",
    "_ZONE": ZONE,
    "_NODES": "8",
    "_CAPACITY": "spot",
    "_RESERVATION": "_NONE",
    "_LUSTRE_CAPACITY_GIB": "36000",
    "_LUSTRE_THROUGHPUT": "500",
    "_EXPIRES": "1798761600",
    "_NETWORK": "lustrum",
    "_SUBNETWORK": "lustrum-us-east1-0",
    "_PODS_RANGE": "lustrum-us-east1-0-pods",
    "_SERVICES_RANGE": "lustrum-us-east1-0-services",
    "_CONTROL_PLANE_CIDR": "172.20.0.0/28",
    "_RDMA_NETWORK": "_NONE",
}


Answer = tuple[dict[str, Any], dict[str, Any]]  # a build's JSON and its result


class Builds:
    """The runner, its REST, the cloud behind it, and what was published."""

    def __init__(self, root: Path, cloud: Cloud, tools: Path | None = None) -> None:
        self.cloud = cloud
        self.root = root
        self.published: list[tuple[dict[str, Any], dict[str, str]]] = []
        self.faults = root / "faults.json"
        server = serve(CloudBuild.__new__(CloudBuild))
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        server.server_close()
        endpoints = {**cloud.endpoints, "cloudbuild": self.url}
        os.environ["LUSTRUM_ENDPOINTS"] = json.dumps(endpoints)
        env = {
            "LUSTRUM_ENDPOINTS": json.dumps(endpoints),
            "LUSTRUM_FAULTS": str(self.faults),
            "LUSTRUM_PAUSE_SECONDS": "0.05",
            "LUSTRUM_RETRY_SECONDS": "0",
            **({"LUSTRUM_TOOLS": str(tools)} if tools else {}),
        }
        self.runner = Runner(root / "builds", PROJECT, environment(env), self._publish)
        self.api = CloudBuild(self.runner, {TRIGGER: trigger(TRIGGER, FIXED)})
        self._server = serve(self.api, int(self.url.rsplit(":", 1)[1]))
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        objects.write(FIXED["LUSTRUM_SCRIPTS"], scripts())

    def _publish(self, data: bytes, attributes: Mapping[str, str]) -> None:
        self.published.append((json.loads(data), dict(attributes)))

    def start(self, action: str = "deploy", **changes: str) -> str:
        """Run the trigger; return the build's id."""
        given = {**SUBSTITUTIONS, "_ACTION": action, **changes}
        path = f"/v1/{TRIGGER}:run"
        status, found = self.api.answer("POST", path, {}, {"source": {"substitutions": given}})
        assert status == 200, found
        return str(found["metadata"]["build"]["id"])

    def finish(
        self, identity: str, seconds: float = 60.0
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Wait for a build; return its JSON and its result."""
        build = self.runner.wait(identity, seconds)
        return build, result_of(build)

    def run(self, action: str = "deploy", **changes: str) -> Answer:
        """Run the trigger and wait."""
        return self.finish(self.start(action, **changes))

    def fail(self, **rules: list[dict[str, Any]]) -> None:
        """Set the faults of gcluster, one rule per attempt."""
        self.faults.write_text(json.dumps(rules))

    def log(self, identity: str) -> str:
        """Return a build's log, empty before its first step."""
        path = self.root / "builds" / identity / "log.txt"
        return path.read_text() if path.exists() else ""

    def names(self) -> list[str]:
        """Return the objects of the state bucket."""
        return objects.matching(f"gs://{BUCKET}/**")

    def left(self) -> tuple[list[str], list[str]]:
        """Return the names of the clusters and the instances that exist."""
        with self.cloud.state.lock:
            clusters = [name for _, name in self.cloud.state.clusters]
            return clusters, [name.rsplit("/", 1)[1] for name in self.cloud.state.instances]

    def close(self) -> None:
        """End every process and the server."""
        self.runner.close()
        self._server.shutdown()
        self._server.server_close()


def result_of(build: Mapping[str, Any]) -> dict[str, Any]:
    """Return what readers of a build see: the last step output that is JSON."""
    found: dict[str, Any] = {}
    for output in build.get("results", {}).get("buildStepOutputs", []):
        text = base64.b64decode(output)
        found = json.loads(text) if text else found
    return found


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builds]:
    """A fresh cloud and runner."""
    monkeypatch.setenv("LUSTRUM_ENDPOINTS", "{}")
    quick = Timings(cluster_create=0.1, cluster_delete=0.05, lustre_create=0.1, lustre_delete=0.05)
    with Cloud(
        tmp_path / "cloud",
        PROJECT,
        timings=quick,
        buckets=(BUCKET,),
        acts_as=(FIXED["LUSTRUM_NODE_ACCOUNT"],),
    ) as cloud:
        found = Builds(tmp_path, cloud)
        try:
            yield found
        finally:
            found.close()
