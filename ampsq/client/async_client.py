"""The asyncio client: the same names and the same behaviour as `ampsq.client.client`, awaited."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Never, Self, Unpack

from ampsq.base.errors import AmpsqError, Closed, DefinitionError, Rejected, Unavailable
from ampsq.base.suggestions import misplaced, unknown_argument
from ampsq.base.values import Interval, shown
from ampsq.client.async_admin import AsyncAdmin
from ampsq.client.async_publisher import AsyncPublisher
from ampsq.client.instance_connection import BETWEEN_ROUNDS, AsyncInstanceConnection, ConnectionOptions
from ampsq.client.publisher_core import Publishers
from ampsq.client.session import Session
from ampsq.definitions.transport import INSTANCE, parse_transport
from ampsq.publishing.envelope import BARE, Envelope, refuse_publish_arguments
from ampsq.publishing.guarantee_options import ELSEWHERE, Guarantee
from ampsq.publishing.publishing_batches import PublishingBatches
from ampsq.queues.async_subscription import AsyncSubscription, Subscribing
from ampsq.queues.handlers import check_handler
from ampsq.queues.query import Query, parse_query_filter
from ampsq.queues.subscription_core import SubscriptionCore
from ampsq.records.deletion import check_choice, delete_by_key, delete_matching
from ampsq.records.subscription import AsyncRecordSubscription
from ampsq.server.location import ServerLocation
from ampsq.topics.conflation_reader import make_subscription_core
from ampsq.topics.replay import ConflatedName
from ampsq.topics.subscription import AsyncTopicSubscription
from ampsq.topics.subscription_spec import TopicSubscriptionSpec, refuse_arguments
from ampsq.transport.connection_pool import run_to_end
from ampsq.transport.connection_state import AsyncListeners
from ampsq.transport.failover import Failover
from ampsq.transport.instances import parse_instances, parse_policy
from ampsq.transport.route import parse_heartbeat
from ampsq.transport.runner import AsyncStore
from ampsq.views.subscription import AsyncRowSubscription

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from ampsq.base.bookmarks import Bookmark
    from ampsq.base.log_positions import Place
    from ampsq.catalog.apply import Outcome
    from ampsq.client.publisher_core import PublisherCore
    from ampsq.definitions.queue import Definition
    from ampsq.protocol.reads.server import Server
    from ampsq.publishing.guarantee_options import FailedWrite
    from ampsq.publishing.guaranteed import GuaranteedPublisher
    from ampsq.publishing.memory_store import PublishStore
    from ampsq.publishing.persistence_level import PersistedAck
    from ampsq.queues.message import AsyncMessage
    from ampsq.queues.query import SowMessage
    from ampsq.server.location import AppendFsync
    from ampsq.topics.message import AsyncTopicMessage
    from ampsq.topics.subscription_spec import ReplayOptions
    from ampsq.transport.connection_state import ConnectionEvent
    from ampsq.transport.instances import InstanceAddress
    from ampsq.transport.route import Route
    from ampsq.transport.runner import AsyncStore

__all__ = ["AsyncClient"]

#: Seconds for which closing tries to reach a server that is away: what it holds comes back by itself.
_CLOSE_TIMEOUT = 1.0


class AsyncClient:
    """A connection to an instance, for one event loop. Use it with ``async with``; arguments as `Client`'s."""

    #: What `publisher` makes.
    _publisher_type: type[AsyncPublisher] = AsyncPublisher

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        instance: str | None = None,
        ack_timeout: timedelta | float | str = "250ms",
        retry_timeout: timedelta | float | str = "15s",
        heartbeat: timedelta | float | str = "5s",
        data_dir: str | os.PathLike[str] = ".ampsq",
        appendfsync: AppendFsync = "everysec",
        transport: str = INSTANCE,
        failover: str = "refuse",
        **unknown: Never,
    ) -> None:
        if unknown:
            raise unknown_argument("AsyncClient", unknown, ("url", *AsyncClient.__init__.__kwdefaults__), ELSEWHERE)
        self._session = Session(instance or os.environ.get("AMPSQ_INSTANCE") or "ampsq")
        self._url, self._data_dir, self._appendfsync = url, data_dir, appendfsync
        self._retry_timeout, self._ack_timeout = (
            Interval.parse(retry_timeout) / 1000,
            Interval.parse(ack_timeout) / 1000,
        )
        self._policy = parse_policy(failover)
        self._listeners = AsyncListeners()
        self._options = ConnectionOptions(
            *(
                self._retry_timeout,
                parse_heartbeat(heartbeat),
                self._ack_timeout,
                parse_transport(transport),
            ),
            *(self._listeners, None, ()),
        )
        self._address: ServerLocation | None = None
        self._instances: list[InstanceAddress] = []
        self._parts: AsyncInstanceConnection | None = None
        self._former: list[AsyncInstanceConnection] = []
        self._admin = AsyncAdmin(self)
        self._failover: Failover | None = None
        self._subscriptions: list[AsyncSubscription] = []
        self._topic_subscriptions: list[AsyncTopicSubscription] = []
        self._record_subscriptions: list[AsyncRecordSubscription] = []
        self._row_subscriptions: list[AsyncRowSubscription] = []
        self._publishers: Publishers[AsyncStore] | None = None
        # Subscriptions whose acknowledgements a publisher keeps.
        self._acknowledging: list[tuple[GuaranteedPublisher, AsyncSubscription]] = []

    async def connect(self) -> Self:
        """Connect; ``async with`` does it. Raises as `Client` does."""
        if self._parts is None:
            self._address = await asyncio.to_thread(ServerLocation, self._url, self._data_dir, self._appendfsync)
            self._instances = parse_instances(self._address.url, self._session.instance)
            self._options = replace(
                self._options,
                revive=self._address.revive,
                instances=tuple(instance_address.instance for instance_address in self._instances),
            )
            try:
                parts = await self._begin()
                self._publishers = Publishers(
                    *(parts, self._instances, self._address.revive),
                    retry_timeout=self._retry_timeout,
                    is_careful=self._policy == "refuse",
                )
                if self._session.has_listeners:
                    await asyncio.to_thread(parts.keepalive.start)
                if len(self._instances) > 1:
                    move = partial(self._fail_over_from_thread, asyncio.get_running_loop())
                    self._failover = Failover(self._instances, parts.route, self._policy, move)
                    await asyncio.to_thread(self._failover.start)
            except BaseException:
                await self.close()
                raise
        return self

    def _adopt(self, parts: AsyncInstanceConnection) -> None:
        self._parts, self._session = parts, parts.session

    async def _begin(self) -> AsyncInstanceConnection:
        """Work at the first instance that can be reached, in the order in which they were given."""
        until, several = time.monotonic() + self._retry_timeout, len(self._instances) > 1
        while True:
            failures: list[AmpsqError] = []
            for instance_address in self._instances:
                parts = AsyncInstanceConnection.to(instance_address, self._options)
                self._adopt(parts)
                # Where there are others, nobody waits for one of them.
                parts.store.retry_timeout = 0.0 if several else self._retry_timeout
                try:
                    await parts.open()
                    parts.store.retry_timeout = self._retry_timeout
                except Unavailable as error:
                    if not several:
                        raise
                    await parts.store.close()
                    failures.append(error)
                else:
                    return parts
            if time.monotonic() >= until:
                raise Unavailable("; ".join(map(str, failures)))
            await asyncio.sleep(BETWEEN_ROUNDS)

    def _fail_over_from_thread(
        self, loop: asyncio.AbstractEventLoop, instance_address: InstanceAddress, *, is_careful: bool
    ) -> Route:
        """See `_fail_over`; the thread that watches waits for the event loop, which alone uses the subscriptions."""
        return asyncio.run_coroutine_threadsafe(self._fail_over(instance_address, is_careful=is_careful), loop).result()

    async def _fail_over(self, instance_address: InstanceAddress, *, is_careful: bool) -> Route:
        """Go on at another instance; see `ampsq.transport.failover`."""
        parts = AsyncInstanceConnection.to(instance_address, replace(self._options, retry_timeout=0.0), self._session)
        try:
            await parts.open()
            if self._publishers is not None and is_careful:
                await asyncio.to_thread(self._publishers.check_resume_at, parts.route)
            if self._subscriptions or parts.session.has_listeners:
                await asyncio.to_thread(parts.keepalive.start)
            subscriptions = self._all_subscriptions
            store, session = parts.store, parts.session
            moves = [
                *[await each.prepare_failover(store, session, parts.keepalive) for each in self._subscriptions],
                *[await each.prepare_failover(store, session, parts.reporting) for each in self._topic_subscriptions],
                *[await each.prepare_failover(store, session.context) for each in self._record_subscriptions],
                *[await each.prepare_failover(store, session.context) for each in self._row_subscriptions],
            ]
        except BaseException:
            await asyncio.to_thread(parts.stop)
            await parts.store.close()
            raise
        parts.store.retry_timeout = self._retry_timeout
        for subscription in subscriptions:
            subscription.suspend()
        former = self._opened
        # Every call that waits for this instance fails.
        former.route.left = str(instance_address)
        self._former.append(former)
        if self._publishers is not None:
            self._publishers.resume_at(parts)
        self._adopt(parts)
        for move in moves:
            await move()
        await asyncio.to_thread(former.stop)
        return parts.route

    @property
    def _all_subscriptions(
        self,
    ) -> list[AsyncSubscription | AsyncTopicSubscription | AsyncRecordSubscription | AsyncRowSubscription]:
        return [
            *self._subscriptions,
            *self._topic_subscriptions,
            *self._record_subscriptions,
            *self._row_subscriptions,
        ]

    @property
    def _opened(self) -> AsyncInstanceConnection:
        if self._parts is None:
            raise Closed("this client is not connected: use `async with AsyncClient(...) as client`")
        return self._parts

    @property
    def _store(self) -> AsyncStore:
        return self._opened.store

    def __repr__(self) -> str:
        return f"<AsyncClient of {self.instance}>"

    def add_connection_state_listener(self, listener: Callable[[ConnectionEvent], object]) -> None:
        """As `Client.add_connection_state_listener`; called in the event loop, a coroutine function is awaited."""
        self._listeners.add(listener)

    def remove_connection_state_listener(self, listener: Callable[[ConnectionEvent], object]) -> None:
        """As `Client.remove_connection_state_listener`."""
        self._listeners.remove(listener)

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

    @property
    def instance(self) -> str:
        """The instance's name."""
        return self._session.instance

    @property
    def origin(self) -> str:
        """The origin of messages that are published here: the instance's name and its incarnation."""
        return self._session.origin

    @property
    def admin(self) -> AsyncAdmin:
        """The administrative calls: definitions, figures, dead letters, replication, failures; see `AsyncAdmin`."""
        return self._admin

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            raise misplaced(self, name, "admin", AsyncAdmin)

    async def apply(self, *definitions: Definition) -> list[tuple[Definition, Outcome]]:
        """Define topics, queues, views and actions; see `Client.apply`."""
        return await self._store.run(self._session.apply(definitions))

    async def publish(
        self,
        topic: str,
        data: Any,
        *,
        headers: Mapping[str, str] | None = None,
        expiration: timedelta | float | str | None = None,
        delay: timedelta | float | str | None = None,
        at: datetime | None = None,
        **unknown: Never,
    ) -> Bookmark:
        """Record one message; see `Client.publish`. Tasks that publish at the same time do not wait for each other."""
        if unknown:
            refuse_publish_arguments("publish", unknown)
        envelope = BARE
        if headers or expiration is not None or delay is not None or at is not None:
            envelope = Envelope.of(headers, expiration, delay, at)
        return (await self._store.run(self._session.plain.publish(topic, data, envelope))).bookmark

    async def delta_publish(
        self,
        topic: str,
        data: Any,
        *,
        headers: Mapping[str, str] | None = None,
        expiration: timedelta | float | str | None = None,
        **unknown: Never,
    ) -> Bookmark:
        """Record a change of a topic's record, merged into it; see `Client.delta_publish`."""
        if unknown:
            refuse_publish_arguments("delta_publish", unknown)
        envelope = Envelope.of(headers, expiration, None, None)
        return (await self._store.run(self._session.plain.publish(topic, data, envelope, delta=True))).bookmark

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
        **unknown: Never,
    ) -> Sequence[Bookmark]:
        """Record many messages; see `Client.publish_many`."""
        if unknown:
            refuse_publish_arguments("publish_many", unknown)
        envelope, plain, store = Envelope.of(headers, expiration, delay, at), self._session.plain, self._store
        noted = PublishingBatches(self.origin)
        await store.run(plain.prepare(topic))
        calls = plain.batches(topic, messages, batch, envelope, noted)
        with noted.telling():
            for call in calls:
                plain.note(noted, await store.run(plain.publish_first(topic, call)))
                break
            async for answer in store.stream(calls):
                plain.note(noted, answer)
        await store.run(plain.client.types.warn_of_unread())
        return noted.bookmarks

    async def sow_delete(
        self,
        topic: str,
        *,
        keys: Iterable[Any] | None = None,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        data: Any = None,
    ) -> int:
        """Delete records of a topic; see `Client.sow_delete`."""
        check_choice(topic, keys=keys, filter=filter, data=data)
        if filter is not None:
            return await self._store.run(delete_matching(topic, parse_query_filter(filter)))
        return await self._store.run(delete_by_key(self._session.plain, topic, keys, data))

    def publisher(
        self,
        name: str,
        *,
        store: PublishStore | str | os.PathLike[str] | None = None,
        persisted: str = "memory",
        ack_conflation: timedelta | float | str = "100ms",
        on_failed_write: Callable[[FailedWrite], object] | None = None,
        on_persisted: Callable[[PersistedAck], object] | None = None,
    ) -> AsyncPublisher:
        """Make a publisher with a name; see `Client.publisher`. Enter it with ``async with``, or await and close it."""
        guarantee = Guarantee.of(
            store,
            persisted=persisted,
            conflation=ack_conflation,
            on_failed_write=on_failed_write,
            on_persisted=on_persisted,
        )
        if self._publishers is None:
            raise Closed("this client is not connected: use `async with AsyncClient(...) as client`")
        core = self._publishers.make(name, guarantee)
        return self._publisher_type(core, partial(self._subscriptions_of, core))

    def _keeper_of(self, publisher: AsyncPublisher | None) -> GuaranteedPublisher | None:
        return self._publishers.keeper_of(publisher) if self._publishers is not None else None

    def _subscriptions_of(self, core: PublisherCore[AsyncStore]) -> list[AsyncSubscription]:
        return [subscription for each, subscription in self._acknowledging if each is core.guaranteed]

    def subscribe(
        self,
        name: str,
        *,
        max_backlog: int = 1,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        renew: bool = False,
        on_message: Callable[[AsyncMessage], object] | None = None,
        publisher: AsyncPublisher | None = None,
        **unknown: Never,
    ) -> Subscribing[AsyncSubscription]:
        """Subscribe to a queue, or to queues; see `Client.subscribe`.

        ``await`` it, or use it with ``async with``, which closes the subscription at the end. `on_message` is a
        coroutine function, or a plain one, during which nothing else runs in the event loop.
        """
        if unknown:
            refuse_arguments("subscribe", name, unknown)
        check_handler(on_message, awaits=True)
        request = self._session.request()
        block = self._store.route.heartbeat
        core = SubscriptionCore(
            self.instance, name, max_backlog, request, text=filter, renewed=renew, longest_block=block
        )
        keeper = self._keeper_of(publisher)
        if keeper is not None:
            core.keep_in(keeper)
        return Subscribing(self._subscribe(core, on_message, keeper), shown(name))

    def subscribe_topic(
        self,
        name: str,
        *,
        bookmark: Place | Sequence[Place] | None = None,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        on_message: Callable[[AsyncTopicMessage], object] | None = None,
        **options: Unpack[ReplayOptions],
    ) -> Subscribing[AsyncTopicSubscription]:
        """Subscribe to a topic, or to topics; see `Client.subscribe_topic`. ``await`` or enter it, as `subscribe`."""
        check_handler(on_message, awaits=True)
        spec = TopicSubscriptionSpec.of(name, filter, bookmark, options)

        async def begin() -> AsyncTopicSubscription:
            try:
                subscription = await self._follow(spec)
            except ConflatedName as found:
                if bookmark is not None or options:
                    raise
                subscription = await self._follow(
                    TopicSubscriptionSpec.of(name, filter, None, {}, conflated=found.topic)
                )
            self._topic_subscriptions.append(subscription)
            if on_message is not None:
                subscription.run(on_message)
            return subscription

        return Subscribing(begin(), shown(name))

    async def _follow(self, spec: TopicSubscriptionSpec) -> AsyncTopicSubscription:
        reading = make_subscription_core(self._session, spec, self._ack_timeout, self._opened.reporting)
        subscription = AsyncTopicSubscription(reading, self._store, self._topic_subscriptions.remove)
        await subscription.open()
        return subscription

    async def _subscribe(
        self,
        core: SubscriptionCore,
        on_message: Callable[[AsyncMessage], object] | None,
        keeper: GuaranteedPublisher | None,
    ) -> AsyncSubscription:
        parts = self._opened
        if core.instance != self.instance:
            core = core.copy_for(self.instance, self._session.request())
        await asyncio.to_thread(parts.keepalive.start)
        try:
            await parts.store.run(core.register())
        except (Rejected, DefinitionError):
            raise
        except BaseException:
            # The server may have made the subscription, and would deliver messages to it that no client takes.
            parts.keepalive.end_unanswered(core)
            raise
        parts.keepalive.add(core)
        subscription = AsyncSubscription(core, parts.store, parts.session.origin, self._end)
        self._subscriptions.append(subscription)
        if keeper is not None:
            self._acknowledging.append((keeper, subscription))
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
        reason: str | None = None,
        dry_run: bool = False,
        publisher: AsyncPublisher | None = None,
    ) -> int:
        """Settle messages by bookmark or filter; see `Client.ack`."""
        keeper = self._keeper_of(publisher)
        return await self._store.run(
            self._session.ack(queue, bookmarks, option, filter, reason=reason, dry_run=dry_run, keeper=keeper)
        )

    async def sow(
        self,
        name: str,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        *,
        order_by: str | Sequence[str] = (),
        top_n: int | None = None,
        skip_n: int | None = None,
        sow_keys: Iterable[Any] | None = None,
        bookmark: Bookmark | str | datetime | None = None,
    ) -> list[SowMessage]:
        """Query a topic with a key, a queue or a view; see `Client.sow`."""
        query = Query(filter, order_by, top_n, skip_n)
        return await self._store.run(self._session.sow(name, query, sow_keys, bookmark))

    def sow_and_subscribe(
        self,
        topic: str,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        *,
        order_by: str | Sequence[str] = (),
        top_n: int | None = None,
        skip_n: int | None = None,
        oof: bool = False,
        conflation: timedelta | float | str | None = None,
        bookmark: Bookmark | str | datetime | None = None,
    ) -> Subscribing[AsyncRecordSubscription]:
        """Query records and subscribe to what changes them; see `Client.sow_and_subscribe`. ``await`` or enter it."""
        query = Query(filter, order_by, top_n, skip_n)
        following = self._session.follow_records(topic, query, oof=oof, conflation=conflation, bookmark=bookmark)

        async def begin() -> AsyncRecordSubscription:
            subscription = AsyncRecordSubscription(following, self._store, self._record_subscriptions.remove)
            await subscription.open()
            self._record_subscriptions.append(subscription)
            return subscription

        return Subscribing(begin(), f"the records of {shown(topic)}")

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
            subscription = AsyncRowSubscription(follower, self._store, self._row_subscriptions.remove)
            self._row_subscriptions.append(subscription)
            return subscription

        return Subscribing(begin(), f"the aggregate of {shown(name)}")

    def _end(self, subscription: AsyncSubscription, core: SubscriptionCore) -> None:
        if self._parts is not None:
            self._parts.keepalive.remove(core)
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
        self._acknowledging = [each for each in self._acknowledging if each[1] is not subscription]

    async def close(self) -> None:
        """Close the subscriptions, giving back what is unstarted, and the connections; see `Client.close`."""
        if self._parts is None:
            return
        parts = self._parts
        try:
            if self._failover is not None:
                failover, self._failover = self._failover, None
                await run_to_end(asyncio.to_thread(failover.stop))
            parts.store.retry_timeout = min(parts.store.retry_timeout, _CLOSE_TIMEOUT)
            for record_subscription in list(self._record_subscriptions):
                await record_subscription.close()
            for topic_subscription in list(self._topic_subscriptions):
                await topic_subscription.close()
            for subscription in list(self._subscriptions):
                await subscription.close()
            if parts.keepalive.is_started:
                await parts.store.run(self._session.announce_disconnect())
        finally:
            # It may have gone on elsewhere meanwhile.
            parts = self._parts or parts
            # Those whose closing was cancelled, or never begun.
            for subscription in list(self._subscriptions):
                subscription.abandon(parts.keepalive)
            self._parts = None
            await run_to_end(self._close_parts(parts))

    async def _close_parts(self, parts: AsyncInstanceConnection) -> None:
        """Close connections and threads; the server hears of the subscriptions that were abandoned."""
        await asyncio.to_thread(parts.stop)
        try:
            if self._publishers is not None:
                publishers, self._publishers = self._publishers, None
                await asyncio.to_thread(publishers.close)
        finally:
            for each in (parts, *self._former):
                await each.store.close()
            if self._address is not None:
                await asyncio.to_thread(self._address.release)
            await self._listeners.aclose()

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.close()
