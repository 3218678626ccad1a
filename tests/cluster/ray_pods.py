"""Real Ray behind played pods: the container's own command, run at the pod's own address.

KubeRay wrote the command (``ulimit -n 65536; ray start --head ...``) into the pod. It is run as it
is but for what a container and cluster DNS would give: its address, the head's address, and ports
of helpers that would clash, since all pods share one network namespace. Probes are asked for real.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx

from tests.cluster.processes import Child

Pod = dict[str, Any]
_OBJECT_STORE = 80_000_000  # bytes; the least that Ray takes without complaint is 75 MB
_PROBE_TIMEOUT_S = 2.0


class RayPods:
    """Ray processes by pod uid. Not thread-safe: used by the thread that plays the nodes."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._children: dict[str, Child] = {}
        self._addresses: dict[str, str] = {}
        self._heads: dict[str, str] = {}  # RayCluster name -> address of its head
        # Unix socket paths have 107 characters at most: Ray's folder must be near the root.
        self._folder = tempfile.mkdtemp(prefix="lr-", dir="/tmp")

    def start(self, pod: Pod, address: str) -> None:
        """Run the pod's first container."""
        uid, labels = pod["metadata"]["uid"], pod["metadata"]["labels"]
        cluster = labels["ray.io/cluster"]
        if labels["ray.io/node-type"] == "head":
            self._heads[cluster] = address
        container = pod["spec"]["containers"][0]
        environment = {
            variable["name"]: variable["value"]
            for variable in container.get("env", [])
            if variable.get("value")
        }
        command = " ".join([*container.get("command", []), *container.get("args", [])])
        command = self._at_home(command.removeprefix("/bin/bash -c -- "), pod, address)
        for name, value in environment.items():
            environment[name] = self._resolve(value, cluster)
        bin_folder = str(Path(sys.executable).parent)
        environment |= {
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "HOME": os.environ.get("HOME", "/"),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        log = self._logs / f"{pod['metadata']['name']}.log"
        self._children[uid] = Child(pod["metadata"]["name"], ["/bin/bash", "-c", command], log,
                                    environment=environment)  # fmt: skip
        self._addresses[uid] = address

    def is_ready(self, pod: Pod) -> bool:
        """Ask the readiness probe that the operator wrote into the pod."""
        address = self._addresses[pod["metadata"]["uid"]]
        probe = pod["spec"]["containers"][0].get("readinessProbe", {})
        if "httpGet" in probe:
            urls = [f"http://localhost:{probe['httpGet']['port']}{probe['httpGet']['path']}"]
        else:
            urls = re.findall(r"http://localhost:\d+/\S+", " ".join(probe["exec"]["command"]))
        return all(_answers(url.replace("localhost", address)) for url in urls)

    def stop(self, pod: Pod) -> None:
        """End the pod's processes at once, as a lost machine would."""
        child = self._children.pop(pod["metadata"]["uid"], None)
        if child is not None:
            child.stop(grace_s=3.0)

    def holds(self, pod: Pod) -> bool:
        """True when the pod runs here."""
        return pod["metadata"]["uid"] in self._children

    def close(self) -> None:
        """End all."""
        for child in self._children.values():
            child.stop(grace_s=3.0)
        self._children.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _at_home(self, command: str, pod: Pod, address: str) -> str:
        cluster = pod["metadata"]["labels"]["ray.io/cluster"]
        is_head = pod["metadata"]["labels"]["ray.io/node-type"] == "head"
        extra = f"--node-ip-address={address} --object-store-memory={_OBJECT_STORE}"
        if is_head:
            extra += f" --temp-dir={self._folder}/{pod['metadata']['uid'][:8]}"
        # Only heads keep the fixed port of metrics: two pods here would fight for it.
        command = re.sub(r" --metrics-export-port=\d+", "", command)
        command = re.sub(r" --memory=\d+", "", command)
        command = command.replace("ray start", f"ray start {extra}", 1)
        return self._resolve(command, cluster)

    def _resolve(self, text: str, cluster: str) -> str:
        """Put the head's address where cluster DNS would find it."""
        pattern = rf"{re.escape(cluster)}-head-svc(\.[a-z0-9.-]+)?"
        return re.sub(pattern, self._heads.get(cluster, "0.0.0.0"), text)


def _answers(url: str) -> bool:
    try:
        answer = httpx.get(url, timeout=_PROBE_TIMEOUT_S, trust_env=False)
    except httpx.HTTPError:
        return False
    return answer.status_code == 200
