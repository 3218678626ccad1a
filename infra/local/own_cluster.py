"""A Kubernetes cluster that the user has, in the place of the stand-in's API, KubeRay and Ray.

``LUSTRUM_KUBECONFIG`` names it. What GKE and Managed Lustre bring with a run's cluster has to be
there already; what goes with a run's cluster when it is deleted is taken away here.
"""

from __future__ import annotations

import ipaddress
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kubernetes.config import ConfigException, list_kube_config_contexts
from lustrum.adapters.google import Tokens
from lustrum.adapters.kubernetes import Kubernetes
from lustrum.core import names
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.settings import Settings

from infra.local.processes import LOOPBACK

OBJECTS = ("RayCluster", "Pod", "Secret", "ConfigMap", "ServiceAccount")
GONE_WITHIN = 180.0  # seconds; a pod has 120 to end
POOLS = ("system", names.GPU_POOL)


class Unfit(Exception):
    """The cluster cannot take a run; the message says what it lacks."""


@dataclass(frozen=True)
class OwnCluster:
    """The cluster, and how this machine and its pods meet.

    Attributes:
        kubeconfig: file of the cluster's credentials.
        context: the context in it that is current, and used.
        lustre: this machine's folder behind the claim ``lustre-pvc``: exports read it.
        host: address of this machine that pods reach; Pub/Sub and Storage listen on it.
    """

    kubeconfig: Path
    context: str
    lustre: Path
    host: str = LOOPBACK

    @classmethod
    def of(cls, env: Mapping[str, str]) -> OwnCluster | None:
        """Read ``LUSTRUM_KUBECONFIG``, ``LUSTRUM_LUSTRE_FOLDER`` and ``LUSTRUM_POD_HOST``.

        Returns:
            None when no cluster is named.

        Raises:
            Unfit: a variable cannot be used, naming it and what is accepted.
        """
        if not env.get("LUSTRUM_KUBECONFIG"):
            return None
        kubeconfig = Path(env["LUSTRUM_KUBECONFIG"]).expanduser()
        if not kubeconfig.is_file():
            raise Unfit(f"LUSTRUM_KUBECONFIG: {kubeconfig} is not a file; use a kubeconfig")
        try:
            context = list_kube_config_contexts(str(kubeconfig))[1]["name"]  # type: ignore[no-untyped-call]
        except ConfigException as error:
            raise Unfit(f"LUSTRUM_KUBECONFIG: {kubeconfig}: {error}") from None
        given = env.get("LUSTRUM_LUSTRE_FOLDER", "")
        folder = Path(given).expanduser()
        if not given or not folder.is_dir():
            raise Unfit(
                f"LUSTRUM_LUSTRE_FOLDER: {given or 'not set'}; give the folder of this machine "
                f"that is behind the cluster's claim {names.CLAIM}"
            )
        found = next(folder.iterdir(), None)
        if found is not None:
            raise Unfit(
                f"LUSTRUM_LUSTRE_FOLDER: {folder} holds {found.name}; a new file system is empty, "
                "and this one will be emptied after the run"
            )
        host = env.get("LUSTRUM_POD_HOST") or LOOPBACK
        try:
            unspecified = ipaddress.ip_address(host).is_unspecified
        except ValueError:
            unspecified = True
        if unspecified:
            raise Unfit(f"LUSTRUM_POD_HOST: {host!r}; use one address of this machine")
        return cls(kubeconfig.resolve(), context, folder.resolve(), host)

    def check(self) -> list[str]:
        """Look whether the cluster can take a run; return what may yet come.

        Raises:
            Unfit: it cannot, or does not answer.
        """
        try:
            self._refuse_others()
            claim = self._api.get("PersistentVolumeClaim", names.CLAIM)
            nodes = self._nodes()
        except NotFound as error:
            raise Unfit(
                f"your cluster has no claim {names.CLAIM} in {names.NAMESPACE}: {error}"
            ) from None
        except ServiceError as error:
            raise Unfit(f"your cluster does not answer as it should: {error}") from None
        phase = (claim.get("status") or {}).get("phase")
        if phase != "Bound":
            raise Unfit(f"your cluster's claim {names.CLAIM} is {phase}, not Bound")
        notes = [
            f"no node is labelled cloud.google.com/gke-nodepool={pool} yet: pods will wait for one"
            for pool in POOLS
            if pool not in nodes
        ]
        if self.host == LOOPBACK:
            notes.append(
                "pods cannot reach this machine's loopback: no event arrives, no code archive can "
                "be fetched, the run falls back to polling; LUSTRUM_POD_HOST names an address "
                "that they reach"
            )
        return notes

    def left(self, run_id: str) -> list[str]:
        """Return the RayCluster and pods of a run that are still there: its teardown owes them."""
        try:
            return self._of(run_id, "RayCluster", "Pod")
        except ServiceError as error:
            return [f"unknown what is in your cluster: {error}"]

    def was_used(self, run_id: str) -> bool:
        """Say whether the pods' file system is the folder that was named."""
        return (self.lustre / "runs" / run_id).is_dir()

    def clear(self, run_id: str) -> list[str]:
        """Take away what goes with a run's cluster and file system; return what would not go."""
        problems = []
        try:
            for kind, name in self._objects(run_id, *OBJECTS):
                self._api.delete(kind, name)
            end = time.monotonic() + GONE_WITHIN
            while (problems := self._of(run_id, *OBJECTS)) and time.monotonic() < end:
                time.sleep(0.5)
        except ServiceError as error:
            problems.append(f"objects of {run_id} in your cluster: {error}")
        for entry in self.lustre.iterdir():
            try:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            except OSError as error:
                problems.append(f"{entry} (written by a pod): {error.strerror}")
        return problems

    def _refuse_others(self) -> None:
        try:
            others = self._api.items("RayCluster", labelSelector=names.LABEL_RUN)
        except NotFound:
            raise Unfit("your cluster knows no RayCluster: install KubeRay, CRDs too") from None
        if others:
            name = others[0]["metadata"]["name"]
            raise Unfit(f"your cluster holds run {name} already: kubectl delete raycluster {name}")

    def _of(self, run_id: str, *kinds: str) -> list[str]:
        return [f"{kind} {name}" for kind, name in self._objects(run_id, *kinds)]

    def _objects(self, run_id: str, *kinds: str) -> list[tuple[str, str]]:
        label = f"{names.LABEL_RUN}={run_id}"
        return [
            (kind, one["metadata"]["name"])
            for kind in kinds
            for one in self._api.items(kind, labelSelector=label)
        ]

    def _nodes(self) -> set[str | None]:
        """Return the node pools that have a node; empty when nodes may not be listed."""
        answer = self._api.request("GET", "/api/v1/nodes")
        items = json.loads(answer.body)["items"] if answer.status == 200 else []
        return {one["metadata"]["labels"].get("cloud.google.com/gke-nodepool") for one in items}

    @cached_property
    def _api(self) -> Kubernetes:
        settings = Settings(project="", region="", kubeconfig=str(self.kubeconfig))
        try:
            return Kubernetes.connect(settings, Tokens(settings), "")
        except ConfigException as error:
            raise Unfit(f"LUSTRUM_KUBECONFIG: {self.kubeconfig}: {error}") from None
