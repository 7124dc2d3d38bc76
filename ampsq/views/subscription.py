"""Aggregated subscriptions: rows over a queue or topics, each time that one changes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from ampsq.base.errors import Closed, Unavailable
from ampsq.base.values import Interval
from ampsq.views.upkeep import follow, next_rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from datetime import timedelta

    from ampsq.protocol.context import InstanceContext
    from ampsq.transport.async_store import AsyncStore
    from ampsq.transport.store import Store
    from ampsq.views.upkeep import Follower

__all__ = ["AsyncRowSubscription", "RowSubscription"]

#: Seconds of one wait inside an endless one: so often a closed subscription is noticed.
_STEP: Final = 1.0
#: Seconds between two looks whether a subscription has gone on at another instance.
_MOVING: Final = 0.02


class _Rows:
    """What both kinds know: rows not handed out yet, and how long to wait."""

    def __init__(self, follower: Follower, end: Callable[[Any], None]) -> None:
        self._follower, self._end = follower, end
        self._rows: deque[dict[str, Any]] = deque()
        self._closed = False
        # Between leaving an instance and going on at another one.
        self._is_moving = False

    def suspend(self) -> None:
        """From here on the instance is out of reach, and what `prepare_failover` gave follows."""
        self._is_moving = True

    def _go_on(self, follower: Follower) -> None:
        follower.go_on_from(self._follower)
        self._follower, self._is_moving = follower, False

    def __repr__(self) -> str:
        view = self._follower.view
        return f"<{type(self).__name__} to {view.underlying_topic[0]!r}: {', '.join(view.projection)}>"

    def _check(self) -> None:
        if self._closed:
            raise Closed("this subscription was closed")

    @staticmethod
    def _until(timeout: timedelta | float | str | None) -> float:
        return float("inf") if timeout is None else time.monotonic() + Interval.parse(timeout) / 1000

    @staticmethod
    def _wait(until: float) -> float:
        """Seconds of the next wait."""
        return min(max(until - time.monotonic(), 0.0), _STEP)


class RowSubscription(_Rows):
    """Rows of an aggregate: first all, then each that changed, as it is now. Made by `Client.aggregate`.

    A group whose last message is gone gives a last row, as it is of no messages: what it is grouped by, counts of 0,
    and None for a sum, an average, a least or a greatest value. Threads may share it: each row goes to one of them.
    """

    def __init__(self, follower: Follower, store: Store, end: Callable[[RowSubscription], None]) -> None:
        super().__init__(follower, end)
        self._store = store
        self._lock = threading.Lock()

    def get(self, timeout: timedelta | float | str | None = None) -> dict[str, Any] | None:
        """Wait for the next row; None when the time is over, also while the first rows are still being worked out.

        Raises:
            Closed: the subscription is closed.
        """
        until = self._until(timeout)
        while True:
            if self._lock.acquire(timeout=self._wait(until)):
                try:
                    if self._rows or self._read(until):
                        return self._rows.popleft()
                finally:
                    self._lock.release()
            if time.monotonic() >= until:
                return None
            if self._is_moving:
                time.sleep(_MOVING)

    def _read(self, until: float) -> bool:
        """Wait for rows; whether there are any."""
        self._check()
        try:
            self._rows.extend(self._store.run(next_rows(self._follower, self._wait(until))))
        except Unavailable:
            if not self._is_moving:
                raise
        return bool(self._rows)

    def prepare_failover(self, store: Store, context: InstanceContext) -> Callable[[], None]:
        """Begin at another instance; gives what lets it go on there, after `suspend`."""
        return partial(self._resume_at, store.run(follow(context, self._follower.view)), store)

    def _resume_at(self, follower: Follower, store: Store) -> None:
        with self._lock:
            self._store = store
            self._go_on(follower)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while not self._closed:
            try:
                row = self.get(_STEP)
            except Closed:
                return
            if row is not None:
                yield row

    def close(self) -> None:
        """End it. The queue stops writing down what changes about a minute after nobody follows it any more."""
        if not self._closed:
            self._closed = True
            self._end(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncRowSubscription(_Rows):
    """Rows of an aggregate, awaited; see `RowSubscription`."""

    def __init__(self, follower: Follower, store: AsyncStore, end: Callable[[AsyncRowSubscription], None]) -> None:
        super().__init__(follower, end)
        self._store = store
        self._lock = asyncio.Lock()

    async def get(self, timeout: timedelta | float | str | None = None) -> dict[str, Any] | None:  # noqa: ASYNC109
        """Wait for the next row; see `RowSubscription.get`."""
        until = self._until(timeout)
        while True:
            if await self._acquire(self._wait(until)):
                try:
                    if self._rows or await self._read(until):
                        return self._rows.popleft()
                finally:
                    self._lock.release()
            if time.monotonic() >= until:
                return None
            if self._is_moving:
                await asyncio.sleep(_MOVING)

    async def _acquire(self, wait: float) -> bool:
        if self._lock.locked():
            try:
                async with asyncio.timeout(wait):
                    return await self._lock.acquire()
            except TimeoutError:
                return False
        return await self._lock.acquire()

    async def _read(self, until: float) -> bool:
        self._check()
        try:
            self._rows.extend(await self._store.run(next_rows(self._follower, self._wait(until))))
        except Unavailable:
            if not self._is_moving:
                raise
        return bool(self._rows)

    async def prepare_failover(self, store: AsyncStore, context: InstanceContext) -> Callable[[], Awaitable[None]]:
        """Begin at another instance; see `RowSubscription.prepare_failover`."""
        follower = await store.run(follow(context, self._follower.view))
        return partial(self._resume_at, follower, store)

    async def _resume_at(self, follower: Follower, store: AsyncStore) -> None:
        async with self._lock:
            self._store = store
            self._go_on(follower)

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        while not self._closed:
            try:
                row = await self.get(_STEP)
            except Closed:
                return
            if row is not None:
                yield row

    async def close(self) -> None:
        """End it. The queue stops writing down what changes about a minute after nobody follows it any more."""
        if not self._closed:
            self._closed = True
            self._end(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
