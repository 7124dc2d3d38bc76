"""Feeds of many partitions, read by a few tasks at a time: a server tells when one has news; see `tracked_feeds`."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from ampsq.base.waiting import STEP
from ampsq.client.async_partition_feeds import LASTING, AsyncFeed, AsyncPartitionFeeds
from ampsq.client.feed_states import FeedStates
from ampsq.client.partition_rules import FIRST_PAUSE, LONGEST_PAUSE, SEPARATELY
from ampsq.transport.tracked_keys import TrackedKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from ampsq.client.async_partition_feeds import Taken
    from ampsq.client.feed_states import TrackedCore

__all__ = ["AsyncTrackedFeeds", "feeds_of"]

#: Partitions that are read at the same time, at most.
_READERS: Final = 8


class AsyncTrackedFeed(AsyncFeed, Protocol):
    """A subscription to one partition that keeps no connection while nothing comes."""

    @property
    def core(self) -> TrackedCore:
        """The subscription at the partition."""

    async def rest(self) -> None:
        """Give back the connection that `fill` has used."""

    def track(self, tracked: TrackedKeys, number: int) -> None:
        """Ask its server to tell when there is something new, under a number."""


class AsyncTrackedFeeds(AsyncPartitionFeeds):
    """Feeds of all partitions, beyond as many as are read by a connection each; see `TrackedFeeds`."""

    def __init__(self, feeds: Sequence[AsyncTrackedFeed], name: str, patience: float) -> None:
        super().__init__(feeds, name, patience)
        self._tracked_feeds = feeds
        self._states = FeedStates(len(feeds))
        # Those that have something at hand, in their turn.
        self._ready: deque[int] = deque()
        self._keys = TrackedKeys()
        self._few = asyncio.Semaphore(_READERS)
        self._others: list[asyncio.Task[None]] = []
        # Set when a partition is away that was not.
        self._lost = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._keys.fileno(), self._hear)

    def take(self, take: Callable[[int], Taken | None]) -> Taken | None:
        """Take what is at hand, of one partition after the other; one that is empty is read meanwhile."""
        while self._ready:
            number = self._ready[0]
            found = take(number)
            if found is not None:
                self._states.touch(number)
                return found
            self._ready.popleft()
            self._ask(number)
            if self._ready and self._ready[-1] == number:
                return None
        return None

    def refill(self) -> None:
        """Have all partitions read that have nothing at hand and may have something."""
        for number in self._askable():
            self._ask(number)

    def _askable(self) -> Iterable[int]:
        """Return those that may have something."""
        return self._states.of_those(set(range(len(self._feeds))) - self._tasks.keys())

    def look_again(self) -> None:
        """Have all partitions read, since what is at hand may be handed out now."""
        self._states.look_at_all()
        self._news.set()

    def _ask(self, number: int) -> None:
        """Have a partition read that may have something, unless it is, or has nothing more."""
        if number in self._tasks or self.closed or not self._states.may_have(number) or number in self._states.away:
            return
        feed = self._feeds[number]
        if feed.is_ready:
            if number not in self._ready:
                self._ready.append(number)
                self._news.set()
            return
        if feed.is_over:
            return
        if not self._others:
            for work in (self._listen, self._mend):
                self._others.append(asyncio.create_task(work(), name=f"ampsq-{self._name}-{work.__name__}"))
        self._asked.add(number)
        self._tasks[number] = asyncio.create_task(self._look(number), name=f"ampsq-{self._name}-{number}")

    async def _look(self, number: int) -> None:
        """Read a partition once; where it has nothing more, its server is asked to tell when it has."""
        feed, failure = self._tracked_feeds[number], None
        try:
            async with self._few:
                heard = self._states.heard_of(number)
                failure = await self._fill_once(number)
                if failure is None and self._is_to_be_tracked(number):
                    failure = await self._failing(asyncio.to_thread(feed.track, self._keys, number))
        finally:
            self._tasks.pop(number, None)
            self._asked.discard(number)
        self._failures.note(number, failure)
        if isinstance(failure, LASTING):
            self._ended = failure
        if failure is not None:
            # `_mend` looks for it.
            self._states.lose(number)
            self._lost.set()
        elif feed.is_ready:
            if number not in self._ready:
                self._ready.append(number)
        else:
            self._states.rest(number, feed.core, heard, is_refused=self._keys.is_refused)
        self._news.set()

    def _is_to_be_tracked(self, number: int) -> bool:
        if self._states.is_tracked(number) or self._keys.is_refused:
            return False
        core = self._tracked_feeds[number].core
        return core.is_at_end and bool(core.log_keys)

    async def _fill_once(self, number: int) -> BaseException | None:
        feed = self._tracked_feeds[number]
        return await self._failing(feed.fill(0.0)) or await self._failing(feed.rest())

    @staticmethod
    async def _failing(work: Coroutine[object, object, None]) -> BaseException | None:
        """Return what somebody who asks gets, where it fails."""
        try:
            await work
        except Exception as error:  # noqa: BLE001  (whoever asks gets it)
            return error
        return None

    def _hear(self) -> None:
        """Note which partitions have news, and which are to be looked at, as time has passed."""
        if not self.closed and self._states.hear(self._keys.wait(0.0), time.monotonic()):
            self._news.set()

    async def _listen(self) -> None:
        while not self.closed:
            await asyncio.sleep(max(self._states.until_next(time.monotonic(), STEP), FIRST_PAUSE))
            self._hear()

    async def _mend(self) -> None:
        """Look for partitions that are away."""
        pause = FIRST_PAUSE
        while not self.closed:
            if not self._states.away:
                pause = FIRST_PAUSE
                await self._lost.wait()
                self._lost.clear()
                continue
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            for number in list(self._states.away):
                failure = await self._fill_once(number)
                self._failures.note(number, failure)
                if failure is None:
                    self._states.find(number)
                    self._news.set()

    async def close(self) -> None:
        """End reading; the feeds are closed after that."""
        if not self.closed:
            asyncio.get_running_loop().remove_reader(self._keys.fileno())
        await super().close()
        for task in self._others:
            task.cancel()
        await asyncio.gather(*self._others, return_exceptions=True)
        self._keys.close()


def feeds_of(parts: Sequence[AsyncTrackedFeed], name: str, patience: float) -> AsyncPartitionFeeds:
    """Return the feeds of all partitions; see `ampsq.client.tracked_feeds.feeds_of`."""
    return AsyncPartitionFeeds(parts, name) if len(parts) <= SEPARATELY else AsyncTrackedFeeds(parts, name, patience)
