"""The machine-readable result of a build (docs/architecture.md). Standard library only.

python3 result.py ok MESSAGE
python3 result.py failed CLASS MESSAGE [REMAINING_JSON]
python3 result.py duplicate BUILD_ID MESSAGE
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def result(argv: list[str], action: str, run_id: str) -> dict[str, object]:
    """Return the result that the arguments describe."""
    kind = argv[0]
    body: dict[str, object] = {
        "action": action,
        "run_id": run_id,
        "ok": kind == "ok",
        "class": argv[1] if kind == "failed" else None,
        "message": (argv[1] if kind == "ok" else argv[2])[:1000],
        "remaining": json.loads(argv[3]) if len(argv) > 3 else [],
    }
    if kind == "duplicate":
        body["duplicate"] = argv[1]
    return body


if __name__ == "__main__":
    made = result(
        sys.argv[1:], os.environ.get("LUSTRUM_ACTION", ""), os.environ.get("LUSTRUM_RUN_ID", "")
    )
    text = json.dumps(made)
    Path("result.json").write_text(text)
    print("result:", text)
