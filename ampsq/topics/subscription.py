"""Subscriptions to topics: iterate over one, or call `get`; the same awaited. They share `TopicSubscriptionCore`."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from ampsq.base.errors import AmpsqError, BookmarkNotFound, Closed, NameInUse, SlowClient, Unavailable
from ampsq.base.values import Interval
from ampsq.queues.handlers import call_handler
from ampsq.topics.message import AsyncTopicMessage, TopicMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from datetime import timedelta

    from ampsq.base.message_types import MessageType
    from ampsq.protocol.context import ClientContext
    from ampsq.topics.durable_subscription import Received
    from ampsq.topics.failover import FailoverPlan
    from ampsq.topics.reader_reports import Reporting
    from ampsq.topics.subscription_core import Handed, TopicSubscriptionCore
    from ampsq.transport.async_store import AsyncStore
    from ampsq.transport.pipeline import AsyncPipeline, Pipeline
    from ampsq.transport.store import Store

__all__ = ["AsyncTopicSubscription", "TopicSubscription"]

_log = logging.getLogger("ampsq")
#: Seconds of one wait inside an endless one: so often a closed subscription is noticed.
_STEP = 1.0
#: Seconds between two looks whether a subscription has gone on at another instance.
_MOVING = 0.02


class _Front:
    """What both kinds tell, and what needs no waiting."""

    def __init__(self, reading: TopicSubscriptionCore, pipeline: Any, end: Callable[[Any], None]) -> None:
        self._reading, self._pipeline, self._end = reading, pipeline, end
        # Between leaving an instance and going on at another one.
        self._is_moving = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._reading}>"

    @property
    def id(self) -> str:
        """Its name: `sub_id` of a durable one."""
        return self._reading.id

    @property
    def origin(self) -> str:
        """Where the messages of this instance come from: its name and its incarnation."""
        return self._reading.origin

    @property
    def completed(self) -> bool:
        """Whether the end of the ranges that were asked for was handed out; False for ever of what has no end."""
        return self._reading.completed

    @property
    def missed(self) -> tuple[str, ...]:
        """The topics of which something that was asked for had been trimmed; see `bookmark_not_found`."""
        return self._reading.missed

    @property
    def is_paused(self) -> bool:
        """Whether it was told to pause."""
        return self._reading.is_paused

    def pause(self) -> None:
        """Hand out nothing until `resume`. It goes on at the same place, and keeps it while messages are asked for."""
        self._reading.is_paused = True

    def resume(self) -> None:
        """Hand out again."""
        self._reading.resume()

    def type_of(self, topic: str) -> MessageType:
        """The message type of a topic that is read."""
        return self._reading.type_of(topic)

    def suspend(self) -> None:
        """From here on the instance is out of reach, and what `prepare_failover` gave follows."""
        self._is_moving = not self._reading.is_over

    @staticmethod
    def _until(timeout: timedelta | float | str | None) -> float:
        return float("inf") if timeout is None else time.monotonic() + Interval.parse(timeout) / 1000

    @staticmethod
    def _wait(until: float) -> float:
        """Seconds of the next wait."""
        return min(max(until - time.monotonic(), 0.0), _STEP)


class TopicSubscription(_Front):
    """Messages of topics, in order, from a place on and then live: iterate over it, or call `get`.

    Made by `Client.subscribe_topic`. Threads may share it: each message goes to one of them.
    """

    def __init__(self, reading: TopicSubscriptionCore, store: Store, end: Callable[[TopicSubscription], None]) -> None:
        super().__init__(reading, store.pipeline(follows=not reading.is_fully_durable), end)
        self._store = store
        self._lock = threading.Lock()
        # What was handled is written down in the order in which it was.
        self._saving = threading.Lock()
        try:
            store.run(reading.open(self._pipeline))
        except BaseException:
            self._pipeline.close()
            raise

    def get(self, timeout: timedelta | float | str | None = None) -> TopicMessage | None:
        """Wait for the next message.

        Args:
            timeout: how long; default until there is one or the subscription is closed.

        Returns:
            The message; None when the time is over, or `completed`.

        Raises:
            Closed: the subscription is closed.
            Unavailable: the server was away longer than the client's `retry_timeout`; call again to go on.
            SlowClient: it was beyond the limits of its transport (docs/slow-clients.md), and stays disconnected.
            NameInUse: it is durable, and another one began under its `sub_id`; it stays ended.
        """
        owner = threading.current_thread()
        self._reading.asks(owner)
        handed = self._next(owner, self._until(timeout))
        return None if handed is None else TopicMessage(handed[0], handed[1], self)

    def _next(self, owner: threading.Thread | None, until: float) -> Handed | None:
        reading = self._reading
        while True:
            if self._lock.acquire(timeout=self._wait(until)):
                try:
                    if reading.is_due:
                        self._attend()
                    taken = reading.take(owner) or self._fetch(owner, until)
                except Unavailable:
                    if not self._is_moving:
                        raise
                    taken = None
                finally:
                    self._lock.release()
                if taken is not None:
                    return taken
            if reading.completed or time.monotonic() >= until:
                return None
            if self._is_moving:
                time.sleep(_MOVING)

    def _fetch(self, owner: threading.Thread | None, until: float) -> Handed | None:
        if self._reading.closed:
            raise Closed("this subscription was closed")
        self._save()
        self._store.run(self._reading.fetch(self._pipeline, self._wait(until)))
        return self._reading.take(owner)

    def __iter__(self) -> Iterator[TopicMessage]:
        for handed in self._handed():
            yield TopicMessage(handed[0], handed[1], self)
            if handed[1] is not None:
                self._returned(handed[1])

    def _attend(self) -> None:
        """Do what is to be done from time to time; whoever holds the lock."""
        self._save()
        self._store.run(self._reading.attend(self._pipeline))

    def _handed(self) -> Iterator[Handed]:
        reading, buffer = self._reading, self._reading.buffer
        while not (reading.closed or reading.completed):
            # Somebody else who has the lock does it.
            if reading.is_due and self._lock.acquire(blocking=False):
                try:
                    self._attend()
                except Unavailable:
                    if not self._is_moving:
                        raise
                finally:
                    self._lock.release()
            if reading.is_unpaced and not reading.is_paused and not reading.is_full:
                try:
                    # Taking from a deque is atomic: threads never get the same message.
                    handed: Handed | None = buffer.popleft()
                except IndexError:
                    handed = self._step()
            else:
                handed = self._step()
            if handed is not None:
                yield handed

    def _step(self) -> Handed | None:
        try:
            return self._next(None, time.monotonic() + _STEP)
        except Closed:
            return None

    def _returned(self, received: Received) -> None:
        """Whoever iterates asks for the next message."""
        if self._reading.auto_ack:
            self._reading.handle(received)

    def run(self, on_message: Callable[[TopicMessage], object]) -> None:
        """Call a function with each message, in a thread, until the subscription is closed or completed."""
        threading.Thread(target=self._run, args=(on_message,), name=f"ampsq-{self.id}", daemon=True).start()

    def _run(self, on_message: Callable[[TopicMessage], object]) -> None:
        while not (self._reading.closed or self.completed):
            try:
                for handed in self._handed():
                    self._handle(on_message, TopicMessage(handed[0], handed[1], self))
            except BookmarkNotFound:
                _log.exception("%r ends", self)
                return
            except (SlowClient, NameInUse) as error:
                _log.error("%r ends: %s", self, error)
                return
            except AmpsqError as error:
                _log.warning("%r: %s; trying again", self, error)
                time.sleep(_STEP)

    def _handle(self, on_message: Callable[[TopicMessage], object], message: TopicMessage) -> None:
        try:
            on_message(message)
        except Exception:  # noqa: BLE001  (whatever a handler raises is an answer)
            _log.exception("handler of %r failed; it does not count as handled", message)
            return
        if message.received is not None:
            self._returned(message.received)

    def acknowledge(self, message: TopicMessage, *, wait: bool) -> None:
        """See `TopicMessage.ack`."""
        self._reading.handle(message.received)
        if wait:
            self.flush()

    def flush(self) -> None:
        """Write down now what was handled."""
        while True:
            try:
                return self._save()
            except Unavailable:
                if not self._is_moving:
                    raise
            time.sleep(_MOVING)

    def _save(self) -> None:
        with self._saving:
            self._store.run(self._reading.save())

    def prepare_failover(self, store: Store, client: ClientContext, reporting: Reporting) -> Callable[[], None]:
        """Begin at another instance; gives what lets it go on there, after `suspend`."""
        if self._reading.is_over:
            return lambda: None
        pipeline = store.pipeline(follows=not self._reading.is_fully_durable)
        try:
            arrival = store.run(self._reading.prepare_failover(client, reporting, pipeline))
        except BaseException:
            pipeline.close()
            raise
        return partial(self._resume_at, arrival, pipeline, store)

    def _resume_at(self, arrival: FailoverPlan, pipeline: Pipeline, store: Store) -> None:
        with self._lock, self._saving:
            self._pipeline.close()
            self._pipeline, self._store = pipeline, store
            self._reading.resume_at(arrival)
            self._is_moving = False

    def close(self) -> None:
        """End it: what was handled is written down; the message handed out last counts as such if `ack` was called."""
        if self._reading.closed:
            return
        self._reading.closed = True
        try:
            with self._lock:
                self._pipeline.close()
                with self._saving:
                    self._store.run(self._reading.close(self._pipeline))
                self._pipeline.close()
        finally:
            self._end(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncTopicSubscription(_Front):
    """Messages of topics, awaited: ``async for`` over it, or await `get`; see `TopicSubscription`."""

    def __init__(
        self, reading: TopicSubscriptionCore, store: AsyncStore, end: Callable[[AsyncTopicSubscription], None]
    ) -> None:
        super().__init__(reading, store.pipeline(follows=not reading.is_fully_durable), end)
        self._store = store
        self._lock, self._saving = asyncio.Lock(), asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> Self:
        """Begin; `AsyncClient.subscribe_topic` does it."""
        try:
            await self._store.run(self._reading.open(self._pipeline))
        except BaseException:
            await self._pipeline.close()
            raise
        return self

    async def get(self, timeout: timedelta | float | str | None = None) -> AsyncTopicMessage | None:  # noqa: ASYNC109
        """Wait for the next message; see `TopicSubscription.get`. Cancelling it loses no message."""
        owner = asyncio.current_task()
        self._reading.asks(owner)
        handed = await self._next(owner, self._until(timeout))
        return None if handed is None else AsyncTopicMessage(handed[0], handed[1], self)

    async def _next(self, owner: Any, until: float) -> Handed | None:
        reading = self._reading
        while True:
            async with self._lock:
                try:
                    if reading.is_due:
                        await self._attend()
                    taken = reading.take(owner) or await self._fetch(owner, until)
                except Unavailable:
                    if not self._is_moving:
                        raise
                    taken = None
            if taken is not None:
                return taken
            if reading.completed or time.monotonic() >= until:
                return None
            if self._is_moving:
                await asyncio.sleep(_MOVING)

    async def _fetch(self, owner: Any, until: float) -> Handed | None:
        if self._reading.closed:
            raise Closed("this subscription was closed")
        await self._save()
        await self._store.run(self._reading.fetch(self._pipeline, self._wait(until)))
        return self._reading.take(owner)

    async def __aiter__(self) -> AsyncIterator[AsyncTopicMessage]:
        async for handed in self._handed():
            yield AsyncTopicMessage(handed[0], handed[1], self)
            if handed[1] is not None:
                self._returned(handed[1])

    async def _attend(self) -> None:
        await self._save()
        await self._store.run(self._reading.attend(self._pipeline))

    async def _handed(self) -> AsyncIterator[Handed]:
        reading, buffer = self._reading, self._reading.buffer
        while not (reading.closed or reading.completed):
            if reading.is_due and not self._lock.locked():
                async with self._lock:
                    try:
                        await self._attend()
                    except Unavailable:
                        if not self._is_moving:
                            raise
            if buffer and reading.is_unpaced and not reading.is_paused and not reading.is_full:
                yield buffer.popleft()
                continue
            try:
                handed = await self._next(None, time.monotonic() + _STEP)
            except Closed:
                return
            if handed is not None:
                yield handed

    def _returned(self, received: Received) -> None:
        """Whoever iterates asks for the next message."""
        if self._reading.auto_ack:
            self._reading.handle(received)

    def run(self, on_message: Callable[[AsyncTopicMessage], object]) -> None:
        """Call a function with each message, and await it, in a task, until the subscription is closed or completed."""
        self._task = asyncio.create_task(self._run(on_message), name=f"ampsq-{self.id}")

    async def _run(self, on_message: Callable[[AsyncTopicMessage], object]) -> None:
        while not (self._reading.closed or self.completed):
            try:
                async for handed in self._handed():
                    await self._handle(on_message, AsyncTopicMessage(handed[0], handed[1], self))
            except BookmarkNotFound:
                _log.exception("%r ends", self)
                return
            except (SlowClient, NameInUse) as error:
                _log.error("%r ends: %s", self, error)
                return
            except AmpsqError as error:
                _log.warning("%r: %s; trying again", self, error)
                await asyncio.sleep(_STEP)

    async def _handle(self, on_message: Callable[[AsyncTopicMessage], object], message: AsyncTopicMessage) -> None:
        try:
            await call_handler(on_message, message)
        except Exception:  # noqa: BLE001  (whatever a handler raises is an answer)
            _log.exception("handler of %r failed; it does not count as handled", message)
            return
        if message.received is not None:
            self._returned(message.received)

    async def acknowledge(self, message: AsyncTopicMessage, *, wait: bool) -> None:
        """See `TopicMessage.ack`."""
        self._reading.handle(message.received)
        if wait:
            await self.flush()

    async def flush(self) -> None:
        """Write down now what was handled."""
        while True:
            try:
                return await self._save()
            except Unavailable:
                if not self._is_moving:
                    raise
            await asyncio.sleep(_MOVING)

    async def _save(self) -> None:
        async with self._saving:
            await self._store.run(self._reading.save())

    async def prepare_failover(
        self, store: AsyncStore, client: ClientContext, reporting: Reporting
    ) -> Callable[[], Awaitable[None]]:
        """Begin at another instance; see `TopicSubscription.prepare_failover`."""
        if self._reading.is_over:
            return partial(asyncio.sleep, 0)
        pipeline = store.pipeline(follows=not self._reading.is_fully_durable)
        try:
            arrival = await store.run(self._reading.prepare_failover(client, reporting, pipeline))
        except BaseException:
            await pipeline.close()
            raise
        return partial(self._resume_at, arrival, pipeline, store)

    async def _resume_at(self, arrival: FailoverPlan, pipeline: AsyncPipeline, store: AsyncStore) -> None:
        async with self._lock, self._saving:
            await self._pipeline.close()
            self._pipeline, self._store = pipeline, store
            self._reading.resume_at(arrival)
            self._is_moving = False

    async def close(self) -> None:
        """End it; see `TopicSubscription.close`."""
        if self._reading.closed:
            return
        self._reading.closed = True
        try:
            async with self._lock:
                await self._pipeline.close()
                try:
                    async with self._saving:
                        await self._store.run(self._reading.close(self._pipeline))
                finally:
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
