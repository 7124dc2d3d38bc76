"""Feeds of several partitions, read by a task for each while somebody asks; see `ampsq.client.partition_feeds`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from ampsq.base.errors import NameInUse, SlowClient
from ampsq.base.forks import closed, refuse_in_children, was_inherited
from ampsq.base.waiting import STEP
from ampsq.client.partition_rules import FIRST_PAUSE, PartitionFailures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["LASTING", "AsyncFeed", "AsyncPartitionFeeds", "Taken"]

Taken = TypeVar("Taken")
#: Failures after which a subscription gives nothing more.
LASTING: Final = (NameInUse, SlowClient)
#: Seconds of the first wait for news of a partition; each further one is twice as long, up to a second, so that what is
#: closed soon is closed at once.
_FIRST: Final = 0.1


class AsyncFeed(Protocol):
    """A subscription to one partition, as far as it is read."""

    @property
    def is_ready(self) -> bool:
        """Return whether something can be handed out."""

    @property
    def is_over(self) -> bool:
        """Return whether nothing more comes."""

    async def fill(self, seconds: float) -> None:
        """Read until something can be handed out, for so many seconds at most."""


class AsyncPartitionFeeds:
    """Feeds of all partitions, each read by a task of its own; see `PartitionFeeds`.

    Args:
        feeds: one of each partition.
        name: of the tasks.
        patience: seconds for which all partitions may be away at once, beside those of a call.
    """

    def __init__(self, feeds: Sequence[AsyncFeed], name: str, patience: float = 0.0) -> None:
        self._feeds, self._name = feeds, name
        self._failures = PartitionFailures(len(feeds), patience)
        self._ended: BaseException | None = None
        # Whose feed was looked at last; whoever asks begins there.
        self._current = 0
        # The numbers of those that were asked and have not looked yet; those that read, while they do.
        self._asked = set[int]()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._news, self._waiting = asyncio.Event(), 0
        self.closed, self._process = False, os.getpid()
        refuse_in_children(self)

    def refuse_in_child(self) -> None:
        """Hand out nothing in a process that was forked from the one that subscribed."""
        self.closed = True

    def check_process(self) -> None:
        """Refuse another process than the one that subscribed; raises `Closed`."""
        if was_inherited(self._process):
            raise closed("this subscription", self._process)

    async def get(self, take: Callable[[int], Taken | None], until: float) -> Taken | None:
        """Wait for what a partition has; see `PartitionFeeds.get`. Cancelling it loses nothing."""
        while True:
            self._news.clear()
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
            await self._wait(min(max(until - now, 0.0), STEP) or FIRST_PAUSE)

    def take(self, take: Callable[[int], Taken | None]) -> Taken | None:
        """Take what is at hand, of one partition after the other; one that is empty is read meanwhile."""
        number = self._current
        for _ in self._feeds:
            found = take(number)
            if found is not None:
                self._current = number
                return found
            self._ask(number)
            number = (number + 1) % len(self._feeds)
        return None

    def refill(self) -> None:
        """Have all partitions read that have nothing at hand."""
        for number, feed in enumerate(self._feeds):
            if not feed.is_ready:
                self._ask(number)

    def _askable(self) -> Iterable[int]:
        """Return those to be read, unless they are."""
        return range(len(self._feeds))

    def look_again(self) -> None:
        """Have all partitions read, since what is at hand may be handed out now: here each is asked in any case."""

    @property
    def completed(self) -> bool:
        """Return whether all feeds have ended."""
        return all(each.is_over for each in self._feeds)

    def check(self, now: float) -> None:
        """Raise what ends a call; see `PartitionFeeds.get`."""
        if self._ended is not None:
            raise self._ended
        self._failures.check(now)

    async def _wait(self, seconds: float) -> None:
        self._waiting += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()
        finally:
            self._waiting -= 1

    def _ask(self, number: int) -> None:
        """Have a partition read, unless it is, or has nothing more."""
        if number in self._tasks or self._feeds[number].is_over or self.closed:
            return
        self._asked.add(number)
        self._tasks[number] = asyncio.create_task(self._read(number), name=f"ampsq-{self._name}-{number}")

    async def _read(self, number: int) -> None:
        feed, seconds = self._feeds[number], 0.0
        try:
            while not self.closed:
                await self._fill(number, seconds)
                # It has looked; from here on it waits for news.
                if feed.is_ready or feed.is_over or (seconds and not self._waiting):
                    break
                seconds = min(max(2 * seconds, _FIRST), STEP)
        finally:
            self._tasks.pop(number, None)

    async def _fill(self, number: int, seconds: float) -> None:
        failure: BaseException | None = None
        feed = self._feeds[number]
        try:
            await feed.fill(seconds)
        except Exception as error:  # noqa: BLE001  (whoever asks gets it)
            failure = error
        is_news = number in self._asked or failure is not None or feed.is_ready or feed.is_over
        self._asked.discard(number)
        self._failures.note(number, failure)
        if isinstance(failure, LASTING):
            self._ended = failure
        if is_news:
            self._news.set()
        if failure is not None:
            await asyncio.sleep(STEP if isinstance(failure, LASTING) else FIRST_PAUSE)

    async def close(self) -> None:
        """End reading; the feeds are closed after that."""
        self.closed = True
        self._news.set()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
