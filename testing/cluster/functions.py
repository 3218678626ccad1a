"""Lustrum's steps as the functions call them, each as its own Kubernetes user.

The cloud around the cluster (ledger, GKE, Compute) is a few values in memory; Kubernetes, KubeRay
and Ray are real, and reached by the product's own adapters through ``LUSTRUM_KUBECONFIG``.
"""

from __future__ import annotations

import http.server
import json
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import yaml
from lustrum.adapters.gke import ClusterInfo
from lustrum.core.errors import NotFound
from lustrum.core.record import Run, State, advance
from lustrum.core.record_parts import Placement, Teardown
from lustrum.core.request import StartRequest
from lustrum.core.run_plan import RunPlan
from lustrum.core.settings import Settings
from lustrum.wiring.services import Services

from testing.cluster.api import Api
from testing.cluster.harness import ControlPlane
from testing.cluster.network import BRIDGE_ADDRESS
from testing.cluster.nodes import Nodes

T = TypeVar("T")
PROJECT = "example"
EXECUTION = "rl-run-1"
TEARDOWN = "teardown-1"
_REPOSITORY = Path(__file__).resolve().parents[2]
ROLES = _REPOSITORY / "infra" / "blueprint" / "roles.yaml.tftpl"


def account(function: str) -> str:
    """The Kubernetes user name of a function: the e-mail of its account."""
    return f"lustrum-{function}@{PROJECT}.iam.gserviceaccount.com"


def accounts() -> tuple[str, ...]:
    """The user names of all functions."""
    folders = sorted((_REPOSITORY / "functions").iterdir())
    return tuple(account(one.name.replace("_", "-")) for one in folders if one.is_dir())


def blueprint_rights(run_id: str) -> list[dict[str, Any]]:
    """The Roles and RoleBindings that the blueprint installs for a run, as Terraform renders them.

    The file holds nothing of Terraform's template language but ``${run}`` and ``${project}``.
    """
    text = ROLES.read_text().replace("${run}", run_id).replace("${project}", PROJECT)
    assert "${" not in text and "%{" not in text, f"{ROLES.name} needs Terraform to be read"
    return [one for one in yaml.safe_load_all(text) if one]


def install_roles(api: Api, run_id: str) -> None:
    """Install what the blueprint installs for a run."""
    for manifest in blueprint_rights(run_id):
        api.apply(manifest)


class MemoryLedger:
    """One run's record; what the steps of this tier need of ``lustrum.adapters.ledger``."""

    def __init__(self, run: Run) -> None:
        self._text = run.model_dump_json()
        self._events: dict[str, dict[str, Any]] = {}
        self._lock = threading.RLock()

    def load(self, run_id: str) -> Run:
        """Return a copy of the record."""
        run = Run.model_validate_json(self._text)
        if run.run_id != run_id:
            raise NotFound(f"there is no run {run_id}")
        return run

    def change(self, run_id: str, edit: Callable[[Run], T]) -> T:
        """Change the record, or leave it as it was if ``edit`` raises."""
        with self._lock:
            run = self.load(run_id)
            result = edit(run)
            self._text = run.model_dump_json()
            return result

    def append_event(self, run_id: str, event_id: str, event: dict[str, Any]) -> bool:
        """Keep an event once."""
        with self._lock:
            if event_id in self._events:
                return False
            self._events[event_id] = event
            return True


class _Gke:
    """The GKE cluster around the API server: its GPU pool can be deleted."""

    def __init__(self, run_id: str, nodes: Nodes) -> None:
        self._run_id, self._nodes = run_id, nodes
        self.pools: tuple[str, ...] = ("system", "a4")

    def find(self, name: str) -> ClusterInfo:
        """Return the cluster."""
        return ClusterInfo(name, "us-east1-b", "RUNNING", "unused", {}, self.pools)

    def delete_pool(self, cluster: ClusterInfo, pool: str) -> None:
        """Take the pool and its nodes away."""
        self.pools = tuple(one for one in self.pools if one != pool)
        ours = self.nodes_of_pool(pool)
        if ours == self._nodes.names(pool):
            self._nodes.resize(pool, 0)
        for node in ours:
            self._nodes.preempt(node)

    def nodes_of_pool(self, pool: str) -> list[str]:
        """Nodes of the pool that hold nobody else's pods: runs share the API server here."""
        others = {
            pod["spec"].get("nodeName")
            for pod in self._nodes.api.list("Pod")
            if pod["metadata"]["labels"].get("ray.io/cluster") != self._run_id
        }
        return [node for node in self._nodes.names(pool) if node not in others]


class Functions:
    """The functions of one run."""

    def __init__(self, plane: ControlPlane, nodes: Nodes, plan: RunPlan, **endpoints: str) -> None:
        now = time.time()
        self.run_id = plan.run_id
        self.plan = plan
        self._plane = plane
        self._endpoints = endpoints
        self._gke = _Gke(plan.run_id, nodes)
        self.rung: list[str] = []
        self.ledger = MemoryLedger(
            Run(
                run_id=plan.run_id,
                key=plan.run_id,
                request=StartRequest(),
                plan=plan,
                created_at=now,
                deadline_at=now + 3600,
                hard_deadline_at=now + 7200,
                execution=EXECUTION,
                state=State.STARTING_HEAD,
                zone_attempts=1,
                callback_url="http://callback.invalid/",
                placement=Placement(zone_attempt=1, zone="us-east1-b", slot="s1", since=now),
            )
        )

    @property
    def run(self) -> Run:
        """The record as it is now."""
        return self.ledger.load(self.run_id)

    def advance(self, *states: State) -> None:
        """What advance_run does to the record."""

        def edit(run: Run) -> None:
            for state in states:
                advance(run, state, time.time())

        self.ledger.change(self.run_id, edit)

    def claim_teardown(self) -> None:
        """Let a final teardown own the run."""
        now = time.time()
        teardown = Teardown(execution=TEARDOWN, final=True, claimed_at=now, lease_until=now + 600)
        self.ledger.change(self.run_id, lambda one: setattr(one, "teardown", teardown))
        self.advance(State.RELEASING)

    def services(self, function: str) -> Services:
        """The services of a function, reaching the cluster as its account."""
        settings = Settings(
            project=PROJECT,
            region="us-east1",
            report_bucket="reports",
            kubeconfig=str(self._plane.kubeconfig(account(function))),
            endpoints=self._endpoints,
        )
        found = Services(settings)
        found.__dict__.update(
            ledger=self.ledger,
            gke=self._gke,
            compute=SimpleNamespace(machines=self._machines),
            workflows=SimpleNamespace(
                ring=lambda url, body: self.rung.append(body["event"]), cancel=lambda name: None
            ),
            builds=SimpleNamespace(tagged=lambda tag: []),
            storage=SimpleNamespace(write=lambda *arguments: None),
        )
        return found

    def _machines(self, run_id: str) -> Any:
        return SimpleNamespace(
            items=[SimpleNamespace(name=name, gpus=8) for name in self._gke.nodes_of_pool("a4")]
        )


class PubSub:
    """The publish call of Pub/Sub's REST API: keeps events and tells who listens."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.listener: Callable[[dict[str, Any]], None] = lambda event: None

    @cached_property
    def url(self) -> str:
        """Where it listens, once served."""
        raise RuntimeError("use `with served(PubSub())`")


@contextmanager
def served(pubsub: PubSub) -> Iterator[PubSub]:
    """Serve a PubSub where pods can reach it."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            for message in body.get("messages", []):
                event = json.loads(b64decode(message["data"]))
                pubsub.events.append(event)
                pubsub.listener(event)
            answer = b'{"messageIds": ["1"]}'
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *arguments: Any) -> None:
            return

    server = http.server.ThreadingHTTPServer((BRIDGE_ADDRESS, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    pubsub.__dict__["url"] = f"http://{BRIDGE_ADDRESS}:{server.server_port}"
    try:
        yield pubsub
    finally:
        server.shutdown()
        server.server_close()
