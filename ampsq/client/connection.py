"""The connection of a client to its instance, with its publishers and subscriptions, which fail over together."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from ampsq.base.addresses import redacted
from ampsq.base.errors import AmpsqError, DefinitionError, Rejected, Unavailable
from ampsq.base.forks import closed, refuse_in_children
from ampsq.client.instance_connection import BETWEEN_ROUNDS, CLOSE_TIMEOUT, InstanceConnection
from ampsq.client.publisher_core import Publishers
from ampsq.queues.subscription import ManagedSubscription, Subscription
from ampsq.transport.failover import Failover
from ampsq.transport.instances import parse_instances

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq.client.instance_connection import ConnectionOptions
    from ampsq.client.publisher_core import PublisherCore
    from ampsq.client.session import Session
    from ampsq.publishing.guaranteed import GuaranteedPublisher
    from ampsq.queues.query import QueryResult
    from ampsq.queues.subscription import Message
    from ampsq.queues.subscription_core import SubscriptionCore
    from ampsq.records.follow import RecordSubscriptionCore
    from ampsq.records.subscription import ManagedRecordSubscription, RecordSubscription
    from ampsq.server.location import ServerLocation
    from ampsq.topics.subscription import ManagedTopicSubscription, TopicMessage, TopicSubscription
    from ampsq.topics.subscription_spec import TopicSubscriptionSpec
    from ampsq.transport.connection_state import Listeners
    from ampsq.transport.instances import InstanceAddress
    from ampsq.transport.route import Route
    from ampsq.transport.store import Store
    from ampsq.views.subscription import ManagedRowSubscription, RowSubscription
    from ampsq.views.upkeep import Follower

    _Open: TypeAlias = (
        ManagedSubscription | ManagedTopicSubscription | ManagedRecordSubscription | ManagedRowSubscription
    )

__all__ = ["ClientConnection"]


class ClientConnection:
    """The open connections of a `Client`, which end with `close`.

    Args:
        location: where the server is.
        instance: the instance's name, where the address does not say another one.
        options: how the client works.

    Attributes:
        instances: where it may work, in the order in which they are tried.
        parts: at the instance where it works now.
        session, store: of these parts.
        listeners: called when the state of the connection changes.
        publishers: those that are open.
        subscriptions: to queues, those that are open.
        closed: whether `close` was called.
        process: the ID of the process that opened it.
    """

    def __init__(self, location: ServerLocation, instance: str, options: ConnectionOptions) -> None:
        self._location = location
        self.instances = parse_instances(location.url, instance)
        names = tuple(each.instance for each in self.instances)
        self._options = replace(options, revive=location.revive, instances=names)
        self.listeners, self.closed, self.process = options.listeners, False, os.getpid()
        # Those where the client worked before; their stores are closed with it.
        self._former: list[InstanceConnection] = []
        self._failover: Failover | None = None
        self._adopt(InstanceConnection.to(self.instances[0], self._options))
        self.publishers: Publishers[Store] = Publishers(
            *(self.parts, self.instances, location.revive),
            retry_timeout=options.retry_timeout,
            is_careful=options.policy == "refuse",
        )
        self.subscriptions: list[ManagedSubscription] = []
        self._topic_subscriptions: list[ManagedTopicSubscription] = []
        self._record_subscriptions: list[ManagedRecordSubscription] = []
        self._row_subscriptions: list[ManagedRowSubscription] = []
        # Subscriptions whose acknowledgements a publisher keeps.
        self._acknowledging: list[tuple[GuaranteedPublisher, ManagedSubscription]] = []
        refuse_in_children(self)

    def __str__(self) -> str:
        return f"{self.session.instance} at {redacted(self.store.url)}"

    def _adopt(self, parts: InstanceConnection) -> None:
        self.parts: InstanceConnection = parts
        self.session: Session = parts.session
        self.store: Store = parts.store

    def again(self, listeners: Listeners) -> tuple[Callable[[], ServerLocation], str, ConnectionOptions]:
        """Return what makes another connection to the same place, which works in the same way.

        Args:
            listeners: called when the state of that one changes.
        """
        options = replace(self._options, listeners=listeners, revive=None, instances=(), pools=None)
        return self._location.again, self.instances[0].instance, options

    # -- the first instance

    def open(self) -> None:
        """Begin to work.

        Raises:
            Unavailable, ServerUnsuitable: see `Client`; then it is closed.
        """
        try:
            self._begin()
            self.publishers.resume_at(self.parts)
            if self.session.has_listeners:
                self.parts.keepalive.start()
            if len(self.instances) > 1:
                self._failover = Failover(self.instances, self.parts.route, self._options.policy, self.fail_over)
                self._failover.start()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        """Work at the first instance that can be reached, in the order in which they were given."""
        retry_timeout, several = self._options.retry_timeout, len(self.instances) > 1
        until = time.monotonic() + retry_timeout
        while True:
            failures: list[AmpsqError] = []
            for instance_address in self.instances:
                self._adopt(InstanceConnection.to(instance_address, self._options))
                # Where there are others, nobody waits for one of them.
                self.store.retry_timeout = 0.0 if several else retry_timeout
                try:
                    self.parts.open()
                    self.store.retry_timeout = retry_timeout
                except Unavailable as error:
                    if not several:
                        raise
                    self.store.close()
                    failures.append(error)
                else:
                    return
            if time.monotonic() >= until:
                raise Unavailable("; ".join(map(str, failures)))
            time.sleep(BETWEEN_ROUNDS)

    # -- another instance

    def fail_over(self, instance_address: InstanceAddress, *, is_careful: bool) -> Route:
        """Go on at another instance; see `ampsq.transport.failover`."""
        parts = InstanceConnection.to(instance_address, replace(self._options, retry_timeout=0.0), self.session)
        try:
            parts.open()
            if is_careful:
                self.publishers.check_resume_at(parts.route)
            if self.subscriptions or parts.session.has_listeners:
                parts.keepalive.start()
            open_now = self.all_subscriptions
            store, session = parts.store, parts.session
            moves = [
                *(each.prepare_failover(store, session, parts.keepalive) for each in self.subscriptions),
                *(each.prepare_failover(store, session, parts.reporting) for each in self._topic_subscriptions),
                *(each.prepare_failover(store, session.context) for each in self._record_subscriptions),
                *(each.prepare_failover(store, session.context) for each in self._row_subscriptions),
            ]
        except BaseException:
            parts.stop()
            parts.store.close()
            raise
        parts.store.retry_timeout = self._options.retry_timeout
        for each in open_now:
            each.suspend()
        former = self.parts
        # Every call that waits for this instance fails.
        former.route.left = str(instance_address)
        self._former.append(former)
        self.publishers.resume_at(parts)
        self._adopt(parts)
        for move in moves:
            move()
        former.stop()
        return parts.route

    # -- subscriptions

    @property
    def all_subscriptions(self) -> list[_Open]:
        """All that are open."""
        return [
            *self.subscriptions,
            *self._topic_subscriptions,
            *self._record_subscriptions,
            *self._row_subscriptions,
        ]

    def check_open(self) -> None:
        """Refuse what comes after `close`."""
        if self.closed:
            raise closed("this client", self.process)

    def subscribe(
        self,
        core: SubscriptionCore,
        keeper: GuaranteedPublisher | None,
        on_message: Callable[[Message], object] | None,
    ) -> Subscription:
        """Register a subscription to queues with the server.

        Args:
            core: the subscription.
            keeper: what keeps its acknowledgements, if something does.
            on_message: called with each message, if it is there.
        """
        self.check_open()
        if keeper is not None:
            core.leases.keep_in(keeper)
        keepalive = self.parts.keepalive
        keepalive.start()
        try:
            self.store.run(core.registration.register())
        except (Rejected, DefinitionError):
            raise
        except BaseException:
            # The server may have made the subscription, and would deliver messages to it that no client takes.
            keepalive.end_unanswered(core)
            raise
        keepalive.add(core)
        managed = ManagedSubscription(core, self.store, self._end)
        self.subscriptions.append(managed)
        if keeper is not None:
            self._acknowledging.append((keeper, managed))
        if on_message is not None:
            managed.run(on_message)
        return Subscription(managed)

    def _end(self, subscription: ManagedSubscription, core: SubscriptionCore) -> None:
        self.parts.keepalive.remove(core)
        if subscription in self.subscriptions:
            self.subscriptions.remove(subscription)
        self._acknowledging = [each for each in self._acknowledging if each[1] is not subscription]

    def acknowledging_with(self, core: PublisherCore[Store]) -> list[ManagedSubscription]:
        """Return the subscriptions whose acknowledgements a publisher keeps."""
        return [subscription for each, subscription in list(self._acknowledging) if each is core.guaranteed]

    def follow_topics(
        self, spec: TopicSubscriptionSpec, on_message: Callable[[TopicMessage], object] | None
    ) -> TopicSubscription:
        """Begin a subscription to topics.

        Args:
            spec: what is asked for.
            on_message: called with each message, if it is there.
        """
        from ampsq.topics.conflation_reader import make_subscription_core
        from ampsq.topics.subscription import ManagedTopicSubscription, TopicSubscription

        self.check_open()
        core = make_subscription_core(self.session, spec, self._options.ack_timeout, self.parts.reporting)
        managed = ManagedTopicSubscription(core, self.store, self._topic_subscriptions.remove)
        managed.open()
        self._topic_subscriptions.append(managed)
        if on_message is not None:
            managed.run(on_message)
        return TopicSubscription(managed)

    def follow_records(self, core: RecordSubscriptionCore) -> RecordSubscription:
        """Begin a subscription to records."""
        from ampsq.records.subscription import RecordSubscription

        managed, found = self.find_records(core)
        core.give(found.messages())
        return RecordSubscription(managed)

    def find_records(self, core: RecordSubscriptionCore) -> tuple[ManagedRecordSubscription, QueryResult]:
        """Begin one, and return the records that were found, of which none is given yet."""
        from ampsq.records.subscription import ManagedRecordSubscription

        self.check_open()
        managed = ManagedRecordSubscription(core, self.store, self._record_subscriptions.remove)
        found = managed.find()
        self._record_subscriptions.append(managed)
        return managed, found

    def follow_rows(self, follower: Follower) -> RowSubscription:
        """Hand out the rows of an aggregate."""
        from ampsq.views.subscription import ManagedRowSubscription, RowSubscription

        managed = ManagedRowSubscription(follower, self.store, self._row_subscriptions.remove)
        self._row_subscriptions.append(managed)
        return RowSubscription(managed)

    # -- the end

    def refuse_in_child(self) -> None:
        """Refuse to subscribe, and what is subscribed to, in a process that was forked from this one."""
        self.closed = True
        for subscription in self.subscriptions:
            subscription.core.refuse_in_child()
            # A thread that is not in this process may have had them.
            subscription.lock, subscription.turnstile = threading.RLock(), threading.Lock()
        for topic_subscription in self._topic_subscriptions:
            topic_subscription.refuse_in_child()
        for record_subscription in self._record_subscriptions:
            record_subscription.closed = True
        for row_subscription in list(self._row_subscriptions):
            row_subscription.close()

    def close(self) -> None:
        """End all of it; see `Client.close`."""
        if self.closed:
            return
        self.closed = True
        if self._failover is not None:
            self._failover.stop()
        parts = self.parts
        parts.store.retry_timeout = min(parts.store.retry_timeout, CLOSE_TIMEOUT)
        try:
            for record_subscription in list(self._record_subscriptions):
                record_subscription.close()
            for topic_subscription in list(self._topic_subscriptions):
                topic_subscription.close()
            for subscription in list(self.subscriptions):
                subscription.close()
            if parts.keepalive.is_started:
                parts.store.run(parts.session.announce_disconnect())
        finally:
            # It may have gone on elsewhere meanwhile.
            parts = self.parts
            # Those whose closing was never begun.
            for subscription in list(self.subscriptions):
                subscription.abandon(parts.keepalive)
            parts.stop()
            try:
                self.publishers.close()
            finally:
                for each in (parts, *self._former):
                    each.store.close()
                self._location.release()
                self.listeners.close()
