"""A workflow's source, checked and compiled."""

from __future__ import annotations

from pathlib import Path

from workflows_engine import check
from workflows_engine.compiler import compile_source
from workflows_engine.coverage import Coverage
from workflows_engine.errors import FaultySource
from workflows_engine.routines import CompiledRoutine


class Workflow:
    """A deployable workflow; making one runs every static check.

    With ``coverage`` (``Coverage.of(text, path)``) its steps and branches count their runs.
    Raises FaultySource, with all faults, for what Google Cloud would refuse to deploy.
    """

    def __init__(
        self, text: str, path: str = "<source>", coverage: Coverage | None = None
    ) -> None:
        source, found = check.check(text, path)
        faults = [fault for fault in found if not fault.warning]
        if faults or source is None:
            raise FaultySource(faults)
        self.warnings = [fault for fault in found if fault.warning]
        self.text = text
        self.path = path
        self.model = source
        self.routines: dict[str, CompiledRoutine] = compile_source(source, coverage)

    @classmethod
    def from_file(cls, path: str | Path) -> Workflow:
        """Read, check and compile a YAML or JSON file."""
        return cls(Path(path).read_text(encoding="utf-8"), str(path))
