"""Small charts as SVG, drawn here: no script runs in the browser for them. Colours are the style sheet's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.console.observer import FigureSample

__all__ = ["Spark", "draw_sparkline", "rates"]

#: Seconds over which a rate is taken.
_OVER: Final = 10.0
_WIDTH: Final = 100.0
_HEIGHT: Final = 28.0
_SPAN: Final = 90


@dataclass(frozen=True, slots=True)
class Spark:
    """A line through what a figure was.

    Attributes:
        points: of the line, as SVG takes them; "" where there is nothing to draw.
        area: the same with what is below it.
        label: the same in words.
    """

    points: str
    area: str
    label: str


def rates(moments: Sequence[FigureSample]) -> tuple[float, float] | None:
    """Messages a second that came in and that left, over the last ten seconds; None while that is not known."""
    if len(moments) < 2:  # noqa: PLR2004
        return None
    last = moments[-1]
    first = next((each for each in moments[:-1] if each.at >= last.at - _OVER), moments[-2])
    seconds = max(last.at - first.at, 0.001)
    return max(last.entered - first.entered, 0) / seconds, max(last.settled - first.settled, 0) / seconds


def draw_sparkline(values: Sequence[tuple[float, float]], what: str) -> Spark:
    """Draw a figure over time.

    Args:
        values: time in seconds and figure, the earliest first.
        what: the figure's name.
    """
    if len(values) < 2:  # noqa: PLR2004
        return Spark("", "", f"{what}: not known yet")
    begin, end = values[0][0], values[-1][0]
    most = max(1.0, *(value for _, value in values))
    length = max(end - begin, 0.001)
    points = [
        (_WIDTH * (at - begin) / length, _HEIGHT - 2 - (_HEIGHT - 4) * value / most) for at, value in values[-_SPAN:]
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    area = f"{points[0][0]:.1f},{_HEIGHT:.0f} {line} {points[-1][0]:.1f},{_HEIGHT:.0f}"
    label = f"{what} over {length:.0f} seconds: from {values[0][1]:.0f} to {values[-1][1]:.0f}, at most {most:.0f}"
    return Spark(line, area, label)
