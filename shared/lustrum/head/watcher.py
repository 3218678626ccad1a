"""The committed steps of a running training, told as they appear."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from lustrum.head.checkpoint_files import (
    entries,
    file_sizes,
    inspect,
    prune,
    write_manifest,
    writing_attempt,
)
from lustrum.head.exits import failure_of
from lustrum.head.output import Voice
from lustrum.head.spec import Spec
from lustrum.head.training_log import TrainingLog


class StepWatcher(threading.Thread):
    """Looks at the checkpoints in its own thread: a hung file system must not hang the rest."""

    SETTLE = 3.0  # polls without a change after which a step written in its place is whole
    PATIENCE = 2.0  # seconds a commit waits for the log line that says when its save began

    def __init__(self, spec: Spec, log: TrainingLog, voice: Voice) -> None:
        super().__init__(daemon=True, name="steps")
        self._spec, self._log, self._voice = spec, log, voice
        self._known = {step: os.stat(path).st_ino for step, path in entries(spec)}
        self._first_seen: dict[int, float] = {}
        self._early: dict[int, float] = {}
        self._sizes: dict[int, tuple[dict[str, int], float]] = {}  # step -> sizes, since when
        self._growth: Any = None
        self._growth_due = 0.0
        self._ending = False
        self.wake = threading.Event()
        self.moves = 0
        self.goal_at: float | None = None  # when the last step was seen saved (monotonic)
        self.overtaken = 0  # the later attempt that writes now

    def run(self) -> None:
        """Look at the checkpoints until `finish`; what cannot be read is said and tried again."""
        while True:
            last = self._ending
            try:
                self._look()
            except OSError as error:
                self._voice.say(f"lustrum: checkpoints cannot be read: {error.strerror}")
            if last:
                return
            self.wake.wait(self._spec.poll_seconds)
            self.wake.clear()

    def finish(self, seconds: float) -> None:
        """One more look, then end; wait for it at most this long."""
        self._ending = True
        self.wake.set()
        self.join(seconds)

    def _look(self) -> None:
        now = time.monotonic()
        attempt = writing_attempt(self._spec)
        if attempt > self._spec.attempt:
            self.overtaken = attempt
            return
        saving = list(self._in_the_making())
        for step, _ in saving:
            self._first_seen.setdefault(step, now)
        if now >= self._growth_due:
            self._growth_due = now + min(30.0, self._spec.stall_seconds / 10)
            growth = [(step, sum(file_sizes(path).values())) for step, path in saving]
            if growth != self._growth:
                self._growth = growth
                self.moves += 1
        for step, path in entries(self._spec):
            inode = os.stat(path).st_ino
            if self._known.get(step) == inode:
                continue
            if not self._spec.layout.is_atomic and not self._settled(step, path, now):
                continue
            # Seen before its line in the log was: that line is a moment away, if it comes at all.
            early = now - self._early.setdefault(step, now) < self.PATIENCE
            if early and self._since(step) is None and not self._ending:
                break  # commits are told in their order
            self._known[step] = inode
            self.moves += 1
            self._committed(step, path)

    def _in_the_making(self) -> Iterator[tuple[int, str]]:
        """Every step that is being written: (N, path)."""
        layout = self._spec.layout
        for prefix in layout.renamed:
            yield from entries(self._spec, prefix)
        if not layout.is_atomic:
            for step, path in entries(self._spec):
                if step not in self._known:
                    yield step, path

    def _settled(self, step: int, path: str, now: float) -> bool:
        """Say whether a step written in its place is complete and has stopped growing: other
        ranks may write on when the file that proves it is there. Once the trainer has ended
        nothing grows.
        """
        sizes = file_sizes(path)
        if not inspect(self._spec, step, path, sizes).complete:
            return False
        before, since = self._sizes.get(step, ({}, now))
        if sizes != before:
            since = now
        self._sizes[step] = (sizes, since)
        return self._ending or now - since >= self.SETTLE * self._spec.poll_seconds

    def _since(self, step: int) -> float | None:
        """When its save began: by the log, else by the first sight of its tmp folder."""
        return self._log.saves.get(step, self._first_seen.get(step))

    def _committed(self, step: int, path: str) -> None:
        since, ended = self._since(step), time.monotonic()
        ended = min(ended, self._log.saved_by.get(step, ended))
        seconds = None if since is None else round(ended - since, 3)
        announce(self._spec, self._voice, step, path, seconds)
        if 0 < self._spec.max_steps <= step:
            self.goal_at = self.goal_at or time.monotonic()
        self._sizes.pop(step, None)
        for told in (self._first_seen, self._early, self._log.saves, self._log.saved_by):
            told.pop(step, None)
        if self._spec.prune:
            prune(self._spec, self._voice)


def announce(spec: Spec, voice: Voice, step: int, path: str, seconds: float | None) -> None:
    """Write the manifest of a committed step and say so; a manifest that fails is said too."""
    problem = None
    try:
        measured = write_manifest(spec, step, path)
    except OSError as error:
        measured, problem = asdict(inspect(spec, step, path)), failure_of(error)
    checkpoint = {
        "step": step,
        "files": measured["files"],
        "bytes": measured["bytes"],
        "seconds": seconds,
    }
    voice.event(
        "checkpoint.saved",
        step,
        max_steps=spec.max_steps,
        checkpoint=checkpoint,
        manifest=problem is None,
        failure=problem,
    )
