"""Real Ray behind played pods: the container's own command, with its own volumes and probes.

KubeRay wrote the command (``ulimit -n 65536; ray start --head ...``) into the pod. It is run as it
is but for the size of the object store, and the head's address, which cluster DNS would give.
The pod has a network and a mount namespace of its own, with its volumes where it wants them; the
Lustre claim is one folder for all pods. The readiness probe is asked for real.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from testing.cluster import network
from testing.cluster.api import Api
from testing.cluster.processes import Child

Pod = dict[str, Any]
_OBJECT_STORE = 80_000_000  # bytes; the least that Ray takes without complaint is 75 MB
_PROBE_TIMEOUT_S = 2.0
_REPOSITORY = Path(__file__).resolve().parents[2]
# A pid namespace of its own: however its first process or we end, nothing of the pod is left.
_UNSHARE = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
_PROGRAMS = (_REPOSITORY, Path(sys.base_prefix), Path(sys.prefix))
_RAY = f"{sys.executable} {_REPOSITORY / 'infra' / 'local' / 'cloud' / 'ray_node.py'}"

# A root file system like this machine's, where the pod's own folders can be added: all top
# folders are the machine's but /etc, a copy, and /tmp, which holds the programs alone, should they
# be there. (Ray's session is in /tmp/ray, the same name on all pods.)
_ROOT = """
set -e
{network}
mount -t tmpfs pod {root}
for entry in /*; do
  if [ -L "$entry" ]; then cp -P "$entry" {root}/
  elif [ "$entry" = /etc ]; then cp -a /etc {root}/etc
  elif [ "$entry" = /tmp ]; then mkdir -m 1777 {root}/tmp
  elif [ -d "$entry" ]; then mkdir {root}"$entry"; mount --rbind "$entry" {root}"$entry"; fi
done
{mounts}
exec chroot {root} /bin/bash -c {command}
"""


class RayPods:
    """Ray processes by pod uid. Not thread-safe: used by the thread that plays the nodes."""

    def __init__(self, api: Api, logs: Path) -> None:
        self.lustre = logs / "lustre"
        self.lustre.mkdir(exist_ok=True)
        self._api = api
        self._logs = logs
        self._children: dict[str, Child] = {}
        self._addresses: dict[str, str] = {}
        self._starts = 0
        self._heads: dict[str, str] = {}  # RayCluster name -> address of its head
        self._folder = Path(tempfile.mkdtemp(prefix="pods-", dir=logs))

    def start(self, pod: Pod, address: str) -> None:
        """Run the pod's first container."""
        uid, labels = pod["metadata"]["uid"], pod["metadata"]["labels"]
        cluster = labels["ray.io/cluster"]
        if labels["ray.io/node-type"] == "head":
            self._heads[cluster] = address
        container = pod["spec"]["containers"][0]
        self._starts += 1
        root = self._folder / f"{uid[:8]}-{self._starts}" / "root"
        root.mkdir(parents=True)
        command = " ".join([*container.get("command", []), *container.get("args", [])])
        command = self._at_home(command.removeprefix("/bin/bash -c -- "), pod)
        script = _ROOT.format(
            root=root,
            network=network.pod_setup(address),
            mounts="\n".join(self._mounts(pod, root)),
            command=shlex.quote(f"cd {_REPOSITORY}; {command}"),
        )
        name = pod["metadata"]["name"]
        self._children[uid] = Child(
            name,
            [*_UNSHARE, "/bin/bash", "-c", script],
            self._logs / f"{name}.log",
            environment=self._environment(container, cluster),
        )
        self._addresses[uid] = address
        network.wire(self._children[uid].process.pid, address)

    def is_ready(self, pod: Pod) -> bool:
        """Ask the readiness probe that the operator wrote into the pod."""
        address = self._addresses[pod["metadata"]["uid"]]
        probe = pod["spec"]["containers"][0].get("readinessProbe", {})
        if "httpGet" in probe:
            urls = [f"http://localhost:{probe['httpGet']['port']}{probe['httpGet']['path']}"]
        else:
            urls = re.findall(r"http://localhost:\d+/\S+", " ".join(probe["exec"]["command"]))
        return all(_answers(url.replace("localhost", address)) for url in urls)

    def restart_if_ended(self, pod: Pod) -> bool:
        """What a kubelet does when a container ends; says whether it had to."""
        uid = pod["metadata"]["uid"]
        if self._children[uid].process.poll() is None:
            return False
        self._children.pop(uid).stop(0)
        self.start(pod, self._addresses[uid])
        return True

    def stop(self, pod: Pod, grace_s: float = 3.0) -> None:
        """End the pod's processes; with no grace at once, as a lost machine would."""
        child = self._children.pop(pod["metadata"]["uid"], None)
        if child is not None:
            _stop(child, grace_s)

    def holds(self, pod: Pod) -> bool:
        """True when the pod runs here."""
        return pod["metadata"]["uid"] in self._children

    def close(self) -> None:
        """End all."""
        for child in self._children.values():
            _stop(child, 0.0)
        self._children.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _environment(self, container: dict[str, Any], cluster: str) -> dict[str, str]:
        given = {
            variable["name"]: self._resolve(variable["value"], cluster)
            for variable in container.get("env", [])
            if variable.get("value")
        }
        return given | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": os.environ.get("HOME", "/"),
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def _mounts(self, pod: Pod, root: Path) -> list[str]:
        sources = {
            volume["name"]: self._source(volume, pod, root.parent)
            for volume in pod["spec"].get("volumes", [])
        }
        volumes = [
            (sources[mount["name"]], mount["mountPath"])
            for mount in pod["spec"]["containers"][0].get("volumeMounts", [])
            if mount["mountPath"] != "/dev/shm" and mount["name"] in sources
        ]
        programs = [(path, path) for path in _PROGRAMS if path.is_relative_to("/tmp")]
        return [
            f"mkdir -p {root}{target}; mount --rbind {source} {root}{target}"
            for source, target in [*programs, *volumes]
        ]

    def _source(self, volume: dict[str, Any], pod: Pod, home: Path) -> Path:
        if "persistentVolumeClaim" in volume:
            return self.lustre
        folder: Path = home / volume["name"]
        folder.mkdir()
        namespace = pod["metadata"]["namespace"]
        if "secret" in volume:
            found = self._api.get("Secret", volume["secret"]["secretName"], namespace)
            for key, value in (found.get("data") or {}).items():
                (folder / key).write_bytes(base64.b64decode(value))
                (folder / key).chmod(volume["secret"].get("defaultMode", 0o644))
        elif "configMap" in volume:
            found = self._api.get("ConfigMap", volume["configMap"]["name"], namespace)
            for key, value in (found.get("data") or {}).items():
                (folder / key).write_text(value)
            for key, value in (found.get("binaryData") or {}).items():
                (folder / key).write_bytes(base64.b64decode(value))
        return folder

    def _at_home(self, command: str, pod: Pod) -> str:
        cluster = pod["metadata"]["labels"]["ray.io/cluster"]
        command = re.sub(r" --memory=\d+", "", command)  # the machine's, not what was asked for
        # exec, so that a signal reaches Ray and not a shell. Without the parts of
        # the dashboard that nobody asks for: on two cores all nine can take more than the 30 s
        # after which Ray gives up.
        command = command.replace(
            "ray start", f"exec {_RAY} start --object-store-memory={_OBJECT_STORE}", 1
        )
        return self._resolve(command, cluster)

    def _resolve(self, text: str, cluster: str) -> str:
        """Put the head's address where cluster DNS would find it."""
        pattern = rf"{re.escape(cluster)}-head-svc(\.[a-z0-9.-]+)?"
        return re.sub(pattern, self._heads.get(cluster, "0.0.0.0"), text)


def _stop(child: Child, grace_s: float) -> None:
    """TERM to the pod's first process, as a kubelet sends it; then the end of its namespace."""
    with suppress(psutil.NoSuchProcess):
        for first in psutil.Process(child.process.pid).children() if grace_s else []:
            first.terminate()
            psutil.wait_procs([first], timeout=grace_s)
    child.stop(0.0)


def _answers(url: str) -> bool:
    try:
        answer = httpx.get(url, timeout=_PROBE_TIMEOUT_S, trust_env=False)
    except httpx.HTTPError:
        return False
    return answer.status_code == 200
