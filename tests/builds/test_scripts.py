"""The scripts: shellcheck, and every word they say to gcluster, terraform and gcloud."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from infra.local.builds import objects
from infra.local.builds.local import build_file
from tests.builds.conftest import BUCKET, FIXED, PROJECT, RUN, ZONE, Builds
from tests.builds.paths import ROOT, STEPS

STATE = f"gs://{BUCKET}/{RUN}/z1"
MARKS = f"gs://{BUCKET}/builds/{RUN}/z1"
SHELLCHECK = Path(sys.executable).parent / "shellcheck"
RECORDER = """#!/bin/bash
echo "$(basename "$0") $*" >> {words}
exec {standin} "$@"
"""
TOOLS = ("gcloud", "gcluster", "terraform")


@pytest.fixture
def words(builds: Builds, tmp_path: Path) -> Path:
    """Put recorders before the stand-ins; return the file of what was said."""
    said, folder = tmp_path / "words.txt", tmp_path / "recorders"
    folder.mkdir()
    for tool in TOOLS:
        path = folder / tool
        standin = ROOT / "infra" / "local" / "bin" / tool
        path.write_text(RECORDER.format(words=said, standin=standin))
        path.chmod(0o755)
    env = builds.runner._environment
    env["PATH"] = f"{folder}:{env['PATH']}"
    return said


def said(words: Path, build_id: str) -> list[str]:
    """Return the commands of one build, its id written as ID, and begin anew."""
    found = words.read_text().replace(build_id, "ID").splitlines()
    words.unlink()
    return [line for line in found if not line.endswith("--version")]


FETCH = [f"gcloud storage cp --quiet {FIXED['LUSTRUM_SCRIPTS']} scripts.zip"]
CLUSTER = f"{RUN} --region us-east1 --project {PROJECT}"
INSTANCE = f"{RUN} --location {ZONE} --project {PROJECT}"
LOOK = [
    f"gcloud container clusters describe {CLUSTER} --format=value(status)",
    f"gcloud lustre instances describe {INSTANCE} --format=value(state)",
]
DEPLOY = [
    *FETCH,
    "gcluster telemetry off",
    f"gcloud storage cp --quiet --if-generation-match=0 mark.txt {MARKS}/deploy.lock",
    f"gcloud storage ls {MARKS}/destroy.lock",
    "gcluster create lustrum/rl-a4.yaml --deployment-file deployment.yaml --out . --no-color "
    "--skip-validators test_gcsfuse_iam_role_exists",
    f"terraform -chdir={RUN}/primary init -input=false -no-color",
    f"gcloud storage cp --quiet folder.tar.gz {STATE}/folder.tar.gz",
    f"gcluster deploy {RUN} --auto-approve --download-dependencies=false --no-color",
    *LOOK,
    *LOOK,
    f"gcloud storage cp --quiet result.json {MARKS}/deploy-ID.json",
]
ALONE = [
    *FETCH,
    "gcluster telemetry off",
    f"gcloud storage cp --quiet --if-generation-match=0 mark.txt {MARKS}/destroy.lock",
    f"gcloud storage ls gs://{BUCKET}/builds/{RUN}/z*/deploy.lock",
    f"gcloud storage cat {MARKS}/deploy.lock",
    f"gcloud builds describe DEPLOY --region us-east1 --project {PROJECT} --format=value(status)",
    f"gcloud storage ls {STATE}/terraform/default.tfstate",
]
GET = f"gcloud storage cp --quiet {STATE}/folder.tar.gz folder.tar.gz"
DESTROY = [
    f"gcloud storage ls {STATE}/terraform/default.tflock",
    f"gcluster destroy {RUN} --auto-approve --robust --download-dependencies=false --no-color",
]
END = [
    f"gcloud storage rm --quiet {STATE}/**",
    f"gcloud storage cp --quiet result.json {MARKS}/destroy-ID.json",
]
AGAIN = (
    "gcluster create lustrum/rl-a4.yaml --deployment-file deployment.yaml --out . --no-color "
    "--validation-level IGNORE"
)


class TestWords:
    @pytest.mark.parametrize("reservation", ["_NONE", "b200-block"])
    def test_deploy_says_this(self, builds: Builds, words: Path, reservation: str) -> None:
        # Spot or a reservation is in the deployment file (test_settings), not among the arguments.
        capacity = "spot" if reservation == "_NONE" else "reservation"
        build, _ = builds.run(_CAPACITY=capacity, _RESERVATION=reservation)
        assert said(words, build["id"]) == DEPLOY

    def test_destroy_of_each_variant_says_this(self, builds: Builds, words: Path) -> None:
        deploy, _ = builds.run()
        words.unlink()
        objects.delete(f"{STATE}/folder.tar.gz")  # first without the folder, and leaving it all
        builds.fail(destroy=[{"leave": ["cluster", "lustre"]}])
        build, _ = builds.run("destroy")
        alone = [line.replace("DEPLOY", deploy["id"]) for line in ALONE]
        found = said(words, build["id"])
        assert found[: len(alone)] == alone
        assert found[len(alone) : len(alone) + 6] == [GET, AGAIN, *DESTROY, *LOOK]
        deletes = {
            f"gcloud container clusters delete {CLUSTER} --quiet --async",
            f"gcloud lustre instances delete {INSTANCE} --quiet --async",
        }
        assert deletes <= set(found)
        assert found[-2:] == END

    def test_destroy_with_the_saved_folder_says_this(self, builds: Builds, words: Path) -> None:
        deploy, _ = builds.run()
        words.unlink()
        build, _ = builds.run("destroy")
        alone = [line.replace("DEPLOY", deploy["id"]) for line in ALONE]
        assert said(words, build["id"]) == [*alone, GET, *DESTROY, *LOOK, *END]

    def test_cluster_is_never_deleted_before_terraform_tried(
        self, builds: Builds, words: Path
    ) -> None:
        builds.run()
        words.unlink()
        builds.fail(destroy=[{"fail": "Error: boom"}] * 9)
        build, _ = builds.run("destroy")
        found = said(words, build["id"])
        tried = next(i for i, line in enumerate(found) if line.startswith("gcluster destroy"))
        deleted = next(i for i, line in enumerate(found) if "clusters delete" in line)
        assert tried < deleted


class TestShell:
    @pytest.mark.parametrize("path", sorted(STEPS.glob("*.sh")), ids=lambda path: path.name)
    def test_script_is_clean(self, path: Path) -> None:
        done = subprocess.run(
            [SHELLCHECK, "-x", path], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout

    def test_inline_script_is_clean(self, tmp_path: Path) -> None:
        path = tmp_path / "fetch.sh"
        path.write_text(build_file()["steps"][0]["script"])
        done = subprocess.run(
            [SHELLCHECK, path], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout

    @pytest.mark.parametrize("tool", ["gcloud", "gcluster", "terraform", "packer"])
    def test_stand_in_is_clean(self, tool: str) -> None:
        path = ROOT / "infra" / "local" / "bin" / tool
        done = subprocess.run(
            [SHELLCHECK, path], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout


class TestTools:
    def prepare(self, tmp_path: Path, tools: dict[str, str], env: dict[str, str]) -> str:
        """Run prepare.sh with played commands; return result.json, or what was printed."""
        (tmp_path / "lustrum").symlink_to(STEPS.parent)
        path = tmp_path / "path"
        path.mkdir()
        for name, body in tools.items():
            (path / name).write_text("#!/bin/bash\n" + body)
            (path / name).chmod(0o755)
        from tests.builds.test_settings import TOLD

        done = subprocess.run(
            ["bash", "lustrum/steps/prepare.sh"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={"PATH": f"{path}:/usr/bin:/bin", **TOLD, **env},
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        result = tmp_path / "result.json"
        return result.read_text() if result.exists() else done.stdout

    def test_tampered_terraform_is_refused(self, tmp_path: Path) -> None:
        tools = {
            "gcluster": "echo gcluster version v1.95.0",
            "curl": 'while [[ $1 != -o ]]; do shift; done; echo tampered > "$2"',
            "gcloud": "exit 1",
            "terraform": "echo Terraform v1.5.0",
        }
        result = self.prepare(tmp_path, tools, {})
        assert "BUILD_ERROR" in result
        assert "checksum of terraform" in result

    def test_download_that_fails_is_transient(self, tmp_path: Path) -> None:
        tools = {
            "gcluster": "echo gcluster version v1.95.0",
            "curl": "exit 6",
            "gcloud": "exit 1",
            "terraform": "echo Terraform v1.5.0",
        }
        assert "INFRA_TRANSIENT" in self.prepare(tmp_path, tools, {})

    def test_tampered_gcluster_is_refused(self, tmp_path: Path) -> None:
        tools = {
            "gcluster": "echo gcluster version v1.0.0",
            "curl": 'while [[ $1 != -o ]]; do shift; done; echo tampered > "$2"',
            "terraform": "echo Terraform v1.12.2",
        }
        result = self.prepare(tmp_path, tools, {})
        assert "BUILD_ERROR" in result
        assert "gcluster_sha256" in result
        assert not (tmp_path / "bin" / "gcluster").exists()

    def test_bundle_with_the_right_sum_is_unpacked(self, tmp_path: Path) -> None:
        bundle = tmp_path / "bundle.zip"
        with zipfile.ZipFile(bundle, "w") as made:
            made.writestr("gcluster-bundle/gcluster", "#!/bin/sh\necho it is gcluster\n")
        tools = {
            "curl": f'while [[ $1 != -o ]]; do shift; done; cp {bundle} "$2"',
            "terraform": "echo Terraform v1.12.2",
        }
        digest = hashlib.sha256(bundle.read_bytes()).hexdigest()
        self.prepare(tmp_path, tools, {"LUSTRUM_GCLUSTER_SHA256": digest})
        done = subprocess.run([tmp_path / "bin" / "gcluster"], capture_output=True, timeout=10)
        assert done.stdout == b"it is gcluster\n"
        assert (tmp_path / "bin" / "packer").exists()
