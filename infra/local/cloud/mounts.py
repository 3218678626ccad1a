"""Paths inside a container, and where they are on a machine without containers.

Each `volumeMount` of a pod is a real folder: Lustre the instance's folder, a ConfigMap or Secret a
folder with its files (a Secret's readable by the owner alone). What a container would see at
`/lustre` is at another path here, so the stand-in writes mount prefixes anew in the one place
where a job's command enters, the proxied `POST /api/jobs/` (entrypoint and `env_vars`), in a pod's
own environment, and back again in what the dashboard answers about jobs and logs. Nothing else is
touched: a path the job itself computes is a real one and stays.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def inward(text: str, mounts: Mapping[str, Path]) -> str:
    """Write container paths as local ones: whole path prefixes only, the longest mount first.

    `/lustre/x` and `"/lustre"` are such prefixes, `/data/lustre/x` and `/lustre2` are not.
    """
    if not mounts:
        return text
    names = "|".join(re.escape(mount) for mount in sorted(mounts, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])({names})(?![\w.-])", lambda match: str(mounts[match[1]]), text)


def outward(text: str, mounts: Mapping[str, Path]) -> str:
    """Write local paths as container ones."""
    for mount, folder in sorted(mounts.items(), key=lambda pair: -len(str(pair[1]))):
        # No mount holds a backslash, so it can be the replacement as it is.
        text = re.sub(re.escape(str(folder)) + r"(?![\w.-])", mount, text)
    return text


def job_inward(body: bytes, mounts: Mapping[str, Path]) -> bytes:
    """Write the paths of a job submission anew; a body that is not one is left alone."""
    try:
        job = json.loads(body)
    except ValueError:
        return body
    if not isinstance(job, dict):
        return body
    if isinstance(job.get("entrypoint"), str):
        job["entrypoint"] = inward(job["entrypoint"], mounts)
    env = (job.get("runtime_env") or {}).get("env_vars")
    if isinstance(env, dict):
        job["runtime_env"]["env_vars"] = {
            key: inward(value, mounts) if isinstance(value, str) else value
            for key, value in env.items()
        }
    return json.dumps(job).encode()


def write_files(folder: Path, source: Mapping[str, Any], mode: int) -> None:
    """Write the files of a ConfigMap (`data`, `binaryData`) or Secret (`data`, base64)."""
    folder.mkdir(parents=True, exist_ok=True)
    secret = source.get("kind") == "Secret"
    for key, value in (source.get("data") or {}).items():
        content = base64.b64decode(value) if secret else str(value).encode()
        _write(folder / key, content, mode)
    for key, value in (source.get("binaryData") or {}).items():
        _write(folder / key, base64.b64decode(value), mode)


def _write(path: Path, content: bytes, mode: int) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=mode | 0o200)
    path.write_bytes(content)
    path.chmod(mode)
