"""Mode train: one attempt."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from lustrum.head.checkpoint_files import (
    all_steps,
    clean_leftovers,
    entries,
    make_folders,
    set_aside_broken,
    take_over,
)
from lustrum.head.checkpoint_rule import MANIFEST, newest_complete
from lustrum.head.code_archive import fetch_code
from lustrum.head.exits import EXITS, Refused, Stopped, failure_of
from lustrum.head.gpu_watch import GpuWatch
from lustrum.head.model import check_model, mark_conversion, remove_half_conversion
from lustrum.head.network import AccessToken
from lustrum.head.output import Voice
from lustrum.head.process import Bell, Child, Signals
from lustrum.head.spec import Spec
from lustrum.head.training_log import TrainingLog
from lustrum.head.watcher import StepWatcher, announce


def train(spec: Spec, voice: Voice, token: AccessToken, signals: Signals) -> int:
    """One attempt. Always ends with `job.completed`, whatever happens."""
    failure: str | None = None
    message = ""
    try:
        exit_code, failure, message = attempt(spec, voice, token, signals)
    except Refused as refused:
        exit_code, failure, message = refused.exit_code, refused.failure, str(refused)
    except Stopped as stopped:
        exit_code, message = stopped.exit_code, str(stopped)
    except OSError as error:
        failure, message = failure_of(error), str(error)
        exit_code = EXITS[failure]
    steps = within(spec.settle_seconds, lambda: all_steps(spec))
    newest = newest_complete(steps or [])
    total = newest.total_steps if newest else 0
    voice.event(
        "job.completed",
        newest.step if newest else 0,
        exit_code=exit_code,
        total_steps=total,
        max_steps=spec.max_steps,
        message=message,
        failure=failure,
    )
    return exit_code


def attempt(
    spec: Spec, voice: Voice, token: AccessToken, signals: Signals
) -> tuple[int, str | None, str]:
    """Prepare, run and watch the training; its exit code, the failure class if known, and why."""
    make_folders(spec)
    take_over(spec)
    voice.open_log(os.path.join(spec.run_folder, "logs", f"attempt-{spec.attempt}.log"))
    clean_leftovers(spec, voice)
    steps = all_steps(spec)
    set_aside_broken(spec, steps, voice)
    newest = newest_complete(steps)
    done = (newest.total_steps or 0) if newest else 0
    voice.event("attempt.started", done, max_steps=spec.max_steps)
    for step, path in entries(spec):
        if not os.path.exists(os.path.join(path, MANIFEST)):
            announce(spec, voice, step, path, None)  # committed as the last attempt died
    if newest:
        check_model(spec, os.path.join(spec.checkpoints, spec.layout.folder(newest.step)))
        if 0 < spec.max_steps <= done:
            voice.say(f"lustrum: {done} of {spec.max_steps} steps are done, nothing to train")
            return 0, None, ""
    if not spec.command:
        raise Refused("CONFIG", "spec.command: empty, there is nothing to run")
    remove_half_conversion(spec, voice)
    folder = fetch_code(spec, token, voice)
    command = place_command(spec, folder)
    environment = dict(os.environ, PYTHONUNBUFFERED="1")
    environment.setdefault("HF_HOME", spec.cache)
    if folder:
        paths = [folder, environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return watch(spec, voice, signals, command, folder or spec.workdir, environment, done)


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


def watch(
    spec: Spec,
    voice: Voice,
    signals: Signals,
    command: list[str],
    cwd: str | None,
    environment: dict[str, str],
    base: int,
) -> tuple[int, str | None, str]:
    """Run the command until it ends, stalls or is stopped."""
    bell, log = Bell(), TrainingLog(base, spec.lustre)
    watcher, gpus = StepWatcher(spec, log, voice), GpuWatch(spec, voice)

    def on_line(line: str) -> None:
        if log.feed(line, time.monotonic()):
            watcher.wake.set()

    child = Child(command, cwd, environment, voice, on_line)
    signals.child = child
    if signals.received is not None:
        child.signal(signals.received)
    watcher.start()
    if spec.gpu_seconds > 0:
        gpus.start()
    quiet, moves, last, marked = 0.0, 0, time.monotonic(), False
    heartbeat_due, kill_at, stalled = last + spec.heartbeat_seconds, None, False
    idle = False
    startup = spec.startup_stall_seconds
    startup = 2 * spec.stall_seconds if startup is None else startup
    while child.process.poll() is None and not (stalled or idle or watcher.overtaken):
        bell.wait(spec.poll_seconds)
        now = time.monotonic()
        # A pause of this process itself (a migrated VM, a frozen cgroup) is nobody's stall.
        quiet += min(now - last, 5 + 5 * spec.poll_seconds)
        last = now
        if log.moves + watcher.moves != moves:
            moves, quiet = log.moves + watcher.moves, 0.0
        if log.phase != "starting" and not marked:
            marked = True
            quietly(lambda: mark_conversion(spec), voice)
        if now >= heartbeat_due:
            heartbeat_due = now + spec.heartbeat_seconds
            heartbeat(spec, voice, log, gpus, quiet)
        idle = gpus.look(log.phase, log.step) and spec.end_idle_gpus
        if signals.received is not None:
            kill_at = now + spec.grace_seconds if kill_at is None else kill_at
            if now >= kill_at:
                break
        stalled = quiet >= (startup if log.phase == "starting" else spec.stall_seconds)
    if stalled:
        voice.event("job.stalled", log.step, quiet_seconds=round(quiet, 1))
    gpus.finish()
    grace = spec.grace_seconds if stalled or idle else 3.0
    code = child.end(0.0 if kill_at is not None or watcher.overtaken else grace)
    watcher.finish(spec.settle_seconds)
    heartbeat(spec, voice, log, gpus, quiet, last=True)
    if watcher.overtaken:
        raise Refused("INFRA_TRANSIENT", f"attempt {watcher.overtaken} has begun: this one ends")
    if stalled:
        return EXITS["HANG"], "HANG", f"no progress for {quiet:.0f} s"
    if idle:
        seconds = gpus.use.idle_seconds
        return EXITS["GPUS_IDLE"], "GPUS_IDLE", f"all GPUs have idled for {seconds:.0f} s"
    why = log.why()
    if code and why.failure is None and gpus.use.broken():
        return code, "NODE_LOST", f"a GPU failed: {gpus.use.broken()}; {why.message}"
    return (code, why.failure, why.message) if code else (0, None, "")


def within(seconds: float, action: Callable[[], Any]) -> Any:
    """The action's result; None when it fails or a hung file system holds it for too long."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(action())
        except OSError:
            return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return results[0] if results else None


def quietly(action: Callable[[], None], voice: Voice) -> None:
    """Do something the training does not depend on."""
    try:
        action()
    except OSError as error:
        voice.say(f"lustrum: {error}")


def heartbeat(
    spec: Spec,
    voice: Voice,
    log: TrainingLog,
    gpus: GpuWatch,
    quiet: float,
    last: bool = False,
) -> None:
    """Send one progress event; ``quiet`` is seconds since the last sign of progress."""
    voice.event(
        "job.progress",
        log.step,
        max_steps=spec.max_steps,
        phase=log.phase,
        reward=log.reward,
        step_seconds=log.step_seconds,
        save_seconds=log.save_seconds,
        quiet_seconds=round(quiet, 1),
        loss=log.loss,
        gpus=gpus.use.report(),
        steps=log.take_steps(last),
    )
