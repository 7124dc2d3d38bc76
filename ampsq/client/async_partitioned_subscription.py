"""A subscription to a queue of all partitions, for asyncio: one subscription at each, served in turn."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Never

from ampsq.base.errors import AmpsqError, Closed
from ampsq.base.values import Interval
from ampsq.client.partition_rules import SERVED, STEP, PartitionFailures, not_merged, only_for_one
from ampsq.queues.async_subscription import AsyncManagedSubscription, AsyncMessage, AsyncSubscription, handle_each

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from datetime import timedelta
    from types import EllipsisType

__all__ = ["AsyncPartitionedSubscription"]


class AsyncPartitionedSubscription(AsyncSubscription):
    """Messages of all partitions: ``async for`` over it, or await `get`. Made by `AsyncClient.subscribe`.

    Args:
        parts: the subscriptions, one of each partition.
        end: called when it is closed.
    """

    def __init__(self, parts: Sequence[AsyncSubscription], end: Callable[[AsyncPartitionedSubscription], None]) -> None:
        self._subscriptions, self._end = list(parts), end
        self._parts = [AsyncManagedSubscription.of(each) for each in parts]
        self._failures = PartitionFailures(len(parts))
        self._changed = asyncio.Event()
        # Those that are being read, and until when. Whose turn it is, and how many messages it has had in it.
        self._reading: dict[int, asyncio.Task[None]] = {}
        self._ends: dict[int, float] = {}
        self._turn = self._served = 0
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(str(each.core) for each in self._parts)}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            only_for_one(name)

    @property
    def id(self) -> str:
        """The names of the subscriptions at the partitions, with commas between."""
        return ", ".join(each.id for each in self._parts)

    @property
    def max_backlog(self) -> int:
        """The effective backlog: what all partitions give together."""
        return sum(each.max_backlog for each in self._subscriptions)

    @property
    def late(self) -> list[Exception]:
        """Acknowledgements of batches that came too late, at most the last thousand of each partition."""
        return [error for each in self._subscriptions for error in each.late]

    def run(self, on_message: Callable[[AsyncMessage], object]) -> None:
        """Call a function with each message, and await it, in a task, until the subscription is closed."""
        self._task = asyncio.create_task(handle_each(self, on_message), name="ampsq-partitions")

    async def get(self, timeout: timedelta | float | str | None = None) -> AsyncMessage | None:  # noqa: ASYNC109
        """Wait for the next message, of whichever partition; see `Subscription.get`. Cancelling it loses no message."""
        until = None if timeout is None else time.monotonic() + Interval.parse(timeout) / 1000
        while True:
            self._changed.clear()
            now = time.monotonic()
            left = STEP if until is None else max(until - now, 0.0)
            message = self._next(min(left, STEP))
            if message is not None:
                return message
            if self._closed:
                raise Closed("this subscription was closed")
            self._failures.check()
            # Each partition is asked at least once, also where nobody waits.
            if not left and not any(end <= now for end in self._ends.values()):
                return None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left or STEP):
                    await self._changed.wait()

    def _next(self, seconds: float) -> AsyncMessage | None:
        """Take out the next message that is at hand; partitions that have none are read meanwhile."""
        # One more than there are: the first one may have had its share.
        for _ in range(len(self._parts) + 1):
            number = self._turn
            managed = self._parts[number]
            core = managed.core
            if core.inbox.buffer and self._served < SERVED:
                self._served += 1
                parts, body = core.inbox.buffer.popleft()
                return AsyncMessage(parts, body, core.leases, managed)
            if not core.inbox.buffer and number not in self._reading and not self._closed:
                self._ends[number] = time.monotonic() + seconds
                self._reading[number] = asyncio.create_task(self._read(number, seconds), name=f"ampsq-part-{number}")
            self._turn, self._served = (number + 1) % len(self._parts), 0
        return None

    async def _read(self, number: int, seconds: float) -> None:
        failure: Exception | None = None
        try:
            await self._parts[number].fill(seconds)
        except Exception as error:  # noqa: BLE001  (who awaits `get` is told)
            failure = error
        finally:
            del self._reading[number], self._ends[number]
            self._failures.note(number, failure)
            self._changed.set()

    async def __aiter__(self) -> AsyncIterator[AsyncMessage]:
        while True:
            try:
                message = await self.get()
            except Closed:
                return
            if message is not None:
                yield message

    async def flush(self) -> None:
        """Send the acknowledgements collected so far, and wait until they are done."""
        for each in self._subscriptions:
            await each.flush()

    async def replace(
        self,
        *,
        name: str | None = None,  # noqa: ARG002
        max_backlog: int | None = None,  # noqa: ARG002
        filter: str | EllipsisType | None = ...,  # noqa: A002, ARG002
    ) -> None:
        """Refuse to ask for something else: partitions would do so one after the other."""
        raise not_merged("Subscription.replace")

    async def close(self) -> None:
        """End the subscription at all partitions; see `Subscription.close`."""
        if self._closed:
            return
        self._closed = True
        self._changed.set()
        reading = list(self._reading.values())
        for task in reading:
            task.cancel()
        try:
            await asyncio.gather(*reading, return_exceptions=True)
            ended = await asyncio.gather(*(each.close() for each in self._subscriptions), return_exceptions=True)
        finally:
            self._end(self)
        for failure in ended:
            if isinstance(failure, AmpsqError):
                raise failure
