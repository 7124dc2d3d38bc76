"""The client of all partitions of an instance, for threads: a client of each, and what joins them.

`ampsq.client.async_partitioned_client` is made from this file.
"""

# Long: one class, the calls of a client one by one, each with all of its arguments.

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import threading
from typing import TYPE_CHECKING, Any, Never, TypeAlias, Unpack

from ampsq.base.errors import (
    AmpsqError,
    Closed,
    DefinitionError,
    NotPermitted,
    Rejected,
    StaleDefinitions,
    UnknownTopic,
)
from ampsq.base.partitions import Partition, asked_partitions, check_key_function, partitions_of
from ampsq.base.suggestions import misplaced
from ampsq.catalog.apply import RACES
from ampsq.catalog.partitioned import Intent, check_definable, merged_outcomes
from ampsq.client.admin import Admin
from ampsq.client.client import Client
from ampsq.client.partition_router import PartitionRouter
from ampsq.client.partition_rules import (
    SEPARATELY,
    by_each_partition,
    by_partition,
    check_backlog,
    check_readable,
    not_merged,
    only_for_one,
    part_of,
    refuse_the_rest,
    reporting,
    spec_of_each,
    waiting_for_topic,
)
from ampsq.client.partition_stream import PartitionStream
from ampsq.client.partitioned_admin import PartitionedAdmin
from ampsq.client.partitioned_publisher import PartitionedPublisher, parts_of
from ampsq.client.partitioned_record_subscription import PartitionedRecordSubscription
from ampsq.client.partitioned_subscription import PartitionedSubscription
from ampsq.client.partitioned_topic_subscription import PartitionedTopicSubscription
from ampsq.publishing.deduplication import DeduplicationWindow
from ampsq.publishing.envelope import Envelope, refuse_publish_arguments
from ampsq.publishing.guarantee_options import Guarantee
from ampsq.queues.handlers import check_handler
from ampsq.queues.query import Query, QueryResult
from ampsq.topics.subscription import ManagedTopicSubscription
from ampsq.topics.subscription_spec import TopicSubscriptionSpec, refuse_arguments
from ampsq.topics.topic_names import ConflatedName
from ampsq.transport.instances import whole_instance
from ampsq.transport.server_pools import ServerPools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from ampsq.base.bookmarks import Bookmark
    from ampsq.base.log_positions import Place
    from ampsq.catalog.apply import Outcome
    from ampsq.client.publisher import Publisher
    from ampsq.definitions.queue import Definition
    from ampsq.protocol.reads.server import Server
    from ampsq.publishing.guarantee_options import FailedWrite
    from ampsq.publishing.memory_store import PublishStore
    from ampsq.publishing.persistence_level import PersistedAck
    from ampsq.queues.query import SowMessage
    from ampsq.queues.subscription import Message, Subscription
    from ampsq.records.subscription import ManagedRecordSubscription, RecordSubscription
    from ampsq.topics.subscription import TopicMessage, TopicSubscription
    from ampsq.topics.subscription_spec import ReplayOptions
    from ampsq.transport.connection_state import ConnectionEvent

    _Subscription: TypeAlias = (
        PartitionedSubscription | PartitionedTopicSubscription | PartitionedRecordSubscription
    )  # fmt: skip

__all__ = ["PartitionedClient"]

_log = logging.getLogger("ampsq")


class PartitionedClient(Client):
    """A client of all partitions of an instance; `Client` makes it where partitions are asked for.

    Args:
        url: as of `Client`.
        instance: the name of the instance.
        partitions: how many it has, where the address does not say it.
        options: as of `Client`, those of the client of each partition.
    """

    #: What `publisher` opens.
    _whole_publisher_type: type[PartitionedPublisher] = PartitionedPublisher

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        instance: str | None = None,
        partitions: int | None = None,
        **options: Any,
    ) -> None:
        bare, total = asked_partitions(url, partitions)
        name = instance or os.environ.get("AMPSQ_INSTANCE") or "ampsq"
        self._url, self._name = whole_instance(bare or os.environ.get("AMPSQ_URL"), name)
        self._all, self._options = partitions_of(self._name, total or 0), options
        self._subscriptions: list[_Subscription] = []
        self._clients: list[Client] = []
        self._connections = ServerPools()
        self._router = PartitionRouter(len(self._all), lambda: self.clients)
        self._merged_admin = PartitionedAdmin(self, self._all, self._define)
        self._open()

    def _open(self) -> None:
        """Open the clients of all partitions, and finish what was half defined."""
        register = self._open_at(Partition.register(self._name, len(self._all)))
        try:
            for each in self._all:
                self._clients.append(self._open_at(each))
            # Who may not define leaves it to who may.
            with contextlib.suppress(NotPermitted):
                self._finish_definitions()
        except BaseException:
            self.close()
            raise
        finally:
            register.close()

    def _open_at(self, partition: Partition) -> Client:
        return Client._at(partition, self._url, self._options, self._connections)  # noqa: SLF001  (our own)

    def _arguments(self) -> Mapping[str, Any]:
        """Return what makes another client to the same place."""
        return {"url": self._url, "instance": self._name, "partitions": len(self._all), **self._options}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._name} in {len(self._all)} partitions>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            if name == "_connection":
                only_for_one(name)
            raise misplaced(self, name, "admin", Admin)

    @property
    def clients(self) -> list[Client]:
        """The clients of the partitions, for those calls that are merged.

        Raises:
            Closed: it is not open.
        """
        if len(self._clients) < len(self._all):
            raise Closed("this client is not open")
        return self._clients

    def add_connection_state_listener(self, listener: Callable[[ConnectionEvent], object]) -> None:
        """As `Client.add_connection_state_listener`; it hears of each partition's connection, perhaps at once."""
        for each in self.clients:
            each.add_connection_state_listener(listener)

    def remove_connection_state_listener(self, listener: Callable[[ConnectionEvent], object]) -> None:
        """As `Client.remove_connection_state_listener`."""
        for each in self.clients:
            each.remove_connection_state_listener(listener)

    @property
    def url(self) -> str:
        """The server's address, or the addresses, with commas between."""
        return self.clients[0].url

    @property
    def server(self) -> Server:
        """The server of the first partition as it was at connect."""
        return self.clients[0].server

    @property
    def instance(self) -> str:
        """The instance's name."""
        return self._name

    @property
    def partitions(self) -> tuple[str, ...]:
        """The names of its partitions, each of which is an instance of its own."""
        return tuple(each.instance for each in self._all)

    @property
    def origin(self) -> str:
        """Refuse to name one origin: messages have that of their partition."""
        raise not_merged("origin")

    @property
    def admin(self) -> PartitionedAdmin:
        """The administrative calls, as far as they are merged; see `Admin`."""
        return self._merged_admin

    # -- definitions

    def apply(self, *definitions: Definition) -> list[tuple[Definition, Outcome]]:
        """Define topics, queues and dead-letter actions in all partitions, or change them; see `Client.apply`.

        A client that dies meanwhile leaves it half done; the next one that opens the instance, or defines something in
        it, finishes it.
        """
        return self._define(definitions, ())

    def _define(
        self, definitions: Sequence[Definition], removed: Sequence[Definition]
    ) -> list[tuple[Definition, Outcome]]:
        """Define and remove in all partitions, one version behind the other."""
        check_definable([*definitions, *removed])
        first = self.clients[0]
        for _ in range(RACES):
            intent = self._finish_definitions()
            # What one partition refuses is refused before any has it.
            plans = [each.admin.plan(*definitions, removing=removed) for each in self.clients]
            outcomes = merged_outcomes(plans)
            if not removed and all(outcome == "unchanged" for _, outcome in outcomes):
                return outcomes
            try:
                intent = first._store.run(intent.begin(definitions, removed))  # noqa: SLF001  (our own)
            except StaleDefinitions:
                continue
            self._carry_out(intent)
            self._router.forget()
            return outcomes
        raise StaleDefinitions(reason=f"others defined something {RACES} times meanwhile")

    def _finish_definitions(self) -> Intent:
        """Make the last version so in all partitions; gives it. Others may have begun a further one meanwhile."""
        first, refused = self.clients[0], 0
        for _ in range(RACES):
            intent = first._store.run(Intent.read(first.instance))  # noqa: SLF001  (our own)
            if intent.is_done or intent.version == refused:
                return intent
            try:
                self._carry_out(intent)
            except (Rejected, DefinitionError) as refusal:
                # What is defined next stands in its place, in all partitions.
                _log.warning("%r: version %d of what is defined is not in all: %s", self, intent.version, refusal)
                refused = intent.version
        raise StaleDefinitions(reason=f"others defined something {RACES} times meanwhile")

    def _carry_out(self, intent: Intent) -> None:
        first = self.clients[0]
        # Where a partition has a later version, somebody else has finished this one before.
        with contextlib.suppress(StaleDefinitions):
            for each in self.clients:
                each._store.run(each._session.make_so(intent))  # noqa: SLF001  (our own)
            first._store.run(intent.end())  # noqa: SLF001  (our own)

    # -- publishing

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
        """Record one message in the partition of its key, group or deduplication ID, or in turn.

        The key is `key`, else what the topic's `partition_by` says. See `Client.publish`.
        """
        if unknown:
            refuse_publish_arguments("publish", unknown, "deduplication_id", "within", "key")
        number, data = self._router.choose(topic, data, key, group, deduplication_id)
        recorded = self.clients[number].publish(
            topic,
            data,
            headers=headers,
            expiration=expiration,
            delay=delay,
            at=at,
            group=group,
            deduplication_id=deduplication_id,
            within=within,
        )
        self._router.note_made(topic, number)
        return recorded

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
        """Record a change of a topic's record in the partition that has it; see `Client.delta_publish`.

        That is the one of `key`, else of what the topic's `partition_by` or its `key` says. Where `partition_by` is not
        a part of the key, the change has to say it, too.
        """
        if unknown:
            refuse_publish_arguments("delta_publish", unknown, "key")
        number, data = self._router.choose(topic, data, key, changes=True)
        recorded = self.clients[number].delta_publish(topic, data, headers=headers, expiration=expiration)
        self._router.note_made(topic, number)
        return recorded

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
        """Record many messages; see `Client.publish_many`.

        With keys, of `key` or of the topic's `partition_by`, with a group or deduplication IDs, messages are gathered
        for each partition: up to `batch` of them, or for 50 ms of waiting for more; at most 64,000 and 64 MB are held.
        Without, whole batches go to the partitions in turn.
        """
        if unknown:
            refuse_publish_arguments("publish_many", unknown, "deduplication_id", "within", "key")
        check_key_function(key)
        window = DeduplicationWindow.of_many(deduplication_id, within)
        batches = self._router.batches(topic, messages, batch, key=key, group=group, window=window)
        envelope = Envelope.of(headers, expiration, delay, at, group)
        stream = PartitionStream(self.clients, batches, topic, envelope)
        with batches.telling(), stream:
            for each in batches.cut(messages):
                # With IDs a call is sent again where its answer was lost, so that nothing is sent behind it.
                if window is None and self._router.is_made(topic, each.partition):
                    stream.send(each)
                    continue
                stream.settle()
                with batches.sending(each):
                    recorded = self.clients[each.partition].publish_many(
                        topic,
                        each.bodies,
                        batch=batch,
                        headers=headers,
                        expiration=expiration,
                        delay=delay,
                        at=at,
                        group=group,
                        deduplication_id=each.id_of,
                        within=within,
                    )
                    batches.note(each, recorded)
                    self._router.note_made(topic, each.partition)
            stream.settle()
        return batches.recorded

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
        """Open a publisher with a name in all partitions; see `Client.publisher`.

        It numbers the messages of each partition by themselves. A store keeps those of all, an equal share of its
        bounds for each, under the name of the partition; so a program that was killed sends what is left to where it
        belongs. What `on_failed_write` and `on_persisted` get names the partition; they
        are called one at a time.
        """
        guarantee = Guarantee.of(
            store,
            persisted=persisted,
            conflation=ack_conflation,
            on_failed_write=on_failed_write,
            on_persisted=on_persisted,
        )
        clients = self.clients
        stores = guarantee.store.divided(len(clients)) if guarantee is not None else [None] * len(clients)
        turn = threading.Lock()

        def make(number: int) -> Publisher:
            return clients[number].publisher(
                name,
                store=stores[number],
                persisted=persisted,
                ack_conflation=ack_conflation,
                on_failed_write=reporting(number, on_failed_write, turn),
                on_persisted=reporting(number, on_persisted, turn),
            )

        kind = self._whole_publisher_type
        return kind(name, self._router, make, keeps=guarantee is not None)._open()  # noqa: SLF001  (our own)

    # -- records

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
        """Query a topic with a key or a queue in all partitions; see `Client.sow`.

        Order, `top_n` and `skip_n` are those over all partitions, each of which is looked at in a moment of its own.
        Without `order_by` records come in the order of the times of their last messages; messages of a queue in turn,
        the first one of each partition, then the second ones. `bookmark` is a time, or a bookmark of each partition,
        with commas between, as `TopicSubscription.position` has them.
        """
        query, results = Query(filter, order_by, top_n, skip_n), list[QueryResult]()
        for each, place in zip(self.clients, by_each_partition(self._all, bookmark), strict=True):
            results += [each._store.run(each._session.sow(name, query, sow_keys, place))]  # noqa: SLF001  (our own)
        return QueryResult.merged(query, results).messages()

    def sow_delete(
        self,
        topic: str,
        *,
        keys: Iterable[Any] | None = None,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        data: Any = None,
    ) -> int:
        """Delete records, in whichever partitions they are; see `Client.sow_delete`.

        Partitions do it one after the other: where one refuses, those before have done it.
        """
        deleted = [each.sow_delete(topic, keys=keys, filter=filter, data=data) for each in self.clients]
        return sum(deleted)

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
        """Query the records of all partitions and subscribe to what changes them; see `Client.sow_and_subscribe`.

        The records come in the order of `sow`, those of each partition as they were at one message of its log; behind
        them the changes of each partition, in their order. `bookmark` as of `sow`.
        """
        query, places = Query(filter, order_by, top_n, skip_n), by_each_partition(self._all, bookmark)
        check_readable(len(self._all), is_conflated=conflation is not None)
        return self._follow_records(topic, query, places, oof=oof, conflation=conflation)

    def _follow_records(
        self,
        topic: str,
        query: Query,
        places: Sequence[Bookmark | str | datetime | None],
        *,
        oof: bool,
        conflation: timedelta | float | str | None,
    ) -> RecordSubscription:
        parts: list[tuple[ManagedRecordSubscription, QueryResult]] = []
        try:
            for client, place in zip(self.clients, places, strict=True):
                session, connection = client._session, client._connection  # noqa: SLF001  (our own)
                core = session.follow_records(topic, query, oof=oof, conflation=conflation, bookmark=place)
                found = connection.find_records(core)
                parts.append(found)
                self._share_connections(found[0])
        except BaseException:
            for managed, _ in parts:
                with contextlib.suppress(AmpsqError):
                    managed.close()
            raise
        made = PartitionedRecordSubscription(parts, query, self._subscriptions.remove)
        self._subscriptions.append(made)
        return made

    def _share_connections(self, managed: ManagedRecordSubscription | ManagedTopicSubscription) -> None:
        """Have the part of a subscription to many partitions keep no connection of its own."""
        if len(self._all) > SEPARATELY:
            managed.rest()
            managed.share_connections()

    # -- topics

    def subscribe_topic(
        self,
        name: str,
        *,
        bookmark: Place | Sequence[Place] | None = None,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        on_message: Callable[[TopicMessage], object] | None = None,
        **options: Unpack[ReplayOptions],
    ) -> TopicSubscription:
        """Subscribe to topics of all partitions; see `Client.subscribe_topic`.

        The messages of each partition come in their order, and so do those of a key. A bookmark of a message says
        where its partition begins: give one of each, as `position` of a subscription has them, or a place that all
        partitions have, as a time. With `sub_id` each partition has the place of its own.
        """
        check_handler(on_message, awaits=False)
        spec = TopicSubscriptionSpec.of(name, filter, bookmark, options)
        is_bare = bookmark is None and not options
        return self._begin_topics(spec, filter, on_message, is_bare=is_bare)

    def _begin_topics(
        self,
        spec: TopicSubscriptionSpec,
        text: str | None,
        on_message: Callable[[TopicMessage], object] | None,
        *,
        is_bare: bool,
    ) -> TopicSubscription:
        try:
            return self._follow_topics(spec, on_message)
        except ConflatedName as found:
            if not is_bare:
                raise
            conflated = TopicSubscriptionSpec.of(spec.name, text, None, {}, conflated=found.topic)
            return self._follow_topics(conflated, on_message)

    def _follow_topics(
        self,
        spec: TopicSubscriptionSpec,
        on_message: Callable[[TopicMessage], object] | None,
    ) -> TopicSubscription:
        check_readable(
            len(self._all), is_conflated=spec.conflation is not None, is_fully_durable=spec.fully_durable is not False
        )
        parts: list[TopicSubscription] = []
        try:
            for client, waiting in self._follow_known(spec, parts):
                part = client._connection.follow_topics(waiting, None)  # noqa: SLF001  (our own)
                parts.append(part)
                self._share_connections(ManagedTopicSubscription.of(part))
        except BaseException:
            for part in parts:
                with contextlib.suppress(AmpsqError):
                    part.close()
            raise
        made = PartitionedTopicSubscription(parts, spec.pace, self._subscriptions.remove)
        self._subscriptions.append(made)
        if on_message is not None:
            made.run(on_message)
        return made

    def _follow_known(
        self, spec: TopicSubscriptionSpec, parts: list[TopicSubscription]
    ) -> list[tuple[Client, TopicSubscriptionSpec]]:
        """Begin at the partitions that have the topic; gives those that have not, and what is asked of them.

        A topic that is made by publishing to it is in the partitions that were published to.
        """
        without: list[tuple[Client, TopicSubscriptionSpec]] = []
        refusals: list[UnknownTopic] = []
        for client, of_one in zip(self.clients, spec_of_each(self._all, spec), strict=True):
            try:
                part = client._connection.follow_topics(of_one, None)  # noqa: SLF001  (our own)
                parts.append(part)
                self._share_connections(ManagedTopicSubscription.of(part))
            except UnknownTopic as refusal:
                refusals.append(refusal)
                if (waiting := waiting_for_topic(of_one)) is not None:
                    without.append((client, waiting))
        if refusals and not parts:
            raise refusals[0]
        return without

    # -- queues

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
        """Subscribe to a queue of all partitions; see `Client.subscribe`.

        `max_backlog` is one number over all partitions, which are served in
        turn. Fairness, groups, filters and priorities are those of each partition.
        """
        if unknown:
            refuse_arguments("subscribe", name, unknown)
        publishers = parts_of(publisher, self._router)
        check_handler(on_message, awaits=False)
        check_backlog(max_backlog)
        return self._subscribe(name, max_backlog, filter, on_message, publishers, renew=renew)

    def _subscribe(
        self,
        name: str,
        max_backlog: int,
        text: str | None,
        on_message: Callable[[Message], object] | None,
        publishers: Sequence[Publisher | None],
        *,
        renew: bool,
    ) -> Subscription:
        parts: list[Subscription] = []
        of_all = secrets.token_hex(4)
        try:
            for client, publisher in zip(self.clients, publishers, strict=True):
                connection = client._connection  # noqa: SLF001  (our own)
                keeper = connection.publishers.keeper_of(publisher)
                core = part_of(
                    *(connection.session, name, max_backlog, text),
                    renew=renew,
                    longest_wait=connection.parts.route.heartbeat,
                    of_all=of_all,
                )
                parts.append(connection.subscribe(core, keeper, None))
        except BaseException:
            for part in parts:
                with contextlib.suppress(AmpsqError):
                    part.close()
            raise
        made = PartitionedSubscription(parts, self._subscriptions.remove)
        self._subscriptions.append(made)
        if on_message is not None:
            made.run(on_message)
        return made

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
        """Settle messages of a queue of all partitions, by bookmark or filter; see `Client.ack`.

        Partitions do it one after the other: where one refuses, those before have done it.
        """
        publishers = parts_of(publisher, self._router)
        if bookmarks is None or filter is not None:
            settled = [
                each.ack(queue, bookmarks, option, filter=filter, reason=reason, dry_run=dry_run, publisher=kept)
                for each, kept in zip(self.clients, publishers, strict=True)
            ]
            return sum(settled)
        settled = []
        for number, some in by_partition(self._all, bookmarks):
            kept = publishers[number]
            number_settled = self.clients[number].ack(
                queue, some, option, reason=reason, dry_run=dry_run, publisher=kept
            )
            settled.append(number_settled)
        return sum(settled)

    def close(self) -> None:
        """Close the subscriptions, giving back what is unstarted, and the connections; see `Client.close`."""
        failures: list[AmpsqError] = []
        clients, self._clients = self._clients, []
        closing: list[_Subscription | Client] = [*self._subscriptions, *clients]
        for each in closing:
            try:
                each.close()
            except AmpsqError as error:
                failures.append(error)
        self._connections.close()
        if failures:
            raise failures[0]


refuse_the_rest(PartitionedClient, Client)
