"""A real control plane on this machine: etcd, kube-apiserver, controllers, the KubeRay operator.

Everything listens inside the process's own network namespace (``network.py``); users are bearer
tokens, as Google's are, and RBAC decides what each may do. Nodes are played by ``nodes.py``.
"""

from __future__ import annotations

import base64
import os
import secrets
import ssl
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from testing.cluster import certificates, network
from testing.cluster.api import Api
from testing.cluster.processes import Child, free_port
from testing.cluster.tools import build

ADMIN = "admin"
OPERATOR = "kuberay-operator"
STRANGER = "somebody@example.com"

# What a kubelet, the scheduler and the cloud do is played by nodes.py; these controllers are what
# our waiting depends on: podgc removes pods of nodes that are gone, the binder binds the claim.
_CONTROLLERS = (
    "garbage-collector-controller,namespace-controller,serviceaccount-controller,"
    "serviceaccount-token-controller,endpoints-controller,endpointslice-controller,"
    "pod-garbage-collector-controller,job-controller,persistentvolume-binder-controller"
)


class ToolsMissingError(RuntimeError):
    """A program has not been built yet; the message says how."""


def _program(tool: str, program: str) -> str:
    path = build.find(tool, program)
    if path is None:
        raise ToolsMissingError(
            f"{program} is not built: run `python -m testing.cluster.tools.build` (minutes, once)"
        )
    return str(path)


@dataclass
class ControlPlane:
    """etcd, kube-apiserver and kube-controller-manager, from ``start`` to ``stop``."""

    folder: Path
    users: tuple[str, ...] = ()  # besides the administrator, the operator and a stranger
    url: str = ""
    authority: certificates.Authority | None = None
    children: list[Child] = field(default_factory=list)
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def ca_file(self) -> Path:
        """The CA that signed the API server's certificate."""
        return self.folder / "ca.crt"

    def start(self) -> Self:
        """Start all three and wait until the default namespace has its service account."""
        network.enter_own_namespace()
        self.authority = certificates.create_authority(self.folder)
        etcd_url = self._start_etcd()
        self._start_apiserver(self.authority, etcd_url)
        self._start_controllers()
        return self

    def stop(self) -> None:
        """End everything, last started first."""
        while self.children:
            self.children.pop().stop()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def api(self, user: str = ADMIN, *, impersonate: str | None = None) -> Api:
        """A connection as ``user``, or as whom the admin impersonates."""
        return Api(self.url, str(self.ca_file), self.tokens[user], impersonate)

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """A kubeconfig file with the bearer token of ``user``."""
        return self._kubeconfig(user.split("@")[0], {"token": self.tokens[user]})

    def certificate_kubeconfig(self, user: str, group: str) -> Path:
        """A kubeconfig file with a client certificate inside, as kind and k3d write them."""
        assert self.authority is not None, "start it first"
        crt, key = self.authority.client_pair(user, group)
        credentials = {
            "client-certificate-data": base64.b64encode(crt.read_bytes()).decode(),
            "client-key-data": base64.b64encode(key.read_bytes()).decode(),
        }
        return self._kubeconfig(f"certificate-{user}", credentials)

    def _kubeconfig(self, name: str, credentials: dict[str, str]) -> Path:
        path = self.folder / f"{name}.kubeconfig"
        cluster = {"server": self.url, "certificate-authority": str(self.ca_file)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": name, "user": credentials}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(content))
        return path

    def run(self, name: str, command: list[str], environment: dict[str, str]) -> Child:
        """Start one more child that ends with this control plane."""
        child = Child(name, command, self.folder / f"{name}.log", environment=environment)
        self.children.append(child)
        return child

    def _start_etcd(self) -> str:
        url, peer = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
        command = [
            _program("etcd", "etcd"),
            "--data-dir",
            str(self.folder / "etcd"),
            "--listen-client-urls",
            url,
            "--advertise-client-urls",
            url,
            "--listen-peer-urls",
            peer,
            "--initial-advertise-peer-urls",
            peer,
            "--initial-cluster",
            f"default={peer}",
            "--unsafe-no-fsync",
            "--log-level",
            "warn",
        ]
        self.run("etcd", command, _environment()).wait_until(lambda: _answers(f"{url}/health"), 60)
        return url

    def _start_apiserver(self, authority: certificates.Authority, etcd_url: str) -> None:
        port = free_port()
        self.url = f"https://127.0.0.1:{port}"
        self.tokens = {
            user: secrets.token_hex(16) for user in (ADMIN, OPERATOR, STRANGER, *self.users)
        }
        token_file = self.folder / "tokens.csv"
        token_file.write_text(
            "".join(
                f'{token},{user},{user},"{"system:masters" if user == ADMIN else ""}"\n'
                for user, token in self.tokens.items()
            )
        )
        crt, key = authority.serving_pair("apiserver", ["127.0.0.1"])
        accounts = str(certificates.service_account_key(self.folder))
        command = [
            _program("kubernetes", "kube-apiserver"),
            "--etcd-servers",
            etcd_url,
            "--bind-address",
            "127.0.0.1",
            "--secure-port",
            str(port),
            "--advertise-address",
            network.BRIDGE_ADDRESS,
            # The `kubernetes` service would need endpoints; nobody here uses it.
            "--endpoint-reconciler-type",
            "none",
            "--tls-cert-file",
            str(crt),
            "--tls-private-key-file",
            str(key),
            "--token-auth-file",
            str(token_file),
            "--client-ca-file",
            str(authority.ca_file),
            "--authorization-mode",
            "RBAC",
            "--service-cluster-ip-range",
            "10.202.0.0/16",
            "--service-account-issuer",
            "https://kubernetes.default.svc",
            "--service-account-key-file",
            accounts,
            "--service-account-signing-key-file",
            accounts,
            "--cert-dir",
            str(self.folder),
            "--allow-privileged",
            "--profiling=false",
        ]
        child = self.run("kube-apiserver", command, _environment())
        child.wait_until(lambda: _answers(f"{self.url}/readyz", self), 120)

    def _start_controllers(self) -> None:
        command = [
            _program("kubernetes", "kube-controller-manager"),
            "--kubeconfig",
            str(self.kubeconfig()),
            "--controllers",
            _CONTROLLERS,
            "--service-account-private-key-file",
            str(self.folder / "service-accounts.key"),
            "--root-ca-file",
            str(self.ca_file),
            "--leader-elect=false",
            "--bind-address",
            "127.0.0.1",
            "--secure-port",
            str(free_port()),
            "--cert-dir",
            str(self.folder),
            # Owned objects are few; the collector's default of 20 workers only burns memory.
            "--concurrent-gc-syncs",
            "4",
        ]
        child = self.run("kube-controller-manager", command, _environment())
        api = self.api()
        child.wait_until(lambda: api.find("ServiceAccount", "default") is not None, 60)


def start_operator(plane: ControlPlane, minor: str) -> Child:
    """Install the CRDs and role of KubeRay ``minor`` ("v1.5", "v1.6") and start its operator.

    The operator runs as its own user with its own published role and reaches Ray through the API
    server's service proxy, since cluster DNS is not played here.
    """
    tool = build.TOOLS[f"kuberay-{minor}"]
    program = _program(tool.name, "ray-operator")
    assets = build.directory(tool)
    api = plane.api()
    for file in sorted((assets / "bases").glob("*.yaml")):
        api.apply(yaml.safe_load(file.read_text()))
    api.apply(yaml.safe_load((assets / "role.yaml").read_text()))
    api.apply(_operator_binding())
    child = plane.run(
        f"kuberay-{minor}",
        [
            program,
            "--metrics-addr",
            "0",
            "--health-probe-bind-address",
            "0",
            "--enable-leader-election=false",
            "--use-kubernetes-proxy",
            "--log-stdout-encoder",
            "console",
        ],
        {
            **_environment(),
            "KUBECONFIG": str(plane.kubeconfig(OPERATOR)),
            "ENABLE_WEBHOOKS": "false",
        },
    )
    child.wait_until(lambda: "Starting workers" in child.log.read_text(errors="replace"), 60)
    return child


def _operator_binding() -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": OPERATOR},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": OPERATOR,
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": OPERATOR}],
    }


def _environment() -> dict[str, str]:
    """What children get of our environment: no proxies, no kubeconfig, no credentials."""
    return {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}


def _answers(url: str, plane: ControlPlane | None = None) -> bool:
    request = urllib.request.Request(url)
    context = None
    if plane is not None:
        request.add_header("Authorization", f"Bearer {plane.tokens[ADMIN]}")
        context = ssl.create_default_context(cafile=str(plane.ca_file))
    try:
        with urllib.request.urlopen(request, timeout=2, context=context) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@contextmanager
def working_folder() -> Iterator[Path]:
    """Where keys, data and logs are: temporary, or kept in ``LUSTRUM_CLUSTER_LOGS``."""
    kept = os.environ.get("LUSTRUM_CLUSTER_LOGS")
    if kept:
        Path(kept).mkdir(parents=True)
        yield Path(kept)
        return
    with tempfile.TemporaryDirectory(prefix="lustrum-cluster-") as folder:
        yield Path(folder)


def lustre_volume() -> list[dict[str, Any]]:
    """Volume and claim as the blueprint makes them, bound to each other by name."""
    size, modes = "36000Gi", ["ReadWriteMany"]
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "lustre-pv"},
        "spec": {
            "accessModes": modes,
            "capacity": {"storage": size},
            "storageClassName": "",
            "claimRef": {"name": "lustre-pvc", "namespace": "default"},
            "csi": {"driver": "lustre.csi.storage.gke.io", "volumeHandle": "p/us-east1-b/rl/fs"},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "lustre-pvc"},
        "spec": {
            "accessModes": modes,
            "storageClassName": "",
            "volumeName": "lustre-pv",
            "resources": {"requests": {"storage": size}},
        },
    }
    return [volume, claim]
