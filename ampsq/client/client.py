"""The synchronous client: publish to topics, define queues, subscribe to them.

What a client has open, and how that goes on at another instance, is in `ampsq.client.connection`.
"""
# Long: more than half of it are its texts, which are the reference for both clients.

from __future__ import annotations

import os
from functools import partial, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Never, Self, Unpack

from ampsq.base.errors import Closed
from ampsq.base.partitions import asked_partitions, check_key_function, refuse_partitions
from ampsq.base.suggestions import misplaced, unknown_argument
from ampsq.base.values import INSTANCE_TRANSPORT, check_text
from ampsq.publishing.envelope import BARE, Envelope, refuse_publish_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from ampsq.base.bookmarks import Bookmark
    from ampsq.base.log_positions import Place
    from ampsq.base.partitions import Partition
    from ampsq.catalog.apply import Outcome
    from ampsq.client.admin import Admin
    from ampsq.client.publisher import Publisher
    from ampsq.client.session import Session
    from ampsq.definitions.queue import Definition
    from ampsq.protocol.reads.server import Server
    from ampsq.publishing.guarantee_options import FailedWrite
    from ampsq.publishing.memory_store import PublishStore
    from ampsq.publishing.persistence_level import PersistedAck
    from ampsq.queues.query import SowMessage
    from ampsq.queues.subscription import Message, Subscription
    from ampsq.records.subscription import RecordSubscription
    from ampsq.server.location import AppendFsync
    from ampsq.topics.subscription import TopicMessage, TopicSubscription
    from ampsq.topics.subscription_spec import ReplayOptions
    from ampsq.transport.connection_state import ConnectionEvent
    from ampsq.transport.server_pools import ServerPools
    from ampsq.transport.store import Store
    from ampsq.views.subscription import RowSubscription

__all__ = ["Client"]


class Client:
    """A connection to one instance. Threads may share it, and wait for each other nowhere.

    Args:
        url: an address, or several, tried in order: a list, or one text with commas. ``redis://``, ``rediss://``,
            ``unix://``, ``sentinel://HOST,HOST/SERVICE``, ``cluster://HOST,HOST`` (docs/connections.md);
            ``memory://`` or ``memory://NAME`` is a server inside this process for tests and first steps (extra
            ``testing``): it keeps nothing beyond the process and has no links to other instances, no server functions
            and no users, and every script runs under one lock. Default ``AMPSQ_URL``, else the embedded server in
            `data_dir`, started with a coordinator beside it, which lives as long as somebody uses it.
        instance: the instance's name; default ``AMPSQ_INSTANCE``, else ``ampsq``.
        partitions: how many partitions the instance has, 1 to 1,024, which a cluster spreads over its servers
            (docs/partitions.md); also as ``?partitions=64`` in the address. Their number never changes. Default: none.
        ack_timeout: how long an acknowledgement may wait for its batch.
        retry_timeout: how long a call that may be repeated is repeated, at one address after the other, while no server
            can be reached.
        heartbeat: how often a client with subscriptions shows that it lives and asks whether the server does, and how
            long an answer or a new connection may take: 200ms to 10s. A dead one is noticed within twice that.
        data_dir: the embedded server's folder.
        appendfsync: of the embedded server: ``always`` never loses what was answered, and at-most-once needs it;
            ``everysec`` (default) is several times faster.
        transport: whose limits of slow clients count for its subscriptions to topics (docs/slow-clients.md); default
            ``*``, those of the instance.
        failover: of a client with addresses of several instances (each has the name behind ``#``,
            docs/replication.md): where messages that it published or was given may be missing at the next one,
            ``refuse`` (default) stays, and goes on when its own is back; ``warn`` goes on there, and logs a warning.
        unknown: refused, with the call that has it.

    Raises:
        Unavailable: there is no server; its subclasses name the cause. ServerUnsuitable: it is too old, would lose
            messages.
    """

    #: What `publisher` opens; None: a plain one.
    _publisher_type: type[Publisher] | None = None

    #: Module and name of what it is where all partitions are asked for; a subclass has one of its own, or none.
    _of_partitions: ClassVar[tuple[str, str]] = ("ampsq.client.partitioned_client", "PartitionedClient")

    #: Which partition of an instance it is at, for one of the clients that a client of all of them has.
    _partition: Partition | None = None
    #: The connections that it shares with the others of these.
    _pools: ServerPools | None = None

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
        from ampsq.client.connection import ClientConnection
        from ampsq.client.instance_connection import ConnectionOptions
        from ampsq.server.location import ServerLocation
        from ampsq.transport.connection_state import Listeners

        if unknown:
            from ampsq.publishing.guarantee_options import ELSEWHERE

            raise unknown_argument("Client", unknown, ("url", *(Client.__init__.__kwdefaults__ or ())), ELSEWHERE)
        refuse_partitions(type(self).__name__, url, partitions)
        options = ConnectionOptions.parse(
            Listeners(),
            retry_timeout=retry_timeout,
            heartbeat=heartbeat,
            ack_timeout=ack_timeout,
            transport=transport,
            failover=failover,
            partition=self._partition,
            pools=self._pools,
        )
        location = ServerLocation(url, data_dir, appendfsync)
        self._connection = ClientConnection(location, instance or os.environ.get("AMPSQ_INSTANCE") or "ampsq", options)
        self._admin: Admin | None = None
        self._connection.open()

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
    def _at(
        cls, partition: Partition, url: str | Sequence[str] | None, options: Mapping[str, Any], pools: ServerPools
    ) -> Self:
        """Open one of the clients that a client of all partitions has."""
        made = object.__new__(cls)
        made._partition, made._pools = partition, pools
        Client.__init__(made, url, instance=partition.instance, **options)
        return made

    @property
    def _store(self) -> Store:
        """The store of the present instance, for those calls of ampsq's own programs that have no method here."""
        return self._connection.store

    @property
    def _session(self) -> Session:
        """The identity under which those calls are made."""
        return self._connection.session

    def __repr__(self) -> str:
        return f"<Client of {self._connection}>"

    def add_connection_state_listener(self, listener: Callable[[ConnectionEvent], object]) -> None:
        """Tell a function what becomes of the connection: AMPS's ``add_connection_state_listener``.

        It is called with a `ConnectionEvent` (state, address, reason), first with what the present connection has
        reached already, then with every change, one after the other, in a thread of its own: it may take its time, and
        may use the client. What it raises is logged.
        """
        self._connection.listeners.add(listener)

    def remove_connection_state_listener(self, listener: Callable[[ConnectionEvent], object]) -> None:
        """Tell a function no more; one that was never told is no error."""
        self._connection.listeners.remove(listener)

    @property
    def url(self) -> str:
        """The server's address, or the addresses, with commas between."""
        return self._connection.store.url

    @property
    def server(self) -> Server:
        """The server as it was at connect: version, durability, notes on what is badly configured."""
        server = self._connection.session.server
        if server is None:
            raise Closed("the client never connected")
        return server

    @property
    def instance(self) -> str:
        """The instance's name."""
        return self._connection.session.instance

    @property
    def partitions(self) -> tuple[str, ...]:
        """The names of its partitions, each of which is an instance of its own; none of an instance without."""
        return ()

    @property
    def origin(self) -> str:
        """The origin of messages that are published here: the instance's name and its incarnation."""
        return self._connection.session.origin

    @property
    def admin(self) -> Admin:
        """The administrative calls: definitions, figures, dead letters, replication, failures; see `Admin`."""
        if self._admin is None:
            from ampsq.client.admin import Admin

            self._admin = Admin(self._connection)
        return self._admin

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            from ampsq.client.admin import Admin

            raise misplaced(self, name, "admin", Admin)

    def apply(self, *definitions: Definition) -> list[tuple[Definition, Outcome]]:
        """Define topics, queues, views and actions, or change them; what is already so is left alone.

        A definition is whole: an element left out goes back to its default. `plan` says what would change.

        Returns:
            Each definition, in the order of work, with ``new``, ``changed`` or ``unchanged``.

        Raises:
            DefinitionError: a change is refused while the queue exists (`ampsq.catalog.queue_changes.CHANGES` says
                which are).
            QueueNotEmpty: the queue would be another kind of queue, or have another owner, and has messages.
            ServerUnsuitable: an at-most-once queue on a server that could bring a delivered message back.
        """
        return self._store.run(self._session.apply(definitions))

    def publish(
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
        """Record one message. Threads that publish at the same time do not wait for each other.

        Args:
            topic: a topic, or a queue, whose `default_publish_target` gets it. A new topic is made.
            data: bytes go as they are; everything else is encoded by the topic's `message_type`: JSON, unless it says
                otherwise (docs/message-types.md).
            headers: names and values, texts.
            expiration: how long it may be in a queue, 1ms or longer; a queue's `expiration_model` says how this and the
                queue's own go together. Default: the queue's.
            delay: how long until it is delivered, or
            at: when; in the past: at once. Until then it is in its queues, scheduled; then it is at the head of what is
                unread, and `expiration` begins to count. Default: now.
            group: its group, at most 255 bytes, in queues that have groups; it counts instead of what their `group_by`
                says (docs/groups.md). Default: what that says.
            deduplication_id: of the message, as in ``invoice-17``, at most 256 bytes. Where a message was recorded in
                the topic under this ID, by whomever, and its window is not over, nothing is recorded, and the bookmark
                is the first one's. It holds at this instance. Default: none; the message is recorded.
            within: the window: for how long the ID is known once this message is recorded; default 5m.
            key: of an instance with partitions: messages of one key are in one partition, in their order. Default: the
                group, else the deduplication ID, else the partitions in turn. Without partitions all messages of a
                topic are in one order, and it says nothing.
            unknown: refused, with a word where it is said.

        Returns:
            Its bookmark, when it is recorded. Where a message must survive whatever fails, or be recorded once: see
            `publisher`.

        Raises:
            DefinitionError: the topic's `message_type` cannot say such data.
            Unavailable: no answer; the message may or may not be recorded. With a `deduplication_id`, publish it again.
            TooManyDeduplicationIds: the topic knows as many IDs as it may, `Topic.deduplication_ids`; nothing was
                recorded.
            ServerFull: the server's memory is full; nothing was recorded.
            MissingKey: the topic has a key, and the message does not have one value for it; nothing was recorded.
            UnreadBody: the topic has a key, which is not looked for in a body as large as this.
        """
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
                return connection.store.run(connection.session.plain.publish_once(topic, data, envelope, window))
        return connection.store.run(connection.session.plain.publish(topic, data, envelope)).bookmark

    def delta_publish(
        self,
        topic: str,
        data: Any,
        *,
        headers: Mapping[str, str] | None = None,
        expiration: timedelta | float | str | None = None,
        key: str | None = None,
        **unknown: Never,
    ) -> Bookmark:
        """Record one message of a topic with a key that says only what changes of the record of its key.

        The server merges it into the record: members replace those of the same name, objects are merged, all else
        stays to the byte. The whole message is recorded and goes to the queues. Where the key has no record, or the
        topic no key, it is published as it is.

        Args:
            topic: the topic.
            data: an object that has the key and what changes; bytes go as they are.
            headers: of the whole message; those before are not kept.
            expiration: of the whole message, as of `publish`.
            key: of an instance with partitions, that with which the record was published; without partitions it says
                nothing.
            unknown: refused, as of `publish`.

        Returns:
            The bookmark of the whole message.

        Raises:
            MissingKey: the message does not have one value for the topic's key.
            UnreadBody: the change, or what it would make of the record, is more than the server reads.
            DeltaNotJson: the topic has a key, and a message type of which nothing is merged.
            Unavailable, ServerFull: as of `publish`.
        """
        if unknown:
            refuse_publish_arguments("delta_publish", unknown, "key")
        if key is not None:
            check_text("key", key)
        envelope = Envelope.of(headers, expiration, None, None)
        return self._store.run(self._session.plain.publish(topic, data, envelope, delta=True)).bookmark

    def publish_many(
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
        """Record many messages, `batch` (1 to 500) a call, the next one prepared while the last is recorded.

        `headers`, `expiration`, `delay`, `at`, `group` and `within` are those of each, as of `publish`.
        `deduplication_id` is a function that gives the ID of each, or None for none; `key` one that gives the key.

        Returns:
            Their bookmarks, in order, made when they are looked at.

        Raises:
            Unavailable: no answer; where `may_have_run`, some of them are recorded, or may be, the first ones first.
            ServerFull: the server's memory is full. MissingKey, UnreadBody,
                TooManyDeduplicationIds: as of `publish`; nothing of their batch is
                recorded. DefinitionError: a message cannot be encoded. Whichever error it is, its `published` has what
                is recorded of other batches.
        """
        from ampsq.publishing.deduplication import DeduplicationWindow
        from ampsq.publishing.publishing_batches import PublishingBatches

        if unknown:
            refuse_publish_arguments("publish_many", unknown, "deduplication_id", "within", "key")
        check_key_function(key)
        envelope, plain, store = Envelope.of(headers, expiration, delay, at, group), self._session.plain, self._store
        noted = PublishingBatches(self.origin)
        window = DeduplicationWindow.of_many(deduplication_id, within)
        store.run(plain.prepare(topic))
        calls = plain.batches(topic, messages, batch, envelope, noted, window=window)
        with noted.telling():
            for call in calls:
                plain.note(noted, store.run(plain.publish_first(topic, call)))
                break
            for answer in store.stream(calls):
                plain.note(noted, answer)
        store.run(self._session.types.warn_of_unread())
        return noted.bookmarks

    def sow_delete(
        self,
        topic: str,
        *,
        keys: Iterable[Any] | None = None,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        data: Any = None,
    ) -> int:
        """Delete records of a topic with a key; its queues keep their messages.

        Args:
            topic: the topic.
            keys: of the records, as of `sow`; or
            filter: an expression: all that match, each as of the step that looked at it; or
            data: a message with the key of the record.

        Returns:
            How many there were.

        Raises:
            NoRecords: the topic has no key. MissingKey: the data does not have it.
            DefinitionError: none or several of keys, filter and data.
            Unavailable: no answer; where `may_have_run`, some may be deleted. `Publisher.sow_delete` is repeated.
        """
        from ampsq.queues.query import parse_query_filter
        from ampsq.records.deletion import check_choice, delete_by_key, delete_matching

        check_choice(topic, keys=keys, filter=filter, data=data)
        if filter is not None:
            return self._store.run(delete_matching(topic, parse_query_filter(filter)))
        return self._store.run(delete_by_key(self._session.plain, topic, keys, data))

    def publisher(
        self,
        name: str,
        *,
        store: PublishStore | str | os.PathLike[str] | None = None,
        persisted: str = "memory",
        ack_conflation: timedelta | float | str = "100ms",
        on_failed_write: Callable[[FailedWrite], object] | None = None,
        on_persisted: Callable[[PersistedAck], object] | None = None,
    ) -> Publisher:
        """Open a publisher with a name, whose messages are recorded once each, in their order (docs/publishing.md).

        Leave it with ``with``, or close it; the client closes what is left open.

        Args:
            name: the messages are numbered under this name, so that a lost reply is answered by asking again. One
                process at a time may use a name.
            store: guarantees publishing: what `Publisher.publish` takes, and what is acknowledged with it of queues, is
                kept here until it is persisted, and sent again after whatever fails. The path of a file, which
                survives this process, a `FilePublishStore` or a `MemoryPublishStore`.
            persisted: with a store, where a message must be before it lets go of it: ``memory`` of the server,
                ``fsync`` its disk, which it flushes each second or at once, or ``replicas=<n>``.
            ack_conflation: with a store, how often `on_persisted` is called and persisted messages leave the store.
            on_failed_write: called with a `FailedWrite` for what the server refused for good; default: it is logged.
            on_persisted: called with a `PersistedAck`. Both are called in a thread of their own.

        Raises:
            DefinitionError: an argument is wrong or goes only with a store, or this client has a publisher of the name.
            PublishStoreError: the store cannot be used. Unavailable: there is no server, or it lacks what the store's
                publisher was told to be persisted; the client does not go to another instance for that.
            ServerUnsuitable: the server cannot say that it has messages as `persisted` asks.
        """
        from ampsq.client.publisher import Publisher
        from ampsq.publishing.guarantee_options import Guarantee

        self._connection.check_open()
        guarantee = Guarantee.of(
            store,
            persisted=persisted,
            conflation=ack_conflation,
            on_failed_write=on_failed_write,
            on_persisted=on_persisted,
        )
        core = self._connection.publishers.make(name, guarantee)
        core.open()
        kind = self._publisher_type or Publisher
        return kind(core, partial(self._connection.acknowledging_with, core))

    def subscribe(
        self,
        name: str,
        *,
        max_backlog: int = 1,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        renew: bool = False,
        on_message: Callable[[Message], object] | None = None,
        publisher: Publisher | None = None,
        **unknown: Never,
    ) -> Subscription:
        """Subscribe to a queue, or to all queues that a regular expression matches, later ones included.

        A queue gives each message to one subscription, which leases it. `subscribe_topic` follows topics instead,
        where every subscriber gets every message.

        Args:
            name: the queue, or a regular expression of queues.
            max_backlog: unacknowledged messages at most, over all queues together; the effective one is also limited
                by the queues' `max_per_subscription_backlog`. 0 gets barriers only.
            filter: only messages that this expression matches (docs/expressions.md); default all. Other messages,
                however many, cost nothing on the way to the next one. A body that is not JSON matches no filter.
            renew: extend the leases of this subscription as long as this process lives; default False: a lease lapses
                unless the message is settled or extended.
            on_message: called with each message in a thread of the subscription's own. It settles the message; where it
                raises, that is logged and its message cancelled. Without it, iterate or call `get`.
            publisher: one with a store, which keeps this subscription's acknowledgements until they are persisted, and
                sends them again after a failure. Close the subscription before it.
            unknown: refused, with the call that has it.

        Raises:
            UnknownQueue: no queue has this name; if it is a topic's or a view's, the text says what to call.
            ExpressionError: the filter is wrong. DefinitionError: another argument is.
            TooManyFilters: the queue's subscriptions have 32 distinct filters.
        """
        from ampsq.queues.handlers import check_handler
        from ampsq.queues.subscription_core import SubscriptionCore

        if unknown:
            from ampsq.topics.subscription_spec import refuse_arguments

            refuse_arguments("subscribe", name, unknown)
        check_handler(on_message, awaits=False)
        keeper = self._connection.publishers.keeper_of(publisher)
        connection, session = self._connection, self._connection.session
        core = SubscriptionCore(
            *(session.instance, name, max_backlog, session.request()),
            origin=session.origin,
            text=filter,
            renewed=renew,
            longest_wait=connection.parts.route.heartbeat,
        )
        return connection.subscribe(core, keeper, on_message)

    def subscribe_topic(
        self,
        name: str,
        *,
        bookmark: Place | Sequence[Place] | None = None,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        on_message: Callable[[TopicMessage], object] | None = None,
        **options: Unpack[ReplayOptions],
    ) -> TopicSubscription:
        """Subscribe to a topic, or to all topics that a regular expression matches, later ones included.

        Every subscriber gets every message, in the order of their recording, from a place in the log on and then live,
        without gap or duplicate (docs/replay.md); nothing is leased. `subscribe` takes the messages of queues.

        Args:
            name: the topic, a view, for its rows, a conflated topic, or a regular expression of topics. With a
                `bookmark` also a queue, whose underlying topics are read without taking anything from it.
            bookmark: where to begin: ``now`` (or ``0|1|``), ``epoch`` (or ``0``), ``most_recent`` (with `sub_id`), a
                bookmark or ``publisher|sequence`` (behind it), a time (a datetime, ISO 8601, or ``YYYYmmddTHHMMSSZ``);
                several, of which the earliest counts; or ranges of two such places, as in ``[epoch:now)``. A datetime
                has a time zone; a text without one is UTC. ``most_recent`` is behind what was handled under this
                `sub_id`, and the first time the beginning of the log. Default ``now``, with `sub_id`
                ``most_recent``.
            filter: only messages that this expression matches (docs/expressions.md); default all. Other messages are
                read and skipped here. A body that is not JSON matches no filter.
            on_message: called with each message in a thread of the subscription's own; the message is handled when it
                returns. Without it, iterate or call `get`.
            options: see `ReplayOptions`. A conflated topic takes neither these nor a `bookmark`.

        Raises:
            UnknownTopic: no topic has this name, and another one is like it, or a range ends; if it is a queue's, the
                text says what to call. Otherwise the topic is waited for.
            ExpressionError: the filter is wrong. DefinitionError: another argument is.
            BookmarkNotFound: see `bookmark_not_found`. ServerUnsuitable: it cannot promise `fully_durable`.
        """
        from ampsq.queues.handlers import check_handler
        from ampsq.topics.subscription_spec import TopicSubscriptionSpec
        from ampsq.topics.topic_names import ConflatedName

        check_handler(on_message, awaits=False)
        try:
            spec = TopicSubscriptionSpec.of(name, filter, bookmark, options)
            return self._connection.follow_topics(spec, on_message)
        except ConflatedName as found:
            if bookmark is not None or options:
                raise
            spec = TopicSubscriptionSpec.of(name, filter, None, {}, conflated=found.topic)
            return self._connection.follow_topics(spec, on_message)

    def ack(
        self,
        queue: str,
        bookmarks: Iterable[Bookmark | str] | str | None = None,
        option: str = "ack",
        *,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        reason: str | None = None,
        dry_run: bool = False,
        publisher: Publisher | None = None,
    ) -> int:
        """Settle messages of a queue, delivered or not: by bookmark, or all that match a filter.

        Args:
            queue: the queue.
            bookmarks: of the messages, or a text of one or several with commas between; or
            filter: an expression: all available and leased messages that match it (AMPS's ``sow_delete`` with a
                filter). Of a queue with `target_queue_depth` only the active part; what comes meanwhile is left alone,
                and so is what is delayed.
            option: ``ack``, ``cancel`` (leased ones only) or ``expire``.
            reason: why, one line of at most 500 characters, for whoever looks at the messages; see `Message.cancel`.
            dry_run: with a filter: only count.
            publisher: with bookmarks, to acknowledge or to expire: one with a store, which keeps that until it is
                persisted, and sends it again after a failure.

        Returns:
            How many were settled. By bookmark: all of them. By filter: one that somebody else settled meanwhile, or
            that `leasing` ``strict`` protects, is no error and does not count.

        Raises:
            Rejected: of the first bookmark refused; `detail` tells how many were, and how many were settled.
            DefinitionError: neither bookmarks nor a filter, or both; the reason is wrong.
            ExpressionError: the filter is wrong.
        """
        keeper = self._connection.publishers.keeper_of(publisher)
        return self._store.run(
            self._session.ack(queue, bookmarks, option, filter, reason=reason, dry_run=dry_run, keeper=keeper)
        )

    def sow(
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
        """Query a topic with a key, a queue or a view, without taking anything: AMPS's ``sow``.

        Of a topic, its records: the last message of each key, as of the step that looked at it (docs/sow.md). Of a
        queue, the messages that are available now are looked at, in bounded steps up to the end that stood when the
        query began: each at most once; one that is leased or settled before its step is not seen, and neither is one
        that comes back behind it. Of a view, its rows.

        Args:
            name: a topic with a key, a queue or a view.
            filter: an expression; default everything.
            order_by: an expression or several, each with ``ASC`` (default) or ``DESC``; default the order of delivery,
                of records that of their last messages.
            top_n: at most so many.
            skip_n: without so many at the beginning; needs `top_n` and `order_by`.
            sow_keys: only the records of these keys: texts or numbers, tuples for a key of several parts.
            bookmark: the records as they were at a message of any topic, it included, or at a time.

        Raises:
            UnknownQueue: there is nothing of this name that can be queried. DefinitionError: an argument is wrong.
            BookmarkNotFound: the log was trimmed, so that the records at the bookmark are not known any more.
        """
        from ampsq.queues.query import Query

        query = Query(filter, order_by, top_n, skip_n)
        return self._store.run(self._session.sow(name, query, sow_keys, bookmark)).messages()

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
    ) -> RecordSubscription:
        """Query the records of a topic and subscribe to what changes them, from one point in time (docs/sow.md).

        First come the records, as of `sow`, all as they were at one message of the log; then every message behind it,
        none missed and none twice. After a reconnect it goes on where it was; where the log was trimmed past that, the
        records are looked at anew and the differences told.

        Args:
            topic: a topic with a key.
            filter: an expression, for the records and for what comes; default everything.
            order_by: of the records, as of `sow`.
            top_n: so many records at most; what comes later is not limited.
            skip_n: as of `sow`.
            oof: tell also of records that were given and leave: deleted, expired, or not matching any more.
            conflation: of what changes one record only the latest: ``1s``: so long after its first change that was not
                handed out; ``auto``: whenever the consumer takes one. Default ``none``: every message. The records
                themselves come at once, and one that comes and leaves while it waits is not told of.
            bookmark: the records as they were at a message of any topic, it included, or at a time, and from there on
                everything that was published, as of `sow` and `subscribe_topic`; default now.

        Raises:
            NoRecords: the topic has no key. DefinitionError: an argument is wrong.
            BookmarkNotFound: the log was trimmed, so that it is not known any more.
        """
        from ampsq.queues.query import Query

        self._connection.check_open()
        query = Query(filter, order_by, top_n, skip_n)
        following = self._session.follow_records(topic, query, oof=oof, conflation=conflation, bookmark=bookmark)
        return self._connection.follow_records(following)

    def aggregate(
        self,
        name: str,
        projection: Sequence[str],
        grouping: Sequence[str] = (),
        filter: str | None = None,  # noqa: A002  (AMPS's word)
    ) -> RowSubscription:
        """Subscribe to an aggregate of a queue's available messages, or of topics: rows that change as those do.

        Leased messages are not counted, those that return are again; nothing is leased. The client itself keeps the
        rows up to date; for many readers define a `View` instead, which a coordinator keeps. A group whose last
        message is gone gives one more row, as it is of no messages: ``COUNT`` 0, ``SUM`` None.

        Args:
            name: a queue, a topic, or a regular expression of topics.
            projection: what a row has, as in ``SUM(/price * /qty) AS /value``.
            grouping: identifiers, as in ``/symbol``; default one row for all.
            filter: an expression; default everything.
        """
        follower = self._store.run(self._session.aggregate(name, projection, grouping, filter))
        return self._connection.follow_rows(follower)

    def close(self) -> None:
        """Close the subscriptions, giving back what is unstarted, the publishers and the connections.

        Safe to call again.

        Raises:
            NotPersisted: a publisher's store in memory holds messages that the server did not persist within
                `retry_timeout`.
        """
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
