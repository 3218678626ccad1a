"""In a pod's Python processes: a Lustre that is as full as was asked for (`lustrum-local fill`).

A folder has the room of this machine's disk. The stand-in writes the used share of an instance
beside its folder, as `.<instance>.used`; asked for the room below that folder, the kernel's answer
is changed accordingly, as a mounted Lustre would give it. It imports nothing of Lustrum.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_FILE_SYSTEMS = os.environ.get("LUSTRUM_LOCAL_LUSTRE", "")
_statvfs = os.statvfs


def _as_full_as_asked(path: Any) -> os.statvfs_result:
    found = _statvfs(path)
    if isinstance(path, int):
        return found
    try:
        inside = Path(os.fsdecode(path)).resolve().relative_to(_FILE_SYSTEMS)
        share = float(Path(_FILE_SYSTEMS, f".{inside.parts[0]}.used").read_text())
    except (ValueError, IndexError, OSError):
        return found
    free = int(found.f_blocks * (1 - share))
    values = list(found)
    values[3] = values[4] = free  # f_bfree, f_bavail
    return os.statvfs_result(values)


if _FILE_SYSTEMS:
    os.statvfs = _as_full_as_asked
