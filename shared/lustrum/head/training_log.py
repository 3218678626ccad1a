"""What the training says."""

from __future__ import annotations

import re

from lustrum.head.output import Event

# torch.save into a full file system says nothing of space (seen with 2.11): only that the place
# it writes at is not the place it should be at.
_FULL = re.compile(r"No space left on device|Disk quota exceeded|unexpected pos \d+ vs \d+")


class TrainingLog:
    """NeMo-RL's lines (v0.4.0 to v0.7.0) turned into numbers.

    The banner counts within an epoch, so steps are counted from the step resumed from and set
    right by each save, which names the total step.
    """

    def __init__(self, base: int) -> None:
        self._base, self._banners = base, 0
        self.step = base  # completed
        self.phase = "starting"
        self.reward: float | None = None
        self.step_seconds: float | None = None
        self.save_seconds: float | None = None
        self.saves: dict[int, float] = {}  # step -> when its save began (monotonic)
        self.saved_by: dict[int, float] = {}  # step -> its results; the commit lies before them
        self.moves = 0  # grows with every sign of progress
        self.steps: list[Event] = []  # since last taken
        self.hint: str | None = None  # failure class a line gave away

    def feed(self, line: str, now: float) -> bool:
        """Take one line; True when something is worth looking at now."""
        match = re.match(r"={25} Step (\d+)/(\d+) ={25}$", line)
        if match:
            self._banners += 1
            self.phase = "step"
            self.moves += 1
            return True
        match = re.match(r"Saving checkpoint for step (\d+)\.\.\.$", line)
        if match:
            self._base = int(match.group(1)) - self._banners
            self.saves[int(match.group(1))], self.phase = now, "saving"
            self.moves += 1
            return True
        if line.startswith("📊 Training Results:"):
            self.phase, self.step = "step", self._base + self._banners
            if self.step in self.saves:
                self.saved_by[self.step] = now
            self.steps.append({"step": self.step, "reward": None, "seconds": None})
            del self.steps[:-100]
            self.moves += 1
            return True
        match = re.match(r"  • (Avg Reward|Total step time|checkpointing): (-?[\d.]+)", line)
        if match:
            self._number(match.group(1), float(match.group(2)))
        elif _FULL.search(line):
            self.hint = "LUSTRE_FULL"
        elif "CUDA out of memory" in line or "OutOfMemoryError" in line:
            self.hint = "USER_OOM"
        return False

    def _number(self, name: str, value: float) -> None:
        if name == "checkpointing":
            self.save_seconds = value
        elif name == "Avg Reward":
            self.reward = value
        else:
            self.step_seconds = value
        key = {"Avg Reward": "reward", "Total step time": "seconds"}.get(name)
        if key and self.steps:
            self.steps[-1][key] = value

    def take_steps(self) -> list[Event]:
        """Return the steps that were read since the last call."""
        taken, self.steps = self.steps, []
        return taken
