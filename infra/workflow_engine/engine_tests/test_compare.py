"""The tool that runs the same workflows on other emulators: its cases, its verdicts."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from workflows_engine import Engine, FaultySource, Workflow, virtual
from workflows_engine.errors import HttpConnectionFailed

ROOT = Path(__file__).parents[1]
CASES = yaml.safe_load((ROOT / "tools" / "compare_cases.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """The tool as a module."""
    spec = importlib.util.spec_from_file_location("compare", ROOT / "tools" / "compare.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["compare"] = module
    spec.loader.exec_module(module)
    return module


def outcome(case: dict[str, Any]) -> tuple[Any, str | None, float]:
    """Run a case here in virtual time: result, error, seconds from first to last request."""
    times: list[float] = []
    engine: Any = None

    async def web(_method: str, url: str, *_: Any) -> tuple[int, dict[str, str], Any]:
        if not url.startswith("http://web"):
            raise HttpConnectionFailed("refused")
        times.append(engine.now())
        name = url.rpartition("/")[2]
        return int(name) if name.isdigit() else 200, {}, {"n": 1}

    async def main() -> Any:
        nonlocal engine
        engine = Engine(http=web)
        engine.deploy("w", flow)
        return await engine.create("w", case.get("argument")).wait()

    text = yaml.safe_dump(case["flow"], sort_keys=False).replace("{web}", "http://web")
    try:
        flow = Workflow(text)
    except FaultySource as exc:
        return "refused", str(exc), 0.0
    execution = virtual.run(main)
    seconds = times[-1] - times[0] if times else 0.0
    if execution.state != "SUCCEEDED":
        return None, str(execution.error), seconds
    return execution.value, None, seconds


class TestCases:
    @pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
    def test_this_engine_does_what_the_reference_says(
        self, tool: ModuleType, case: dict[str, Any]
    ) -> None:
        got, error, seconds = outcome(case)
        assert tool.verdict(case, (got, error), seconds) == "ok"


class TestVerdicts:
    @pytest.mark.parametrize(
        ("case", "got", "seconds", "told"),
        [
            ({"want": 1}, (1, None), 0, "ok"),
            ({"want": 1}, (2, None), 0, "gives 2"),
            ({"want": 1}, (True, None), 0, "gives true"),
            ({"want": None}, (None, None), 0, "ok"),
            ({"want": 1}, (None, "a\nTypeError: b"), 0, "fails: TypeError: b"),
            ({"want": 1}, ("refused", "x"), 0, "refused"),
            ({"want": 1}, (None, "hangs"), 0, "hangs"),
            ({"refused": True}, ("refused", "x"), 0, "ok"),
            ({"refused": True}, (1, None), 0, "runs"),
            ({"refused": True}, (None, "x"), 0, "fails when it runs"),
            ({"error": "KeyError"}, (None, "KeyError: k"), 0, "ok"),
            ({"error": "KeyError"}, (1, None), 0, "no such error"),
            ({"seconds": [2, 4]}, (1, None), 2.5, "ok"),
            ({"seconds": [2, 4]}, (1, None), 1.0, "retries for 1.0 s"),
        ],
    )
    def test_each(self, tool: ModuleType, case: Any, got: Any, seconds: float, told: str) -> None:
        assert tool.verdict(case, got, seconds) == told


class TestTheTool:
    @pytest.mark.slow
    def test_this_engine_alone_passes_every_case(self) -> None:
        done = subprocess.run(
            [sys.executable, str(ROOT / "tools" / "compare.py")],
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert f"| {len(CASES)} of {len(CASES)} |" in done.stdout
