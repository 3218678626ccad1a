"""`make run` on a user's own cluster: what he may say. The cluster itself: `tests/cluster`."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
import yaml
from lustrum.core.images import TABLE
from lustrum.core.names import CLAIM
from lustrum.wiring.settings import read_settings

from infra.local.cloud import Cloud
from infra.local.functions import ROOT
from infra.local.own_cluster import POOLS, OwnCluster, Unfit
from infra.local.stack import Ports, Stack, describe
from tests.local.cloud.support import PROJECT, QUICK, until

EXAMPLES = ROOT / "examples" / "own-cluster"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A usable environment."""
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "kind-mine", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "kind-mine",
    }
    (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig))
    (tmp_path / "lustre").mkdir()
    return {
        "LUSTRUM_KUBECONFIG": str(tmp_path / "config"),
        "LUSTRUM_LUSTRE_FOLDER": str(tmp_path / "lustre"),
    }


class TestOwnCluster:
    def test_none_is_named(self) -> None:
        assert OwnCluster.of({"LUSTRUM_KUBECONFIG": ""}) is None

    def test_usable(self, env: dict[str, str]) -> None:
        own = OwnCluster.of({**env, "LUSTRUM_POD_HOST": "172.17.0.1"})
        assert own is not None
        assert own.host == "172.17.0.1"
        real, stands_in = describe(own)
        assert f"the Kubernetes API with KubeRay of kind-mine ({own.kubeconfig})" in real
        assert "Kubernetes API" not in stands_in

    @pytest.mark.parametrize(
        ("variable", "value", "said"),
        [
            ("LUSTRUM_KUBECONFIG", "/no/such", "LUSTRUM_KUBECONFIG: /no/such is not a file"),
            ("LUSTRUM_LUSTRE_FOLDER", "", "LUSTRUM_LUSTRE_FOLDER: not set; give the folder"),
            ("LUSTRUM_LUSTRE_FOLDER", "/no/such", "LUSTRUM_LUSTRE_FOLDER: /no/such; give"),
            ("LUSTRUM_POD_HOST", "0.0.0.0", "LUSTRUM_POD_HOST: '0.0.0.0'; use one address"),
            ("LUSTRUM_POD_HOST", "my-laptop", "LUSTRUM_POD_HOST: 'my-laptop'; use one address"),
        ],
    )
    def test_unusable(self, env: dict[str, str], variable: str, value: str, said: str) -> None:
        with pytest.raises(Unfit, match=re.escape(said)):
            OwnCluster.of({**env, variable: value})

    def test_a_folder_in_use_is_not_emptied(self, env: dict[str, str]) -> None:
        (Path(env["LUSTRUM_LUSTRE_FOLDER"]) / "thesis.tex").touch()
        with pytest.raises(Unfit, match=r"holds thesis\.tex; a new file system is empty"):
            OwnCluster.of(env)

    def test_a_kubeconfig_without_a_context(self, env: dict[str, str]) -> None:
        Path(env["LUSTRUM_KUBECONFIG"]).write_text("apiVersion: v1\nkind: Config\n")
        with pytest.raises(Unfit, match="current-context"):
            OwnCluster.of(env)

    def test_a_cluster_that_does_not_answer(self, env: dict[str, str]) -> None:
        own = OwnCluster.of(env)
        assert own is not None
        with pytest.raises(Unfit, match="does not answer as it should"):
            own.check()
        assert own.left("rl-0123456789")[0].startswith("unknown what is in your cluster")

    def test_only_a_run_that_asks_for_it_gets_the_users_cluster(
        self, env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LUSTRUM_KUBECONFIG", env["LUSTRUM_KUBECONFIG"])
        own = OwnCluster.of(env)
        found = []
        for stack in (Stack(tmp_path / "a"), Stack(tmp_path / "b", own=own)):
            stack.ports = Ports(1, 2, 3, 4, 5, 6)
            found.append(read_settings(stack.env).kubeconfig)
        assert found == [None, env["LUSTRUM_KUBECONFIG"]]


class TestCloud:
    def test_publish_is_passed_on_and_the_given_file_system_kept(self, tmp_path: Path) -> None:
        lustre = tmp_path / "given"
        (lustre / "runs").mkdir(parents=True)
        name = f"/v1/projects/{PROJECT}/locations/us-east1-b/instances"
        body = {
            "filesystem": "fs",
            "capacityGib": 18000,
            "perUnitStorageThroughput": 500,
            "network": "n",
        }
        with (
            Cloud(tmp_path / "far", PROJECT, timings=QUICK) as far,
            Cloud(
                tmp_path / "c",
                PROJECT,
                timings=QUICK,
                lustre=lustre,
                pubsub=far.endpoints["storage"],
            ) as cloud,
            httpx.Client(base_url=cloud.endpoints["storage"], trust_env=False) as client,
        ):
            answer = client.post(f"/v1/projects/{PROJECT}/topics/t:publish", json={"messages": []})
            assert answer.status_code == 404, "the far side's own answer"
            assert "passes nothing on" in answer.text
            client.post(name, params={"instanceId": "rl"}, json=body)
            until(lambda: client.get(f"{name}/rl").json().get("state") == "ACTIVE")
            client.delete(f"{name}/rl")
            until(lambda: client.get(f"{name}/rl").status_code == 404)
        assert (lustre / "runs").is_dir()


class TestExamples:
    def test_image_holds_what_its_profile_says(self) -> None:
        text = (EXAMPLES / "Dockerfile").read_text()
        image = TABLE["local/grpo-numpy:1"]
        assert f"-t {image.name} " in text
        assert f'"ray[default]=={image.ray_version}"' in text
        assert f"{image.script} {image.script}" in text
        numpy = re.search(r'"numpy==([\d.]+)"', text)
        assert numpy is not None
        assert f'name = "numpy"\nversion = "{numpy[1]}"' in (ROOT / "uv.lock").read_text()

    def test_nodes_and_claim_are_those_that_pods_ask_for(self) -> None:
        kind = yaml.safe_load((EXAMPLES / "kind.yaml").read_text())
        labels = [node.get("labels") for node in kind["nodes"]]
        assert labels[1:] == [{"cloud.google.com/gke-nodepool": pool} for pool in POOLS]
        volume, claim = yaml.safe_load_all((EXAMPLES / "lustre.yaml").read_text())
        assert claim["metadata"]["name"] == volume["spec"]["claimRef"]["name"] == CLAIM
        mounts = [
            mount["containerPath"] for node in kind["nodes"][1:] for mount in node["extraMounts"]
        ]
        assert mounts == 2 * [volume["spec"]["hostPath"]["path"]]
