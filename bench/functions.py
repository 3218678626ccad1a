"""What a function's cold start loads, and how quickly a finished job begins its teardown.

The baseline is a bare functions-framework function in the same run.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

from infra.local.functions import ROOT

REPEATS = 5
BARE = "import functions_framework, flask"
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "shared")}


def run() -> dict[str, float | str]:
    """Return import seconds of `react_to_event` and `apply_ray_cluster` beside a bare function."""
    bare = _seconds(BARE, ".")
    figures: dict[str, float | str] = {"bare_import_seconds": round(bare, 3)}
    for name in ("start_run", "react_to_event", "apply_ray_cluster"):
        seconds = _seconds("import main", str(ROOT / "functions" / name))
        figures[f"{name}_import_seconds"] = round(seconds, 3)
        figures[f"{name}_import_ratio"] = round(seconds / bare, 2)
    return figures


def _seconds(program: str, folder: str) -> float:
    taken = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], cwd=folder, env=ENV, check=True)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)
