"""Subscriptions to the records of a topic: iterate over one with ``async for``, or await `get`.

`AsyncRecordSubscription` is what an application has in hand. It works on `AsyncManagedRecordSubscription`, which has
what the client needs besides, to go on at another instance.
"""

# Made from records/subscription.py by tests/house/test_twins.py --write.

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, Self

from ampsq.base.errors import AmpsqError, Closed, Unavailable
from ampsq.base.waiting import MOVING, STEP, acquire, time_limit, wait_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from datetime import timedelta

    from ampsq.protocol.context import InstanceContext
    from ampsq.queues.query import QueryResult
    from ampsq.records.change import RecordChange
    from ampsq.records.follow import RecordSubscriptionCore
    from ampsq.transport.async_pipeline import AsyncPipeline
    from ampsq.transport.async_store import AsyncStore
    from ampsq.transport.tracked_keys import TrackedKeys

__all__ = ["AsyncManagedRecordSubscription", "AsyncRecordSubscription"]


class AsyncManagedRecordSubscription:
    """One subscription to records with what moves it; `AsyncRecordSubscription` is what an application sees of it.

    Args:
        core: the subscription as its client knows it.
        store: runs its flows.
        end: called when it is closed.

    Attributes:
        core: as it was given.
        pipeline: what it reads with; another one at another instance.
        closed: whether it was closed.
    """

    def __init__(
        self, core: RecordSubscriptionCore, store: AsyncStore, end: Callable[[AsyncManagedRecordSubscription], None]
    ) -> None:
        self.core, self._store, self._end = core, store, end
        # What `fill` reads with.
        self._reading = store
        self.pipeline = store.pipeline()
        self.closed = False
        # Whoever reads has it.
        self._lock = asyncio.Lock()
        # Between leaving an instance and going on at another one.
        self._is_moving = False

    def __repr__(self) -> str:
        return f"<AsyncRecordSubscription to {self.core.topic!r}>"

    async def find(self) -> QueryResult:
        """Begin: query the records; `core.give` says which of them are handed out."""
        try:
            return await self._store.run(self.core.find(self.pipeline))
        except BaseException:
            await self.pipeline.close()
            raise

    async def get(self, timeout: timedelta | float | str | None) -> RecordChange | None:  # noqa: ASYNC109
        """Wait for the next record or change; see `AsyncRecordSubscription.get`."""
        until = time_limit(timeout)
        while True:
            if await acquire(self._lock, timeout=wait_of(until)):
                try:
                    change = self._take() or await self._fetch(until)
                finally:
                    self._lock.release()
                if change is not None:
                    return change
            if time.monotonic() >= until:
                return None
            if self._is_moving:
                await asyncio.sleep(MOVING)

    def _take(self) -> RecordChange | None:
        change = self.core.take()
        if change is None and self.closed:
            raise Closed("this subscription was closed")
        return change

    async def _fetch(self, until: float) -> RecordChange | None:
        try:
            await self._store.run(self.core.fetch(self.pipeline, wait_of(until)))
        except Unavailable:
            if not self._is_moving:
                raise
        return self._take()

    @property
    def is_ready(self) -> bool:
        """Return whether something can be handed out."""
        return self.core.is_ready

    @property
    def is_over(self) -> bool:
        """Return whether nothing more comes: never, as long as it is open."""
        return False

    async def fill(self, seconds: float) -> None:
        """Read until something can be handed out, for so many seconds at most."""
        async with self._lock:
            if not self.closed:
                await self._reading.run(self.core.fetch(self.pipeline, seconds))

    def share_connections(self) -> None:
        """Read with `fill` alone, which keeps no connection after `rest` and fails at once where a server is away."""
        self.core.reads_ahead = False
        self._reading = self._store.of_instance(self._store.instance)
        self._reading.retry_timeout = 0.0
        self.pipeline = self._reading.pipeline()

    @property
    def patience(self) -> float:
        """Seconds for which its client repeats a call."""
        return self._store.retry_timeout

    async def rest(self) -> None:
        """Give back the connection that `fill` has used."""
        async with self._lock:
            await self.pipeline.close()

    def track(self, tracked: TrackedKeys, number: int) -> None:
        """Ask its server to tell when there is something new in its logs, under a number."""
        tracked.ask(number, self._store.route, self.core.log_keys)

    async def changes(self) -> AsyncIterator[RecordChange]:
        """Hand out what comes, until the subscription is closed."""
        while not self.closed:
            try:
                change = await self.get(STEP)
            except Closed:
                return
            if change is not None:
                yield change

    # -- at another instance

    async def prepare_failover(self, store: AsyncStore, context: InstanceContext) -> Callable[[], Awaitable[None]]:
        """Begin at another instance; gives what lets it go on there, after `suspend`."""
        pipeline = store.pipeline()
        try:
            go_on = await store.run(self.core.prepare_failover(context, pipeline))
        except BaseException:
            await pipeline.close()
            raise
        return partial(self._resume_at, go_on, pipeline, store)

    def suspend(self) -> None:
        """From here on the instance is out of reach, and what `prepare_failover` gave follows."""
        self._is_moving = True

    async def _resume_at(self, go_on: Callable[[], None], pipeline: AsyncPipeline, store: AsyncStore) -> None:
        async with self._lock:
            await self.pipeline.close()
            self.pipeline, self._store = pipeline, store
            go_on()
            self._is_moving = False

    # -- the end

    async def close(self) -> None:
        """End it; see `AsyncRecordSubscription.close`."""
        if self.closed:
            return
        self.closed = True
        try:
            async with self._lock:
                await self.pipeline.close()
                # What holds the log ends by itself, too.
                with contextlib.suppress(AmpsqError):
                    await self._store.run(self.core.close(self.pipeline))
                await self.pipeline.close()
        except asyncio.CancelledError:
            self.pipeline.close_behind(self._lock)
            raise
        finally:
            # Also when it was cancelled.
            self._end(self)


class AsyncRecordSubscription:
    """The records of a topic as a query finds them, and then what changes them.

    Made by `AsyncClient.sow_and_subscribe`. Tasks may share it: each change goes to one of them.
    """

    def __init__(self, managed: AsyncManagedRecordSubscription) -> None:
        self._managed = managed

    def __repr__(self) -> str:
        return repr(self._managed)

    async def get(self, timeout: timedelta | float | str | None = None) -> RecordChange | None:  # noqa: ASYNC109
        """Wait for the next record or change.

        Args:
            timeout: how long; default until there is one or the subscription is closed.

        Returns:
            What came; None when the time is over.

        Raises:
            Closed: the subscription is closed.
            Unavailable: the server was away longer than the client's `retry_timeout`; call again to go on.
        """
        return await self._managed.get(timeout)

    def __aiter__(self) -> AsyncIterator[RecordChange]:
        return self._managed.changes()

    async def close(self) -> None:
        """End it. Safe to call again."""
        await self._managed.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
