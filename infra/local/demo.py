"""`make demo`: two runs at once on the local stack, two misfortunes, told as they are met."""

from __future__ import annotations

import io
import json
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from lustrum.core import names
from lustrum.core.errors import NotFound
from lustrum.core.record import Outcome, Run, State
from lustrum.show.formatting import clock
from lustrum.show.terminal_view import REPORT_GRACE, LiveView, last_line
from rich.console import Console

from infra.local import kept
from infra.local.kept import NotUp
from infra.local.strikes import NoTarget, Strikes

PATIENCE = 900.0  # seconds for all of it, on a busy machine
POLL = 0.5  # seconds between looks at the ledger
STRIKE_AT = 5  # step saved before the misfortune comes
FAILED = 1


@dataclass
class Part:
    """One run of the demonstration.

    Attributes:
        name: of the run, and of its lines.
        command, strike: what is done to it, as one would type it and as it is done here.
        expected: the outcome it must have in spite of it.
    """

    name: str
    command: str
    strike: Callable[[Strikes, str], str]
    expected: Outcome
    run_id: str = ""
    struck: bool = False
    record: Run | None = field(default=None, repr=False)

    @property
    def request(self) -> dict[str, object]:
        """Steps slow enough to strike between them."""
        return {
            "name": self.name,
            "profile": "tiny-grpo",
            "overrides": {"grpo.max_num_steps": 20, "local.step_seconds": 0.4},
            "checkpoints": {"save_period": STRIKE_AT, "keep": 2},
            "limits": {"hours": 1, "cost_usd": 50, "attempts": 5},
        }

    def is_done(self, now: float) -> bool:
        """Say whether nothing more will come of it."""
        run = self.record
        if run is None or not run.is_over:
            return False
        return bool(run.report_uri) or now - (run.closed_at or 0) > REPORT_GRACE


class Named(io.TextIOBase):
    """Standard output whose lines begin with a run's name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def write(self, text: str) -> int:
        """Write whole lines."""
        for line in text.splitlines():
            print(f"{self._name:10}{line}", flush=True)
        return len(text)


def parts() -> list[Part]:
    """Return what is shown: a preemption is survived, a full disk costs nothing saved."""
    return [
        Part("preempted", "preempt {}", lambda s, run: s.preempt(run), Outcome.SUCCEEDED),
        Part("filling", "fill {} 97%", lambda s, run: s.fill(run, 97), Outcome.PARTIAL),
    ]


def main() -> int:
    """Show it; 0 only if both runs ended as they must and nothing is left."""
    began = time.monotonic()
    try:
        found, is_ours = kept.up(print)
    except NotUp as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    strikes = Strikes(found)
    shown = parts()
    try:
        for part in shown:
            part.run_id = _start(strikes, part)
        _follow(strikes, shown, began + PATIENCE)
        left = [one for some in strikes.inventory().values() for one in some]
        return _end(shown, left, time.monotonic() - began)
    finally:
        if is_ours:
            kept.down()


def _start(strikes: Strikes, part: Part) -> str:
    key = f"demo-{uuid.uuid4().hex}"
    strikes.publish(json.dumps(part.request).encode(), {"idempotency_key": key})
    run_id = names.run_id(f"key:{key}")
    print(f"$ lustrum start {part.name}.json   # run {run_id}")
    return run_id


def _follow(strikes: Strikes, shown: list[Part], end: float) -> None:
    views = {part.name: LiveView(_console(part.name)) for part in shown}
    while time.monotonic() < end and not all(part.is_done(time.time()) for part in shown):
        for part in shown:
            try:
                part.record = strikes.services.ledger.load(part.run_id)
            except NotFound:
                continue
            views[part.name].show(part.record)
            _strike(strikes, part, part.record)
        time.sleep(POLL)


def _strike(strikes: Strikes, part: Part, run: Run) -> None:
    if part.struck or run.state is not State.TRAINING or run.checkpoint is None:
        return
    try:
        said = part.strike(strikes, part.run_id)
    except NoTarget:
        return  # between two looks it moved on: at the next
    part.struck = True
    words = part.command.format(part.run_id)
    print(f"{part.name:10}{clock(time.time())}  $ lustrum-local {words}   # {said}", flush=True)


def _console(name: str) -> Console:
    return Console(file=Named(name), highlight=False, soft_wrap=True, width=160)  # type: ignore[arg-type]


def _end(shown: list[Part], left: list[str], seconds: float) -> int:
    good = not left
    for part in shown:
        run = part.record
        print(
            last_line(run, time.time()) if run is not None else f"run {part.run_id} never appeared"
        )
        good = good and part.struck and run is not None and run.outcome is part.expected
    print(f"left in the cloud: {', '.join(left) or 'nothing'}; {seconds:.0f} s")
    return 0 if good else FAILED


if __name__ == "__main__":
    sys.exit(main())
