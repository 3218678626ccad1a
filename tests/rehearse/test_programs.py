"""The recipe: the build's own pins, a mirror that Terraform can read, failures that are named."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from testing.rehearse import build, programs
from tests.builds.paths import STEPS

NULL = next(one for one in programs.PROGRAMS if one.name == "null")


def repository(folder: Path, tag: str, text: str) -> None:
    """Make a clone that holds one file under a tag, and another one after it."""
    folder.mkdir(parents=True)
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (
        ["init", "--quiet"],
        ["add", "."],
        ["commit", "--quiet", "-m", "one"],
        ["tag", tag],
        ["commit", "--quiet", "-am", "two"],
    ):
        if command[0] in ("add", "commit"):
            (folder / "go.mod").write_text(text if command[-1] != "two" else "later")
        subprocess.run([*git, *command], check=True)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, clones of one program, and a go command that keeps what it was given."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("REHEARSE_SOURCES", str(tmp_path / "clones"))
    repository(tmp_path / "clones" / NULL.repository, NULL.version, "module pinned\n")
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(
        "#!/bin/sh\n"
        'while [ "$1" != -o ]; do shift; done\n'
        'grep -q pinned go.mod || { echo "not the pinned source" >&2; exit 3; }\n'
        'cp go.mod "$2"\n'
    )
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(go.parent), prepend=":")
    return tmp_path / "clones"


class TestPins:
    @pytest.mark.parametrize("name", ["gcluster", "terraform"])
    def test_versions_are_those_of_the_build(self, name: str) -> None:
        found = re.search(
            rf"^{name.upper()}_VERSION=v?(\S+)$", (STEPS / "versions.sh").read_text(), re.M
        )
        assert found is not None
        pinned = next(one.version for one in programs.PROGRAMS if one.name == name)
        assert pinned == f"v{found[1]}"

    def test_both_google_providers_have_one_version(self) -> None:
        google = {one.version for one in programs.PROGRAMS if one.name.startswith("google")}
        assert len(google) == 1


class TestBuild:
    def test_build_takes_the_pinned_tag_into_the_mirror(self, sources: Path) -> None:
        assert build.main(["null"]) == 0
        place = "registry.terraform.io/hashicorp/null/3.2.4/linux_amd64"
        built = programs.mirror() / place / "terraform-provider-null_v3.2.4"
        assert built.read_text() == "module pinned\n"
        assert NULL.is_built

    def test_build_leaves_nothing_else_in_the_mirror(self, sources: Path) -> None:
        build.main(["null"])
        files = [path for path in programs.mirror().rglob("*") if path.is_file()]
        assert files == [NULL.path]

    def test_build_of_what_is_built_runs_nothing(self, sources: Path) -> None:
        build.main(["null"])
        NULL.path.write_text("kept")
        assert build.main(["null"]) == 0
        assert NULL.path.read_text() == "kept"

    def test_build_names_what_failed_and_builds_the_others(
        self, sources: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        time = next(one for one in programs.PROGRAMS if one.name == "time")
        repository(sources / time.repository, "v0.0.1", "module other\n")
        assert build.main(["time", "null"]) == 1
        assert NULL.is_built
        assert not time.is_built
        assert "not built: time\n" in capsys.readouterr().err

    def test_check_builds_nothing(self, sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert build.main(["--check", "null"]) == 1
        assert f"null v3.2.4: not built ({NULL.path})" in capsys.readouterr().out
        assert not NULL.is_built


class TestTerraformSettings:
    def test_terraform_settings_name_the_mirror_and_nothing_else(self, tmp_path: Path) -> None:
        text = programs.terraform_settings(tmp_path).read_text()
        assert f'path = "{programs.mirror()}"' in text
        assert "direct" not in text
