"""cloudbuild.yaml: against the service's own schema, and against what we promise of it (case
F8).
"""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import yaml
from google.cloud.devtools.cloudbuild_v1.types import Build
from google.protobuf import json_format

from infra.local.builds.local import FIXED, build_file
from infra.local.builds.substitute import BUILT_IN
from tests.builds.paths import ROOT, STEPS, load

settings = load("settings")
BuildFile = dict[str, Any]


@pytest.fixture
def build() -> BuildFile:
    return build_file()


class TestBuildFile:
    def test_file_is_a_build_of_the_api(self, build: BuildFile) -> None:
        # ParseDict refuses unknown fields, wrong types and unknown enum values.
        message = json_format.ParseDict(build, Build.pb(Build()))
        assert len(message.steps) == len(build["steps"])
        assert message.timeout.seconds == 10800

    def test_schema_check_can_fail(self, build: BuildFile) -> None:
        with pytest.raises(json_format.ParseError):
            json_format.ParseDict({**build, "timeOut": "1s"}, Build.pb(Build()))

    def test_file_says_what_the_service_would_guess(self, build: BuildFile) -> None:
        assert build["queueTtl"] == "1800s"
        assert build["serviceAccount"].startswith("projects/$PROJECT_ID/serviceAccounts/")
        assert build["options"]["logging"] == "CLOUD_LOGGING_ONLY"
        assert build["tags"] == ["lustrum", "$_RUN_ID", "$_RUN_ID-$_ACTION-z$_ZONE_ATTEMPT"]
        assert all("id" in step for step in build["steps"])

    def test_scripts_end_before_the_build_is_cut_off(self, build: BuildFile) -> None:
        timeout = int(build["timeout"].rstrip("s"))
        limits = {
            name: int(value)
            for name, value in re.findall(
                r"LUSTRUM_(\w+_SECONDS):-(\d+)",
                (STEPS / "deploy.sh").read_text() + (STEPS / "destroy.sh").read_text(),
            )
        }
        assert limits["DEPLOY_SECONDS"] + 300 < timeout
        assert limits["DESTROY_SECONDS"] < limits["BUILD_SECONDS"] < timeout
        # A Lustre create that Terraform gave up on may take 80 minutes: the sweep must outlast it.
        assert limits["BUILD_SECONDS"] - limits["DESTROY_SECONDS"] >= 80 * 60

    def test_every_substitution_is_documented_told_and_checked(self, build: BuildFile) -> None:
        named = set(build["substitutions"])
        text = (ROOT / "docs" / "architecture.md").read_text()
        section = text.split("## Build substitutions")[1].split("\n## ")[0]
        documented = set(re.findall(r"`(_[A-Z0-9_]+)`", section)) - {"_NONE"}
        assert named == documented
        for step in build["steps"]:
            told = dict(item.split("=", 1) for item in step["env"])
            for name in named:
                assert told[f"LUSTRUM{name}"] == f"${name}"
        checked = {*settings.IDENTITY, *settings.BLUEPRINT} - {"BUILD_ID", "LOCATION"}
        assert {f"_{name}" for name in checked} | {"_SCRIPTS"} == named

    def test_nothing_is_built_without_being_told(self, build: BuildFile) -> None:
        # A default would turn a misspelt substitution into a wrong build.
        assert {value for value in build["substitutions"].values()} <= {"", "_NONE"}
        assert build["substitutions"]["_ACTION"] == ""

    def test_callers_give_exactly_these(self, build: BuildFile) -> None:
        text = (ROOT / "shared" / "lustrum" / "core" / "build_substitutions.py").read_text()
        given = set(re.findall(r'"(_[A-Z_]+)"', text))
        assert set(build["substitutions"]) == given | set(FIXED)

    def test_no_value_becomes_shell_text(self, build: BuildFile) -> None:
        for step in build["steps"]:
            for part in step.get("args", []):
                assert "$" not in part
            for name in re.findall(r"\$\{?(_[A-Z_]+|[A-Z_]+)", step.get("script", "")):
                assert name.startswith("LUSTRUM_") or name == "BUILDER_OUTPUT"
                assert name not in BUILT_IN

    def test_images_and_tools_are_pinned(self, build: BuildFile) -> None:
        for step in build["steps"]:
            tag = step["name"].rsplit(":", 1)[1]
            assert re.match(r"\d+\.\d+\.\d+", tag), step["name"]
        pins = dict(re.findall(r"^(\w+)=(\S+)", (STEPS / "versions.sh").read_text(), re.MULTILINE))
        assert f"/{pins['GCLUSTER_VERSION']}/" in pins["GCLUSTER_BUNDLE"]
        assert re.fullmatch(r"[0-9a-f]{64}", pins["TERRAFORM_SHA256"])

    def test_terraform_carries_every_key_of_the_file_over(self, build: BuildFile) -> None:
        text = (ROOT / "infra" / "terraform" / "build.tf").read_text()
        for name, keys in (
            ("build_keys", set(build)),
            ("option_keys", set(build["options"])),
            ("step_keys", {key for step in build["steps"] for key in step}),
        ):
            listed = re.search(rf"{name}\s*=\s*\[(.*?)\]", text, re.DOTALL)
            assert listed is not None
            assert keys <= set(re.findall(r'"(\w+)"', listed[1])), name

    def test_every_script_the_file_names_exists(self, build: BuildFile) -> None:
        text = yaml.safe_dump(build)
        for name in re.findall(r"lustrum/steps/(\w+\.\w+)", text):
            assert (STEPS / name).is_file(), name

    def test_first_step_is_the_only_inline_script_and_is_valid_shell(
        self, build: BuildFile
    ) -> None:
        inline = [step["id"] for step in build["steps"] if "script" in step]
        assert inline == ["fetch"]
        assert shlex.split("true")  # the script itself goes through shellcheck in test_scripts
