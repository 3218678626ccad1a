"""The supervisor as one zip application, which is how it reaches the Ray head.

A key of a ConfigMap is one flat file, and the image holds nothing of Lustrum: so the supervisor's
modules travel in one file that Python runs as it is.
"""

from __future__ import annotations

import io
import stat
import zipfile
from functools import cache
from importlib.resources import files

# Of `lustrum.head`: the supervisor and all that it imports beyond the standard library.
MODULES = (
    "__init__",
    "arithmetic",
    "checkpoint_files",
    "checkpoint_rule",
    "code_archive",
    "exits",
    "fabric",
    "gpu_counters",
    "gpu_sampler",
    "gpu_watch",
    "image_scripts",
    "last_error",
    "model",
    "names",
    "network",
    "other_logs",
    "output",
    "process",
    "recipe_numbers",
    "signature",
    "spec",
    "stage",
    "supervisor",
    "train",
    "training_config",
    "training_log",
    "watcher",
)
_MAIN = b"""\
import sys

from lustrum.head.supervisor import main

sys.exit(main(sys.argv[1:]))
"""


@cache
def supervisor_archive() -> bytes:
    """Return the zip application. The same modules give the same bytes: it is applied again and
    again, and must not look changed.
    """
    package = files("lustrum.head")
    contents = {"__main__.py": _MAIN, "lustrum/__init__.py": b""}
    for module in MODULES:
        contents[f"lustrum/head/{module}.py"] = (package / f"{module}.py").read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        for name, content in sorted(contents.items()):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            bundle.writestr(entry, content)
    return buffer.getvalue()
