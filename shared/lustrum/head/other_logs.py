"""What trainers other than NeMo-RL say: verl, Hugging Face's Trainer, a person's own script."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from lustrum.head.last_error import plain
from lustrum.head.names import LUSTRE_MOUNT
from lustrum.head.training_log import LAST_STEP, TrainingLog

NUMBER = r"(-?[0-9][0-9.]{0,30}(?:e[+-]?[0-9]{1,3})?)(?![0-9.])"
LINE = 20_000  # characters of a line that can matter: verl writes all of a step into one


class OtherLog(TrainingLog):
    """A trainer that names its steps itself; the numbers of a step come with it or around it."""

    def feed(self, line: str, now: float) -> bool:
        """Take one line; True when something is worth looking at now."""
        text = plain(line[:LINE], LINE)
        found = self._read(text)
        if not found:
            if text:
                self._tail.append(line[: self.LINE])
            return False
        step = found.get("step")
        moved = step is not None and self.step < step <= LAST_STEP
        if moved and step is not None:
            self._open = True  # until the next step, or its numbers came with it
            self.step, self.phase = int(step), "step"
            self._results += 1
            self.reward = self.loss = None
            self.steps.append({"step": self.step, "reward": None, "seconds": None})
            del self.steps[:-100]
            self._moved()
        if "reward" in found:
            self.reward = found["reward"]
            self._note("reward", found["reward"])
        if "loss" in found:
            self.loss = found["loss"]
        if "seconds" in found:
            self.step_seconds = found["seconds"]
            self._note("seconds", found["seconds"])
            self._open = False
        if "save_seconds" in found:
            self.save_seconds = found["save_seconds"]
        return moved

    def _read(self, text: str) -> Mapping[str, float]:
        """Return what a line tells: step, reward, loss, seconds, save_seconds."""
        raise NotImplementedError


class VerlLog(OtherLog):
    """verl's console logger: ``step:12 - critic/rewards/mean:0.5 - timing_s/step:34.2 - ...``.

    A line of a step that only validated (``step:0`` before the training) has no timing of a step.
    Numbers may be written as ``np.float64(0.5)``. Source: verl's Tracking and LocalLogger.
    """

    _STEP = re.compile(r"(?:\[INFO\] )?step:([0-9]{1,9})(?: - |$)")
    _PAIR = re.compile(r" - ([A-Za-z0-9_@/.()-]{1,200}):(?:np\.float(?:32|64)\()?" + NUMBER)
    _KEYS: Mapping[str, str] = {
        "critic/score/mean": "reward",
        "critic/rewards/mean": "reward",  # the later one wins: with a penalty it is what counts
        "actor/pg_loss": "loss",
        "train/loss": "loss",
        "timing_s/step": "seconds",
        "timing_s/save_checkpoint": "save_seconds",
    }

    def _read(self, text: str) -> Mapping[str, float]:
        match = self._STEP.match(text)
        if not match:
            return {}
        told = {name: number(value) for name, value in self._PAIR.findall(text)}
        if not {"timing_s/step", "training/global_step", "train/loss"} & told.keys():
            return {}
        found = {"step": float(match.group(1))}
        for name, key in self._KEYS.items():
            value = told.get(name)
            if value is not None:
                found[key] = value
        return found


class HuggingFaceLog(OtherLog):
    """Hugging Face's Trainer and TRL: the progress bar has the step, a dict the numbers.

    ``12%|#2   | 12/100 [00:05<00:39, 2.2it/s]`` and ``{'loss': 2.1, 'reward': 0.5}``;
    from transformers 5 the numbers are strings. The dict of a step may come just before its bar
    is drawn. Source: transformers' ProgressCallback and PrinterCallback.
    """

    # Other bars (of an evaluation, of shards being written) have a name before the percentage.
    _BAR = re.compile(r"[0-9]{1,3}%\|[^|\n]{0,80}\| {0,9}([0-9]{1,9})/([0-9]{1,9}) \[")
    _PAIR = re.compile(r"'([a-z_/]{1,100})': '?" + NUMBER)

    def __init__(self, base: int, lustre: str = LUSTRE_MOUNT, goal: int = 0) -> None:
        super().__init__(base, lustre)
        self._goal = goal
        self._waiting: dict[str, float] = {}

    def _read(self, text: str) -> Mapping[str, float]:
        bar = self._BAR.match(text)
        if bar and (not self._goal or int(bar.group(2)) == self._goal):
            waiting, self._waiting = self._waiting, {}
            return {**waiting, "step": float(bar.group(1))}
        if not text.startswith("{'"):
            return {}
        told = {name: number(value) for name, value in self._PAIR.findall(text)}
        found = {}
        for key in ("reward", "loss"):
            value = told.get(key)
            if value is not None:
                found[key] = value
        self._waiting = found
        return {}


class OwnLog(OtherLog):
    """A person's own script: texts with ``{}`` where the number stands."""

    def __init__(self, base: int, lustre: str, texts: Mapping[str, str]) -> None:
        super().__init__(base, lustre)
        self._texts = {
            key: re.compile(NUMBER.join(re.escape(part) for part in text.split("{}", 1)))
            for key, text in texts.items()
        }

    def _read(self, text: str) -> Mapping[str, float]:
        found = {}
        for key, pattern in self._texts.items():
            match = pattern.search(text)
            value = number(match.group(1)) if match else None
            if value is not None:
                found[key] = value
        return found


def number(text: str) -> float | None:
    """Return a finite number, None for what only looks like one (``1.2.3``)."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
