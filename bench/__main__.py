"""`make bench`: run the benchmarks, print a table, write ``bench/results.json``.

Each module of this package with a ``run() -> dict[str, float | str]`` is a benchmark. One that
cannot run here says why by raising `Unavailable`; its last figures are kept, with their date.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import platform
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import bench

RESULTS = Path(__file__).parent / "results.json"


def main(wanted: list[str]) -> int:
    """Run all benchmarks, or those named."""
    console = Console(soft_wrap=True)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    names = [one.name for one in pkgutil.iter_modules(bench.__path__) if one.name[0] != "_"]
    unknown = set(wanted) - set(names)
    if unknown:
        console.print(f"error: no benchmark {', '.join(unknown)}; there are {', '.join(names)}")
        return 2
    failed = 0
    for name in wanted or names:
        module = importlib.import_module(f"bench.{name}")
        if not hasattr(module, "run"):
            continue
        console.print(f"running {name} ...")
        began = time.monotonic()
        try:
            figures = module.run()
        except bench.Unavailable as error:
            console.print(f"  {name} cannot run here: {error}")
            continue
        except Exception as error:  # the other benchmarks still run
            console.print(f"  [red]{name} failed[/]: {type(error).__name__}: {error}")
            failed = 1
            continue
        results[name] = {
            "date": time.strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            "seconds": round(time.monotonic() - began, 1),
            "figures": figures,
        }
        RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")
    table = Table("benchmark", "figure", "value", "measured")
    for name, result in sorted(results.items()):
        for figure, value in result["figures"].items():
            text = f"{value:,.3g}" if isinstance(value, float) else str(value)
            table.add_row(name, figure, text, result["date"])
    console.print(table)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
