"""The pool that every cluster begins with runs as the node account, or nothing is deployed."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from infra.local.builds import objects
from infra.local.builds.local import scripts
from tests.builds.conftest import FIXED, RUN, Builds
from tests.builds.paths import ROOT, load

bootstrap_pool = load("bootstrap_pool")
GENERATED = (ROOT / "infra" / "local" / "builds" / "cluster_module.tf").read_text()
BLOCK = """\
  node_config {
    service_account = var.service_account_email
    shielded_instance_config {
"""


class TestPatched:
    def test_patched_adds_the_account_to_the_cluster_and_nothing_else(self) -> None:
        found = bootstrap_pool.patched(GENERATED)
        cluster = found.split('resource "google_container_node_pool"')[0]
        assert BLOCK in cluster
        assert found.replace(bootstrap_pool.ACCOUNT, "", 1) == GENERATED

    @pytest.mark.parametrize(
        ("text", "times"),
        [
            (GENERATED + GENERATED, 2),
            (GENERATED.replace("shielded_instance_config", "gcfs_config"), 0),
            (bootstrap_pool.patched(GENERATED), 0),
        ],
    )
    def test_patched_refuses_another_module(self, text: str, times: int) -> None:
        with pytest.raises(bootstrap_pool.Unknown, match=f"occurs {times} times"):
            bootstrap_pool.patched(text)

    def test_main_of_a_folder_without_the_module_fails(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert bootstrap_pool.main(["bootstrap_pool.py", str(tmp_path)]) == 1
        assert "Error: the cluster module cannot be patched" in capsys.readouterr().out


def with_script(name: str, text: str) -> bytes:
    """Return the builds' scripts with one of them replaced."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(scripts())) as old, zipfile.ZipFile(made, "w") as new:
        for item in old.infolist():
            new.writestr(item, text if item.filename == name else old.read(item))
    return made.getvalue()


class TestDeploy:
    def test_deploy_makes_the_first_pool_as_the_node_account(self, builds: Builds) -> None:
        builds.run()
        with builds.cloud.state.lock:
            cluster = builds.cloud.state.clusters["us-east1", RUN].message
        assert cluster.node_config.service_account == FIXED["LUSTRUM_NODE_ACCOUNT"]

    def test_deploy_without_the_patch_is_refused_by_the_cloud(self, builds: Builds) -> None:
        without = with_script("steps/bootstrap_pool.py", "")
        objects.write(FIXED["LUSTRUM_SCRIPTS"], without)
        _, result = builds.run()
        assert result["class"] == "ACCESS"
        assert 'service account "default"' in result["message"]

    def test_deploy_with_another_module_stops_before_anything_exists(self, builds: Builds) -> None:
        text = (ROOT / "infra" / "blueprint" / "steps" / "bootstrap_pool.py").read_text()
        changed = text.replace("shielded_instance_config {", "shielded_instances {")
        objects.write(FIXED["LUSTRUM_SCRIPTS"], with_script("steps/bootstrap_pool.py", changed))
        _, result = builds.run()
        assert result["class"] == "BUILD_ERROR"
        assert builds.left() == ([], [])

    def test_destroy_without_the_saved_folder_patches_it_again(self, builds: Builds) -> None:
        builds.run()
        objects.delete(f"gs://{FIXED['LUSTRUM_STATE_BUCKET']}/{RUN}/z1/folder.tar.gz")
        build, result = builds.run("destroy")
        assert result["ok"], result
        assert "takes the node account" in builds.log(build["id"])
        assert builds.left() == ([], [])
