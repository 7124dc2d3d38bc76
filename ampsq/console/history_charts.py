"""Charts of what a queue's figures were, from the samples that coordinators write: in, out, depth, oldest message."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ampsq.console.queue_list import wait
from ampsq.protocol.calls.queue_history import BUCKETS, RANGES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ampsq.protocol.calls.queue_history import HistorySample

__all__ = ["RANGE_NAMES", "HistoryChart", "draw_history"]

#: Range -> what people call it.
RANGE_NAMES: Final[Mapping[str, str]] = {"15m": "15 minutes", "6h": "6 hours", "7d": "7 days"}
_WIDTH: Final = 300.0
_HEIGHT: Final = 60.0
#: Buckets without a sample from which on nothing happened in between.
_GAP: Final = 2.5


@dataclass(frozen=True, slots=True)
class HistoryChart:
    """One figure over a range of time.

    Attributes:
        title: the figure's name.
        points: of the line, as SVG takes them; "" where nothing is known.
        area: the same with what is below it.
        last: the figure now, for people.
        most: the largest one, for people.
        label: the same in words.
    """

    title: str
    points: str
    area: str
    last: str
    most: str
    label: str


def draw_history(samples: Sequence[HistorySample], range_: str, now: int) -> list[HistoryChart]:
    """Draw all figures of a queue over a range that ends now.

    While a queue is as it was no sample is written: then nothing came in and nothing left, its depth stayed, and its
    oldest message became older.

    Args:
        samples: the earliest first.
        range_: one of `RANGES`.
        now: ms of the server's clock.
    """
    length = RANGES[range_]
    entered = _rates([(each.at, each.entered) for each in samples], length, now)
    settled = _rates([(each.at, each.settled) for each in samples], length, now)
    depth = [(each.at, float(each.depth)) for each in samples]
    oldest = [(each.at, each.oldest / 1000) for each in samples]
    if samples:
        last = samples[-1]
        depth.append((now, float(last.depth)))
        oldest.append((now, (last.oldest + now - last.at) / 1000 if last.depth else 0.0))
    return [
        _draw("In a second", entered, range_, now, "{:,.1f}".format),
        _draw("Out a second", settled, range_, now, "{:,.1f}".format),
        _draw("Depth", depth, range_, now, "{:,.0f}".format),
        _draw("Oldest message", oldest, range_, now, wait),
    ]


def _rates(counts: Sequence[tuple[int, int]], length: int, now: int) -> list[tuple[int, float]]:
    """Turn a counter into a rate a second; what is smaller than before began anew."""
    found: list[tuple[int, float]] = []
    for (before, earlier), (at, count) in itertools.pairwise(counts):
        gap = at - before
        if gap > _GAP * length:
            found += [(before + 1, 0.0), (at - length, 0.0)]
            gap = length
        found.append((at, max(count - earlier, 0) * 1000 / max(gap, 1)))
    if found and now - counts[-1][0] > _GAP * length:
        found += [(counts[-1][0] + length, 0.0), (now, 0.0)]
    return found


def _draw(
    title: str, values: Sequence[tuple[int, float]], range_: str, now: int, text: Callable[[float], str]
) -> HistoryChart:
    if len(values) < 2:  # noqa: PLR2004
        return HistoryChart(title, "", "", "–", "–", f"{title}: not known yet")  # noqa: RUF001  (a dash, as it is set)
    whole = RANGES[range_] * BUCKETS
    most = max(value for _, value in values)
    scale = (_HEIGHT - 4) / (most or 1.0)
    points = [
        (max(_WIDTH * (1 - (now - at) / whole), 0.0), _HEIGHT - 2 - scale * value) for at, value in values if at <= now
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    area = f"{points[0][0]:.1f},{_HEIGHT:.0f} {line} {points[-1][0]:.1f},{_HEIGHT:.0f}"
    last = text(values[-1][1])
    label = f"{title} over the last {RANGE_NAMES[range_]}: {last} now, at most {text(most)}"
    return HistoryChart(title, line, area, last, text(most), label)
