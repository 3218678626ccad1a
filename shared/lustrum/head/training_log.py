"""What the training says."""

from __future__ import annotations

import math
import re
from collections import deque

from lustrum.head.last_error import LastError, last_error
from lustrum.head.names import LUSTRE_MOUNT
from lustrum.head.output import Event

_BANNER = re.compile(r"={25} Step ([0-9]{1,9})/([0-9]{1,9}) ={25}$")
_SAVING = re.compile(r"Saving checkpoint for step ([0-9]{1,9})\.\.\.$")
_NUMBER = re.compile(
    r"  • (Avg Reward|Avg Total Reward|Avg Filtered Reward|Loss|Total step time|checkpointing)"
    r": (-?[0-9][0-9.]{0,30}(?:e[+-]?[0-9]{1,3})?)(?=s?(?:[^\w.]|$))"
)
LAST_STEP = 10_000_000  # a step beyond it is none, as in `core.events`
TIME_LIMIT = "Timeout has been reached, stopping training early"
TAIL = 200  # lines kept of what came since the last sign of progress
BANNER_PAUSE = 10.0  # seconds: a banner that comes again sooner is a loop that waits


class TrainingLog:
    """NeMo-RL's lines (v0.4.0 to v0.7.0) turned into numbers.

    A step is its results line: with dynamic sampling the banner comes once for each extra batch,
    and with asynchronous sampling every half second while the buffer is empty. Steps are counted
    from the step resumed from and set right by each save, which names the total step. ``Avg
    Reward`` is with dynamic sampling called ``Avg Total Reward`` (of all samples; the filtered one
    is of those trained on). sft, dpo, rm and distillation print a loss and no reward.

    Other trainers' lines are read by its heirs (`other_logs`).

    No line may raise: whoever reads the output would stop, and the training with it.
    """

    LINE = 2000  # characters of a line that can matter

    def __init__(self, base: int, lustre: str = LUSTRE_MOUNT) -> None:
        self._base, self._results = base, 0
        self._lustre = lustre
        self._banner: tuple[str, float] | None = None  # the last one, and when (monotonic)
        self._tail: deque[str] = deque(maxlen=TAIL)
        self._open = False  # the numbers of the last step are still being printed
        self.step = base  # completed
        self.phase = "starting"
        self.reward: float | None = None  # of `step`
        self.loss: float | None = None
        self.step_seconds: float | None = None
        self.save_seconds: float | None = None
        self.time_limit = False  # it said that it stops at its own time limit
        self.saves: dict[int, float] = {}  # step -> when its save began (monotonic)
        self.saved_by: dict[int, float] = {}  # step -> its results; the commit lies before them
        self.moves = 0  # grows with every sign of progress
        self.steps: list[Event] = []  # since last taken

    def feed(self, line: str, now: float) -> bool:
        """Take one line; True when something is worth looking at now."""
        line = line[: self.LINE]
        match = _BANNER.match(line)
        if match:
            self._open, self.phase = False, "step"
            last, self._banner = self._banner, (match.group(1), now)
            if last is None or last[0] != match.group(1):
                self._moved()
            elif now - last[1] >= BANNER_PAUSE:
                self.moves += 1  # another batch for the same step
            return True
        match = _SAVING.match(line)
        if match and int(match.group(1)) <= LAST_STEP:
            step = int(match.group(1))
            self._base = step - self._results - 1
            self.saves[step], self.phase = now, "saving"
            self._moved()
            return True
        if line.startswith("📊 Training Results:"):
            self._results += 1
            self.phase, self.step = "step", self._base + self._results
            if self.step in self.saves:
                self.saved_by[self.step] = now
            self.reward = self.loss = None
            self._open = True
            self.steps.append({"step": self.step, "reward": None, "seconds": None})
            del self.steps[:-100]
            self._moved()
            return True
        if line.startswith(TIME_LIMIT):
            self.time_limit = True
        match = _NUMBER.match(line)
        if match:
            self._number(match.group(1), match.group(2))
        elif line.strip():
            self._tail.append(line)
        return False

    def _moved(self) -> None:
        self.moves += 1
        self._tail.clear()  # it survived that

    def _number(self, name: str, text: str) -> None:
        try:
            value = float(text)
        except ValueError:
            return  # "1.2.3"
        if not math.isfinite(value):
            return
        if name == "checkpointing":
            self.save_seconds = value
        elif name in ("Avg Reward", "Avg Total Reward"):
            self.reward = value
            self._note("reward", value)
        elif name == "Loss":
            self.loss = value
        elif name == "Total step time":
            self.step_seconds, self._open = value, False
            self._note("seconds", value)

    def _note(self, key: str, value: float) -> None:
        if self.steps:
            self.steps[-1][key] = value

    def take_steps(self, last: bool = False) -> list[Event]:
        """Return the steps since last taken; one whose numbers are still coming stays, unless
        nothing comes any more (``last``).
        """
        kept = self.steps[-1:] if self._open and not last else []
        taken = self.steps[: len(self.steps) - len(kept)]
        self.steps = kept
        return taken

    def why(self) -> LastError:
        """Return what the training's last words say of its end."""
        return last_error(
            list(self._tail),
            self._lustre,
            began=self._results > 0,
            saving=self.phase == "saving",
        )

    @property
    def hint(self) -> str | None:
        """The failure class that the training's own last error gives away."""
        return self.why().failure
