"""Plots of the run report as inline SVG. Pure: values in, text out.

Drawn by matplotlib's object API (no pyplot, no global state beyond one guarded context), then
made part of the page: colours become the page's own variables so that light and dark both fit,
text stays text in the page's font, ids are made unique, and metadata with foreign addresses goes.
matplotlib is imported when the first plot is drawn: it is a large part of a second.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from lustrum.show.formatting import duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colour drawn -> what stands in the page. The drawn ones occur nowhere else.
INK, FAINT, GRID, PAGE = "#010203", "#010204", "#010205", "#010206"
GOOD, WARN, BAD, CALM = "#010207", "#010208", "#010209", "#01020a"
SERIES = ("#01020b", "#01020c", "#01020d", "#01020e", "#01020f")
_VARIABLES: Mapping[str, str] = {
    INK: "var(--ink)",
    FAINT: "var(--faint)",
    GRID: "var(--grid)",
    PAGE: "var(--card)",
    GOOD: "var(--good)",
    WARN: "var(--warn)",
    BAD: "var(--bad)",
    CALM: "var(--calm)",
    **{colour: f"var(--s{number})" for number, colour in enumerate(SERIES)},
}
WIDTH = 9.0  # inches; the page scales it
_LOCK = Lock()  # rc_context is process-wide


def timeline(
    phases: Sequence[tuple[str, float, float, str]], marks: Sequence[tuple[float, str]]
) -> str:
    """Draw phases as bars over the time since the first began.

    Args:
        phases: (name, since, until, colour) in order, epoch seconds.
        marks: (when, name) of mishaps.
    """
    begin = phases[0][1]
    whole = max(max(until for _, _, until, _ in phases) - begin, 1e-9)
    names = list(dict.fromkeys(name for name, *_ in phases))
    unit, factor = _time_unit(whole)

    def draw(axes: Axes) -> None:
        for row, name in enumerate(names):
            spans = [
                ((since - begin) / factor, max(until - since, whole * 0.002) / factor)
                for one, since, until, _ in phases
                if one == name
            ]
            colour = next(colour for one, _, _, colour in phases if one == name)
            axes.broken_barh(spans, (row - 0.31, 0.62), facecolors=colour, linewidth=0)
            begins = min(since for one, since, _, _ in phases if one == name) - begin
            ends = max(until for one, _, until, _ in phases if one == name) - begin
            total = sum(until - since for one, since, until, _ in phases if one == name)
            # Beside the bars where there is room, else inside the one that fills the row.
            place, side, colour = ends, 5, FAINT
            if ends > whole * 0.82:
                place, side = (begins, -5) if begins > whole * 0.15 else (ends, -5)
                colour = FAINT if begins > whole * 0.15 else PAGE
            axes.annotate(
                duration(total),
                (place / factor, row),
                xytext=(side, 0),
                textcoords="offset points",
                va="center",
                ha="left" if side > 0 else "right",
                color=colour,
                fontsize=9,
            )
        for at, _ in marks:
            axes.axvline((at - begin) / factor, color=BAD, linewidth=1, linestyle=(0, (3, 3)))
        axes.set_yticks(range(len(names)), [name.replace("_", " ").lower() for name in names])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(0, whole / factor * 1.02)
        axes.set_xlabel(f"{unit} since the request")
        axes.grid(axis="x", color=GRID, linewidth=0.8)

    return _svg("phases", draw, 0.34 * len(names) + 0.75)


def reward(
    attempts: Sequence[tuple[int, Sequence[tuple[int, float]]]],
    saved: Sequence[int],
    goal: int,
) -> str:
    """Draw reward by step, one line an attempt, with a mark at every saved step.

    Args:
        attempts: (attempt, its (step, reward) ascending).
        saved: steps that were saved.
        goal: the last step of the training.
    """
    from matplotlib.ticker import MaxNLocator

    def draw(axes: Axes) -> None:
        for index, (attempt, points) in enumerate(attempts):
            axes.plot(
                [step for step, _ in points],
                [value for _, value in points],
                color=SERIES[index % len(SERIES)],
                linewidth=2,
                marker="o",
                markersize=4 if len(points) < 60 else 0,
                markeredgewidth=0,
                label=f"attempt {attempt}",
                zorder=3 + index,
            )
        if saved:
            axes.plot(
                list(saved),
                [0.02] * len(saved),
                linestyle="none",
                marker="^",
                markersize=6,
                color=FAINT,
                markeredgewidth=0,
                transform=axes.get_xaxis_transform(),
                label="saved",
                clip_on=False,
                zorder=9,
            )
        axes.set_xlim(0, max(goal, 1) * 1.02)
        axes.set_xlabel("step")
        axes.set_ylabel("reward")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(color=GRID, linewidth=0.8)
        if len(attempts) > 1 or saved:
            axes.legend(
                loc="lower right",
                bbox_to_anchor=(1, 1),
                ncols=6,
                frameon=False,
                labelcolor=INK,
                fontsize=9,
                borderaxespad=0.2,
                handlelength=1.4,
            )

    return _svg("reward", draw, 2.9)


def saves(points: Sequence[tuple[int, float, bool]]) -> str:
    """Draw the seconds each save took, (step, seconds, exported) ascending."""

    def draw(axes: Axes) -> None:
        places = range(len(points))
        axes.bar(
            places,
            [seconds for _, seconds, _ in points],
            width=0.62,
            linewidth=0,
            color=[GOOD if exported else CALM for _, _, exported in points],
        )
        every = max(1, len(points) // 24)
        axes.set_xticks(places[::every], [str(step) for step, _, _ in points][::every])
        axes.set_xlim(-0.7, max(len(points), 8) - 0.3)
        axes.set_xlabel("saved step")
        axes.set_ylabel("seconds")
        axes.grid(axis="y", color=GRID, linewidth=0.8)

    return _svg("saves", draw, 1.9)


def _svg(name: str, draw: Callable[[Axes], None], height: float) -> str:
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    plain: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "text.parse_math": False,
        "font.size": 10,
        "text.color": INK,
        "axes.labelcolor": FAINT,
        "axes.edgecolor": GRID,
        "xtick.color": GRID,
        "ytick.color": GRID,
        "xtick.labelcolor": FAINT,
        "ytick.labelcolor": INK,
        "axes.unicode_minus": True,
        "axes.labelsize": 9,
        "xtick.labelsize": 9,
        "ytick.labelsize": 9,
        "axes.axisbelow": True,
    }
    out = io.StringIO()
    with _LOCK, rc_context(plain):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.tick_params(length=0)
        axes.patch.set_visible(False)
        figure.patch.set_visible(False)
        draw(axes)
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return _for_page(out.getvalue(), name)


def _for_page(text: str, name: str) -> str:
    svg = text[text.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    # "font: 9px 'DejaVu Sans', ..." -> the page's font; the width was measured with a wider one
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    return re.sub("|".join(_VARIABLES), lambda found: _VARIABLES[found.group(0)], svg).strip()


def _time_unit(seconds: float) -> tuple[str, float]:
    if seconds < 180:
        return "seconds", 1.0
    if seconds < 3 * 3600:
        return "minutes", 60.0
    return "hours", 3600.0
