"""Check every workflow of a folder of clones and write the list of sources with verdicts.

``python tools/public_files.py CLONES > docs/public-files.md``, where CLONES holds clones of public
repositories, each in a folder ``OWNER+NAME``. Nothing of a clone is kept but its files' names.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from workflows_engine.check import check
from workflows_engine.errors import Fault

_NAMES = re.compile(r"\.(ya?ml|json|tftpl|tpl)$")
_SKIP = re.compile(r"node_modules|\.github/|package(-lock)?\.json|tsconfig")
# Words of other YAML languages: GitHub Actions, Kubernetes, OpenAPI, Compose, App Engine.
_OTHER = re.compile(
    r"^\s*on:\s|runs-on:|apiVersion:|^openapi|^swagger|^runtime:|\"\$schema\"|\{\{|^services:|"
    r"fieldPath|^AWSTemplate",
    re.MULTILINE,
)
_OURS = re.compile(r"call: (http\.|sys\.|googleapis\.)")
_TOP = re.compile(
    r"^main:|^-\s+[\"']?[\w.\- ]+[\"']?:|^[\"']?[A-Za-z_]\w*[\"']?:\s*$", re.MULTILINE
)
_STEP = re.compile(
    r"^\s*(-\s+\w+:\s*)?(call:\s+[\"']?[\w.]+|assign:|return:|switch:|raise:)", re.MULTILINE
)
_CELL = 180  # characters


@dataclass
class File:
    """A workflow file of a repository, and what ``check`` said of it."""

    repository: str
    path: str
    refusal: str  # "" when it passes


def workflows(clone: Path) -> Iterator[tuple[str, str]]:
    """Path and text of each file of a clone that looks like a workflow."""
    listed = _git(clone, "ls-tree", "-r", "-z", "--name-only", "HEAD") or ""
    for path in listed.split("\0"):
        if not _NAMES.search(path) or _SKIP.search(path):
            continue
        text = _git(clone, "show", f"HEAD:{path}")
        if text is not None and len(text) < 200_000 and _looks(path, text):
            yield path, text


def _git(clone: Path, *args: str) -> str | None:
    done = subprocess.run(["git", "-C", str(clone), *args], capture_output=True, check=False)
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def _looks(path: str, text: str) -> bool:
    if _OTHER.search(text) and not _OURS.search(text):
        return False
    if path.endswith(".json"):
        return '"steps"' in text and bool(re.search(r'"(call|assign|return)"\s*:\s*["\[]', text))
    return bool(
        _TOP.search(text) and _STEP.search(text) and re.search(r"call:|\$\{|return:", text)
    )


def refusal(path: str, text: str, faults: list[Fault]) -> str:
    """Why a file is refused, in a few words; empty when it is not."""
    faults = [fault for fault in faults if not fault.warning]
    if not faults:
        return ""
    first = faults[0].message
    told = f"line {faults[0].line}: {first}"
    if re.search(r"\$\$\{|\$\{(var|module|local)\.", text) or "{{" in text:
        return f"a template, to be filled in before the deployment ({told})"
    if any("there is no main" in fault.message for fault in faults):
        return "a part without main, to be pasted into a workflow"
    if re.search(r"(^|/)(tests?|fixtures)/", path):
        return f"a fragment of another tool's tests ({told})"
    return told


def main(folder: Path) -> int:
    """Print the document; gives the exit code."""
    found: list[File] = []
    commits: dict[str, str] = {}
    seen: set[str] = set()
    for clone in sorted(folder.iterdir()):
        where = clone / "repo" if (clone / "repo").is_dir() else clone
        name = clone.name.replace("+", "/", 1)
        for path, text in workflows(where):
            if text in seen:
                continue
            seen.add(text)
            found.append(File(name, path, refusal(path, text, check(text, path)[1])))
            if name not in commits:
                commits[name] = (_git(where, "rev-parse", "--short=12", "HEAD") or "").strip()
    print(_document(found, commits), end="")
    return 0


def _document(found: list[File], commits: dict[str, str]) -> str:
    refused = [one for one in found if one.refusal]
    passing = len(found) - len(refused)
    lines = [
        "# Public workflow files through `check`",
        "",
        f"Of {len(found)} different workflow files (YAML and JSON) in {len(commits)} public "
        "GitHub",
        f"repositories, {passing} pass and {len(refused)} are refused, each with a reason.",
        f"Made on {datetime.now(UTC):%Y-%m-%d} by `tools/public_files.py`; no file is kept here.",
        "",
        "## Refused",
        "",
        "| repository | path | verdict and reason |",
        "|---|---|---|",
    ]
    for one in refused:
        reason = _cell(f"refused: {one.refusal}")
        lines.append(f"| {one.repository} | {_cell(one.path)} | {reason} |")
    lines += ["", "## Passed", ""]
    for name, commit in commits.items():
        passed = [one.path for one in found if one.repository == name and not one.refusal]
        lines += [f"{name} at `{commit}`: {len(passed)}", ""]
        lines += [f"* `{path}`" for path in passed]
        lines += [""] if passed else []
    return "\n".join(lines).rstrip() + "\n"


def _cell(text: str) -> str:
    text = " ".join(text.replace("|", "\\|").split())
    return text if len(text) <= _CELL else text[: _CELL - 3] + "..."


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
