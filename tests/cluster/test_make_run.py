"""`make run` on a cluster that a user has, named by `LUSTRUM_KUBECONFIG`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from lustrum.core import kubernetes_objects
from lustrum.core.names import LABEL_RUN

from infra.local.own_cluster import OBJECTS, OwnCluster, Unfit
from testing.cluster.api import Api
from testing.cluster.harness import ControlPlane
from testing.cluster.network import BRIDGE_ADDRESS
from testing.cluster.nodes import Nodes
from testing.cluster.plans import companions, fresh_plan
from tests.cluster.conftest import KUBERAY

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def lustre(nodes: Nodes) -> Iterator[Path]:
    """The folder behind the claim, empty as a new file system is."""
    assert nodes.ray is not None
    folder = nodes.ray.lustre
    shutil.rmtree(folder)
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)
    folder.mkdir()


@pytest.fixture
def env(plane: ControlPlane, lustre: Path) -> dict[str, str]:
    """What a user sets."""
    return {
        "LUSTRUM_KUBECONFIG": str(
            plane.certificate_kubeconfig("kubernetes-admin", "system:masters")
        ),
        "LUSTRUM_LUSTRE_FOLDER": str(lustre),
    }


@pytest.mark.usefixtures("operator")
class TestMakeRun:
    @pytest.mark.timeout(500)
    def test_a_whole_life_leaves_nothing(
        self,
        api: Api,
        nodes: Nodes,
        lustre: Path,
        env: dict[str, str],
        request: pytest.FixtureRequest,
    ) -> None:
        with_events = request.node.callspec.params["operator"] == KUBERAY[-1]
        host = BRIDGE_ADDRESS if with_events else ""
        nodes.resize("a4", 2, gpus=1)
        nodes.behaviour.real = lambda pod: True
        run = subprocess.run(
            [sys.executable, "-m", "infra.local.run", "examples/requests/tiny.json"],
            cwd=REPOSITORY,
            env=os.environ | env | {"LUSTRUM_POD_HOST": host},
            capture_output=True,
            text=True,
            timeout=400,
        )
        print(run.stdout, run.stderr)
        last = run.stdout.splitlines()[-1]
        assert run.returncode == 0
        assert "CLOSED SUCCEEDED step 20/20" in last
        assert "inventory:            empty" in run.stdout
        assert ("no event arrives" in run.stdout) == (not with_events)
        kept = next(one for one in run.stdout.splitlines() if one.startswith("logs:")).split()[1]
        log = REPOSITORY / kept / "stack-logs" / "functions.log"
        assert (log.read_text().count("react_to_event rl-") > 20) == with_events
        for kind in OBJECTS:
            assert api.list(kind, labelSelector=LABEL_RUN) == []
        assert list(lustre.iterdir()) == []

    def test_a_cluster_that_holds_a_run_is_refused(
        self, api: Api, nodes: Nodes, env: dict[str, str]
    ) -> None:
        plan = fresh_plan(profile="tiny-grpo")
        for one in (*companions(plan), kubernetes_objects.ray_cluster(plan, 1_900_000_000.0, 0)):
            api.apply(one)
        own = OwnCluster.of(env)
        assert own is not None
        with pytest.raises(Unfit, match=f"holds run {plan.run_id} already"):
            own.check()
        assert own.left(plan.run_id)[0] == f"RayCluster {plan.run_id}"
        assert own.clear(plan.run_id) == []
        assert own.left(plan.run_id) == []
        own.check()

    def test_the_claim_of_the_examples_is_accepted(self, api: Api) -> None:
        text = (REPOSITORY / "examples" / "own-cluster" / "lustre.yaml").read_text()
        for one in yaml.safe_load_all(text):
            one["metadata"].pop("namespace", None)  # the tier's own claim has its name
            where = "persistentvolumes"
            if one["kind"] == "PersistentVolumeClaim":
                where = "namespaces/kube-system/persistentvolumeclaims"
            answer = api.http.post(
                f"/api/v1/{where}",
                json=one,
                params={"dryRun": "All", "fieldValidation": "Strict"},
            )
            assert answer.status_code == 201, answer.text
