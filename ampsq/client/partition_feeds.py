"""Feeds of several partitions, read by a thread for each while somebody asks."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from ampsq.base.errors import NameInUse, SlowClient
from ampsq.base.forks import closed, refuse_in_children, was_inherited
from ampsq.base.waiting import STEP
from ampsq.client.partition_rules import FIRST_PAUSE, PartitionFailures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["LASTING", "Feed", "PartitionFeeds", "Taken"]

Taken = TypeVar("Taken")
#: Failures after which a subscription gives nothing more.
LASTING: Final = (NameInUse, SlowClient)
#: Seconds of the first wait for news of a partition; each further one is twice as long, up to a second, so that what is
#: closed soon is closed at once.
_FIRST: Final = 0.1


class Feed(Protocol):
    """A subscription to one partition, as far as it is read."""

    @property
    def is_ready(self) -> bool:
        """Return whether something can be handed out."""

    @property
    def is_over(self) -> bool:
        """Return whether nothing more comes."""

    def fill(self, seconds: float) -> None:
        """Read until something can be handed out, for so many seconds at most."""


class PartitionFeeds:
    """Feeds of all partitions. Each is read by a thread of its own, so that one that is away holds up no other.

    A thread reads when somebody asks and nothing is at hand, until there is something; it waits for that up to a second
    longer than anybody asks. Threads may share it.

    Args:
        feeds: one of each partition.
        name: of the threads.
        patience: seconds for which all partitions may be away at once, beside those of a call.
    """

    def __init__(self, feeds: Sequence[Feed], name: str, patience: float = 0.0) -> None:
        self._feeds, self._name = feeds, name
        self._failures = PartitionFailures(len(feeds), patience)
        self._ended: BaseException | None = None
        # Whose feed was looked at last; whoever asks begins there.
        self._current = 0
        # The numbers of those that are not being read, and of those that were asked and have not looked yet.
        self._idle, self._asked = set(range(len(feeds))), set[int]()
        self._wakes = [threading.Event() for _ in feeds]
        self._threads: dict[int, threading.Thread] = {}
        # Each change of what is at hand has a number, so that nobody who waits misses one.
        self._news, self._change, self._waiting = threading.Condition(), 0, 0
        self.closed, self._process = False, os.getpid()
        refuse_in_children(self)

    def refuse_in_child(self) -> None:
        """Hand out nothing in a process that was forked from the one that subscribed."""
        self.closed = True
        # A thread that is not in this process may have had it.
        self._news = threading.Condition()

    def check_process(self) -> None:
        """Refuse another process than the one that subscribed; raises `Closed`."""
        if was_inherited(self._process):
            raise closed("this subscription", self._process)

    def get(self, take: Callable[[int], Taken | None], until: float) -> Taken | None:
        """Wait for what a partition has; None when the time is over, or all of them have ended.

        Args:
            take: takes the next that a partition has at hand, by the number of its feed.
            until: when the time is over, by the monotonic clock.

        Raises:
            Closed: it was closed. Unavailable: no partition can be read. AmpsqError: as of reading one of them.
        """
        while True:
            change = self._change
            found = self.take(take)
            if found is not None:
                return found
            if self.closed:
                raise closed("this subscription", self._process)
            now = time.monotonic()
            self.check(now)
            # Each partition is looked at, also by who does not wait; one that is away holds nobody up for long.
            if self.completed or (now >= until and (not self._asked or now >= until + STEP)):
                return None
            for number in self._askable():
                self._ask(number)
            self._wait(change, min(max(until - now, 0.0), STEP) or FIRST_PAUSE)

    def take(self, take: Callable[[int], Taken | None]) -> Taken | None:
        """Take what is at hand, of one partition after the other; one that is empty is read meanwhile."""
        number = self._current
        for _ in self._feeds:
            found = take(number)
            if found is not None:
                self._current = number
                return found
            if number in self._idle:
                self._ask(number)
            number = (number + 1) % len(self._feeds)
        return None

    def refill(self) -> None:
        """Have all partitions read that have nothing at hand."""
        for number, feed in enumerate(self._feeds):
            if number in self._idle and not feed.is_ready:
                self._ask(number)

    def _askable(self) -> Iterable[int]:
        """Return those that are not being read."""
        return list(self._idle)

    def look_again(self) -> None:
        """Have all partitions read, since what is at hand may be handed out now: here each is asked in any case."""

    @property
    def completed(self) -> bool:
        """Return whether all feeds have ended."""
        return all(each.is_over for each in self._feeds)

    def check(self, now: float) -> None:
        """Raise what ends a call; see `get`."""
        if self._ended is not None:
            raise self._ended
        self._failures.check(now)

    def _wait(self, change: int, seconds: float) -> None:
        with self._news:
            self._waiting += 1
            try:
                if self._change == change and not self.closed:
                    self._news.wait(seconds)
            finally:
                self._waiting -= 1

    def _ask(self, number: int) -> None:
        """Have a partition read, unless it is, or has nothing more."""
        with self._news:
            if number not in self._idle or self._feeds[number].is_over or self.closed:
                return
            self._idle.discard(number)
            self._asked.add(number)
            if number not in self._threads:
                name = f"ampsq-{self._name}-{number}"
                self._threads[number] = threading.Thread(target=self._read, args=(number,), name=name, daemon=True)
                self._threads[number].start()
        self._wakes[number].set()

    def _read(self, number: int) -> None:
        feed, wake = self._feeds[number], self._wakes[number]
        while True:
            wake.wait()
            wake.clear()
            seconds = 0.0
            while not self.closed:
                self._fill(number, seconds)
                # It has looked; from here on it waits for news.
                if feed.is_ready or feed.is_over or (seconds and not self._waiting):
                    break
                seconds = min(max(2 * seconds, _FIRST), STEP)
            with self._news:
                self._idle.add(number)
                if self.closed:
                    return

    def _fill(self, number: int, seconds: float) -> None:
        failure: BaseException | None = None
        try:
            self._feeds[number].fill(seconds)
        except Exception as error:  # noqa: BLE001  (whoever asks gets it)
            failure = error
        feed = self._feeds[number]
        with self._news:
            is_news = number in self._asked or failure is not None or feed.is_ready or feed.is_over
            self._asked.discard(number)
            if not self.closed:
                self._failures.note(number, failure)
            if isinstance(failure, LASTING):
                self._ended = failure
            if is_news:
                self._change += 1
                self._news.notify_all()
        if failure is not None and not self.closed:
            time.sleep(STEP if isinstance(failure, LASTING) else FIRST_PAUSE)

    def close(self) -> None:
        """End reading; the feeds are closed after that. Threads that wait end within a second."""
        with self._news:
            self.closed = True
            self._news.notify_all()
        for wake in self._wakes:
            wake.set()
