"""A run shown live: a panel that is drawn anew on a terminal, one line per change elsewhere.

Used by `lustrum watch` and `make run`. Holds no client: whoever looks hands in the newest record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Protocol, TypeVar

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.history import phases
from lustrum.core.record import Mishap, Moment, Outcome, Run
from lustrum.core.transport import told
from lustrum.show.costs import hourly_line, split_line
from lustrum.show.formatting import clock, dollars, duration, size
from lustrum.show.gpus import gpu_line
from lustrum.show.timeline import rewards, spent
from lustrum.show.waiting import Waiting, waiting

T = TypeVar("T")
REPORT_GRACE = 15.0  # seconds a closed run's report may take to appear in its record
SAVES_SHOWN = 5
IDLE_SHOWN = 60.0  # seconds of idle GPUs that are a change worth a line
PHASES_SHOWN = 12
QUIET = 30.0  # seconds of waiting that are worth a line
_WIDTH = 32  # characters of the step bar and the reward line
_BARS = "▁▂▃▄▅▆▇█"
_COLOURS = {
    Outcome.SUCCEEDED: "green",
    Outcome.PARTIAL: "yellow",
    Outcome.CANCELLED: "yellow",
    Outcome.FAILED: "red",
}


class View(Protocol):
    """Where `follow` shows what it finds."""

    def show(self, run: Run) -> None:
        """Show this record."""

    def note(self, text: str) -> None:
        """Say something that is not in the record."""


class LiveView:
    """Shows the newest record of one run; use it as a context manager and call `show`.

    On a terminal the last panel stays when the view ends. Elsewhere each change since the last
    call is one line, so that a log of it can be read and searched.
    """

    def __init__(self, console: Console, now: Callable[[], float] = time.time) -> None:
        self._console = console
        self._now = now
        self._said = _Said()
        self._patience = _Patience()
        self._run: Run | None = None
        self._live = (
            Live(console=console, refresh_per_second=4, get_renderable=self._picture)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> LiveView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, run: Run) -> None:
        """Show this record; what is as it was before is not said again."""
        self._run = run
        if self._live is None:
            for at, line in self._said.news(run):
                self._say(at, line)
            waits = self._patience.overdue(run, self._now())
            if waits is not None:
                self._say(self._now(), f"still waiting for {waits.sentence(self._now())}")

    def note(self, text: str) -> None:
        """Say something that is not in the record: a wait, a ledger that does not answer."""
        self._say(self._now(), text)

    def _say(self, at: float, text: str) -> None:
        self._console.print(f"{clock(at)}  {text}", markup=False, highlight=False, soft_wrap=True)

    def _picture(self) -> RenderableType:
        return Text("waiting for the run") if self._run is None else panel(self._run, self._now())


def follow(
    load: Callable[[], Run],
    view: View,
    *,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    poll: float = 2.0,
    patience: float = 60.0,
) -> Run:
    """Show a run until it is over and its report is there, and return its last record.

    Args:
        load: returns the newest record; may raise NotFound or a retryable ServiceError.
        view: an entered view.
        now, sleep: the clock, epoch seconds and seconds.
        poll: seconds between looks.
        patience: seconds the record may be absent; without end once it was seen.

    Raises:
        NotFound: there is no such run after ``patience``.
        ServiceError: one that does not pass by waiting.
    """
    began, silent, run = now(), False, None
    while True:
        try:
            run = load()
            silent = False
        except NotFound:
            if run is not None or now() - began >= patience:
                raise
        except ServiceError as error:
            if not error.retryable:
                raise
            if not silent:
                view.note(f"the ledger does not answer, retrying: {error}")
            silent = True
        if run is not None and not silent:
            view.show(run)
            if run.is_over and (run.report_uri or now() - (run.closed_at or 0) >= REPORT_GRACE):
                return run
        sleep(poll)


def last_line(run: Run, now: float) -> str:
    """Return the one line a run ends with; scripts read it."""
    outcome = run.outcome.value if run.outcome is not None else "UNFINISHED"
    step = run.checkpoint.step if run.checkpoint else 0
    return (
        f"run {run.run_id} {run.state} {outcome} step {step}/{run.plan.max_num_steps} "
        f"cost {dollars(spent(run, now))} report {run.report_uri or '-'}"
    )


def sparkline(values: list[float], width: int = 40) -> str:
    """Draw the last values in one line of block characters."""
    values = values[-width:]
    if not values:
        return ""
    low, span = min(values), (max(values) - min(values)) or 1.0
    return "".join(_BARS[min(7, int((value - low) / span * 8))] for value in values)


def panel(run: Run, now: float) -> RenderableType:
    """Draw a run as it is."""
    parts: list[RenderableType] = [_facts(run, now)]
    if run.history:
        parts.append(_phases(run, now))
    if run.saves:
        parts.append(_saves(run))
    for mishap in run.mishaps[-3:]:
        parts.append(
            Text(f"{clock(mishap.at)} {mishap.failure}: {mishap.sentence}", style="yellow")
        )
    for problem in (run.teardown.problems if run.teardown else [])[-3:]:
        parts.append(Text(f"teardown: {problem}", style="yellow"))
    if run.reason:
        parts.append(Text(run.reason, style="bold"))
    title = f"{run.run_id}  {escape(run.plan.name)}"
    return Panel(Group(*parts), title=title, title_align="left")


def _facts(run: Run, now: float) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    state = Text(run.outcome or run.state, style=_colour(run))
    place = run.placement.zone if run.placement else "-"
    end = run.closed_at or now
    left = run.deadline_at - now
    table.add_row("state", state)
    waits = waiting(run)
    if waits is not None:
        table.add_row("waits for", waits.sentence(now))
    table.add_row("zone", f"{place}   attempt {run.attempt} of {run.plan.attempts}")
    table.add_row("network", told(run.plan.network, run.rdma_network, run.nccl_network))
    table.add_row(
        "elapsed",
        duration(end - run.created_at)
        + ("" if run.is_over else f"   deadline in {duration(left)}" if left > 0 else "   late"),
    )
    table.add_row(
        "cost so far",
        f"{dollars(spent(run, now))} of at most {dollars(run.plan.worst_cost)} "
        f"(estimate, prices of {run.plan.prices_dated})",
    )
    split = {"costs now": hourly_line(run, now), "accelerators": split_line(run, end)}
    for name, words in split.items():
        if words:
            table.add_row(name, words)
    goal = run.plan.max_num_steps
    bar = ProgressBar(total=goal, completed=min(run.progress.step, goal), width=_WIDTH)
    table.add_row("step", _beside(bar, f"{run.progress.step}/{goal}"))
    points = rewards(run)
    if points:
        line = Text(sparkline([value for _, value in points], _WIDTH).ljust(_WIDTH), style="cyan")
        table.add_row("reward", _beside(line, f"{points[-1][1]:.3f}"))
    gpus = gpu_line(run)
    if gpus:
        idle = run.gpus.newest is not None and run.gpus.newest.idle_seconds >= IDLE_SHOWN
        table.add_row("GPUs", Text(gpus, style="yellow" if idle else ""))
    return table


def _beside(left: RenderableType, right: str) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row(left, right)
    return table


def _phases(run: Run, now: float) -> Table:
    table = Table.grid(padding=(0, 2))
    found = phases(run, run.closed_at or now)
    earlier = len(found) - PHASES_SHOWN
    if earlier > 0:
        table.add_row("", Text(f"{earlier} earlier", style="dim"), "")
        found = found[earlier:]
    for index, (state, since, until) in enumerate(found):
        live = index == len(found) - 1 and not run.is_over
        table.add_row(
            Text("▶" if live else "✔", style="cyan" if live else "green"),
            Text(state, style="bold" if live else "dim"),
            duration(until - since),
        )
    return table


def _saves(run: Run) -> Table:
    table = Table.grid(padding=(0, 2))
    for save in run.saves[-SAVES_SHOWN:]:
        mark = ""
        if run.export is not None and run.export.step == save.step:
            mark = "exporting" if run.export.verified_at is None else "exported"
        table.add_row(
            Text("saved", style="dim"),
            run.plan.layout.folder(save.step),
            size(save.bytes),
            _took(save.seconds),
            mark,
        )
    return table


def _took(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)


def _colour(run: Run) -> str:
    return _COLOURS[run.outcome] if run.outcome is not None else "cyan"


class _Patience:
    """Says what is waited for when nothing else was said: after half a minute, then ever more
    rarely.
    """

    def __init__(self) -> None:
        self._since = 0.0
        self._said_after = 0.0

    def overdue(self, run: Run, now: float) -> Waiting | None:
        waits = waiting(run)
        if waits is None:
            return None
        if waits.since != self._since:
            self._since, self._said_after = waits.since, 0.0
        waited = now - waits.since
        if waited < max(QUIET, 2 * self._said_after):
            return None
        self._said_after = waited
        return waits


class _Said:
    """What was already said of a run, so that each change is one line."""

    def __init__(self) -> None:
        self._moment: Moment | None = None
        self._mishap: Mishap | None = None
        self._problem: str | None = None
        self._saves: set[int] = set()
        self._step = (0, 0)
        self._export = ""
        self._idle = False
        self._report = ""

    def news(self, run: Run) -> list[tuple[float, str]]:
        """Return (epoch seconds, line) of what is new, oldest first."""
        found = sorted(self._changes(run), key=lambda item: item[0])
        if run.is_over and run.report_uri and self._report != run.report_uri:
            self._report = run.report_uri
            found.append((run.closed_at or run.created_at, f"report {run.report_uri}"))
        return found

    def _changes(self, run: Run) -> Iterator[tuple[float, str]]:
        for one in _after(run.history, self._moment):
            self._moment = one
            yield one.at, f"{one.state.value:17}{one.note}".rstrip()
        if (run.progress.attempt, run.progress.step) > self._step:
            self._step = (run.progress.attempt, run.progress.step)
            reward = run.progress.reward
            shown = "" if reward is None else f"  reward {reward:.3f}"
            if reward is None and run.progress.loss is not None:  # sft, dpo: no reward
                shown = f"  loss {run.progress.loss:.4f}"
            yield run.progress.at, f"step {run.progress.step}/{run.plan.max_num_steps}{shown}"
        for save in run.saves:
            if save.step not in self._saves:
                self._saves.add(save.step)
                name = run.plan.layout.folder(save.step)
                yield save.at, f"saved {name}  {size(save.bytes)}  {_took(save.seconds)}"
        idle = run.gpus.newest is not None and run.gpus.newest.idle_seconds >= IDLE_SHOWN
        if idle != self._idle:
            self._idle = idle
            yield run.gpus.at, f"GPUs {gpu_line(run)}"
        for mishap in _after(run.mishaps, self._mishap):
            self._mishap = mishap
            yield mishap.at, f"{mishap.failure.value} {mishap.sentence}"
        export = run.export
        if export is not None and export.verified_at is not None and self._export != export.uri:
            self._export = export.uri
            yield (
                export.verified_at,
                f"exported {run.plan.layout.folder(export.step)} to {export.uri}",
            )
        for problem in _after(run.teardown.problems if run.teardown else [], self._problem):
            self._problem = problem
            yield run.history[-1].at, f"teardown: {problem}"


def _after(items: Sequence[T], said: T | None) -> Sequence[T]:
    """Return what follows the item said last; lists of the record are cut at their old end."""
    if said is None or said not in items:
        return items
    return items[len(items) - list(reversed(items)).index(said) :]
