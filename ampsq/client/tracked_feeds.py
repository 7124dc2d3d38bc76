"""Feeds of many partitions, read by a few threads: a server tells when one has news, on one connection to each."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from ampsq.base.waiting import STEP
from ampsq.client.feed_states import FeedStates
from ampsq.client.partition_feeds import LASTING, Feed, PartitionFeeds
from ampsq.client.partition_rules import FIRST_PAUSE, LONGEST_PAUSE, SEPARATELY
from ampsq.transport.tracked_keys import TrackedKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ampsq.client.feed_states import TrackedCore
    from ampsq.client.partition_feeds import Taken

__all__ = ["TrackedFeeds", "feeds_of"]

_log = logging.getLogger("ampsq")
#: Threads that read, at most: as many calls are on their way at once.
_READERS: Final = 8


class TrackedFeed(Feed, Protocol):
    """A subscription to one partition that keeps no connection while nothing comes."""

    @property
    def core(self) -> TrackedCore:
        """The subscription at the partition."""

    def rest(self) -> None:
        """Give back the connection that `fill` has used."""

    def track(self, tracked: TrackedKeys, number: int) -> None:
        """Ask its server to tell when there is something new, under a number."""


class TrackedFeeds(PartitionFeeds):
    """Feeds of all partitions, beyond as many as are read by a thread and a connection each; see `PartitionFeeds`.

    Args:
        feeds: one of each partition.
        name: of the threads.
        patience: seconds for which all partitions may be away at once.
    """

    def __init__(self, feeds: Sequence[TrackedFeed], name: str, patience: float) -> None:
        super().__init__(feeds, name, patience)
        self._tracked_feeds = feeds
        self._states = FeedStates(len(feeds))
        # Those that have something at hand, in their turn.
        self._ready: deque[int] = deque()
        self._to_read: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._keys = TrackedKeys()
        # Set when a partition is away that was not.
        self._lost = threading.Event()
        self._readers: list[threading.Thread] = []
        self._others: list[threading.Thread] = []

    def take(self, take: Callable[[int], Taken | None]) -> Taken | None:
        """Take what is at hand, of one partition after the other; one that is empty is read meanwhile."""
        for _ in range(len(self._ready)):
            try:
                number = self._ready[0]
            except IndexError:
                # Another thread took the last one.
                return None
            found = take(number)
            if found is not None:
                self._states.touch(number)
                return found
            with self._news:
                if self._ready and self._ready[0] == number:
                    self._ready.popleft()
            self._ask(number)
        return None

    def refill(self) -> None:
        """Have all partitions read that have nothing at hand and may have something."""
        for number in self._askable():
            self._ask(number)

    def _askable(self) -> Iterable[int]:
        """Return those that are not being read and may have something."""
        return self._states.of_those(self._idle)

    def look_again(self) -> None:
        """Have all partitions read, since what is at hand may be handed out now."""
        with self._news:
            self._states.look_at_all()
            self._change += 1
            self._news.notify_all()

    def _ask(self, number: int) -> None:
        """Have a partition read that may have something, unless it is, or has nothing more."""
        with self._news:
            if number not in self._idle or self.closed or not self._states.may_have(number):
                return
            feed = self._feeds[number]
            if feed.is_ready:
                if number not in self._ready:
                    self._ready.append(number)
                    self._change += 1
                return
            if feed.is_over:
                return
            self._idle.discard(number)
            self._asked.add(number)
            if len(self._readers) < _READERS:
                self._begin(self._readers, self._work)
            if not self._others:
                self._begin(self._others, self._listen)
                self._begin(self._others, self._mend)
        self._to_read.put(number)

    def _begin(self, threads: list[threading.Thread], work: Callable[[], None]) -> None:
        name = f"ampsq-{self._name}-{work.__name__.strip('_')}-{len(threads)}"
        threads.append(threading.Thread(target=work, name=name, daemon=True))
        threads[-1].start()

    def _work(self) -> None:
        """Read the partitions that are to be read."""
        while (number := self._to_read.get()) is not None and not self.closed:
            self._look(number)

    def _look(self, number: int) -> None:
        """Read a partition once; where it has nothing more, its server is asked to tell when it has."""
        feed, heard = self._tracked_feeds[number], self._states.heard_of(number)
        failure: BaseException | None = None
        try:
            feed.fill(0.0)
            feed.rest()
            if self._is_to_be_tracked(number):
                feed.track(self._keys, number)
        except Exception as error:  # noqa: BLE001  (whoever asks gets it)
            failure = error
        with self._news:
            self._asked.discard(number)
            if self.closed:
                return
            self._failures.note(number, failure)
            if isinstance(failure, LASTING):
                self._ended = failure
            if failure is not None:
                # `_mend` looks for it.
                self._states.lose(number)
                self._lost.set()
            else:
                self._idle.add(number)
                is_ready = feed.is_ready
                if is_ready and number not in self._ready:
                    self._ready.append(number)
                if not is_ready:
                    self._states.rest(number, feed.core, heard, is_refused=self._keys.is_refused)
            self._change += 1
            self._news.notify_all()

    def _is_to_be_tracked(self, number: int) -> bool:
        if self._states.is_tracked(number) or self._keys.is_refused:
            return False
        core = self._tracked_feeds[number].core
        return core.is_at_end and bool(core.log_keys)

    def _listen(self) -> None:
        """Note which partitions have news, and which are to be looked at, as time has passed."""
        while not self.closed:
            try:
                news = self._keys.wait(self._states.until_next(time.monotonic(), STEP))
            except Exception:  # noqa: BLE001  (without this thread nothing comes)
                if not self.closed:
                    _log.exception("news of partitions failed; trying again")
                    time.sleep(STEP)
                continue
            with self._news:
                if self._states.hear(news, time.monotonic()):
                    self._change += 1
                    self._news.notify_all()

    def _mend(self) -> None:
        """Look for partitions that are away."""
        pause = FIRST_PAUSE
        while not self.closed:
            if not self._states.away:
                pause = FIRST_PAUSE
                self._lost.wait(STEP)
                self._lost.clear()
                continue
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            for number in list(self._states.away):
                if not self.closed:
                    self._look_for(number)

    def _look_for(self, number: int) -> None:
        """Read a partition that was away; others are read meanwhile."""
        failure: BaseException | None = None
        try:
            self._tracked_feeds[number].fill(0.0)
            self._tracked_feeds[number].rest()
        except Exception as error:  # noqa: BLE001  (whoever asks gets it)
            failure = error
        with self._news:
            if self.closed:
                return
            self._failures.note(number, failure)
            if failure is None:
                self._states.find(number)
                self._idle.add(number)
                self._change += 1
                self._news.notify_all()

    def close(self) -> None:
        """End reading; the feeds are closed after that."""
        super().close()
        for _ in self._readers:
            self._to_read.put(None)
        self._lost.set()
        self._keys.wake()
        # It must not wait for what is closed.
        for each in self._others[:1]:
            each.join(2 * STEP)
        self._keys.close()


def feeds_of(parts: Sequence[TrackedFeed], name: str, patience: float) -> PartitionFeeds:
    """Return the feeds of all partitions, each read by a connection of its own where these are not too many.

    Args:
        parts: the subscriptions of the partitions.
        name: of the threads.
        patience: seconds for which all partitions may be away at once.
    """
    return PartitionFeeds(parts, name) if len(parts) <= SEPARATELY else TrackedFeeds(parts, name, patience)
