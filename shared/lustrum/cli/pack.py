"""Packing a folder for `lustrum start --code DIR`: what goes in and what is refused.

`.gitignore` and `.rayignore` are honoured in every folder walked, with gitignore's rules: a deeper
file overrules a shallower one, and nothing below an ignored folder can be taken back. `.git`,
`.venv`, `venv` and `__pycache__` never go in. The same tree gives the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

MAX_BYTES = 100 * 2**20  # of all files together, and what the supervisor accepts of the zip
MAX_FILES = 20_000
_ALWAYS_IGNORED = frozenset({".git", ".hg", ".svn", ".venv", "venv", "__pycache__"})
_IGNORE_FILES = (".gitignore", ".rayignore")
_SCANNED_BYTES = 2**20  # of each file, where secrets are looked for

# Name -> why; matched against the whole file name, lower case.
_SECRET_NAMES: tuple[tuple[str, str], ...] = (
    (r"\.env(\..+)?", "environment file"),
    (r"env\.sh", "environment file"),
    (r".*\.(pem|p12|pfx|key|jks|keystore)", "private key or key store"),
    (r"id_(rsa|dsa|ecdsa|ed25519)", "SSH private key"),
    (r"[._]?netrc", "login file"),
    (r"\.pypirc|\.npmrc|\.git-credentials|\.htpasswd", "login file"),
    (r"kubeconfig|.*\.kubeconfig", "cluster credentials"),
    (r"application_default_credentials\.json", "Google credentials"),
)
_HARMLESS_NAMES = re.compile(r"\.env\.(example|sample|template|dist)")
_SECRET_TEXT: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (re.compile(rb"-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY"), "private key"),
    (re.compile(rb'"private_key"\s*:\s*"[^"]{20,}'), "service account key"),
    (re.compile(rb'"type"\s*:\s*"authorized_user"'), "Google credentials"),
    (re.compile(rb"\bhf_[A-Za-z0-9]{30,}\b"), "Hugging Face token"),
    (re.compile(rb"\b(AKIA|ASIA)[A-Z0-9]{16}\b"), "AWS access key"),
    (re.compile(rb"\bgh[pousr]_[A-Za-z0-9]{36,}\b"), "GitHub token"),
    (re.compile(rb"\bgithub_pat_[A-Za-z0-9_]{60,}\b"), "GitHub token"),
    (re.compile(rb"\bAIza[A-Za-z0-9_-]{35}\b"), "Google API key"),
    (re.compile(rb"\bya29\.[A-Za-z0-9_-]{30,}"), "Google access token"),
    (re.compile(rb"\bxox[abpr]-[A-Za-z0-9-]{20,}"), "Slack token"),
    (re.compile(rb"\bsk-(proj-|ant-)?[A-Za-z0-9_-]{40,}\b"), "API key"),
    (re.compile(rb"WANDB_API_KEY\s*[=:]\s*[\"']?[0-9a-f]{40}\b"), "Weights & Biases key"),
)


class CodeRefused(ValueError):
    """The folder cannot be sent as it is; the message names the files and what to do."""


@dataclass(frozen=True)
class PackedCode:
    """A zip made of a folder: its files, their bytes together, the zip's sha256 (hex)."""

    files: int
    bytes: int
    sha256: str


def pack(folder: Path, out: Path, max_bytes: int = MAX_BYTES) -> PackedCode:
    """Write the files of ``folder`` to the zip ``out``.

    Raises:
        CodeRefused: too large, too many files, a link that leaves the folder, or a likely secret.
        OSError: the folder cannot be read or the zip cannot be written.
    """
    root = folder.resolve()
    if not root.is_dir():
        raise CodeRefused(f"{folder} is not a folder")
    target = out.resolve()
    found = [(name, path) for name, path in walk(root) if path.resolve() != target]
    if not found:
        raise CodeRefused(f"{folder} holds no file that is not ignored")
    sizes = {name: path.stat().st_size for name, path in found}
    _check_size(sizes, max_bytes)
    _check_secrets(found)
    partial = target.with_name(target.name + ".partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, path in found:
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            executable = path.stat().st_mode & stat.S_IXUSR
            entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            bundle.writestr(entry, path.read_bytes())
    partial.replace(target)
    with target.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return PackedCode(len(found), sum(sizes.values()), digest)


def walk(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield (relative POSIX name, path) of every file that goes in, in a fixed order.

    Raises:
        CodeRefused: a symbolic link leads out of the folder, or a file is neither file nor folder.
    """
    yield from _walk(root, root, [])


def _walk(
    root: Path, folder: Path, specs: list[tuple[str, GitIgnoreSpec]]
) -> Iterator[tuple[str, Path]]:
    specs = specs + _specs_of(root, folder)
    for entry in sorted(os.scandir(folder), key=lambda item: item.name):
        path = Path(entry.path)
        name = path.relative_to(root).as_posix()
        if entry.name in _ALWAYS_IGNORED:
            continue
        is_folder = entry.is_dir(follow_symlinks=False)
        if _is_ignored(name, is_folder, specs):
            continue
        if is_folder:
            yield from _walk(root, path, specs)
            continue
        if entry.is_symlink():
            _check_link(root, path, name)
        elif not entry.is_file():
            raise CodeRefused(f"{name} is neither a file nor a folder: add it to .rayignore")
        yield name, path


def _specs_of(root: Path, folder: Path) -> list[tuple[str, GitIgnoreSpec]]:
    base = folder.relative_to(root).as_posix()
    prefix = "" if base == "." else base + "/"
    found = []
    for name in _IGNORE_FILES:
        path = folder / name
        if path.is_file():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            found.append((prefix, GitIgnoreSpec.from_lines(lines)))
    return found


def _is_ignored(name: str, is_folder: bool, specs: list[tuple[str, GitIgnoreSpec]]) -> bool:
    """The deepest folder with an opinion wins; within one, .rayignore and .gitignore both
    exclude.
    """
    verdicts: dict[str, bool] = {}
    for prefix, spec in specs:
        relative = name[len(prefix) :] + ("/" if is_folder else "")
        include = spec.check_file(relative).include
        if include is not None:
            verdicts[prefix] = verdicts.get(prefix, False) or include
    return verdicts[max(verdicts, key=len)] if verdicts else False


def _check_link(root: Path, path: Path, name: str) -> None:
    real = path.resolve()
    if not real.is_relative_to(root):
        raise CodeRefused(f"{name} is a link that leaves the folder: add it to .rayignore")
    if not real.is_file():
        raise CodeRefused(f"{name} is a link to no file: remove it or add it to .rayignore")


def _check_size(sizes: dict[str, int], max_bytes: int) -> None:
    total = sum(sizes.values())
    if total > max_bytes:
        biggest = sorted(sizes.items(), key=lambda item: -item[1])[:5]
        shown = ", ".join(f"{name} ({size / 2**20:.1f} MiB)" for name, size in biggest)
        raise CodeRefused(
            f"{total / 2**20:.1f} MiB in {len(sizes)} files, at most {max_bytes / 2**20:.0f} MiB: "
            f"add what the training does not need to .rayignore; the biggest are {shown}"
        )
    if len(sizes) > MAX_FILES:
        raise CodeRefused(f"{len(sizes)} files, at most {MAX_FILES}: add some to .rayignore")


def _check_secrets(found: list[tuple[str, Path]]) -> None:
    problems = [f"{name} ({why})" for name, path in found if (why := secret_in(name, path))]
    if problems:
        raise CodeRefused(
            "looks like a secret: " + ", ".join(problems[:10]) + "; remove it or add it to "
            ".rayignore, and give tokens to the control plane's Secret Manager instead"
        )


def secret_in(name: str, path: Path) -> str | None:
    """Return why a file looks like a secret, None if it does not; never the secret itself."""
    base = name.rsplit("/", 1)[-1].lower()
    if not _HARMLESS_NAMES.fullmatch(base):
        for pattern, why in _SECRET_NAMES:
            if re.fullmatch(pattern, base):
                return why
    with path.open("rb") as file:
        text = file.read(_SCANNED_BYTES)
    for content, why in _SECRET_TEXT:
        match = content.search(text)
        if match:
            return f"{why}, line {text.count(bytes([10]), 0, match.start()) + 1}"
    return None
