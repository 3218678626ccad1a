"""Misfortunes of a run on the local stack that stays, each as its cause would bring it."""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections.abc import Mapping
from typing import Any

import httpx
import psutil
from lustrum.core import names
from lustrum.core.errors import NotFound
from lustrum.core.record import Run, State
from lustrum.wiring.services import Services
from lustrum.wiring.settings import read_settings

from infra.local.kept import Kept
from infra.local.topics import LocalPubSub

STOCKOUT = (
    "Instance creation failed: ZONE_RESOURCE_POOL_EXHAUSTED: the zone {zone} does not have enough "
    "resources available to fulfill the request"
)
# Thresholds and actions of infra/terraform/alerts.tf: percent, policy, action.
DISK_POLICIES = ((95.0, "Lustre 95 % full", "stop"), (80.0, "Lustre 80 % full", "prune"))
_TRAINERS = ("train.py", "run_grpo_math.py", "run_grpo.py")


class NoTarget(Exception):
    """What was to be struck is not there (yet); the message says what to wait for."""


class Strikes:
    """Strikes at one stack's runs.

    Args:
        kept: the stack that is up. Its environment becomes this process's.
    """

    def __init__(self, kept: Kept) -> None:
        os.environ |= kept.env
        self._kept = kept
        self.services = Services(read_settings(os.environ))
        _, _, port = kept.env["PUBSUB_EMULATOR_HOST"].rpartition(":")
        self._pubsub = LocalPubSub(int(port), kept.env["LUSTRUM_PROJECT"])

    def preempt(self, run_id: str) -> str:
        """Take one of a run's GPU machines away, as Spot does.

        Raises:
            NoTarget: it has none.
        """
        self._living(run_id)
        pool = f"gke-{run_id}-{names.GPU_POOL}-"
        found = [one for one in self.inventory()["vms"] if one.startswith(pool)]
        if not found:
            raise NoTarget(f"{run_id} has no GPU machine now; wait until it is TRAINING")
        self._admin("preempt", {"node": found[0]})
        return f"preempted {found[0]}"

    def stockout(self, zone: str) -> str:
        """Let a zone have no GPU machine any more, until `heal`."""
        rule = {
            "operation": f"compute.stockout.{zone}.{names.GPU_POOL}",
            "value": STOCKOUT.format(zone=zone),
        }
        self._admin("faults", rule)
        return f"{zone} has no GPU machine for anybody now; `lustrum-local heal` ends it"

    def fill(self, run_id: str, percent: float) -> str:
        """Let a run's Lustre be so full, and let Monitoring notice.

        Raises:
            NoTarget: it has none.
        """
        self._living(run_id)
        if run_id not in self.inventory()["instances"]:
            raise NoTarget(
                f"{run_id} has no Lustre instance now; wait until it is past PROVISIONING"
            )
        self._admin("fill", {"instance": run_id, "share": percent / 100})
        for threshold, policy, action in DISK_POLICIES:
            if percent > threshold:
                self._pubsub.publish(
                    "lustrum-alerts", _incident(run_id, policy, action, percent), {}
                )
                return f"{run_id}'s Lustre is {percent:g} % full; alert {policy!r} ({action}) sent"
        return f"{run_id}'s Lustre is {percent:g} % full: no alert below 80 %"

    def kill_head(self, run_id: str) -> str:
        """Take the pod of a run's Ray head away, and with it the jobs it knew.

        Raises:
            NoTarget: there is no cluster, or no head.
        """
        self._living(run_id)
        try:
            kubernetes = self.services.kubernetes(run_id)
        except NotFound:
            raise NoTarget(
                f"{run_id} has no cluster now; wait until it is past PROVISIONING"
            ) from None
        for pod in kubernetes.pods(run_id):
            about = pod["metadata"]
            if about.get("labels", {}).get("ray.io/node-type") == "head":
                kubernetes.delete("Pod", about["name"])
                return f"deleted the pod {about['name']}"
        raise NoTarget(f"{run_id} has no Ray head now; wait until it is past STARTING_HEAD")

    def stall(self, run_id: str) -> str:
        """Stop a run's training process where it is, without ending it.

        Raises:
            NoTarget: it does not train.
        """
        run = self._living(run_id)
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if run_id in " ".join(words) and any(
                word.rsplit("/", 1)[-1] in _TRAINERS for word in words[1:2]
            ):
                process.send_signal(signal.SIGSTOP)
                return (
                    f"stopped process {process.pid}; silent for {run.plan.timing.stall:g} s it "
                    "counts as stalled"
                )
        raise NoTarget(f"{run_id} trains nothing now ({run.state}); wait until it is TRAINING")

    def heal(self) -> str:
        """Take back every stock-out and other standing fault."""
        httpx.delete(f"{self._kept.admin}/faults", trust_env=False, timeout=10).raise_for_status()
        return "no fault stands any more"

    def tick(self, request: bytes, schedule: str, cron: str, tz: str = "Etc/UTC") -> str:
        """Send what Cloud Scheduler sends at a tick; return the message id."""
        return self.publish(request, {"schedule": schedule, "cron": cron, "tz": tz})

    def publish(self, request: bytes, attributes: Mapping[str, str]) -> str:
        """Publish a request; return the message id."""
        return self._pubsub.publish("lustrum-requests", request, attributes)

    def reap(self) -> str:
        """Call reap_runs as Cloud Scheduler does; return its answer."""
        answer = httpx.post(
            f"{self._kept.functions}/reap-runs", json={}, timeout=120, trust_env=False
        )
        answer.raise_for_status()
        return answer.text.strip()

    def inventory(self) -> dict[str, list[str]]:
        """Return everything that would be billed now."""
        answer = httpx.get(f"{self._kept.admin}/inventory", trust_env=False, timeout=10)
        answer.raise_for_status()
        found: dict[str, list[str]] = answer.json()
        return found

    def _living(self, run_id: str) -> Run:
        try:
            run = self.services.ledger.load(run_id)
        except NotFound:
            raise NoTarget(f"{run_id} is not a run known here; see `lustrum list`") from None
        if run.is_over or run.state in (State.DESTROYING, State.VERIFYING):
            raise NoTarget(f"{run_id} is {run.state}: there is nothing left to strike")
        return run

    def _admin(self, what: str, body: Mapping[str, Any]) -> None:
        answer = httpx.post(
            f"{self._kept.admin}/{what}", json=dict(body), trust_env=False, timeout=10
        )
        if answer.status_code != 200:
            raise NoTarget(str(answer.json()["error"]["message"]))


def _incident(run_id: str, policy: str, action: str, observed: float) -> bytes:
    """Return the message of Monitoring's Pub/Sub channel, version 1.2, for an open incident."""
    incident = {
        "incident_id": f"0.{uuid.uuid4().hex}",
        "state": "open",
        "started_at": int(time.time()),
        "ended_at": None,
        "policy_name": policy,
        "policy_user_labels": {"lustrum-action": action},
        "resource": {"type": "lustre.googleapis.com/Instance", "labels": {"instance_id": run_id}},
        "observed_value": f"{observed:.3f}",
        "summary": f"{policy}: {run_id} is {observed:g} % full",
    }
    return json.dumps({"version": "1.2", "incident": incident}).encode()
