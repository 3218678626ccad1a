"""Mode train: one attempt."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
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
from lustrum.head.code_archive import fetch_code, place_command
from lustrum.head.exits import EXITS, JobFailed, Stopped, failure_of
from lustrum.head.fabric import Fabric
from lustrum.head.gpu_watch import GpuWatch
from lustrum.head.last_error import GPU_FAILED
from lustrum.head.model import check_model, mark_conversion, remove_half_conversion
from lustrum.head.network import AccessToken
from lustrum.head.other_logs import HuggingFaceLog, OwnLog, VerlLog
from lustrum.head.output import Voice
from lustrum.head.process import Bell, Child, Signals
from lustrum.head.spec import Spec
from lustrum.head.training_log import TrainingLog
from lustrum.head.watcher import StepWatcher, announce

RESUME = "{resume_from}"  # in an argument: the folder of the step to go on from


def train(spec: Spec, voice: Voice, token: AccessToken, signals: Signals) -> int:
    """One attempt. Always ends with `job.completed`, whatever happens."""
    try:
        ending = attempt(spec, voice, token, signals)
    except JobFailed as refused:
        ending = Ending(refused.exit_code, refused.failure, str(refused))
    except Stopped as stopped:
        ending = Ending(stopped.exit_code, None, str(stopped))
    except OSError as error:
        failure = failure_of(error)
        ending = Ending(EXITS[failure], failure, str(error))
    steps = within(spec.settle_seconds, lambda: all_steps(spec))
    newest = newest_complete(steps or [])
    total = newest.total_steps if newest else 0
    voice.event(
        "job.completed",
        newest.step if newest else 0,
        exit_code=ending.exit_code,
        total_steps=total,
        max_steps=spec.max_steps,
        message=ending.message,
        failure=ending.failure,
        ended=ended_by(spec, ending, (total or 0)),
    )
    return ending.exit_code


@dataclass
class Ending:
    """How an attempt ended.

    Attributes:
        exit_code: the training's, or the supervisor's own.
        failure: the class, if the supervisor knows it.
        message: why, one line.
        step: the last one that the training finished; time_limit: it says that it stopped early.
    """

    exit_code: int
    failure: str | None = None
    message: str = ""
    step: int = 0
    time_limit: bool = False


def ended_by(spec: Spec, ending: Ending, saved: int) -> str | None:
    """Say what ended a training that says of itself that it went well.

    Returns:
        goal: its last step is saved. time_limit: its own, there are steps left. data: there were
        no more data, and all that was trained is saved. None: it failed, or trained steps that it
        did not save.
    """
    if 0 < spec.max_steps <= saved:
        return "goal"
    if ending.exit_code != 0:
        return None
    late = spec.must_save_by is not None and time.time() >= spec.must_save_by
    if ending.time_limit or late:
        return "time_limit"
    return "data" if saved > 0 and ending.step <= saved else None


def attempt(spec: Spec, voice: Voice, token: AccessToken, signals: Signals) -> Ending:
    """Prepare, run and watch the training."""
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
            return Ending(0, step=done)
    if not spec.command:
        raise JobFailed("CONFIG", "spec.command: empty, there is nothing to run")
    remove_half_conversion(spec, voice)
    folder = fetch_code(spec, token, voice)
    resume = os.path.join(spec.checkpoints, spec.layout.folder(newest.step)) if newest else ""
    command = fill(place_command(spec, folder), resume)
    environment = dict(os.environ, PYTHONUNBUFFERED="1", **spec.environment)
    environment["LUSTRUM_RESUME_FROM"] = resume
    environment.setdefault("HF_HOME", spec.cache)
    if folder:
        paths = [folder, environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return watch(spec, voice, signals, command, folder or spec.workdir, environment, done)


def fill(command: list[str], resume: str) -> list[str]:
    """The command with the folder of the step to go on from; without one, an argument that asks
    for it is left out.
    """
    return [item.replace(RESUME, resume) for item in command if resume or RESUME not in item]


def log_of(spec: Spec, base: int) -> TrainingLog:
    """What reads the training's output."""
    if spec.progress:
        return OwnLog(base, spec.lustre, spec.progress)
    if spec.checkpoint_layout == "verl":
        return VerlLog(base, spec.lustre)
    if spec.checkpoint_layout == "huggingface":
        return HuggingFaceLog(base, spec.lustre, spec.max_steps)
    return TrainingLog(base, spec.lustre)


def watch(
    spec: Spec,
    voice: Voice,
    signals: Signals,
    command: list[str],
    cwd: str | None,
    environment: dict[str, str],
    base: int,
) -> Ending:
    """Run the command until it ends, stalls, is stopped, or has saved its last step and stays."""
    bell, log = Bell(), log_of(spec, base)
    watcher, gpus = StepWatcher(spec, log, voice), GpuWatch(spec, voice)
    fabric = Fabric(spec.network)

    def on_line(line: str) -> None:
        fabric.feed(line)
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
    heartbeat_due, kill_at = last + spec.heartbeat_seconds, None
    cut: Ending | None = None
    while child.process.poll() is None and cut is None and not watcher.overtaken:
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
            heartbeat(spec, voice, log, gpus, quiet, fabric.network)
        idle = gpus.look(log.phase, log.step) and spec.end_idle_gpus
        finished = now - watcher.goal_at if watcher.goal_at is not None else 0.0
        idle_seconds = gpus.use.idle_seconds if idle else None
        starting = log.phase == "starting"
        cut = cut_short(spec, finished, quiet, starting, idle_seconds, fabric.fault)
        if signals.received is not None:
            kill_at = now + spec.grace_seconds if kill_at is None else kill_at
            if now >= kill_at:
                break
    if cut is not None and cut.failure == "HANG":
        voice.event("job.stalled", log.step, quiet_seconds=round(quiet, 1))
    gpus.finish()
    grace = 3.0 if cut is None else spec.grace_seconds
    code = child.end(0.0 if kill_at is not None or watcher.overtaken else grace)
    watcher.finish(spec.settle_seconds)
    heartbeat(spec, voice, log, gpus, quiet, fabric.network, last=True)
    if watcher.overtaken:
        raise JobFailed("INFRA_TRANSIENT", f"attempt {watcher.overtaken} has begun: this one ends")
    if cut is not None:
        return _blame_the_gpu(cut, gpus)
    return ending_of(code, log, fabric, gpus)


def ending_of(code: int, log: TrainingLog, fabric: Fabric, gpus: GpuWatch) -> Ending:
    """How a training ended that ended by itself."""
    if code == 0:
        return Ending(0, step=log.step, time_limit=log.time_limit)
    if fabric.fault is not None:
        return Ending(code, "CONFIG", fabric.fault)
    why = log.why()
    return _blame_the_gpu(Ending(code, why.failure, why.message), gpus)


def _blame_the_gpu(ending: Ending, gpus: GpuWatch) -> Ending:
    """A GPU that reported a failure of its own explains an error without a class, and a hang: the
    other ranks wait for it in vain.
    """
    broken = gpus.use.broken()
    if not broken or ending.failure not in (None, "HANG"):
        return ending
    return Ending(ending.exit_code, "NODE_LOST", f"{GPU_FAILED}: {broken}; {ending.message}")


def cut_short(
    spec: Spec,
    finished: float,
    quiet: float,
    starting: bool,
    idle: float | None,
    fault: str | None,
) -> Ending | None:
    """Say why a training that still runs must be ended, None if it need not.

    Args:
        spec: the attempt's.
        finished: seconds since its last step was seen saved; 0 before.
        quiet: seconds without progress.
        starting: it has not come to its first step.
        idle: seconds that all GPUs have idled, if that is to end it.
        fault: of its network, which it must not go on with.
    """
    if fault is not None:
        return Ending(EXITS["CONFIG"], "CONFIG", fault)
    if finished > 0 and finished >= spec.linger_seconds:
        seconds = f"{spec.linger_seconds:.0f} s"
        return Ending(0, message=f"it was ended {seconds} after its last step was saved")
    startup = spec.startup_stall_seconds
    startup = 2 * spec.stall_seconds if startup is None else startup
    if quiet >= (startup if starting else spec.stall_seconds):
        return Ending(EXITS["HANG"], "HANG", f"no progress for {quiet:.0f} s")
    if idle is not None:
        message = f"all GPUs have idled for {idle:.0f} s"
        return Ending(EXITS["GPUS_IDLE"], "GPUS_IDLE", message)
    return None


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
    network: str | None = None,
    last: bool = False,
) -> None:
    """Send one progress event; ``quiet`` is seconds since the last sign of progress, ``network``
    what NCCL said it uses.
    """
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
        network=network,
        steps=log.take_steps(last),
    )
