"""States of the partitions that a subscription reads, where servers tell of news."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol

from ampsq.base.waiting import STEP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampsq.transport.tracked_keys import KeyNews

__all__ = ["FeedStates", "TrackedCore"]

#: Seconds between two looks at a partition whose server tells of news; and where topics may come, of which none tells.
_LOOKS_AT_ALL: Final = 15.0
_LOOKS_FOR_TOPICS: Final = 5.0


class TrackedCore(Protocol):
    """A subscription to one partition, as far as it is known whether it has something."""

    @property
    def is_at_end(self) -> bool:
        """Return whether all that there was is read and handed out, so that only news lets something come."""

    @property
    def log_keys(self) -> list[str]:
        """The Redis keys of the logs that are read."""

    @property
    def may_learn_topics(self) -> bool:
        """Return whether it reads topics that come, too."""

    @property
    def has_end(self) -> bool:
        """Return whether it ends at some time."""


class FeedStates:
    """The partitions that may have something for a subscription, where servers tell of news. One at a time uses it.

    Args:
        feeds: how many there are. At first each may have something.

    Attributes:
        away: those that cannot be read.
    """

    def __init__(self, feeds: int) -> None:
        self.away: set[int] = set()
        self._number = feeds
        self._may_have = set(range(feeds))
        # Those of which their servers tell, and those of which something was handed out since they were looked at.
        self._tracked, self._touched = set[int](), set[int]()
        self._heard: dict[int, int] = {}
        # When each is looked at next without being told of.
        self._next: dict[int, float] = {}

    def may_have(self, number: int) -> bool:
        """Return whether a partition may have something."""
        return number in self._may_have

    def is_tracked(self, number: int) -> bool:
        """Return whether its server tells of news."""
        return number in self._tracked

    def of_those(self, numbers: set[int]) -> set[int]:
        """Return which of some partitions may have something."""
        return numbers & self._may_have

    def touch(self, number: int) -> None:
        """Note that something was handed out."""
        self._touched.add(number)

    def look_at_all(self) -> None:
        """Note that each may have something."""
        self._may_have.update(range(self._number))

    def heard_of(self, number: int) -> int:
        """Return how often a server has told of a partition."""
        return self._heard.get(number, 0)

    def rest(self, number: int, core: TrackedCore, heard: int, *, is_refused: bool) -> None:
        """Note that a partition was read, and had nothing.

        Args:
            number: the partition.
            core: what was read there.
            heard: how often its server had told of it before it was read.
            is_refused: servers tell of no news.
        """
        if not core.is_at_end or self.heard_of(number) != heard:
            # Where its server has told of something meanwhile, or that it tells from now on, it is looked at once more.
            return
        self._may_have.discard(number)
        pause = _LOOKS_FOR_TOPICS if core.may_learn_topics or not core.log_keys else _LOOKS_AT_ALL
        if is_refused or core.has_end or number in self._touched or not self.is_tracked(number):
            # An end is noticed, and what was handled written down; a server that was asked to tell confirms that.
            pause = STEP
        self._touched.discard(number)
        self._next[number] = time.monotonic() + pause

    def hear(self, news: Iterable[KeyNews], now: float) -> bool:
        """Take in what servers tell, and which are to be looked at since time has passed; whether any may have more."""
        changed = False
        for number, what in news:
            self._heard[number] = self.heard_of(number) + 1
            (self._tracked.add if what == "asked" else self._tracked.discard)(number)
            self._may_have.add(number)
            changed = True
        for number in [number for number, at in self._next.items() if at <= now]:
            del self._next[number]
            self._may_have.add(number)
            changed = True
        return changed

    def until_next(self, now: float, most: float) -> float:
        """Return the seconds until one is to be looked at since time has passed, at most so many."""
        return max(min(min(list(self._next.values()), default=now + most) - now, most), 0.0)

    def lose(self, number: int) -> None:
        """Note that a partition cannot be read."""
        self.away.add(number)
        self._tracked.discard(number)

    def find(self, number: int) -> None:
        """Note that it can be read again."""
        self.away.discard(number)
        self._may_have.add(number)
