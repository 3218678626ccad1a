"""What a local build needs besides the build file: its trigger, its scripts, its environment."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from infra.local.builds import objects

ROOT = Path(__file__).resolve().parents[3]
BUILD_FILE = ROOT / "cloudbuild.yaml"
BLUEPRINT = ROOT / "infra" / "blueprint"
# What infra/terraform fixes on the trigger, so that no caller has to know it.
FIXED = {
    "_PROJECT": "LUSTRUM_PROJECT",
    "_STATE_BUCKET": "LUSTRUM_STATE_BUCKET",
    "_NODE_ACCOUNT": "LUSTRUM_NODE_ACCOUNT",
    "_SCRIPTS": "LUSTRUM_SCRIPTS",
    "_GCLUSTER_SHA256": "LUSTRUM_GCLUSTER_SHA256",
}


def build_file() -> dict[str, Any]:
    """Return the real cloudbuild.yaml."""
    return dict(yaml.safe_load(BUILD_FILE.read_text()))


def trigger(name: str, env: Mapping[str, str]) -> dict[str, Any]:
    """Return the trigger that infra/terraform makes from the build file."""
    short = name.rsplit("/", 1)[1]
    fixed = {key: env[variable] for key, variable in FIXED.items() if env.get(variable)}
    return {
        "resourceName": name,
        "id": short,
        "name": short,
        "build": build_file(),
        "substitutions": fixed,
    }


def scripts() -> bytes:
    """Return the zip of infra/blueprint, as infra/terraform makes it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        for path in sorted(BLUEPRINT.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                made.write(path, path.relative_to(BLUEPRINT).as_posix())
    return buffer.getvalue()


def publish_scripts(url: str) -> None:
    """Put the scripts where a build fetches them. Raises rest.Refused."""
    objects.write(url, scripts())


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of every step: stand-ins first on the PATH (before them only a folder
    named by LUSTRUM_TOOLS), quick pauses, no secrets.
    """
    standins = ROOT / "infra" / "local" / "bin"
    path = [str(standins), str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]
    if env.get("LUSTRUM_TOOLS"):
        path.insert(0, env["LUSTRUM_TOOLS"])
    kept = ("LUSTRUM_ENDPOINTS", "LUSTRUM_FAULTS", "LANG", "TMPDIR")
    return {
        "PATH": ":".join(path),
        "LUSTRUM_PYTHON": sys.executable,
        "LUSTRUM_PAUSE_SECONDS": env.get("LUSTRUM_PAUSE_SECONDS", "0.1"),
        "LUSTRUM_RETRY_SECONDS": env.get("LUSTRUM_RETRY_SECONDS", "1"),
        **{name: env[name] for name in kept if name in env},
    }
