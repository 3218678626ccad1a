"""Google's Pub/Sub and Firestore emulators, found through gcloud and started directly.

Directly, since killing the gcloud wrapper can leave its java behind.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from infra.local.processes import Children, answers, free_port

UP_WITHIN = 60.0  # seconds


class Missing(Exception):
    """An emulator is not installed; the message is the exact command that installs it."""


@cache
def sdk_root() -> Path:
    """Return the folder of the Google Cloud SDK.

    Raises:
        Missing: there is no gcloud.
    """
    gcloud = shutil.which("gcloud")
    if gcloud is None:
        raise Missing(
            "gcloud is not installed; install the Google Cloud CLI, then: "
            "gcloud components install pubsub-emulator cloud-firestore-emulator"
        )
    link = Path(gcloud).resolve().parent.parent
    if (link / "platform").is_dir():
        return link  # without the second that asking gcloud takes
    asked = subprocess.run(
        [gcloud, "info", "--format=value(installation.sdk_root)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return Path(asked.stdout.strip())


def start_pubsub(children: Children) -> int:
    """Start the Pub/Sub emulator and return its port."""
    lib = sdk_root() / "platform" / "pubsub-emulator" / "lib"
    jars = sorted(lib.glob("cloud-pubsub-emulator-*-all.jar"))
    if not jars:
        raise Missing(_install("pubsub-emulator", "google-cloud-cli-pubsub-emulator"))
    port = free_port()
    children.start(
        "pubsub",
        [
            _java(),
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-jar",
            str(jars[-1]),
            "--host=127.0.0.1",
            f"--port={port}",
        ],
        os.environ,
    )
    return port


def start_firestore(children: Children) -> int:
    """Start the Firestore emulator and return its port."""
    folder = sdk_root() / "platform" / "cloud-firestore-emulator"
    start = folder / "cloud_firestore_emulator"
    if not start.exists():
        raise Missing(_install("cloud-firestore-emulator", "google-cloud-cli-firestore-emulator"))
    port = free_port()
    command = [str(start), "start"]  # execs java
    children.start("firestore", [*command, "--host=127.0.0.1", f"--port={port}"], os.environ)
    return port


def await_emulators(children: Children, pubsub: int, firestore: int) -> None:
    """Wait until both answer."""
    children.await_ready("pubsub", lambda: answers(pubsub), UP_WITHIN)
    children.await_ready("firestore", lambda: answers(firestore), UP_WITHIN)


def _java() -> str:
    java = shutil.which("java")
    if java is None:
        raise Missing(
            "java is not installed; install a Java runtime (17 or newer) for the emulators"
        )
    return java


def _install(component: str, package: str) -> str:
    return (
        f"the {component} is not installed; run: gcloud components install {component} "
        f"(or, where gcloud came as a Debian package: apt-get install {package})"
    )
