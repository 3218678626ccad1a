"""`make stage`: copy the library beside each function's ``main.py``, as a 2nd gen function is
built.

A function is built from one folder. What is staged is what is deployed:
``build/functions/<name>``.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "shared" / "lustrum"
LEFT_OUT = ("__pycache__", "*.pyc", "cli", "terminal_view.py", "checks.py", "preview.py")


def stage(target: Path) -> list[Path]:
    """Stage every function below ``target`` and return the staged folders."""
    staged = []
    for main in sorted((ROOT / "functions").glob("*/main.py")):
        folder = target / main.parent.name
        if folder.exists():
            shutil.rmtree(folder)
        shutil.copytree(main.parent, folder, ignore=shutil.ignore_patterns(*LEFT_OUT))
        shutil.copytree(LIBRARY, folder / "lustrum", ignore=shutil.ignore_patterns(*LEFT_OUT))
        staged.append(folder)
    return staged


def main() -> int:
    """Stage to ``build/functions`` and say what was staged."""
    target = ROOT / "build" / "functions"
    for folder in stage(target):
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(f"staged {folder.relative_to(ROOT)} ({size / 1024:.0f} KiB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
