"""What the real gcluster makes of the blueprint, through the real scripts of the build.

Terraform's part is the stand-in's (`testing.rehearse.half`): the cluster's first pool has the
account that the generated module's text gives it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.local.builds import gcluster, objects
from infra.local.builds.blueprint import expand
from infra.local.cloud import Cloud, Timings
from testing.rehearse import half
from tests.builds.conftest import BUCKET, FIXED, PROJECT, RUN, SUBSTITUTIONS, Builds
from tests.builds.paths import BLUEPRINT, ROOT, STEPS, load
from tests.builds.test_bootstrap_pool import with_script

pytestmark = pytest.mark.rehearse("gcluster")
bootstrap_pool = load("bootstrap_pool")
QUICK = Timings(cluster_create=0.1, cluster_delete=0.05, lustre_create=0.1, lustre_delete=0.05)
CAPACITIES = {
    "spot": {},
    "reservation": {"_CAPACITY": "reservation", "_RESERVATION": "rl-block"},
}


@pytest.fixture(scope="session", params=list(CAPACITIES))
def generated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The deployment folder of one capacity, as the real gcluster writes it."""
    folder = tmp_path_factory.mktemp(request.param)
    given = {**SUBSTITUTIONS, **CAPACITIES[request.param]}
    told = {f"LUSTRUM{name}": value for name, value in given.items()}
    env = {
        **os.environ,
        **told,
        **FIXED,
        "LUSTRUM_BUILD_ID": "b-1",
        "LUSTRUM_LOCATION": "us-east1",
    }
    made = subprocess.run(
        [sys.executable, str(STEPS / "settings.py"), "deployment"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    deployment = folder / "deployment.yaml"
    deployment.write_text(made.stdout)
    blueprint = str(BLUEPRINT / "rl-a4.yaml")
    flags = ["--deployment-file", str(deployment), "--out", str(folder), "--no-color"]
    assert half.real(["create", blueprint, *flags]) == 0
    return folder / RUN


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builds]:
    """A fresh cloud and runner; gcluster is the real one until Terraform has to act."""
    monkeypatch.setenv("LUSTRUM_ENDPOINTS", "{}")
    tool = tmp_path / "tools" / "gcluster"
    tool.parent.mkdir()
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    tool.write_text(
        f"#!/bin/sh\nexport XDG_CACHE_HOME={cache}\n"
        f'PYTHONPATH={ROOT} exec "$LUSTRUM_PYTHON" -m testing.rehearse.half "$@"\n'
    )
    tool.chmod(0o755)
    account = FIXED["LUSTRUM_NODE_ACCOUNT"]
    with Cloud(
        tmp_path / "cloud", PROJECT, timings=QUICK, buckets=(BUCKET,), acts_as=(account,)
    ) as cloud:
        found = Builds(tmp_path, cloud, tool.parent)
        try:
            yield found
        finally:
            found.close()


class TestGenerated:
    def test_bootstrap_pool_is_patched_once(self, generated: Path) -> None:
        text = (generated / bootstrap_pool.MODULE).read_text()
        assert (
            bootstrap_pool.patched(text).count(bootstrap_pool.ACCOUNT)
            == text.count(bootstrap_pool.ACCOUNT) + 1
        )

    def test_state_is_where_a_destroy_looks_for_it(self, generated: Path) -> None:
        main = (generated / "primary" / "main.tf").read_text()
        assert re.search(rf'bucket\s+= "{BUCKET}"', main)
        assert re.search(rf'prefix\s+= "{RUN}/z1/terraform"', main)

    def test_every_node_pool_but_the_first_names_an_account(self, generated: Path) -> None:
        for module in ("scheduler/gke-cluster", "compute/gke-node-pool"):
            text = (generated / "_modules/embedded/modules" / module / "main.tf").read_text()
            pools = re.findall(r'^resource "google_container_node_pool".*?^}', text, re.M | re.S)
            assert pools
            for pool in pools:
                assert re.search(r"^    service_account +=", pool, re.M), pool[:200]

    def test_stand_in_module_is_a_part_of_the_real_one(self, generated: Path) -> None:
        real = (generated / bootstrap_pool.MODULE).read_text()
        played = (ROOT / "infra" / "local" / "builds" / "cluster_module.tf").read_text()
        assert _lines(played) - _lines(real) == set()

    def test_stand_in_expands_settings_as_the_real_one_does(self, generated: Path) -> None:
        real = yaml.safe_load((generated / gcluster.ARTIFACT).read_text())
        played = expand(BLUEPRINT / "rl-a4.yaml", generated.parent / "deployment.yaml")
        expected, found = _named(real, real["vars"]), _named(played, {})
        assert found.keys() == expected.keys()
        for name, settings in found.items():
            for key in settings.keys() - {"labels", "apply_manifests"}:  # labels are merged later
                assert (name, key, settings[key]) == (name, key, expected[name].get(key))


def _lines(terraform: str) -> set[str]:
    """Return the lines without comments and spacing."""
    return {" ".join(line.split("#")[0].split()) for line in terraform.splitlines()}


def _named(expanded: dict[str, Any], variables: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the settings of each module, references to variables resolved."""
    (group,) = expanded["deployment_groups"]
    return {one["id"]: _resolved(one["settings"], variables) for one in group["modules"]}


def _resolved(value: Any, variables: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _resolved(one, variables) for key, one in value.items()}
    if isinstance(value, list):
        return [_resolved(one, variables) for one in value]
    found = re.fullmatch(r"\(\(var\.(\w+)\)\)", value) if isinstance(value, str) else None
    return variables[found[1]] if found else value


@pytest.mark.timeout(120)
class TestBuild:
    @pytest.mark.parametrize("capacity", list(CAPACITIES))
    def test_deploy_and_destroy_leave_nothing(self, builds: Builds, capacity: str) -> None:
        build, result = builds.run(**CAPACITIES[capacity])
        assert result["ok"], builds.log(build["id"])
        assert builds.left() == ([RUN], [RUN])
        build, result = builds.run("destroy", **CAPACITIES[capacity])
        assert result["ok"], builds.log(build["id"])
        assert builds.left() == ([], [])
        assert [name for name in builds.names() if name.startswith(f"gs://{BUCKET}/{RUN}/")] == []

    def test_deploy_without_the_patch_is_refused_by_the_cloud(self, builds: Builds) -> None:
        objects.write(FIXED["LUSTRUM_SCRIPTS"], with_script("steps/bootstrap_pool.py", ""))
        _, result = builds.run()
        assert result["class"] == "ACCESS"
        assert 'service account "default"' in result["message"]
        _, result = builds.run("destroy")
        assert result["ok"]
        assert builds.left() == ([], [])
