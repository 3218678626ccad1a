"""The files of a set-up: where every command finds its environment, and what was done already."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lustrum.core.request import BadRequest

HERE = "lustrum.env"  # in the working folder; wins over the one of the user


def config_folder(env: Mapping[str, str]) -> Path | None:
    """Return the user's folder of Lustrum (XDG), None when the environment names no home."""
    base = env.get("XDG_CONFIG_HOME") or (f"{env['HOME']}/.config" if env.get("HOME") else "")
    return Path(base) / "lustrum" if base else None


def found_environment(env: Mapping[str, str]) -> Path | None:
    """Return the environment file that a command reads when it is given none."""
    folder = config_folder(env)
    places = [Path(HERE), *([folder / "env.json"] if folder else [])]
    return next((place for place in places if place.is_file()), None)


def write_private(path: Path, text: str) -> None:
    """Write a file whole, or not at all, that only its owner reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    with os.fdopen(os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)
    new.replace(path)


@dataclass
class Done:
    """Steps that are done, kept beside the environment file; other choices forget them."""

    path: Path
    fingerprint: str
    steps: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path, fingerprint: str) -> Done:
        """Return what was done with these choices by this release."""
        try:
            found: dict[str, Any] = json.loads(path.read_text())
        except (OSError, ValueError):
            found = {}
        same = found.get("fingerprint") == fingerprint
        return cls(path, fingerprint, list(found.get("steps", [])) if same else [])

    def add(self, name: str) -> None:
        """Remember a step."""
        self.steps.append(name)
        told = {"fingerprint": self.fingerprint, "steps": self.steps}
        write_private(self.path, json.dumps(told, indent=2) + "\n")

    def forget(self) -> None:
        """Everything is done: the next time begins at the beginning."""
        self.path.unlink(missing_ok=True)


def repository() -> Path:
    """Return the folder with infra/terraform: the working folder, or the one of this library.

    Raises:
        BadRequest: neither has it.
    """
    for root in (Path.cwd(), Path(__file__).resolve().parents[3]):
        if (root / "infra" / "terraform").is_dir():
            return root
    raise BadRequest("folder", str(Path.cwd()), "has no infra/terraform: run it in a clone")
