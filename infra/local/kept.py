"""The local stack that stays: a process in the background that holds it, and its files.

`state.json` is there exactly while the stack is up; who holds it is known by process id and the
time it began, so that a number the system gave to somebody else is nobody's stack.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from infra.local.emulators import Missing
from infra.local.functions import ROOT
from infra.local.processes import DidNotStart
from infra.local.run import FOLDER, forget_old_stacks
from infra.local.stack import Stack

HOME = FOLDER / "up"
SLOTS = 2  # network slots: so many runs at once
REAP_EVERY = 600.0  # seconds, as Cloud Scheduler calls reap_runs
LOOK = 0.5  # seconds between two looks at the parts and the notifications
UP_WITHIN, DOWN_WITHIN = 150.0, 60.0  # seconds
_EXPORTED = ("LUSTRUM_", "PUBSUB_EMULATOR_HOST", "FIRESTORE_EMULATOR_HOST", "GRPC_VERBOSITY")


class NotUp(Exception):
    """There is no stack, or it did not come up; the message says what to do."""


@dataclass(frozen=True)
class Kept:
    """A stack that is up: who holds it, where its files are, how to reach it.

    Attributes:
        pid, began: process and when it began, epoch seconds.
        root: folder of its logs, buckets and file systems.
        admin: base URL of the stand-in cloud's `/_local`.
        functions: base URL of the functions.
        env: what `lustrum` needs to work against it.
    """

    pid: int
    began: float
    root: str
    admin: str
    functions: str
    env: dict[str, str]

    @property
    def is_alive(self) -> bool:
        """Say whether the process that holds it still runs."""
        with suppress(psutil.Error):
            process = psutil.Process(self.pid)
            return (
                abs(process.create_time() - self.began) < 2.0
                and process.status() != psutil.STATUS_ZOMBIE
            )
        return False


def current(home: Path = HOME) -> Kept | None:
    """Return the stack that is up, None if there is none; what a dead one left is removed."""
    try:
        kept = Kept(**json.loads((home / "state.json").read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        kept = None
    if kept is not None and kept.is_alive:
        return kept
    _forget(home)
    return None


def needed(home: Path = HOME) -> Kept:
    """Return the stack that is up. Raises NotUp."""
    kept = current(home)
    if kept is None:
        raise NotUp("no local stack is up; start one: make up")
    return kept


def up(say: Callable[[str], None], home: Path = HOME) -> tuple[Kept, bool]:
    """Return the stack that is up and whether this call started it.

    Raises:
        NotUp: it did not come up; the message holds the end of its log.
    """
    there = current(home)
    if there is not None:
        return there, False
    home.mkdir(parents=True, exist_ok=True)
    log = home / "log"
    with log.open("wb") as out:
        holder = subprocess.Popen(
            [sys.executable, "-m", "infra.local.kept", str(home)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    say(f"starting in the background, log in {log}")
    end = time.monotonic() + UP_WITHIN
    while time.monotonic() < end:
        if (home / "state.json").exists():
            return needed(home), True
        if holder.poll() is not None:
            raise NotUp(f"the stack did not come up: {_last_line(log)} (log: {log})")
        time.sleep(0.1)
    holder.terminate()
    raise NotUp(f"the stack did not come up in {UP_WITHIN:g} s (log: {log})")


def down(home: Path = HOME) -> Kept | None:
    """End the stack that is up and return it; None if there was none.

    Raises:
        NotUp: its process does not end, with the command that ends it.
    """
    kept = current(home)
    if kept is None:
        return None
    with suppress(ProcessLookupError):
        os.kill(kept.pid, signal.SIGTERM)
    end = time.monotonic() + DOWN_WITHIN
    while kept.is_alive:
        if time.monotonic() > end:
            raise NotUp(f"process {kept.pid} does not end; end it: kill -KILL {kept.pid}")
        time.sleep(0.1)
    _forget(home)
    return kept


def notifications(home: Path = HOME) -> list[dict[str, Any]]:
    """Return what was published on ``lustrum-notifications`` while the stack was up."""
    path = home / "notifications.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def exports(env: Mapping[str, str]) -> str:
    """Return lines that a shell reads with `source`: the environment, and the commands' PATH."""
    places = [ROOT / "infra" / "local" / "commands", Path(sys.executable).parent]
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(env.items())]
    path = ":".join(shlex.quote(str(one)) for one in places)
    return "\n".join([*lines, f'export PATH={path}:"$PATH"', ""])


def visible(env: Mapping[str, str]) -> dict[str, str]:
    """Return what of a stack's environment `lustrum` needs."""
    return {
        name: value for name, value in env.items() if name.startswith(_EXPORTED) and value != ""
    }


def hold(home: Path) -> int:
    """Hold a stack until SIGTERM or until a part of it dies; the exit status."""
    wanted = threading.Event()

    def end(signum: int, frame: FrameType | None) -> None:
        wanted.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    forget_old_stacks(FOLDER)
    (home / "notifications.jsonl").unlink(missing_ok=True)
    root = FOLDER / f"stack-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    stack = Stack(root, slots=SLOTS)
    try:
        stack.start(lambda part: print(f"starting: {part}", flush=True))
        _write_state(home, stack)
        print("up", flush=True)
        reaper = threading.Thread(target=_reap, args=(stack, wanted), daemon=True)
        reaper.start()
        while not wanted.wait(LOOK):
            stack.children.check()
            _keep_notifications(home, stack)
        return 0
    except (Missing, DidNotStart) as error:
        print(" ".join(str(error).split()), flush=True)
        return 1
    finally:
        stack.stop()
        _forget(home)


def _write_state(home: Path, stack: Stack) -> None:
    env = visible(stack.env)
    kept = Kept(
        pid=os.getpid(),
        began=psutil.Process().create_time(),
        root=str(stack.root),
        admin=stack.endpoints["admin"],
        functions=stack.url(stack.ports.functions),
        env=env,
    )
    (home / "env").write_text(exports(env))
    fresh = home / "state.part"
    fresh.write_text(json.dumps(asdict(kept), indent=1))
    fresh.replace(home / "state.json")


def _keep_notifications(home: Path, stack: Stack) -> None:
    with (home / "notifications.jsonl").open("a") as file:
        for one in stack.pubsub.notifications():
            file.write(json.dumps(one) + "\n")


def _reap(stack: Stack, wanted: threading.Event) -> None:
    while not wanted.wait(REAP_EVERY):
        try:
            stack.reap()
        except Exception as error:  # it comes again, and the stack is worth more than one call
            print(f"reap_runs: {type(error).__name__}: {error}", flush=True)


def _forget(home: Path) -> None:
    for name in ("state.json", "state.part", "env"):
        (home / name).unlink(missing_ok=True)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    return next((line.strip()[-500:] for line in reversed(lines) if line.strip()), "no word")


if __name__ == "__main__":
    sys.exit(hold(Path(sys.argv[1])))
