"""A release is a clean tree whose version CHANGELOG names, tagged once."""

import subprocess
from pathlib import Path

import pytest
from lustrum import __version__

from infra.release import ROOT, find_problems, tag


def _git(root: Path, *words: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run(["git", "-C", str(root), *who, *words], check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("GIT_AUTHOR", "GIT_COMMITTER"):
        monkeypatch.setenv(f"{name}_NAME", "t")
        monkeypatch.setenv(f"{name}_EMAIL", "t@example.com")
    _git(tmp_path, "init", "--quiet")
    _commit(tmp_path, "# Changelog\n\n## 1.2.0 (2026-01-31)\n\n## 1.1.0 (2025-12-24)\n")
    return tmp_path


def _commit(tree: Path, changelog: str) -> None:
    (tree / "CHANGELOG.md").write_text(changelog)
    _git(tree, "add", "-A")
    _git(tree, "commit", "--quiet", "-m", "Say what changed")


class TestRelease:
    def test_a_clean_tree_with_its_heading_can_be_released(self, tree: Path) -> None:
        assert find_problems(tree, "1.2.0") == []

    def test_a_changed_tree_cannot(self, tree: Path) -> None:
        (tree / "new.py").write_text("")
        [problem] = find_problems(tree, "1.2.0")
        assert "not clean" in problem

    def test_another_version_than_the_newest_heading_cannot(self, tree: Path) -> None:
        [problem] = find_problems(tree, "1.1.0")
        assert "newest heading is 1.2.0, the code is 1.1.0" in problem

    @pytest.mark.parametrize("heading", ["## 1.2.0 (unreleased)", "## 1.2.0"])
    def test_a_heading_without_a_date_cannot(self, tree: Path, heading: str) -> None:
        _commit(tree, f"# Changelog\n\n{heading}\n")
        [problem] = find_problems(tree, "1.2.0")
        assert heading in problem and "needs its date" in problem

    def test_a_version_is_tagged_once(self, tree: Path) -> None:
        assert tag(tree, "1.2.0") == "v1.2.0"
        [problem] = find_problems(tree, "1.2.0")
        assert "the tag v1.2.0 exists" in problem


class TestThisTree:
    def test_changelog_begins_with_the_version_of_the_code(self) -> None:
        headings = [
            line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line[:3] == "## "
        ]
        assert headings[0].startswith(f"## {__version__} (")
