"""The local stack: everything up on loopback, everything down again."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from infra.local.emulators import await_emulators, start_firestore, start_pubsub
from infra.local.functions import ROOT
from infra.local.own_cluster import OwnCluster
from infra.local.processes import LOOPBACK, Children, adopt_orphans, answers, free_port
from infra.local.topics import LocalPubSub

PROJECT = "local-lustrum"
REGION = "us-east1"
SLOTS = 3
BUCKETS = ("state", "exports", "reports")
UP_WITHIN = 60.0  # seconds


def describe(own: OwnCluster | None) -> tuple[str, str]:
    """Return what is real in a local run, and what is a stand-in."""
    kubernetes = "the Kubernetes API with KubeRay"
    real = [
        "Pub/Sub and Firestore (Google's emulators)",
        "the functions (functions-framework)",
        "workflows/*.yaml",
        "cloudbuild.yaml and its scripts",
        *([f"{kubernetes} of {own.context} ({own.kubeconfig})"] if own else []),
        "Ray with its dashboard and Jobs API",
        "the training and its checkpoints",
    ]
    stands_in = [
        "Workflows (infra/workflow_engine)",
        "Cloud Build's runner",
        "gcluster and gcloud",
        "GKE",
        *([] if own else [kubernetes]),
        f"Managed Lustre ({own.lustre if own else 'a folder'})",
        "Storage (a folder)",
        "Compute",
        "Monitoring",
    ]
    return ", ".join(real), ", ".join(stands_in)


@dataclass(frozen=True)
class Ports:
    """Where the parts listen, all on 127.0.0.1."""

    pubsub: int
    firestore: int
    functions: int
    executions: int
    executions_grpc: int
    builds: int


class Stack:
    """The control plane on this machine. Everything it writes is below ``root``.

    Args:
        root: its folder.
        project: the project id.
        secrets: tokens, added to the environment.
        own: the user's own cluster that runs are held on, instead of the stand-in's.
        slots: network slots: so many runs at once.
    """

    def __init__(
        self,
        root: Path,
        project: str = PROJECT,
        secrets: dict[str, str] | None = None,
        own: OwnCluster | None = None,
        slots: int = SLOTS,
    ) -> None:
        self.root = root
        self.project = project
        self.children = Children(root / "logs")
        self.endpoints: dict[str, str] = {}
        self._node_account = f"nodes@{project}.iam.gserviceaccount.com"
        self._secrets = secrets or {}
        self._own = own
        self._slots = slots

    def start(self, say: Callable[[str], None] = lambda text: None) -> None:
        """Bring everything up; what was started is ended again if a part does not come up.

        Raises:
            emulators.Missing: an emulator is not installed, with the command that installs it.
            processes.DidNotStart: a part did not come up.
        """
        adopt_orphans()
        try:
            self._start(say)
        except BaseException:
            self.stop()
            raise

    def _start(self, say: Callable[[str], None]) -> None:
        say("emulators, stand-in cloud")
        pubsub, firestore = start_pubsub(self.children), start_firestore(self.children)
        self.ports = Ports(pubsub, firestore, *(free_port() for _ in range(4)))
        cloud_file = self.root / "cloud.json"
        self._spawn(
            "cloud",
            "infra.local.cloud",
            "--root",
            str(self.root / "cloud"),
            "--project",
            self.project,
            "--endpoints",
            str(cloud_file),
            "--workdir",
            str(ROOT),
            "--acts-as",
            self._node_account,
            *self._own_options(pubsub),
            *(part for bucket in BUCKETS for part in ("--bucket", f"{self.project}-{bucket}")),
        )
        self.children.await_ready("cloud", cloud_file.exists, UP_WITHIN)
        self.endpoints = json.loads(cloud_file.read_text())
        self.endpoints |= {
            "cloudbuild": self.url(self.ports.builds),
            "executions": self.url(self.ports.executions),
            "executions_grpc": f"{LOOPBACK}:{self.ports.executions_grpc}",
            "pubsub": self.endpoints["storage"] if self._own else self.url(pubsub),
        }
        say("functions, workflows, builds")
        self._spawn("functions", "infra.local.functions", "--port", str(self.ports.functions))
        self._start_workflows()
        self._spawn(
            "builds",
            "infra.local.builds",
            "--port",
            str(self.ports.builds),
            "--root",
            str(self.root / "builds"),
            "--project",
            self.project,
            "--trigger",
            self.trigger,
            "--pubsub",
            self.url(pubsub),
        )
        await_emulators(self.children, pubsub, firestore)
        for name, port in (
            ("functions", self.ports.functions),
            ("workflows", self.ports.executions),
            ("builds", self.ports.builds),
        ):
            self.children.await_ready(name, lambda port=port: answers(port), UP_WITHIN)  # type: ignore[misc]
        self.pubsub = LocalPubSub(pubsub, self.project)
        self.pubsub.create(self.url(self.ports.functions))

    def stop(self) -> list[str]:
        """End everything; return what had to be killed."""
        return self.children.stop()

    def publish(self, body: bytes, **attributes: str) -> str:
        """Publish a request and return the message id."""
        return self.pubsub.publish("lustrum-requests", body, attributes)

    def inventory(self) -> dict[str, Any]:
        """Return everything that exists in the stand-in cloud."""
        answer = httpx.get(f"{self.endpoints['admin']}/inventory", trust_env=False, timeout=10)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def reap(self) -> httpx.Response:
        """Run the reaper once, as Cloud Scheduler does every 10 minutes."""
        return httpx.post(
            f"{self.url(self.ports.functions)}/reap-runs", json={}, timeout=120, trust_env=False
        )

    def bucket(self, uri: str) -> Path:
        """Return the folder or file of a ``gs://`` URI."""
        return self.root / "cloud" / "buckets" / uri.removeprefix("gs://")

    @staticmethod
    def url(port: int) -> str:
        """Return the base URL of a port."""
        return f"http://{LOOPBACK}:{port}"

    @property
    def trigger(self) -> str:
        """The Cloud Build trigger's full name."""
        return f"projects/{self.project}/locations/{REGION}/triggers/lustrum"

    @property
    def env(self) -> dict[str, str]:
        """The environment of the functions, and of whoever wants to use the same adapters."""
        ports = self.ports
        return {
            **os.environ,
            **self._secrets,
            "PYTHONPATH": f"{ROOT / 'shared'}{os.pathsep}{ROOT}",
            "PUBSUB_EMULATOR_HOST": f"{LOOPBACK}:{ports.pubsub}",
            "FIRESTORE_EMULATOR_HOST": f"{LOOPBACK}:{ports.firestore}",
            "LUSTRUM_KUBECONFIG": str(self._own.kubeconfig) if self._own else "",
            "LUSTRUM_PROJECT": self.project,
            "LUSTRUM_REGION": REGION,
            "LUSTRUM_STATE_BUCKET": f"{self.project}-state",
            "LUSTRUM_EXPORT_BUCKET": f"{self.project}-exports",
            "LUSTRUM_REPORT_BUCKET": f"{self.project}-reports",
            "LUSTRUM_BUILD_TRIGGER": self.trigger,
            "LUSTRUM_SLOTS": json.dumps([_slot(number) for number in range(1, self._slots + 1)]),
            "LUSTRUM_NODE_ACCOUNT": self._node_account,
            "LUSTRUM_SCRIPTS": f"gs://{self.project}-state/scripts/local.zip",
            "LUSTRUM_GCLUSTER_SHA256": "0" * 64,  # the stand-in is on the PATH: no download
            "LUSTRUM_ENDPOINTS": json.dumps(self.endpoints),
            "GRPC_VERBOSITY": "NONE",
        }

    def _spawn(self, name: str, module: str, *arguments: str) -> None:
        self.children.start(name, [sys.executable, "-m", module, *arguments], self.env, ROOT)

    def _own_options(self, pubsub: int) -> list[str]:
        own = self._own
        if own is None:
            return []
        return ["--host", own.host, "--lustre", str(own.lustre), "--pubsub", self.url(pubsub)]

    def _start_workflows(self) -> None:
        env = {
            "LUSTRUM_FUNCTIONS_URL": self.url(self.ports.functions),
            "LUSTRUM_BUILD_TRIGGER": self.trigger,
        }
        self._spawn(
            "workflows",
            "workflows_engine",
            "serve",
            "--port",
            str(self.ports.executions),
            "--grpc-port",
            str(self.ports.executions_grpc),
            "--project",
            self.project,
            "--location",
            REGION,
            "--workflow",
            f"rl-run={ROOT / 'workflows' / 'rl_run.yaml'}",
            "--workflow",
            f"teardown={ROOT / 'workflows' / 'teardown.yaml'}",
            "--endpoint",
            f"cloudbuild={self.url(self.ports.builds)}",
            *(part for key, value in env.items() for part in ("--env", f"{key}={value}")),
        )


def _slot(number: int) -> dict[str, str]:
    return {
        "name": f"{REGION}-{number}",
        "region": REGION,
        "network": "lustrum",
        "subnetwork": f"lustrum-{REGION}-{number}",
        "pods_range": f"pods-{number}",
        "services_range": f"services-{number}",
        "control_plane_cidr": f"172.16.{number}.0/28",
    }
