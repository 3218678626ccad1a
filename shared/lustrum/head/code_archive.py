"""The user's code: fetched, pinned and unpacked on Lustre."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile

from lustrum.head.checkpoint_files import read_text
from lustrum.head.checkpoint_rule import json_object
from lustrum.head.exits import JobFailed
from lustrum.head.network import AccessToken, ask
from lustrum.head.output import Voice
from lustrum.head.spec import Spec

CODE_BYTES = 100 * 2**20  # of the zip
CODE_UNPACKED_BYTES = 2**30
CODE_FILES = 20_000


def fetch_code(spec: Spec, token: AccessToken, voice: Voice) -> str | None:
    """Bring `spec.code` onto Lustre; return its folder, the working directory of the training.

    The first fetch is pinned: later attempts run the same code, whatever the object holds by then.
    """
    if spec.code is None:
        return None
    root = os.path.join(spec.run_folder, "code")
    pin = json_object(read_text(os.path.join(root, "code.json")))
    folder = os.path.join(root, str(pin.get("sha256"))[:16])
    if pin.get("url") == spec.code and os.path.isdir(folder):
        return folder
    os.makedirs(root, exist_ok=True)
    archive = os.path.join(root, "code.zip.tmp")
    digest = download(spec, token, archive)
    folder = os.path.join(root, digest[:16])
    temporary = folder + ".tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    unpack(archive, temporary)
    shutil.rmtree(folder, ignore_errors=True)
    os.rename(temporary, folder)
    os.remove(archive)
    with open(os.path.join(root, "code.json.tmp"), "w", encoding="utf-8") as file:
        json.dump({"url": spec.code, "sha256": digest}, file)
    os.replace(os.path.join(root, "code.json.tmp"), os.path.join(root, "code.json"))
    voice.say(f"lustrum: code {spec.code} ({digest[:16]}) is at {folder}")
    return folder


def place_command(spec: Spec, folder: str | None) -> list[str]:
    """The command as run from the code's folder: what the code does not bring, the image has."""
    if not folder or not spec.workdir:
        return spec.command
    command = []
    for item in spec.command:
        ours, theirs = os.path.join(folder, item), os.path.join(spec.workdir, item)
        relative = re.fullmatch(r"[\w./-]+\.(py|yaml|yml|sh)", item) and not os.path.isabs(item)
        command.append(theirs if relative and not os.path.exists(ours) else item)
    if command[:2] == ["uv", "run"] and not os.path.exists(os.path.join(folder, "pyproject.toml")):
        command[2:2] = ["--project", spec.workdir]
    return command


def download(spec: Spec, token: AccessToken, target: str) -> str:
    """Fetch the object to a file; return its sha256."""
    match = re.fullmatch(r"gs://([a-z0-9][a-z0-9._-]+)/(.+)", spec.code or "")
    if not match:
        raise JobFailed("CONFIG", f"code: {spec.code!r} is not gs://bucket/object")
    url = (
        f"{spec.storage_endpoint}/storage/v1/b/{match.group(1)}/o/"
        f"{urllib.parse.quote(match.group(2), safe='')}?alt=media"
    )
    last = ""
    for attempt in range(5):
        try:
            digest, size = hashlib.sha256(), 0
            with (
                ask(urllib.request.Request(url, headers=token.header()), 60) as answer,
                open(target, "wb") as file,
            ):
                for block in iter(lambda: answer.read(2**20), b""):
                    size += len(block)
                    if size > CODE_BYTES:
                        raise JobFailed("CONFIG", f"code: {spec.code} is over {CODE_BYTES} bytes")
                    digest.update(block)
                    file.write(block)
            return digest.hexdigest()
        except urllib.error.HTTPError as error:
            last = f"HTTP {error.code}"
            if error.code == 404:
                raise JobFailed("CONFIG", f"code: {spec.code} does not exist") from None
            if error.code == 403:
                raise JobFailed("ACCESS", f"code: the job may not read {spec.code}") from None
            if error.code == 401:
                token.forget()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
                raise
            last = str(error)
        time.sleep(min(2**attempt, 10) / 4)
    raise JobFailed("INFRA_TRANSIENT", f"code: {spec.code} could not be fetched: {last}")


def unpack(archive: str, folder: str) -> None:
    """Unpack a zip that may be hostile: no path outside, no link, bounded in files and bytes."""
    try:
        with zipfile.ZipFile(archive) as bundle:
            items = bundle.infolist()
            if len(items) > CODE_FILES:
                raise JobFailed("CONFIG", f"code: {len(items)} entries, at most {CODE_FILES}")
            left = CODE_UNPACKED_BYTES
            for item in items:
                parts = item.filename.split("/")
                mode = item.external_attr >> 16
                if (
                    item.filename.startswith("/")
                    or ".." in parts
                    or "\\" in item.filename
                    or ":" in parts[0]
                    or (stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR))
                ):
                    raise JobFailed("CONFIG", f"code: entry {item.filename!r} is not a plain path")
                target = os.path.join(folder, *[part for part in parts if part])
                if item.is_dir():
                    os.makedirs(target, exist_ok=True)
                    continue
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with bundle.open(item) as source, open(target, "wb") as file:
                    for block in iter(lambda: source.read(2**20), b""):
                        left -= len(block)
                        if left < 0:
                            raise JobFailed(
                                "CONFIG", f"code: unpacks to more than {CODE_UNPACKED_BYTES} bytes"
                            )
                        file.write(block)
                os.chmod(target, 0o755 if mode & 0o111 else 0o644)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise JobFailed("CONFIG", f"code: not a usable zip: {error}") from None
