"""`LUSTRUM_KUBECONFIG`: a cluster that a user has already, reached as his kubeconfig says."""

from __future__ import annotations

from pathlib import Path

import pytest
from lustrum.adapters.google import Tokens
from lustrum.adapters.kubernetes import Kubernetes
from lustrum.core.errors import ServiceError
from lustrum.core.failures import Failure
from lustrum.core.settings import Settings
from lustrum.wiring.settings import read_settings

from testing.cluster.api import Api
from testing.cluster.harness import STRANGER, ControlPlane


def connect(kubeconfig: Path) -> Kubernetes:
    settings = read_settings(
        {
            "LUSTRUM_PROJECT": "example",
            "LUSTRUM_REGION": "us-east1",
            "LUSTRUM_KUBECONFIG": str(kubeconfig),
        }
    )
    assert isinstance(settings, Settings)
    return Kubernetes.connect(settings, Tokens(settings), "")


@pytest.mark.usefixtures("api")
class TestKubeconfig:
    def test_connect_with_a_token(self, plane: ControlPlane) -> None:
        claim = connect(plane.kubeconfig()).get("PersistentVolumeClaim", "lustre-pvc")
        assert claim["status"]["phase"] == "Bound"

    def test_connect_with_a_client_certificate(self, plane: ControlPlane) -> None:
        kubeconfig = plane.certificate_kubeconfig("kubernetes-admin", "system:masters")
        claim = connect(kubeconfig).get("PersistentVolumeClaim", "lustre-pvc")
        assert claim["status"]["phase"] == "Bound"

    def test_connect_as_somebody_without_rights(self, plane: ControlPlane) -> None:
        with pytest.raises(ServiceError) as refused:
            connect(plane.kubeconfig(STRANGER)).pods("rl-0123456789")
        assert refused.value.failure is Failure.ACCESS
        assert not refused.value.retryable
        assert STRANGER in str(refused.value)

    def test_text_beyond_ascii_arrives_as_it_is(self, plane: ControlPlane, api: Api) -> None:
        kubernetes = connect(plane.kubeconfig())
        text = "print('Schritt \N{BAR CHART} größer')\n"
        kubernetes.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "beyond-ascii"},
                "data": {"supervisor.py": text},
            }
        )
        assert api.get("ConfigMap", "beyond-ascii")["data"]["supervisor.py"] == text
        api.delete("ConfigMap", "beyond-ascii")
