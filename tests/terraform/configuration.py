"""The Terraform files as plain Python values, for tests that hold their promises."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import hcl2

ROOT = Path(__file__).parents[2]
TERRAFORM = ROOT / "infra" / "terraform"
BOOTSTRAP = TERRAFORM / "bootstrap"


@cache
def resources(folder: Path = TERRAFORM) -> dict[str, dict[str, Any]]:
    """Return type -> name -> body of every resource of a folder."""
    found: dict[str, dict[str, Any]] = {}
    for document in _documents(folder):
        for item in document.get("resource", []):
            for kind, named in item.items():
                found.setdefault(kind, {}).update(named)
    return found


@cache
def local_values(folder: Path = TERRAFORM) -> dict[str, Any]:
    """Return every local value; expressions stay text, ``${...}``."""
    found: dict[str, Any] = {}
    for document in _documents(folder):
        for item in document.get("locals", []):
            found.update(item)
    return found


@cache
def variables(folder: Path = TERRAFORM) -> dict[str, Any]:
    """Return every variable by name."""
    found: dict[str, Any] = {}
    for document in _documents(folder):
        for item in document.get("variable", []):
            found.update(item)
    return found


def text(folder: Path = TERRAFORM) -> str:
    """Return all Terraform files of a folder as one text."""
    return "\n".join(path.read_text() for path in sorted(folder.glob("*.tf")))


@cache
def _documents(folder: Path) -> tuple[dict[str, Any], ...]:
    found = []
    for path in sorted(folder.glob("*.tf")):
        with path.open() as file:
            found.append(_plain(hcl2.load(file)))
    return tuple(found)


def _plain(value: Any) -> Any:
    """Drop the parser's own keys and the quotes it keeps around strings."""
    if isinstance(value, dict):
        return {
            _plain(key): _plain(item)
            for key, item in value.items()
            if not (key.startswith("__") and key.endswith("__"))
        }
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, str) and len(value) >= 2 and value[0] == value[-1] == '"':
        return value[1:-1].replace('\\"', '"')
    return value
