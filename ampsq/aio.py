"""The asyncio client: the same names and the same behaviour as `ampsq.client`, awaited."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from ampsq.actions import actions, drop_failed, failed_events, retry_action
from ampsq.address import Address
from ampsq.async_subscription import AsyncSubscription, Subscribing
from ampsq.check import check, rebuild_queue
from ampsq.conflated_reading import reading_of
from ampsq.delivery import AsyncMessage, Bookmarks
from ampsq.envelope import Envelope
from ampsq.errors import Closed, UnknownQueue
from ampsq.explain import explain
from ampsq.history import history
from ampsq.presence import Presence
from ampsq.reporting import Reporting
from ampsq.row_subscription import AsyncRowSubscription
from ampsq.session import Session
from ampsq.store import AsyncStore
from ampsq.subscription import SubscriptionCore
from ampsq.topic_reading import TopicWish, is_topic
from ampsq.topic_subscription import AsyncTopicSubscription
from ampsq.transport import INSTANCE, parse_transport
from ampsq.values import Interval

if TYPE_CHECKING:
    from collections.abc import (
        Awaitable,
        Callable,
        Iterable,
        Mapping,
        Sequence,
    )
    from datetime import datetime, timedelta

    from ampsq.actions import ActionState, FailedEvent
    from ampsq.address import AppendFsync
    from ampsq.address_setting import AddressSetting
    from ampsq.applying import Outcome, Planned
    from ampsq.check import Checked
    from ampsq.explain import Explanation
    from ampsq.history import History
    from ampsq.letters import DeadLetter
    from ampsq.models import Definition, Queue, View
    from ampsq.places import Place
    from ampsq.query import SowMessage
    from ampsq.readers import ReaderState
    from ampsq.rebuild import Rebuilt
    from ampsq.redrive import Progress, Redriven
    from ampsq.retention import Trimmed
    from ampsq.server import Server
    from ampsq.session import QueueStats
    from ampsq.topic_message import AsyncTopicMessage
    from ampsq.topic_reading import ReplayOptions
    from ampsq.values import Bookmark

__all__ = ["AsyncClient"]

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
        transport: str = INSTANCE,
    ) -> None:
        self._session = Session(instance or os.environ.get("AMPSQ_INSTANCE") or "ampsq", publisher)
        self._url, self._data_dir, self._appendfsync = url, data_dir, appendfsync
        self._ack_timeout = Interval.parse(ack_timeout) / 1000
        self._patience = Interval.parse(patience) / 1000
        self._transport = parse_transport(transport)
        self._address: Address | None = None
        self._opened: tuple[AsyncStore, Presence] | None = None
        self._subscriptions: list[AsyncSubscription] = []
        self._topic_subscriptions: list[AsyncTopicSubscription] = []
        self._publishing = asyncio.Lock()

    async def connect(self) -> Self:
        """Connect; ``async with`` does it. Raises as `Client` does."""
        if self._opened is None:
            self._address = await asyncio.to_thread(Address, self._url, self._data_dir, self._appendfsync)
            url = self._address.url
            store = AsyncStore(url, self._session.instance, patience=self._patience, revive=self._address.revive)
            self._reporting = Reporting(url, self._session.instance, self._session.client, self._transport)
            self._opened = (
                store,
                Presence(url, self._session.instance, self._session.client, self._ack_timeout),
            )
            try:
                await store.run(self._session.connect())
                if self._session.is_heard:
                    await asyncio.to_thread(self._opened[1].start)
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
        self,
        topic: str,
        data: Any,
        *,
        headers: Mapping[str, str] | None = None,
        expiration: timedelta | float | str | None = None,
        delay: timedelta | float | str | None = None,
        at: datetime | None = None,
        sequence: int | None = None,
    ) -> Bookmark:
        """Record one message; see `Client.publish`."""
        envelope = Envelope.of(headers, expiration, delay, at)
        if not self._session.publisher:
            return await self._store.run(self._session.publish(topic, data, envelope, sequence))
        async with self._publishing:
            return await self._store.run(self._session.publish(topic, data, envelope, sequence))

    async def publish_many(
        self,
        topic: str,
        messages: Iterable[Any],
        *,
        batch: int = 100,
        headers: Mapping[str, str] | None = None,
        expiration: timedelta | float | str | None = None,
        delay: timedelta | float | str | None = None,
        at: datetime | None = None,
    ) -> Sequence[Bookmark]:
        """Record many messages; see `Client.publish_many`."""
        bookmarks = Bookmarks(self.origin)
        async with self._publishing:
            calls = self._session.batches(topic, messages, batch, Envelope.of(headers, expiration, delay, at))
            for call in calls:
                self._session.note(bookmarks, await self._store.run(self._session.publish_first(topic, call)))
                break
            async for published in self._store.stream(calls):
                self._session.note(bookmarks, published)
        return bookmarks

    @overload
    def subscribe(
        self,
        name: str,
        *,
        max_backlog: int = 1,
        filter: str | None = None,
        renew: bool = False,
        on_message: Callable[[AsyncMessage], Awaitable[object]] | None = None,
    ) -> Subscribing[AsyncSubscription]: ...
    @overload
    def subscribe(
        self,
        name: str,
        *,
        bookmark: Place | Sequence[Place],
        filter: str | None = None,
        on_message: Callable[[AsyncTopicMessage], Awaitable[object]] | None = None,
        **options: Unpack[ReplayOptions],
    ) -> Subscribing[AsyncTopicSubscription]: ...
    def subscribe(
        self,
        name: str,
        *,
        max_backlog: int = 1,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        renew: bool = False,
        on_message: Callable[[Any], Awaitable[object]] | None = None,
        bookmark: Place | Sequence[Place] | None = None,
        **options: Unpack[ReplayOptions],
    ) -> Subscribing[Any]:
        """Subscribe to queues or topics; see `Client.subscribe`.

        ``await`` it, or use it with ``async with``, which closes the subscription at the end.
        """

        def wish() -> TopicWish:
            return TopicWish.of(name, filter, bookmark, options, max_backlog=max_backlog, renew=renew)

        if bookmark is not None or options:
            return Subscribing(self._subscribe_to_topics(wish(), on_message), repr(name))
        request = self._session.request()
        core = SubscriptionCore(self.instance, name, max_backlog, request, text=filter, renewed=renew)

        async def begin() -> AsyncSubscription | AsyncTopicSubscription:
            try:
                return await self._subscribe(core, on_message)
            except UnknownQueue:
                if not await self._store.run(is_topic(self.instance, name)):
                    raise
            return await self._subscribe_to_topics(wish(), on_message)

        return Subscribing(begin(), repr(name))

    async def _subscribe_to_topics(
        self, wish: TopicWish, on_message: Callable[[AsyncTopicMessage], Awaitable[object]] | None
    ) -> AsyncTopicSubscription:
        reading = reading_of(self._session, wish, self._ack_timeout, self._reporting)
        subscription = AsyncTopicSubscription(reading, self._store, self._topic_subscriptions.remove)
        await subscription.open()
        self._topic_subscriptions.append(subscription)
        if on_message is not None:
            subscription.run(on_message)
        return subscription

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

    async def dead_letters(
        self,
        queue: str,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        *,
        source: str | None = None,
        reason: str | None = None,
        top_n: int | None = None,
        bookmarks: Iterable[Bookmark | str] | str | None = None,
    ) -> list[DeadLetter]:
        """Look at dead letters; see `Client.dead_letters`."""
        return await self._store.run(
            self._session.dead_letters(queue, filter, source=source, reason=reason, top_n=top_n, bookmarks=bookmarks)
        )

    async def redrive(
        self,
        queue: str,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        bookmarks: Iterable[Bookmark | str] | str | None = None,
        *,
        source: str | None = None,
        reason: str | None = None,
        to: str | None = None,
        dry_run: bool = False,
        rate: float | str | None = None,
        progress: Callable[[Progress], object] | None = None,
        edit: Callable[[DeadLetter], Any] | None = None,
    ) -> Redriven:
        """Put dead letters back; see `Client.redrive`. `edit` and `progress` are plain functions."""
        return await self._store.run(
            self._session.redrive(
                queue,
                filter=filter,
                bookmarks=bookmarks,
                source=source,
                reason=reason,
                to=to,
                dry_run=dry_run,
                rate=rate,
                progress=progress,
                edit=edit,
            )
        )

    async def explain(self, queue: str, bookmark: Bookmark | str | None = None) -> Explanation:
        """Say why a message is where it is; see `Client.explain`."""
        return await self._store.run(explain(self._session, queue, bookmark))

    async def history(self, bookmark: Bookmark | str) -> History:
        """Tell a message's life as a timeline; see `Client.history`."""
        return await self._store.run(history(self._session, bookmark))

    async def check(self, *queues: str, repair: bool = False) -> list[Checked]:
        """Compare queues' live state with what logs and journals say; see `Client.check`."""
        return await self._store.run(check(self._session, queues, repair=repair))

    async def rebuild(self, queue: str) -> Rebuilt:
        """Rebuild a queue's state from logs and journal; see `Client.rebuild`."""
        return await self._store.run(rebuild_queue(self._session, queue))

    async def queue_stats(self, queue: str) -> QueueStats:
        """Read a queue's figures."""
        return await self._store.run(self._session.queue_stats(queue))

    async def queues(self) -> dict[str, Queue]:
        """Read the definitions of all queues, by name."""
        return await self._store.run(self._session.queues())

    async def readers(self) -> list[ReaderState]:
        """See `Client.readers`."""
        return await self._store.run(self._session.readers())

    async def address_settings(self) -> dict[str, AddressSetting]:
        """Read all address settings, by what they match."""
        return await self._store.run(self._session.address_settings())

    async def views(self) -> dict[str, View]:
        """Read the definitions of all views, by name."""
        return await self._store.run(self._session.views())

    async def actions(self) -> dict[str, ActionState]:
        """Read all actions and how far they have come; see `Client.actions`."""
        return await self._store.run(actions(self.instance))

    async def failed_events(self, action: str) -> list[FailedEvent]:
        """Read the events of an action that failed; see `Client.failed_events`."""
        return await self._store.run(failed_events(self.instance, action))

    async def retry_action(self, action: str, events: Iterable[int] | int | None = None) -> int:
        """Let failed events be tried at once; see `Client.retry_action`."""
        return await self._store.run(retry_action(self.instance, action, events))

    async def drop_failed(self, action: str, events: Iterable[int] | int | None = None) -> int:
        """Forget failed events; see `Client.drop_failed`."""
        return await self._store.run(drop_failed(self.instance, action, events))

    async def topics(self) -> dict[str, dict[str, Any]]:
        """Read all topics by name; see `Client.topics`."""
        return await self._store.run(self._session.topics())

    async def trim(self, topic: str, *, age: timedelta | float | str | None = None, dry_run: bool = False) -> Trimmed:
        """Remove now what a topic's retention gives up and nobody needs; see `Client.trim`."""
        return await self._store.run(self._session.trim(topic, age, dry_run=dry_run))

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
            for topic_subscription in list(self._topic_subscriptions):
                await topic_subscription.close()
            for subscription in list(self._subscriptions):
                await subscription.close()
            if presence.is_started:
                await store.run(self._session.leave())
        finally:
            self._opened = None
            await asyncio.to_thread(presence.stop)
            await asyncio.to_thread(self._reporting.stop)
            await store.close()
            if self._address is not None:
                await asyncio.to_thread(self._address.release)

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.close()
