"""The asyncio client: the same names and the same behaviour as `ampsq.client`, awaited."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ampsq.client import Address, AppendFsync
from ampsq.delivery import AsyncMessage, Bookmarks
from ampsq.errors import AmpsqError, Closed
from ampsq.explain import explain
from ampsq.presence import Presence
from ampsq.row_subscription import AsyncRowSubscription
from ampsq.session import Session
from ampsq.store import AsyncStore
from ampsq.subscription import SubscriptionCore
from ampsq.values import Interval

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Coroutine,
        Generator,
        Iterable,
        Mapping,
        Sequence,
    )
    from datetime import timedelta
    from types import EllipsisType

    from ampsq.applying import Outcome, Planned
    from ampsq.calls import Verb
    from ampsq.explain import Explanation
    from ampsq.models import Definition, Queue, View
    from ampsq.query import SowMessage
    from ampsq.server import Server
    from ampsq.session import QueueStats
    from ampsq.values import Bookmark

__all__ = ["AsyncClient", "AsyncSubscription", "Subscribing"]

Made = TypeVar("Made", bound="AsyncSubscription | AsyncRowSubscription")
_log = logging.getLogger("ampsq")
_STEP = 1.0
#: Seconds for which closing tries to reach a server that is away: what it holds comes back by itself.
_CLOSE_PATIENCE = 1.0


class AsyncClient:
    """A connection to one instance, for one event loop. Use it with ``async with``; arguments as `Client`'s."""

    def __init__(
        self,
        url: str | None = None,
        *,
        instance: str | None = None,
        publisher: str | None = None,
        ack_timeout: timedelta | float | str = "250ms",
        patience: timedelta | float | str = "15s",
        data_dir: str | os.PathLike[str] = ".ampsq",
        appendfsync: AppendFsync = "everysec",
    ) -> None:
        self._session = Session(instance or os.environ.get("AMPSQ_INSTANCE") or "ampsq", publisher)
        self._url, self._data_dir, self._appendfsync = url, data_dir, appendfsync
        self._ack_timeout = Interval.parse(ack_timeout) / 1000
        self._patience = Interval.parse(patience) / 1000
        self._address: Address | None = None
        self._opened: tuple[AsyncStore, Presence] | None = None
        self._subscriptions: list[AsyncSubscription] = []
        self._publishing = asyncio.Lock()

    async def connect(self) -> Self:
        """Connect; ``async with`` does it. Raises as `Client` does."""
        if self._opened is None:
            self._address = await asyncio.to_thread(Address, self._url, self._data_dir, self._appendfsync)
            url = self._address.url
            store = AsyncStore(url, self._session.instance, patience=self._patience, revive=self._address.revive)
            self._opened = (
                store,
                Presence(url, self._session.instance, self._session.client, self._ack_timeout),
            )
            try:
                await store.run(self._session.connect())
            except BaseException:
                await self.close()
                raise
        return self

    @property
    def _store(self) -> AsyncStore:
        if self._opened is None:
            raise Closed("this client is not connected: use `async with AsyncClient(...) as client`")
        return self._opened[0]

    def __repr__(self) -> str:
        return f"<AsyncClient of {self.instance}>"

    @property
    def instance(self) -> str:
        """The instance's name."""
        return self._session.instance

    @property
    def origin(self) -> str:
        """Where messages published here come from: the instance's name and its incarnation."""
        return self._session.origin

    @property
    def url(self) -> str:
        """The server's address."""
        return self._store.url

    @property
    def server(self) -> Server:
        """The server as it was at connect."""
        if self._session.server is None:
            raise Closed("this client is not connected: use `async with AsyncClient(...) as client`")
        return self._session.server

    async def apply(self, *definitions: Definition) -> list[tuple[Definition, Outcome]]:
        """Define topics, queues, views and actions; see `Client.apply`."""
        return await self._store.run(self._session.apply(definitions))

    async def plan(self, *definitions: Definition) -> list[Planned]:
        """Say what `apply` would do, and do nothing; see `Client.plan`."""
        return await self._store.run(self._session.plan(definitions))

    async def publish(
        self, topic: str, data: Any, *, headers: Mapping[str, str] | None = None, sequence: int | None = None
    ) -> Bookmark:
        """Record one message; see `Client.publish`."""
        if not self._session.publisher:
            return await self._store.run(self._session.publish(topic, data, headers, sequence))
        async with self._publishing:
            return await self._store.run(self._session.publish(topic, data, headers, sequence))

    async def publish_many(
        self,
        topic: str,
        messages: Iterable[Any],
        *,
        batch: int = 100,
        headers: Mapping[str, str] | None = None,
    ) -> Sequence[Bookmark]:
        """Record many messages; see `Client.publish_many`."""
        bookmarks = Bookmarks(self.origin)
        async with self._publishing:
            calls = self._session.batches(topic, messages, batch, headers)
            for call in calls:
                self._session.note(bookmarks, await self._store.run(self._session.publish_first(topic, call)))
                break
            async for published in self._store.stream(calls):
                self._session.note(bookmarks, published)
        return bookmarks

    def subscribe(
        self,
        name: str,
        *,
        max_backlog: int = 1,
        filter: str | None = None,  # noqa: A002  (AMPS's word, and the element's)
        renew: bool = False,
        on_message: Callable[[AsyncMessage], Awaitable[object]] | None = None,
    ) -> Subscribing[AsyncSubscription]:
        """Subscribe to a queue or a regular expression of queues; see `Client.subscribe`.

        ``await`` it, or use it with ``async with``, which closes the subscription at the end.
        """
        request = self._session.request()
        core = SubscriptionCore(self.instance, name, max_backlog, request, text=filter, renewed=renew)
        return Subscribing(self._subscribe(core, on_message), repr(name))

    async def _subscribe(
        self, core: SubscriptionCore, on_message: Callable[[AsyncMessage], Awaitable[object]] | None
    ) -> AsyncSubscription:
        store, presence = self._store, self._opened[1] if self._opened else None
        if presence is not None:
            await asyncio.to_thread(presence.start)
        await store.run(core.register())
        if presence is not None:
            presence.add(core)
        subscription = AsyncSubscription(core, store, self._session.origin, self._end)
        self._subscriptions.append(subscription)
        if on_message is not None:
            subscription.run(on_message)
        return subscription

    async def ack(
        self,
        queue: str,
        bookmarks: Iterable[Bookmark | str] | str | None = None,
        option: str = "ack",
        *,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        dry_run: bool = False,
    ) -> int:
        """Settle messages by bookmark or filter; see `Client.ack`."""
        return await self._store.run(self._session.ack(queue, bookmarks, option, filter, dry_run=dry_run))

    async def sow(
        self,
        name: str,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        *,
        order_by: str | Sequence[str] = (),
        top_n: int | None = None,
        skip_n: int | None = None,
    ) -> list[SowMessage]:
        """Query a queue or a view; see `Client.sow`."""
        return await self._store.run(self._session.sow(name, filter, order_by, top_n, skip_n))

    def aggregate(
        self,
        name: str,
        projection: Sequence[str],
        grouping: Sequence[str] = (),
        filter: str | None = None,  # noqa: A002  (AMPS's word)
    ) -> Subscribing[AsyncRowSubscription]:
        """Subscribe to an aggregate; see `Client.aggregate`. ``await`` it, or use it with ``async with``."""

        async def begin() -> AsyncRowSubscription:
            follower = await self._store.run(self._session.aggregate(name, projection, grouping, filter))
            return AsyncRowSubscription(follower, self._store)

        return Subscribing(begin(), f"the aggregate of {name!r}")

    async def explain(self, queue: str, bookmark: Bookmark | str | None = None) -> Explanation:
        """Say why a message is where it is; see `Client.explain`."""
        return await self._store.run(explain(self._session, queue, bookmark))

    async def queue_stats(self, queue: str) -> QueueStats:
        """Read a queue's figures."""
        return await self._store.run(self._session.queue_stats(queue))

    async def queues(self) -> dict[str, Queue]:
        """Read the definitions of all queues, by name."""
        return await self._store.run(self._session.queues())

    async def views(self) -> dict[str, View]:
        """Read the definitions of all views, by name."""
        return await self._store.run(self._session.views())

    async def topics(self) -> dict[str, dict[str, Any]]:
        """Read all topics by name: ``messages``, ``last`` (bookmark) and ``queues``."""
        return await self._store.run(self._session.topics())

    def _end(self, subscription: AsyncSubscription, core: SubscriptionCore) -> None:
        if self._opened is not None:
            self._opened[1].remove(core)
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    async def close(self) -> None:
        """Close the subscriptions, giving back what is unstarted, and the connections. Safe to call again."""
        if self._opened is None:
            return
        store, presence = self._opened
        store.patience = min(store.patience, _CLOSE_PATIENCE)
        try:
            for subscription in list(self._subscriptions):
                await subscription.close()
        finally:
            self._opened = None
            await asyncio.to_thread(presence.stop)
            await store.close()
            if self._address is not None:
                await asyncio.to_thread(self._address.release)

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Subscribing(Generic[Made]):
    """A subscription in the making: await it, or enter it with ``async with``."""

    def __init__(self, making: Coroutine[Any, Any, Made], to: str) -> None:
        self._making, self._to = making, to
        self._made: Made | None = None

    def __repr__(self) -> str:
        return f"<Subscribing to {self._to}: await it, or enter it with `async with`>"

    def __await__(self) -> Generator[Any, Any, Made]:
        return self._making.__await__()

    async def __aenter__(self) -> Made:
        self._made = await self._making
        return self._made

    async def __aexit__(self, *_: object) -> None:
        if self._made is not None:
            await self._made.close()


class AsyncSubscription:
    """Messages pushed to one consumer: ``async for`` over it, or await `get`. Made by `AsyncClient.subscribe`."""

    def __init__(
        self,
        core: SubscriptionCore,
        store: AsyncStore,
        origin: str,
        end: Callable[[AsyncSubscription, SubscriptionCore], None],
    ) -> None:
        self._core, self._store, self._origin, self._end = core, store, origin, end
        self._channel = store.channel()
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<AsyncSubscription {self._core}>"

    @property
    def id(self) -> str:
        """Its name on the instance."""
        return self._core.id

    @property
    def max_backlog(self) -> int:
        """The effective backlog: the least of what was asked and of the queues' limits."""
        return self._core.max_backlog

    @property
    def late(self) -> list[Exception]:
        """Acknowledgements of batches that came too late, at most the last thousand."""
        return list(self._core.late)

    async def get(self, timeout: timedelta | float | str | None = None) -> AsyncMessage | None:  # noqa: ASYNC109
        """Wait for the next message; see `Subscription.get`. Cancelling it loses no message."""
        until = None if timeout is None else time.monotonic() + Interval.parse(timeout) / 1000
        buffer = self._core.buffer
        while True:
            async with self._lock:
                if buffer:
                    return AsyncMessage(*buffer.popleft(), self._origin, self)
                if self._core.closed:
                    raise Closed("this subscription was closed")
                wait = _STEP if until is None else min(until - time.monotonic(), _STEP)
                await self._store.run(self._core.fetch(self._channel, max(wait, 0.0)))
                if not buffer and until is not None and time.monotonic() >= until:
                    return None

    async def __aiter__(self) -> AsyncIterator[AsyncMessage]:
        while not self._core.closed:
            try:
                message = await self.get()
            except Closed:
                return
            if message is not None:
                yield message

    async def replace(
        self,
        *,
        name: str | None = None,
        max_backlog: int | None = None,
        filter: str | EllipsisType | None = ...,  # noqa: A002  (AMPS's word)
    ) -> None:
        """Ask for something else from now on; see `Subscription.replace`."""
        core = self._core
        async with self._lock:
            if core.closed:
                raise Closed("this subscription was closed")
            await self._store.run(core.replace(self._channel, *core.wish_with(name, max_backlog, filter)))

    async def give_back(self) -> None:
        """Ask for no more messages, and return those not handed out, uncounted."""
        async with self._lock:
            await self._store.run(self._core.give_back(self._channel))

    def run(self, on_message: Callable[[AsyncMessage], Awaitable[object]]) -> None:
        """Await a function with each message, in a task, until the subscription is closed."""
        self._task = asyncio.create_task(self._run(on_message), name=f"ampsq-{self.id}")

    async def _run(self, on_message: Callable[[AsyncMessage], Awaitable[object]]) -> None:
        async for message in self:
            try:
                await on_message(message)
            except Exception:  # noqa: BLE001  (whatever a handler raises is an answer)
                _log.exception("handler of %r failed; its message is cancelled", message)
                try:
                    await message.cancel()
                except AmpsqError as error:
                    _log.warning("%r could not be cancelled: %s", message, error)

    async def acknowledge(self, message: AsyncMessage, *, wait: bool) -> None:
        """See `Message.ack`."""
        if self._core.closed and not wait:
            raise Closed("this subscription was closed, and its unacknowledged messages went back to their queues")
        if wait:
            await self._store.run(self._core.settle(message, "acknowledged", 0))
        elif self._core.acknowledge(message) and not self._core.buffer:
            await self._store.run(self._core.flush())

    async def settle(self, message: AsyncMessage, verb: Verb, period: int) -> None:
        """See `Message.cancel`, `Message.expire` and `Message.extend`."""
        await self._store.run(self._core.settle(message, verb, period))

    async def flush(self) -> None:
        """Send the acknowledgements collected so far, and wait until they are done."""
        await self._store.run(self._core.flush())

    async def close(self) -> None:
        """End the subscription: acknowledgements are sent, messages not handed out go back uncounted."""
        if self._core.closed:
            return
        self._core.closed = True
        async with self._lock:
            await self._store.run(self._core.close(self._channel))
            await self._channel.close()
        self._end(self, self._core)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
