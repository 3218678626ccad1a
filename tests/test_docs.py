"""The documents must not name what is not there."""

import re
from pathlib import Path

import pytest

from infra.local.functions import ROOT

CURSED = (ROOT / "CURSED.md").read_text()
DOCUMENTS = [ROOT / "README.md", ROOT / "CURSED.md", *sorted((ROOT / "docs").glob("*.md"))]


class TestCursed:
    def test_every_guarding_test_exists(self) -> None:
        sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
        missing = []
        for line in CURSED.splitlines():
            if not line.startswith("| ") or line.startswith("| trap"):
                continue
            guards = re.findall(r"`([^`]+)`", line.rstrip("| ").rsplit("|", 1)[-1])
            assert guards, f"no guard: {line}"
            for guard in guards:
                path, _, name = guard.rpartition("::") if "::" in guard else (guard, "", "")
                if name:
                    found = (
                        f"def {name}(" in sources and f"class {path.split('::')[-1]}" in sources
                    )
                else:
                    found = (ROOT / path).exists()
                if not found:
                    missing.append(guard)
        assert not missing


class TestLinks:
    @pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
    def test_relative_links_lead_somewhere(self, document: Path) -> None:
        for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name} links to {link}"


class TestTables:
    @pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
    def test_no_cell_is_longer_than_200_characters(self, document: Path) -> None:
        for line in document.read_text().splitlines():
            if line.startswith("|"):
                for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
                    assert len(cell.strip()) <= 200, f"{document.name}: {cell.strip()}"


class TestWords:
    def test_every_word_of_our_own_is_explained_where_it_is_first_used(self) -> None:
        for document in DOCUMENTS:
            assert "DESIGN" not in document.read_text(), f"{document.name} names what is not here"
        architecture = (ROOT / "docs" / "architecture.md").read_text()
        first = architecture.index("doorbell")
        assert "Workflows callback" in architecture[first : first + 60]


class TestMakefile:
    def test_readme_names_only_targets_that_exist(self) -> None:
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        named = set(re.findall(r"`?make ([a-z-]+)", (ROOT / "README.md").read_text()))
        assert named <= targets
