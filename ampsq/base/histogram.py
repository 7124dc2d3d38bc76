"""Histograms of lengths of time: counts in intervals that are the same everywhere, so that they can be added."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

__all__ = ["BOUNDS", "Histogram"]

#: Seconds up to which each interval goes, its end included; one more has all that is longer.
BOUNDS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
    1800.0, 3600.0,
)  # fmt: skip


@dataclass(slots=True)
class Histogram:
    """Number of lengths of time in each interval, and their sum.

    Attributes:
        counts: of the intervals of `BOUNDS`, then of what is longer than all of them.
        sum: seconds.
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    sum: float = 0.0

    @property
    def count(self) -> int:
        """Number of lengths of time in it."""
        return sum(self.counts)

    def add(self, seconds: float) -> None:
        """Count one more."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    def merge(self, other: Histogram) -> None:
        """Count all that another one has."""
        self.counts = [ours + theirs for ours, theirs in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    def quantile(self, share: float) -> float | None:
        """Return the seconds within which a share of all lies; None where there is nothing.

        Inside an interval it is interpolated, as Prometheus's ``histogram_quantile`` does it; where the share lies
        behind the last bound, that bound is the answer: it is longer than that.

        Args:
            share: from 0 to 1, as 0.95.
        """
        rank = share * self.count
        if not any(self.counts):
            return None
        for number, (count, up_to) in enumerate(zip(self.counts, accumulate(self.counts), strict=True)):
            if number == len(BOUNDS):
                break
            if count and up_to >= rank:
                begin = BOUNDS[number - 1] if number else 0.0
                return begin + (BOUNDS[number] - begin) * max(rank - (up_to - count), 0.0) / count
        return BOUNDS[-1]

    def text(self) -> str:
        """Write it as it is stored: the sum in microseconds, then an interval and its count, in turn."""
        counted = (f"{number} {count}" for number, count in enumerate(self.counts) if count)
        return " ".join([str(round(self.sum * 1e6)), *counted])

    @classmethod
    def parse(cls, text: str) -> Histogram:
        """Read it as it is stored."""
        total, *rest = map(int, text.split())
        found = cls(sum=total / 1e6)
        for number, count in zip(rest[::2], rest[1::2], strict=True):
            found.counts[min(number, len(BOUNDS))] += count
        return found
