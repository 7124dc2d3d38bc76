"""The asyncio client: the same names and the same behaviour as `ampsq.client.client`, awaited."""

# Long: one call of the client each, with its arguments.

from __future__ import annotations

import os
from functools import partial, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Never, Self, Unpack, cast

from ampsq.base.errors import Closed
from ampsq.base.partitions import asked_partitions, check_key_function, refuse_partitions
from ampsq.base.suggestions import misplaced, unknown_argument
from ampsq.base.values import INSTANCE_TRANSPORT, check_text, shown
from ampsq.publishing.envelope import BARE, Envelope, refuse_publish_arguments
from ampsq.queues.async_subscription import Subscribing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from ampsq.base.bookmarks import Bookmark
    from ampsq.base.log_positions import Place
    from ampsq.base.partitions import Partition
    from ampsq.catalog.apply import Outcome
    from ampsq.client.async_admin import AsyncAdmin
    from ampsq.client.async_publisher import AsyncPublisher
    from ampsq.client.client import Client
    from ampsq.client.partitioned_client import PartitionedClient
    from ampsq.client.session import Session
    from ampsq.definitions.queue import Definition
    from ampsq.protocol.reads.server import Server
    from ampsq.publishing.guarantee_options import FailedWrite
    from ampsq.publishing.memory_store import PublishStore
    from ampsq.publishing.persistence_level import PersistedAck
    from ampsq.queues.async_subscription import AsyncMessage, AsyncSubscription
    from ampsq.queues.query import SowMessage
    from ampsq.records.async_subscription import AsyncRecordSubscription
    from ampsq.server.location import AppendFsync
    from ampsq.topics.async_subscription import AsyncTopicMessage, AsyncTopicSubscription
    from ampsq.topics.subscription_spec import ReplayOptions
    from ampsq.transport.async_server_pools import AsyncServerPools
    from ampsq.transport.async_store import AsyncStore
    from ampsq.transport.connection_state import ConnectionEvent
    from ampsq.views.async_subscription import AsyncRowSubscription

__all__ = ["AsyncClient"]


class AsyncClient:
    """A connection to an instance, for one event loop. Use it with ``async with``; arguments as `Client`'s."""

    #: What `publisher` makes; None: a plain one.
    _publisher_type: type[AsyncPublisher] | None = None

    #: As of `Client`.
    _of_partitions: ClassVar[tuple[str, str]] = ("ampsq.client.async_partitioned_client", "AsyncPartitionedClient")

    #: As of `Client`.
    _partition: Partition | None = None
    #: The connections that it shares with the others of these.
    _pools: AsyncServerPools | None = None

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        instance: str | None = None,
        partitions: int | None = None,
        ack_timeout: timedelta | float | str = "250ms",
        retry_timeout: timedelta | float | str = "15s",
        heartbeat: timedelta | float | str = "5s",
        data_dir: str | os.PathLike[str] = ".ampsq",
        appendfsync: AppendFsync = "everysec",
        transport: str = INSTANCE_TRANSPORT,
        failover: str = "refuse",
        **unknown: Never,
    ) -> None:
        from ampsq.client.async_connection import AsyncClientConnection
        from ampsq.client.instance_connection import ConnectionOptions
        from ampsq.server.location import ServerLocation
        from ampsq.transport.connection_state import AsyncListeners

        if unknown:
            from ampsq.publishing.guarantee_options import ELSEWHERE

            raise unknown_argument(
                "AsyncClient", unknown, ("url", *(AsyncClient.__init__.__kwdefaults__ or ())), ELSEWHERE
            )
        refuse_partitions(type(self).__name__, url, partitions)
        listeners = AsyncListeners()
        options = ConnectionOptions.parse(
            listeners,
            retry_timeout=retry_timeout,
            heartbeat=heartbeat,
            ack_timeout=ack_timeout,
            transport=transport,
            failover=failover,
            partition=self._partition,
            pools=self._pools,
        )
        locate = partial(ServerLocation, url, data_dir, appendfsync)
        name = instance or os.environ.get("AMPSQ_INSTANCE") or "ampsq"
        self._connection = AsyncClientConnection(locate, name, options, listeners)
        self._admin: AsyncAdmin | None = None

    if not TYPE_CHECKING:
        # A class has the signature of this method, where it has one: it is that of `__init__`.
        @wraps(__init__, assigned=())
        def __new__(cls, url: object = None, *, partitions: object = None, **_: object) -> object:
            """Make a client of one instance, or of all its partitions where they are asked for."""
            kind, whole = cls, vars(cls).get("_of_partitions")
            if whole is not None and asked_partitions(url, partitions)[1] is not None:
                # By name: that module imports this one.
                kind = getattr(import_module(whole[0]), whole[1])
            return object.__new__(kind)

    @classmethod
    def _beside(cls, client: Client) -> Self:
        """Make one to the same place and with the same options as a client of threads, not connected."""
        from ampsq.client.async_connection import AsyncClientConnection
        from ampsq.transport.connection_state import AsyncListeners

        if client.partitions:
            return cls(**cast("PartitionedClient", client)._arguments())  # noqa: SLF001  (its other half)
        made, listeners = object.__new__(cls), AsyncListeners()
        locate, name, options = client._connection.again(listeners)  # noqa: SLF001  (its other half)
        made._connection = AsyncClientConnection(locate, name, options, listeners)
        made._admin = None
        return made

    @classmethod
    async def _at(
        cls, partition: Partition, url: str | Sequence[str] | None, options: Mapping[str, Any], pools: AsyncServerPools
    ) -> Self:
        """Open one of the clients that a client of all partitions has."""
        made = object.__new__(cls)
        made._partition, made._pools = partition, pools
        AsyncClient.__init__(made, url, instance=partition.instance, **options)
        return await made.connect()

    async def connect(self) -> Self:
        """Connect; ``async with`` does it. Raises as `Client` does."""
        await self._connection.open()
        return self

    @property
    def _store(self) -> AsyncStore:
        """The store of the present instance, for those calls of ampsq's own programs that have no method here."""
        return self._connection.store

    @property
    def _session(self) -> Session:
        """The identity under which those calls are made."""
        return self._connection.session

    def __repr__(self) -> str:
        return f"<AsyncClient of {self._connection}>"

    def add_connection_state_listener(self, listener: Callable[[ConnectionEvent], object]) -> None:
        """As `Client.add_connection_state_listener`; called in the event loop, a coroutine function is awaited."""
        self._connection.listeners.add(listener)

    def remove_connection_state_listener(self, listener: Callable[[ConnectionEvent], object]) -> None:
        """As `Client.remove_connection_state_listener`."""
        self._connection.listeners.remove(listener)

    @property
    def url(self) -> str:
        """The server's address."""
        return self._connection.store.url

    @property
    def server(self) -> Server:
        """The server as it was at connect."""
        server = self._connection.session.server
        if server is None:
            raise Closed("this client is not connected: use `async with AsyncClient(...) as client`")
        return server

    @property
    def instance(self) -> str:
        """The instance's name."""
        return self._connection.session.instance

    @property
    def partitions(self) -> tuple[str, ...]:
        """The names of its partitions; see `Client.partitions`."""
        return ()

    @property
    def origin(self) -> str:
        """The origin of messages that are published here: the instance's name and its incarnation."""
        return self._connection.session.origin

    @property
    def admin(self) -> AsyncAdmin:
        """The administrative calls: definitions, figures, dead letters, replication, failures; see `AsyncAdmin`."""
        if self._admin is None:
            from ampsq.client.async_admin import AsyncAdmin

            self._admin = AsyncAdmin(self._connection)
        return self._admin

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            from ampsq.client.async_admin import AsyncAdmin

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
        group: str | None = None,
        deduplication_id: str | None = None,
        within: timedelta | float | str | None = None,
        key: str | None = None,
        **unknown: Never,
    ) -> Bookmark:
        """Record one message; see `Client.publish`. Tasks that publish at the same time do not wait for each other."""
        if unknown:
            refuse_publish_arguments("publish", unknown, "deduplication_id", "within", "key")
        connection, envelope = self._connection, BARE
        if key is not None:
            check_text("key", key)
        if headers is not None or expiration is not None or delay is not None or at is not None or group is not None:
            envelope = Envelope.of(headers, expiration, delay, at, group)
        if deduplication_id is not None or within is not None:
            from ampsq.publishing.deduplication import DeduplicationWindow

            window = DeduplicationWindow.of(deduplication_id, within)
            if window is not None:
                return await connection.store.run(connection.session.plain.publish_once(topic, data, envelope, window))
        return (await connection.store.run(connection.session.plain.publish(topic, data, envelope))).bookmark

    async def delta_publish(
        self,
        topic: str,
        data: Any,
        *,
        headers: Mapping[str, str] | None = None,
        expiration: timedelta | float | str | None = None,
        key: str | None = None,
        **unknown: Never,
    ) -> Bookmark:
        """Record a change of a topic's record, merged into it; see `Client.delta_publish`."""
        if unknown:
            refuse_publish_arguments("delta_publish", unknown, "key")
        if key is not None:
            check_text("key", key)
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
        group: str | None = None,
        deduplication_id: Callable[[Any], str | None] | None = None,
        within: timedelta | float | str | None = None,
        key: Callable[[Any], str] | None = None,
        **unknown: Never,
    ) -> Sequence[Bookmark]:
        """Record many messages; see `Client.publish_many`."""
        from ampsq.publishing.deduplication import DeduplicationWindow
        from ampsq.publishing.publishing_batches import PublishingBatches

        if unknown:
            refuse_publish_arguments("publish_many", unknown, "deduplication_id", "within", "key")
        check_key_function(key)
        envelope, plain, store = Envelope.of(headers, expiration, delay, at, group), self._session.plain, self._store
        noted = PublishingBatches(self.origin)
        window = DeduplicationWindow.of_many(deduplication_id, within)
        await store.run(plain.prepare(topic))
        calls = plain.batches(topic, messages, batch, envelope, noted, window=window)
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
        from ampsq.queues.query import parse_query_filter
        from ampsq.records.deletion import check_choice, delete_by_key, delete_matching

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
        from ampsq.client.async_publisher import AsyncPublisher
        from ampsq.publishing.guarantee_options import Guarantee

        guarantee = Guarantee.of(
            store,
            persisted=persisted,
            conflation=ack_conflation,
            on_failed_write=on_failed_write,
            on_persisted=on_persisted,
        )
        core = self._connection.publishers.make(name, guarantee)
        kind = self._publisher_type or AsyncPublisher
        return kind(core, partial(self._connection.acknowledging_with, core))

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
        from ampsq.queues.handlers import check_handler
        from ampsq.queues.subscription_core import SubscriptionCore

        if unknown:
            from ampsq.topics.subscription_spec import refuse_arguments

            refuse_arguments("subscribe", name, unknown)
        check_handler(on_message, awaits=True)
        connection, session = self._connection, self._connection.session
        core = SubscriptionCore(
            *(session.instance, name, max_backlog, session.request()),
            origin=session.origin,
            text=filter,
            renewed=renew,
            longest_wait=connection.store.route.heartbeat,
        )
        keeper = connection.keeper_of(publisher)
        if keeper is not None:
            core.leases.keep_in(keeper)
        return Subscribing(connection.subscribe(core, keeper, on_message), shown(name))

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
        from ampsq.queues.handlers import check_handler
        from ampsq.topics.subscription_spec import TopicSubscriptionSpec
        from ampsq.topics.topic_names import ConflatedName

        check_handler(on_message, awaits=True)
        spec, connection = TopicSubscriptionSpec.of(name, filter, bookmark, options), self._connection

        async def begin() -> AsyncTopicSubscription:
            try:
                return await connection.follow_topics(spec, on_message)
            except ConflatedName as found:
                if bookmark is not None or options:
                    raise
                conflated = TopicSubscriptionSpec.of(name, filter, None, {}, conflated=found.topic)
                return await connection.follow_topics(conflated, on_message)

        return Subscribing(begin(), shown(name))

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
        keeper = self._connection.keeper_of(publisher)
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
        from ampsq.queues.query import Query

        query = Query(filter, order_by, top_n, skip_n)
        return (await self._store.run(self._session.sow(name, query, sow_keys, bookmark))).messages()

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
        from ampsq.queues.query import Query

        query = Query(filter, order_by, top_n, skip_n)
        following = self._session.follow_records(topic, query, oof=oof, conflation=conflation, bookmark=bookmark)
        return Subscribing(self._connection.follow_records(following), f"the records of {shown(topic)}")

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
            return self._connection.follow_rows(follower)

        return Subscribing(begin(), f"the aggregate of {shown(name)}")

    async def close(self) -> None:
        """Close the subscriptions, giving back what is unstarted, and the connections; see `Client.close`."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.close()
