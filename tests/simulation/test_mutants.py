"""The mutants must apply to the code as it is, and name tests that are there."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pytest

from testing.mutants import ROOT, DoesNotApply, Mutant, mutants

MUTANTS = mutants()
IDS = [f"{one.kind}/{one.name}" for one in MUTANTS]


class TestMutants:
    def test_there_are_enough_and_no_name_twice(self) -> None:
        names = [one.name for one in MUTANTS]
        assert len(names) >= 25
        assert len(set(names)) == len(names)
        assert len({one.kind for one in MUTANTS}) >= 6

    @pytest.mark.parametrize("mutant", MUTANTS, ids=IDS)
    def test_it_applies(self, mutant: Mutant) -> None:
        text = mutant.applied()
        assert text != (ROOT / mutant.file).read_text()
        if mutant.file.endswith(".py"):
            ast.parse(text)
        assert mutant.why

    @pytest.mark.parametrize("mutant", MUTANTS, ids=IDS)
    def test_its_test_is_there(self, mutant: Mutant) -> None:
        path, *names = mutant.test.split("[")[0].split("::")
        tree = ast.parse((ROOT / path).read_text())
        defined = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, (ast.ClassDef, ast.FunctionDef))
        }
        assert names and set(names) <= defined, mutant.test

    def test_one_that_no_longer_applies_says_so(self, tmp_path: Path) -> None:
        moved = dataclasses.replace(MUTANTS[0], find="this text is nowhere")
        with pytest.raises(DoesNotApply, match=rf"{moved.name}.*occurs 0 times"):
            moved.applied()
