"""Charts of what a queue's figures were: in, out, depth, oldest message, how long messages took.

Coordinators write the samples of the first four, clients measure the last one.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ampsq.base.formatting import count_text, duration_text
from ampsq.console.queue_list import wait
from ampsq.operations.latencies import percentiles_of
from ampsq.protocol.calls.queue_history import BUCKETS, RANGES
from ampsq.protocol.calls.queue_latencies import Latencies

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ampsq.base.histogram import Histogram
    from ampsq.protocol.calls.queue_history import HistorySample
    from ampsq.protocol.calls.queue_latencies import LatencyBucket

__all__ = ["RANGE_NAMES", "HistoryChart", "LatencyChart", "draw_history", "draw_latencies"]

#: Range -> what people call it.
RANGE_NAMES: Final[Mapping[str, str]] = {"15m": "15 minutes", "6h": "6 hours", "7d": "7 days"}
_WIDTH: Final = 300.0
_HEIGHT: Final = 60.0
#: Buckets without a sample from which on nothing happened in between.
_GAP: Final = 2.5
_PERCENTILES: Final = ("p50", "p95", "p99")
#: Seconds below which nothing is drawn.
_SHORTEST: Final = 0.0001
#: Milliseconds over which a rate is taken at least.
_LEAST: Final = 5_000


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


@dataclass(frozen=True, slots=True)
class LatencyChart:
    """Percentiles over a range of time, on a logarithmic scale.

    Attributes:
        title: what was measured.
        figures: name of each percentile, and what it is over the whole range, for people.
        lines: name of each percentile, and its path as SVG takes it, with gaps where nothing was measured; none where
            nothing is known.
        samples: how many messages were measured.
        bottom, top: what the scale goes from and to, for people.
        label: the same in words.
    """

    title: str
    figures: Mapping[str, str]
    lines: Mapping[str, str]
    samples: int
    bottom: str
    top: str
    label: str


def draw_latencies(buckets: Sequence[LatencyBucket], range_: str, now: int) -> list[LatencyChart]:
    """Draw how long messages took: from publishing to delivery, and from delivery to acknowledgement.

    Args:
        buckets: what was measured, by buckets of time, the earliest first.
        range_: one of `RANGES`.
        now: ms of the server's clock.
    """
    whole = Latencies.merged(bucket.latencies for bucket in buckets)
    delivery = [(each.at, each.latencies.delivery) for each in buckets]
    handling = [(each.at, each.latencies.handling) for each in buckets]
    return [
        _draw_percentiles("Publish to delivery", delivery, whole.delivery, range_, now),
        _draw_percentiles("Delivery to acknowledgement", handling, whole.handling, range_, now),
    ]


def _draw_percentiles(
    title: str, histograms: Sequence[tuple[int, Histogram]], whole: Histogram, range_: str, now: int
) -> LatencyChart:
    over = percentiles_of(whole)
    figures = {name: duration_text(getattr(over, name)) for name in _PERCENTILES}
    where = f"{title} over the last {RANGE_NAMES[range_]}"
    found = [(at, percentiles_of(histogram)) for at, histogram in histograms if histogram.count]
    values = [value for _, each in found for name in _PERCENTILES if (value := getattr(each, name)) is not None]
    if not values:
        return LatencyChart(title, figures, {}, 0, "", "", f"{where}: nothing was measured")
    # Whole decades, so that what is twice as long looks so on each chart.
    low = 10.0 ** math.floor(math.log10(max(min(values), _SHORTEST)))
    high = max(10.0 ** math.ceil(math.log10(max(*values, _SHORTEST))), low * 10)
    lines = {}
    for name in _PERCENTILES:
        points = [(at, getattr(each, name)) for at, each in found]
        lines[name] = _path([(at, value) for at, value in points if value is not None], range_, now, low, high)
    told = ", ".join(f"{name} {text}" for name, text in figures.items())
    label = f"{where}: {told}, by {count_text(over.samples, 'message')} that {_was(over.samples)} measured"
    return LatencyChart(title, figures, lines, over.samples, duration_text(low), duration_text(high), label)


def _was(number: int) -> str:
    return "was" if number == 1 else "were"


def _path(values: Sequence[tuple[int, float]], range_: str, now: int, low: float, high: float) -> str:
    """Draw a line through buckets that follow each other; one between two gaps is as long as its bucket."""
    length = RANGES[range_]
    parts: list[str] = []
    before = -math.inf
    for at, value in values:
        share = math.log10(max(value, low) / low) / math.log10(high / low)
        y = _HEIGHT - 2 - (_HEIGHT - 4) * share
        begin, end = (_WIDTH * (1 - (now - each) / (length * BUCKETS)) for each in (at, at + length))
        step = f"L{max(begin, 0.0):.1f},{y:.1f}" if at - before <= length else f"M{max(begin, 0.0):.1f},{y:.1f}"
        parts.append(f"{step}H{min(max(end, 0.0), _WIDTH):.1f}")
        before = at
    return "".join(parts)


def draw_history(samples: Sequence[HistorySample], range_: str, live: HistorySample) -> list[HistoryChart]:
    """Draw all figures of a queue over a range that ends now.

    While a queue is as it was no sample is written: then nothing came in and nothing left, its depth stayed, and its
    oldest message became older.

    Args:
        samples: those that were written, the earliest first.
        range_: one of `RANGES`.
        live: how the queue is now.
    """
    length, now = RANGES[range_], live.at
    whole = [*samples, live] if samples else []
    # A rate over a moment says little: until that is long enough, the one before counts.
    counted = whole if whole and now - samples[-1].at >= _LEAST else samples
    entered = _rates([(each.at, each.entered) for each in counted], length)
    settled = _rates([(each.at, each.settled) for each in counted], length)
    depth = [(each.at, float(each.depth)) for each in whole]
    oldest = [(each.at, each.oldest / 1000) for each in whole]
    return [
        _draw("In a second", entered, range_, now, "{:,.1f}".format),
        _draw("Out a second", settled, range_, now, "{:,.1f}".format),
        _draw("Depth", depth, range_, now, "{:,.0f}".format),
        _draw("Oldest message", oldest, range_, now, wait),
    ]


def _rates(counts: Sequence[tuple[int, int]], length: int) -> list[tuple[int, float]]:
    """Turn a counter into a rate a second; what is smaller than before began anew."""
    found: list[tuple[int, float]] = []
    for (before, earlier), (at, count) in itertools.pairwise(counts):
        gap = at - before
        if gap > _GAP * length:
            found += [(before + 1, 0.0), (at - length, 0.0)]
            gap = length
        found.append((at, max(count - earlier, 0) * 1000 / max(gap, 1)))
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
