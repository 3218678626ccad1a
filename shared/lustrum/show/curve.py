"""A curve as a few lines of SVG, drawn without a drawing library: a page that is written at each
poll must cost a function nothing. Pure: values in, text out.

The labels stand beside the drawing as text of the page, so that they are readable at any width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

POINTS = 400  # drawn of one line; a screen shows no more
MARKS = 200  # saved steps that are marked

Point = tuple[int, float]


@dataclass(frozen=True)
class Curve:
    """A drawing and the words beside it; ``svg`` is safe markup, the rest is plain text."""

    svg: str
    name: str
    low: str
    high: str
    last_step: int
    caption: str


def thin(points: Sequence[Point], most: int = POINTS) -> list[Point]:
    """Return at most ``most`` points, with the lowest and the highest of each stretch: a spike
    stays visible however long the line is.
    """
    if len(points) <= most:
        return list(points)
    found: list[Point] = []
    stretches = max(most // 2, 1)
    for number in range(stretches):
        part = points[len(points) * number // stretches : len(points) * (number + 1) // stretches]
        low, high = min(part, key=lambda one: one[1]), max(part, key=lambda one: one[1])
        found += sorted({low, high})
    return found


def curve(
    name: str, attempts: Sequence[tuple[int, Sequence[Point]]], saved: Sequence[int], goal: int
) -> Curve | None:
    """Draw a value by step, one line an attempt, with a tick below at each saved step.

    Args:
        name: of the value, in words: ``reward``.
        attempts: (attempt, its (step, value) ascending); what is not finite is left out.
        saved: steps that were saved.
        goal: the last step of the training.

    Returns:
        None when there is no point to draw.
    """
    lines = [
        (attempt, [one for one in points if isfinite(one[1])]) for attempt, points in attempts
    ]
    values = [value for _, points in lines for _, value in points]
    if not values:
        return None
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    last = max([goal, 1, *(step for _, points in lines for step, _ in points)])
    parts = []
    for index, (_, points) in enumerate(lines):
        drawn = thin(points, max(POINTS // len(lines), 2))
        path = " ".join(
            f"{100 * step / last:.2f},{94 - 88 * (value - low) / span:.2f}"
            for step, value in drawn
        )
        if len(drawn) == 1:  # a line needs two ends
            path = f"{path} {path}"
        if path:
            parts.append(
                f'<polyline points="{path}" fill="none" stroke="var(--s{index % 5})" '
                'stroke-width="2" stroke-linecap="round" vector-effect="non-scaling-stroke"/>'
            )
    for step, _ in thin([(step, 0.0) for step in sorted(saved)], MARKS):
        place = f"{100 * step / last:.2f}"
        parts.append(
            f'<line x1="{place}" x2="{place}" y1="96" y2="100" stroke="var(--good)" '
            'stroke-width="2" vector-effect="non-scaling-stroke"/>'
        )
    newest = max(
        ((attempt, step, value) for attempt, points in lines for step, value in points),
    )
    caption = f"{name} {_figure(newest[2])} at step {newest[1]}; it began at {_figure(values[0])}"
    if saved:
        caption += "; a green tick is a saved step"
    alt = f"{name} by step: from {_figure(low)} to {_figure(high)}, newest {_figure(newest[2])}"
    svg = (
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-label="{alt}">'
        f"<title>{alt}</title>{''.join(parts)}</svg>"
    )
    return Curve(svg, name, _figure(low), _figure(high), last, caption)


def _figure(value: float) -> str:
    return f"{value:.3g}"
