"""`make release`: what must hold before a version is tagged, and the tag.

* `python -m infra.release check` fails with the reason if this tree cannot be released.
* `python -m infra.release tag` does the same, then puts an annotated tag vX.Y.Z on HEAD.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from lustrum import __version__

ROOT = Path(__file__).resolve().parents[1]
_HEADING = re.compile(r"^## (\S+)(?: \((.+)\))?$", re.MULTILINE)


def find_problems(root: Path, version: str) -> list[str]:
    """Return why the tree at ``root`` cannot be released as ``version``; empty when it can."""
    problems = []
    if _git(root, "status", "--porcelain"):
        problems.append("the tree is not clean: commit or remove what `git status` shows")
    heading = _HEADING.search((root / "CHANGELOG.md").read_text())
    if heading is None:
        problems.append("CHANGELOG.md: has no heading '## X.Y.Z (date)'")
    else:
        named, date = heading.groups()
        if named != version:
            problems.append(f"CHANGELOG.md: its newest heading is {named}, the code is {version}")
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", date or ""):
            problems.append(f"CHANGELOG.md: '{heading[0]}' needs its date, as '(2026-01-31)'")
    if _git(root, "tag", "--list", f"v{version}"):
        problems.append(f"the tag v{version} exists: raise __version__ in shared/lustrum")
    return problems


def tag(root: Path, version: str) -> str:
    """Tag HEAD with a version and return the tag's name."""
    name = f"v{version}"
    _git(root, "tag", "--annotate", name, "--message", f"Lustrum {version}")
    return name


def main(words: list[str]) -> int:
    """Run `check` or `tag`; 1 when the tree cannot be released."""
    if words not in (["check"], ["tag"]):
        print("usage: python -m infra.release check|tag", file=sys.stderr)
        return 2
    problems = find_problems(ROOT, __version__)
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        return 1
    if words == ["tag"]:
        print(f"tagged {tag(ROOT, __version__)}; push it with `git push origin v{__version__}`")
    return 0


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *words], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
