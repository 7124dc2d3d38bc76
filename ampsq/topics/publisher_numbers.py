"""Numbers of named publishers that a subscription has had: one that was sent to two instances is handed out once.

A publisher that fails over sends again what it does not know to be recorded. So one message may be in two logs under
two bookmarks, and only its publisher and its number say that it is one. They come in any order: behind a 5 that the
publisher sent there a 4 may come along a link. So nothing is concluded from the highest number: what is noted is what
was had, as runs of numbers, and what is passed over is in one of them.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ampsq.protocol.limits import PUBLISHER_AGE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampsq.base.log_positions import RunEnd, RunKey
    from ampsq.protocol.entries import PublisherNumber

__all__ = ["HadNumbers"]

#: Runs that are noted; those in which nothing came for longest go first, a part of them at a time.
_MOST_RUNS: Final = 10_000
_AT_ONCE: Final = 1_000


@dataclass(slots=True)
class _Runs:
    """Numbers that were had of one publisher and origin: for each run its first, its last, and when that came."""

    firsts: list[int] = field(default_factory=list)
    lasts: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)

    def time_of(self, number: int) -> int | None:
        """Return when the last message came of the run that has a number; None: it is in no run."""
        place = bisect_right(self.firsts, number) - 1
        return self.times[place] if place >= 0 and number <= self.lasts[place] else None

    def is_next(self, number: int) -> bool:
        """Return whether a number goes on with the last run."""
        return bool(self.lasts) and number == self.lasts[-1] + 1

    def go_on(self, number: int, time: int) -> None:
        """Add the number that goes on with the last run."""
        self.lasts[-1] = number
        self.times[-1] = max(self.times[-1], time)

    def add(self, first: int, last: int, time: int) -> list[int]:
        """Add a run, joined with those that it touches; gives the first numbers of what changed or is gone."""
        low = bisect_right(self.firsts, first) - 1
        if low < 0 or self.lasts[low] + 1 < first:
            low += 1
        high = low
        while high < len(self.firsts) and self.firsts[high] <= last + 1:
            high += 1
        touched = self.firsts[low:high]
        if touched:
            first, last = min(first, touched[0]), max(last, self.lasts[high - 1])
            time = max(time, *self.times[low:high])
        self.firsts[low:high], self.lasts[low:high], self.times[low:high] = [first], [last], [time]
        return touched if touched and touched[0] == first else [first, *touched]

    def remove(self, first: int) -> None:
        place = bisect_right(self.firsts, first) - 1
        del self.firsts[place], self.lasts[place], self.times[place]


class HadNumbers:
    """The numbers received of named publishers. A number forgotten after a long time is handed out if it comes again.

    Args:
        runs: what is known already; runs may overlap.
    """

    def __init__(self, runs: Iterable[tuple[RunKey, RunEnd]] = ()) -> None:
        # By topic and publisher, then by origin.
        self._runs: dict[tuple[str, str], dict[str, _Runs]] = {}
        self._number = 0
        for (topic, publisher, origin, first), (last, time) in runs:
            self._add(topic, publisher, origin, (first, last, time))

    def admit(self, message: PublisherNumber) -> bool:
        """Note a message; False, and nothing is noted, where it was had from another origin.

        One origin records no number twice, so that what comes again from the same one is another message: its publisher
        numbers anew. So it may where nobody heard of it for so long that servers have forgotten it.
        """
        topic, publisher, origin, number, recorded = message
        known = self._runs.get((topic, publisher), {})
        mine = None
        for other, runs in known.items():
            if other == origin:
                mine = runs
            elif (time := runs.time_of(number)) is not None and recorded - time < PUBLISHER_AGE:
                return False
        if mine is not None and mine.is_next(number):
            mine.go_on(number, recorded)
        else:
            self.add(message)
        return True

    def add(self, message: PublisherNumber) -> list[RunKey]:
        """Note a message; gives the keys of the runs that changed or are gone."""
        topic, publisher, origin, number, recorded = message
        mine = self._runs.get((topic, publisher), {}).get(origin)
        if mine is not None and mine.is_next(number):
            mine.go_on(number, recorded)
            return [(topic, publisher, origin, mine.firsts[-1])]
        firsts = self._add(topic, publisher, origin, (number, number, recorded))
        touched: list[RunKey] = [(topic, publisher, origin, first) for first in firsts]
        return touched if self._number <= _MOST_RUNS else touched + self._forget()

    def _add(self, topic: str, publisher: str, origin: str, run: tuple[int, int, int]) -> list[int]:
        runs = self._runs.setdefault((topic, publisher), {}).setdefault(origin, _Runs())
        before = len(runs.firsts)
        touched = runs.add(*run)
        self._number += len(runs.firsts) - before
        return touched

    def _forget(self) -> list[RunKey]:
        """Let go of the runs in which nothing came for longest."""
        oldest = heapq.nsmallest(_AT_ONCE, ((time, key) for key, (_, time) in self.runs.items()))
        gone = [key for _, key in oldest]
        for topic, publisher, origin, first in gone:
            by_origin = self._runs[topic, publisher]
            by_origin[origin].remove(first)
            if not by_origin[origin].firsts:
                del by_origin[origin]
            if not by_origin:
                del self._runs[topic, publisher]
        self._number -= len(gone)
        return gone

    def get(self, key: RunKey) -> RunEnd | None:
        """The end of the run that has this key; None: there is none."""
        topic, publisher, origin, first = key
        runs = self._runs.get((topic, publisher), {}).get(origin, _Runs())
        place = bisect_right(runs.firsts, first) - 1
        if place < 0 or runs.firsts[place] != first:
            return None
        return runs.lasts[place], runs.times[place]

    @property
    def runs(self) -> dict[RunKey, RunEnd]:
        """All of it, as a store keeps it."""
        return {
            (topic, publisher, origin, first): (last, time)
            for (topic, publisher), by_origin in self._runs.items()
            for origin, runs in by_origin.items()
            for first, last, time in zip(runs.firsts, runs.lasts, runs.times, strict=True)
        }
