"""A subscription to topics of all partitions, for threads: one of each, read together.

`ampsq.client.async_partitioned_topic_subscription` is made from this file.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from typing import TYPE_CHECKING, Never, TypeAlias

from ampsq.base.errors import AmpsqError, BookmarkNotFound, Closed, NameInUse, SlowClient
from ampsq.base.waiting import STEP, time_limit
from ampsq.client.partition_rules import not_merged, only_for_one
from ampsq.client.tracked_feeds import feeds_of
from ampsq.topics.subscription import ManagedTopicSubscription, TopicMessage, TopicSubscription

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import timedelta

    from ampsq.topics.rate import RateLimiter
    from ampsq.topics.subscription_core import Handed

    #: What is handed out, and the subscription at its partition.
    _Taken: TypeAlias = tuple[ManagedTopicSubscription, Handed]

__all__ = ["PartitionedTopicSubscription"]

_log = logging.getLogger("ampsq")


class PartitionedTopicSubscription(TopicSubscription):
    """Messages of topics in all partitions: iterate over it, or call `get`.

    Made by `Client.subscribe_topic`. Those of each partition come in their order. Threads may share it: each message
    goes to one of them.

    Args:
        parts: the subscriptions of the partitions.
        pace: of all together; None: as fast as they are taken.
        end: called when it is closed.
    """

    def __init__(
        self,
        parts: Sequence[TopicSubscription],
        pace: RateLimiter | None,
        end: Callable[[PartitionedTopicSubscription], None],
    ) -> None:
        self._parts = [ManagedTopicSubscription.of(each) for each in parts]
        self._pace, self._end = pace, end
        self._feeds = feeds_of(self._parts, "topics", self._parts[0].patience)
        # Whose message a thread was handed last: by asking for another one it says that it was handled.
        self._last: weakref.WeakKeyDictionary[object, ManagedTopicSubscription] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(str(each.core) for each in self._parts)}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            only_for_one(name)

    @property
    def id(self) -> str:
        """Name of the subscription: `sub_id` of a durable one; else those at the partitions, with commas between."""
        return ", ".join(dict.fromkeys(each.core.id for each in self._parts))

    @property
    def origin(self) -> str:
        """Refuse to name one origin: messages have that of their partition."""
        raise not_merged("origin")

    @property
    def position(self) -> str:
        """A bookmark of each partition, with commas between; see `TopicSubscription.position`."""
        return ",".join(each.core.position for each in self._parts)

    @property
    def completed(self) -> bool:
        """Return whether the end of the requested ranges was handed out, of all partitions."""
        return self._feeds.completed

    @property
    def missed(self) -> tuple[str, ...]:
        """The topics of which something that was asked for had been trimmed, in any partition."""
        return tuple(sorted({topic for each in self._parts for topic in each.core.missed}))

    @property
    def is_paused(self) -> bool:
        """Return whether it was told to pause."""
        return all(each.core.is_paused for each in self._parts)

    def pause(self) -> None:
        """Hand out nothing until `resume`; see `TopicSubscription.pause`."""
        for each in self._parts:
            each.core.is_paused = True

    def resume(self) -> None:
        """Hand out again."""
        if self._pace is not None:
            self._pace.forget()
        for each in self._parts:
            each.core.resume()
        self._feeds.look_again()

    def get(self, timeout: timedelta | float | str | None = None) -> TopicMessage | None:
        """Wait for the next message, of whichever partition; see `TopicSubscription.get`.

        While some partitions are away, those of the others come.

        Raises:
            Unavailable: no partition could be read for longer than the client's `retry_timeout`.
        """
        owner = threading.current_thread()
        former = self._last.pop(owner, None)
        if former is not None:
            former.core.asks(owner)
        taken = self._next(owner, time_limit(timeout))
        if taken is None:
            return None
        self._last[owner] = taken[0]
        return taken[0].message(taken[1])

    def _next(self, owner: object, until: float) -> _Taken | None:
        if self._pace is None:
            return self._feeds.get(lambda number: self._take(number, owner), until)
        pace = self._pace
        while True:
            # The earliest that is at hand, so that the pace is that at which they were recorded.
            self._feeds.refill()
            earliest = self._feeds.get(lambda _: self._earliest(), until)
            if earliest is None:
                return None
            now = time.monotonic()
            recorded, number = earliest
            held_back = pace.wait(now, recorded)
            if held_back > 0:
                if now >= until:
                    return None
                time.sleep(min(held_back, max(until - now, 0.0), STEP))
            elif (taken := self._take(number, owner)) is not None:
                _, (entry, _) = taken
                pace.spend(now, recorded, len(entry[2][1]))
                return taken
            if self._feeds.closed:
                raise Closed("this subscription was closed")

    def _take(self, number: int, owner: object) -> _Taken | None:
        managed = self._parts[number]
        handed = managed.core.take(owner)
        return None if handed is None else (managed, handed)

    def _earliest(self) -> tuple[int, int] | None:
        """Return when the earliest message that is at hand was recorded, ms, and the number of its part."""
        found: list[tuple[int, int]] = []
        for number, managed in enumerate(self._parts):
            if managed.is_ready and (recorded := managed.core.next_recorded) is not None:
                found.append((recorded, number))
        return min(found, default=None)

    def __iter__(self) -> Iterator[TopicMessage]:
        for managed, handed in self._handed():
            yield managed.message(handed)
            managed.returned(handed)

    def _handed(self) -> Iterator[_Taken]:
        while not (self._feeds.closed or self.completed):
            try:
                taken = self._next(None, time.monotonic() + STEP)
            except Closed:
                return
            if taken is not None:
                yield taken
        self._feeds.check_process()

    def run(self, on_message: Callable[[TopicMessage], object]) -> None:
        """Call a function with each message, in a thread, until the subscription is closed or completed."""
        threading.Thread(target=self._run, args=(on_message,), name="ampsq-partitions", daemon=True).start()

    def _run(self, on_message: Callable[[TopicMessage], object]) -> None:
        while not (self._feeds.closed or self.completed):
            try:
                for managed, handed in self._handed():
                    managed.call(on_message, handed)
            except BookmarkNotFound:
                _log.exception("%r ends", self)
                return
            except (SlowClient, NameInUse) as error:
                _log.error("%r ends: %s", self, error)
                return
            except AmpsqError as error:
                _log.warning("%r: %s; trying again", self, error)
                time.sleep(STEP)

    def flush(self) -> None:
        """Write down now what was handled, in all partitions."""
        for each in self._parts:
            each.flush()

    def close(self) -> None:
        """End it in all partitions; see `TopicSubscription.close`."""
        if self._feeds.closed:
            return
        failures: list[AmpsqError] = []
        try:
            self._feeds.close()
            for each in self._parts:
                try:
                    each.close()
                except AmpsqError as error:
                    failures.append(error)
        finally:
            self._end(self)
        if failures:
            raise failures[0]
