"""Subscriptions to the records of a topic: iterate over one, or call `get`; the same awaited."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from ampsq.base.errors import AmpsqError, Closed, Unavailable
from ampsq.base.values import Interval

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from datetime import timedelta

    from ampsq.protocol.context import InstanceContext
    from ampsq.records.change import RecordChange
    from ampsq.records.follow import RecordSubscriptionCore
    from ampsq.transport.async_pipeline import AsyncPipeline
    from ampsq.transport.async_store import AsyncStore
    from ampsq.transport.pipeline import Pipeline
    from ampsq.transport.store import Store

__all__ = ["AsyncRecordSubscription", "RecordSubscription"]

#: Seconds of one wait inside an endless one: so often a closed subscription is noticed.
_STEP: Final = 1.0
#: Seconds between two looks whether a subscription has gone on at another instance.
_MOVING: Final = 0.02


class _Front:
    """What both kinds tell, and what needs no waiting."""

    def __init__(self, following: RecordSubscriptionCore, pipeline: Any, end: Callable[[Any], None]) -> None:
        self._following, self._pipeline, self._end, self._closed = following, pipeline, end, False
        # Between leaving an instance and going on at another one.
        self._is_moving = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} to {self._following.topic!r}>"

    def suspend(self) -> None:
        """From here on the instance is out of reach, and what `prepare_failover` gave follows."""
        self._is_moving = True

    def _take(self) -> RecordChange | None:
        change = self._following.take()
        if change is None and self._closed:
            raise Closed("this subscription was closed")
        return change

    @staticmethod
    def _until(timeout: timedelta | float | str | None) -> float:
        return float("inf") if timeout is None else time.monotonic() + Interval.parse(timeout) / 1000

    @staticmethod
    def _wait(until: float) -> float:
        """Seconds of the next wait."""
        return min(max(until - time.monotonic(), 0.0), _STEP)


class RecordSubscription(_Front):
    """The records of a topic as a query finds them, and then what changes them. Made by `Client.sow_and_subscribe`.

    Threads may share it: each change goes to one of them.
    """

    def __init__(
        self, following: RecordSubscriptionCore, store: Store, end: Callable[[RecordSubscription], None]
    ) -> None:
        super().__init__(following, store.pipeline(), end)
        self._store = store
        self._lock = threading.Lock()
        try:
            store.run(following.open(self._pipeline))
        except BaseException:
            self._pipeline.close()
            raise

    def get(self, timeout: timedelta | float | str | None = None) -> RecordChange | None:
        """Wait for the next record or change.

        Args:
            timeout: how long; default until there is one or the subscription is closed.

        Returns:
            What came; None when the time is over.

        Raises:
            Closed: the subscription is closed.
            Unavailable: the server was away longer than the client's `retry_timeout`; call again to go on.
        """
        until = self._until(timeout)
        while True:
            if self._lock.acquire(timeout=self._wait(until)):
                try:
                    change = self._take()
                    if change is None:
                        self._store.run(self._following.fetch(self._pipeline, self._wait(until)))
                        change = self._take()
                except Unavailable:
                    if not self._is_moving:
                        raise
                    change = None
                finally:
                    self._lock.release()
                if change is not None:
                    return change
            if time.monotonic() >= until:
                return None
            if self._is_moving:
                time.sleep(_MOVING)

    def __iter__(self) -> Iterator[RecordChange]:
        while not self._closed:
            try:
                change = self.get(_STEP)
            except Closed:
                return
            if change is not None:
                yield change

    def prepare_failover(self, store: Store, context: InstanceContext) -> Callable[[], None]:
        """Begin at another instance; gives what lets it go on there, after `suspend`."""
        pipeline = store.pipeline()
        try:
            go_on = store.run(self._following.prepare_failover(context, pipeline))
        except BaseException:
            pipeline.close()
            raise
        return partial(self._resume_at, go_on, pipeline, store)

    def _resume_at(self, go_on: Callable[[], None], pipeline: Pipeline, store: Store) -> None:
        with self._lock:
            self._pipeline.close()
            self._pipeline, self._store = pipeline, store
            go_on()
            self._is_moving = False

    def close(self) -> None:
        """End it. Safe to call again."""
        if self._closed:
            return
        self._closed = True
        try:
            with self._lock:
                self._pipeline.close()
                # What holds the log ends by itself, too.
                with contextlib.suppress(AmpsqError):
                    self._store.run(self._following.close(self._pipeline))
                self._pipeline.close()
        finally:
            self._end(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncRecordSubscription(_Front):
    """The records of a topic and what changes them, awaited; see `RecordSubscription`."""

    def __init__(
        self, following: RecordSubscriptionCore, store: AsyncStore, end: Callable[[AsyncRecordSubscription], None]
    ) -> None:
        super().__init__(following, store.pipeline(), end)
        self._store = store
        self._lock = asyncio.Lock()

    async def open(self) -> Self:
        """Begin; `AsyncClient.sow_and_subscribe` does it."""
        try:
            await self._store.run(self._following.open(self._pipeline))
        except BaseException:
            await self._pipeline.close()
            raise
        return self

    async def get(self, timeout: timedelta | float | str | None = None) -> RecordChange | None:  # noqa: ASYNC109
        """Wait for the next record or change; see `RecordSubscription.get`."""
        until = self._until(timeout)
        while True:
            async with self._lock:
                change = self._take()
                if change is None:
                    try:
                        await self._store.run(self._following.fetch(self._pipeline, self._wait(until)))
                    except Unavailable:
                        if not self._is_moving:
                            raise
                    change = self._take()
            if change is not None:
                return change
            if time.monotonic() >= until:
                return None
            if self._is_moving:
                await asyncio.sleep(_MOVING)

    async def __aiter__(self) -> AsyncIterator[RecordChange]:
        while not self._closed:
            try:
                change = await self.get(_STEP)
            except Closed:
                return
            if change is not None:
                yield change

    async def prepare_failover(self, store: AsyncStore, context: InstanceContext) -> Callable[[], Awaitable[None]]:
        """Begin at another instance; see `RecordSubscription.prepare_failover`."""
        pipeline = store.pipeline()
        try:
            go_on = await store.run(self._following.prepare_failover(context, pipeline))
        except BaseException:
            await pipeline.close()
            raise
        return partial(self._resume_at, go_on, pipeline, store)

    async def _resume_at(self, go_on: Callable[[], None], pipeline: AsyncPipeline, store: AsyncStore) -> None:
        async with self._lock:
            await self._pipeline.close()
            self._pipeline, self._store = pipeline, store
            go_on()
            self._is_moving = False

    async def close(self) -> None:
        """End it. Safe to call again."""
        if self._closed:
            return
        self._closed = True
        try:
            async with self._lock:
                await self._pipeline.close()
                # What holds the log ends by itself, too.
                with contextlib.suppress(AmpsqError):
                    await self._store.run(self._following.close(self._pipeline))
                await self._pipeline.close()
        except asyncio.CancelledError:
            self._pipeline.close_behind(self._lock)
            raise
        finally:
            # Also when it was cancelled.
            self._end(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
