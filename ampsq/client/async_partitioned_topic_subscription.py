"""A subscription to topics of all partitions, for asyncio: one of each, read together.

This is `ampsq.client.partitioned_topic_subscription`, awaited.
"""

# Made from client/partitioned_topic_subscription.py by tests/house/test_twins.py --write.

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from typing import TYPE_CHECKING, Never, TypeAlias

from ampsq.base.errors import AmpsqError, BookmarkNotFound, Closed, NameInUse, SlowClient
from ampsq.base.waiting import STEP, time_limit
from ampsq.client.async_tracked_feeds import feeds_of
from ampsq.client.partition_rules import not_merged, only_for_one
from ampsq.topics.async_subscription import AsyncManagedTopicSubscription, AsyncTopicMessage, AsyncTopicSubscription

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from datetime import timedelta

    from ampsq.topics.rate import RateLimiter
    from ampsq.topics.subscription_core import Handed

    #: What is handed out, and the subscription at its partition.
    _Taken: TypeAlias = tuple[AsyncManagedTopicSubscription, Handed]

__all__ = ["AsyncPartitionedTopicSubscription"]

_log = logging.getLogger("ampsq")


class AsyncPartitionedTopicSubscription(AsyncTopicSubscription):
    """Messages of topics in all partitions: iterate over it with ``async for``, or await `get`.

    Made by `AsyncClient.subscribe_topic`. Those of each partition come in their order. Tasks may share it: each message
    goes to one of them.

    Args:
        parts: the subscriptions of the partitions.
        pace: of all together; None: as fast as they are taken.
        end: called when it is closed.
    """

    def __init__(
        self,
        parts: Sequence[AsyncTopicSubscription],
        pace: RateLimiter | None,
        end: Callable[[AsyncPartitionedTopicSubscription], None],
    ) -> None:
        self._parts = [AsyncManagedTopicSubscription.of(each) for each in parts]
        self._pace, self._end = pace, end
        self._feeds = feeds_of(self._parts, "topics", self._parts[0].patience)
        # Whose message a task was handed last: by asking for another one it says that it was handled.
        self._task: asyncio.Task[None] | None = None
        self._last: weakref.WeakKeyDictionary[object, AsyncManagedTopicSubscription] = weakref.WeakKeyDictionary()

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
        """A bookmark of each partition, with commas between; see `AsyncTopicSubscription.position`."""
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
        """Hand out nothing until `resume`; see `AsyncTopicSubscription.pause`."""
        for each in self._parts:
            each.core.is_paused = True

    def resume(self) -> None:
        """Hand out again."""
        if self._pace is not None:
            self._pace.forget()
        for each in self._parts:
            each.core.resume()
        self._feeds.look_again()

    async def get(self, timeout: timedelta | float | str | None = None) -> AsyncTopicMessage | None:  # noqa: ASYNC109
        """Wait for the next message, of whichever partition; see `AsyncTopicSubscription.get`.

        While some partitions are away, those of the others come.

        Raises:
            Unavailable: no partition could be read for longer than the client's `retry_timeout`.
        """
        owner = asyncio.current_task()
        former = self._last.pop(owner, None)
        if former is not None:
            former.core.asks(owner)
        taken = await self._next(owner, time_limit(timeout))
        if taken is None:
            return None
        self._last[owner] = taken[0]
        return taken[0].message(taken[1])

    async def _next(self, owner: object, until: float) -> _Taken | None:
        if self._pace is None:
            return await self._feeds.get(lambda number: self._take(number, owner), until)
        pace = self._pace
        while True:
            # The earliest that is at hand, so that the pace is that at which they were recorded.
            self._feeds.refill()
            earliest = await self._feeds.get(lambda _: self._earliest(), until)
            if earliest is None:
                return None
            now = time.monotonic()
            recorded, number = earliest
            held_back = pace.wait(now, recorded)
            if held_back > 0:
                if now >= until:
                    return None
                await asyncio.sleep(min(held_back, max(until - now, 0.0), STEP))
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

    async def __aiter__(self) -> AsyncIterator[AsyncTopicMessage]:
        async for managed, handed in self._handed():
            yield managed.message(handed)
            managed.returned(handed)

    async def _handed(self) -> AsyncIterator[_Taken]:
        while not (self._feeds.closed or self.completed):
            try:
                taken = await self._next(None, time.monotonic() + STEP)
            except Closed:
                return
            if taken is not None:
                yield taken
        self._feeds.check_process()

    def run(self, on_message: Callable[[AsyncTopicMessage], object]) -> None:
        """Call a function with each message, in a task, until the subscription is closed or completed."""
        self._task = asyncio.create_task(self._run(on_message), name="ampsq-partitions")

    async def _run(self, on_message: Callable[[AsyncTopicMessage], object]) -> None:
        while not (self._feeds.closed or self.completed):
            try:
                async for managed, handed in self._handed():
                    await managed.call(on_message, handed)
            except BookmarkNotFound:
                _log.exception("%r ends", self)
                return
            except (SlowClient, NameInUse) as error:
                _log.error("%r ends: %s", self, error)
                return
            except AmpsqError as error:
                _log.warning("%r: %s; trying again", self, error)
                await asyncio.sleep(STEP)

    async def flush(self) -> None:
        """Write down now what was handled, in all partitions."""
        for each in self._parts:
            await each.flush()

    async def close(self) -> None:
        """End it in all partitions; see `AsyncTopicSubscription.close`."""
        if self._feeds.closed:
            return
        failures: list[AmpsqError] = []
        try:
            await self._feeds.close()
            for each in self._parts:
                try:
                    await each.close()
                except AmpsqError as error:
                    failures.append(error)
        finally:
            self._end(self)
        if failures:
            raise failures[0]
