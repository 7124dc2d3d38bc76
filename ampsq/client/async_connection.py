"""The connection of an asyncio client to its instance: as `ampsq.client.connection`, awaited."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn, Self, TypeAlias, cast

from ampsq.base.cancellation import run_to_end
from ampsq.base.errors import AmpsqError, Closed, DefinitionError, Rejected, Unavailable
from ampsq.client.instance_connection import BETWEEN_ROUNDS, CLOSE_TIMEOUT, Parts
from ampsq.client.publisher_core import Publishers
from ampsq.client.session import Session
from ampsq.queues.async_subscription import AsyncManagedSubscription, AsyncSubscription
from ampsq.transport.async_store import AsyncStore
from ampsq.transport.failover import Failover
from ampsq.transport.instances import parse_instances

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq.client.instance_connection import ConnectionOptions
    from ampsq.client.publisher_core import PublisherCore
    from ampsq.publishing.guaranteed import GuaranteedPublisher
    from ampsq.queues.async_subscription import AsyncMessage
    from ampsq.queues.query import QueryResult
    from ampsq.queues.subscription_core import SubscriptionCore
    from ampsq.records.async_subscription import AsyncManagedRecordSubscription, AsyncRecordSubscription
    from ampsq.records.follow import RecordSubscriptionCore
    from ampsq.server.location import ServerLocation
    from ampsq.topics.async_subscription import AsyncManagedTopicSubscription, AsyncTopicMessage, AsyncTopicSubscription
    from ampsq.topics.subscription_spec import TopicSubscriptionSpec
    from ampsq.transport.async_server_pools import AsyncServerPools
    from ampsq.transport.connection_state import AsyncListeners
    from ampsq.transport.instances import InstanceAddress
    from ampsq.transport.route import Route
    from ampsq.views.async_subscription import AsyncManagedRowSubscription, AsyncRowSubscription
    from ampsq.views.upkeep import Follower

    _Open: TypeAlias = (
        AsyncManagedSubscription
        | AsyncManagedTopicSubscription
        | AsyncManagedRecordSubscription
        | AsyncManagedRowSubscription
    )

__all__ = ["AsyncClientConnection"]

_NOT_OPEN = "this client is not connected: use `async with AsyncClient(...) as client`"


class _NotOpen:
    """The store of a client that is not connected: each use of it raises `Closed`, so no call has to check first."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Closed(_NOT_OPEN)


def _no_store() -> AsyncStore:
    return cast("AsyncStore", _NotOpen())


class AsyncInstanceConnection(Parts[AsyncStore]):
    """The connections of an `AsyncClient`."""

    @classmethod
    def to(cls, instance_address: InstanceAddress, options: ConnectionOptions, former: Session | None = None) -> Self:
        """Make them; see `InstanceConnection.to`."""
        return cls._made(
            instance_address,
            options,
            former,
            partial(
                AsyncStore,
                retry_timeout=options.retry_timeout,
                revive=options.revive,
                pools=cast("AsyncServerPools | None", options.pools),
            ),
        )

    async def open(self) -> None:
        """Check the server and make the instance ready; see `Session.connect`."""
        try:
            await self.store.run(self.session.connect())
        finally:
            self.warn()
        self.route.logged_on(self.session.origin)


class AsyncClientConnection:
    """The connection of an `AsyncClient`, with its publishers and subscriptions; see `ClientConnection`.

    Args:
        locate: finds where the server is, in a thread.
        instance: the instance's name, where the address does not say another one.
        options: how the client works.
        listeners: called when the state of the connection changes; those of the options.

    Attributes:
        instances: where it may work, in the order in which they are tried.
        session: at the instance where it works now, or worked last.
        store: at the instance where it works now; while it is not connected each use of it raises `Closed`.
        listeners: as they were given.
        subscriptions: to queues, those that are open.
    """

    def __init__(
        self,
        locate: Callable[[], ServerLocation],
        instance: str,
        options: ConnectionOptions,
        listeners: AsyncListeners,
    ) -> None:
        self._locate, self._options, self.listeners = locate, options, listeners
        self.session = Session(instance)
        self.store: AsyncStore = _no_store()
        self._location: ServerLocation | None = None
        self.instances: list[InstanceAddress] = []
        self._parts: AsyncInstanceConnection | None = None
        # Those where the client worked before; their stores are closed with it.
        self._former: list[AsyncInstanceConnection] = []
        self._failover: Failover | None = None
        self._publishers: Publishers[AsyncStore] | None = None
        self.subscriptions: list[AsyncManagedSubscription] = []
        self._topic_subscriptions: list[AsyncManagedTopicSubscription] = []
        self._record_subscriptions: list[AsyncManagedRecordSubscription] = []
        self._row_subscriptions: list[AsyncManagedRowSubscription] = []
        # Subscriptions whose acknowledgements a publisher keeps.
        self._acknowledging: list[tuple[GuaranteedPublisher, AsyncManagedSubscription]] = []

    def __str__(self) -> str:
        return self.session.instance

    @property
    def parts(self) -> AsyncInstanceConnection:
        """The connections to the instance where the client works now.

        Raises:
            Closed: it is not open.
        """
        if self._parts is None:
            raise Closed(_NOT_OPEN)
        return self._parts

    @property
    def publishers(self) -> Publishers[AsyncStore]:
        """The publishers that are open; see `parts`."""
        if self._publishers is None:
            raise Closed(_NOT_OPEN)
        return self._publishers

    def _adopt(self, parts: AsyncInstanceConnection) -> None:
        self._parts, self.session, self.store = parts, parts.session, parts.store

    # -- the first instance

    async def open(self) -> None:
        """Begin to work; nothing where that was done.

        Raises:
            Unavailable, ServerUnsuitable: see `Client`; then it is closed.
        """
        if self._parts is not None:
            return
        location = self._location = await asyncio.to_thread(self._locate)
        self.instances = parse_instances(location.url, self.session.instance)
        names = tuple(each.instance for each in self.instances)
        self._options = replace(self._options, revive=location.revive, instances=names)
        try:
            parts = await self._begin()
            self._publishers = Publishers(
                *(parts, self.instances, location.revive),
                retry_timeout=self._options.retry_timeout,
                is_careful=self._options.policy == "refuse",
            )
            if self.session.has_listeners:
                await asyncio.to_thread(parts.keepalive.start)
            if len(self.instances) > 1:
                move = partial(self._fail_over_from_thread, asyncio.get_running_loop())
                self._failover = Failover(self.instances, parts.route, self._options.policy, move)
                await asyncio.to_thread(self._failover.start)
        except BaseException:
            await self.close()
            raise

    async def _begin(self) -> AsyncInstanceConnection:
        """Work at the first instance that can be reached, in the order in which they were given."""
        retry_timeout, several = self._options.retry_timeout, len(self.instances) > 1
        until = time.monotonic() + retry_timeout
        while True:
            failures: list[AmpsqError] = []
            for instance_address in self.instances:
                parts = AsyncInstanceConnection.to(instance_address, self._options)
                self._adopt(parts)
                # Where there are others, nobody waits for one of them.
                parts.store.retry_timeout = 0.0 if several else retry_timeout
                try:
                    await parts.open()
                    parts.store.retry_timeout = retry_timeout
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

    def retry_for(self, seconds: float) -> None:
        """Repeat calls for as long from now on."""
        self._options = replace(self._options, retry_timeout=seconds)
        self.store.retry_timeout = seconds

    # -- another instance

    def _fail_over_from_thread(
        self, loop: asyncio.AbstractEventLoop, instance_address: InstanceAddress, *, is_careful: bool
    ) -> Route:
        """See `fail_over`; the thread that watches waits for the event loop, which alone uses the subscriptions."""
        return asyncio.run_coroutine_threadsafe(self.fail_over(instance_address, is_careful=is_careful), loop).result()

    async def fail_over(self, instance_address: InstanceAddress, *, is_careful: bool) -> Route:
        """Go on at another instance; see `ampsq.transport.failover`."""
        parts = AsyncInstanceConnection.to(instance_address, replace(self._options, retry_timeout=0.0), self.session)
        try:
            await parts.open()
            if self._publishers is not None and is_careful:
                await asyncio.to_thread(self._publishers.check_resume_at, parts.route)
            if self.subscriptions or parts.session.has_listeners:
                await asyncio.to_thread(parts.keepalive.start)
            open_now = self.all_subscriptions
            store, session = parts.store, parts.session
            moves = [
                *[await each.prepare_failover(store, session, parts.keepalive) for each in self.subscriptions],
                *[await each.prepare_failover(store, session, parts.reporting) for each in self._topic_subscriptions],
                *[await each.prepare_failover(store, session.context) for each in self._record_subscriptions],
                *[await each.prepare_failover(store, session.context) for each in self._row_subscriptions],
            ]
        except BaseException:
            await asyncio.to_thread(parts.stop)
            await parts.store.close()
            raise
        parts.store.retry_timeout = self._options.retry_timeout
        for each in open_now:
            each.suspend()
        former = self.parts
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

    def keeper_of(self, publisher: object) -> GuaranteedPublisher | None:
        """Return what keeps acknowledgements for a publisher; see `Publishers.keeper_of`."""
        return self._publishers.keeper_of(publisher) if self._publishers is not None else None

    async def subscribe(
        self,
        core: SubscriptionCore,
        keeper: GuaranteedPublisher | None,
        on_message: Callable[[AsyncMessage], object] | None,
    ) -> AsyncSubscription:
        """Register a subscription to queues with the server.

        Args:
            core: the subscription.
            keeper: what keeps its acknowledgements, if something does.
            on_message: called with each message, if it is there.
        """
        parts = self.parts
        session = parts.session
        if (core.registration.instance, core.leases.origin) != (session.instance, session.origin):
            core = core.copy_for(session.instance, session.request(), session.origin)
        await asyncio.to_thread(parts.keepalive.start)
        try:
            await parts.store.run(core.registration.register())
        except (Rejected, DefinitionError):
            raise
        except BaseException:
            # The server may have made the subscription, and would deliver messages to it that no client takes.
            parts.keepalive.end_unanswered(core)
            raise
        parts.keepalive.add(core)
        managed = AsyncManagedSubscription(core, parts.store, self._end)
        self.subscriptions.append(managed)
        if keeper is not None:
            self._acknowledging.append((keeper, managed))
        if on_message is not None:
            managed.run(on_message)
        return AsyncSubscription(managed)

    def _end(self, subscription: AsyncManagedSubscription, core: SubscriptionCore) -> None:
        if self._parts is not None:
            self._parts.keepalive.remove(core)
        if subscription in self.subscriptions:
            self.subscriptions.remove(subscription)
        self._acknowledging = [each for each in self._acknowledging if each[1] is not subscription]

    def acknowledging_with(self, core: PublisherCore[AsyncStore]) -> list[AsyncManagedSubscription]:
        """Return the subscriptions whose acknowledgements a publisher keeps."""
        return [subscription for each, subscription in self._acknowledging if each is core.guaranteed]

    async def follow_topics(
        self, spec: TopicSubscriptionSpec, on_message: Callable[[AsyncTopicMessage], object] | None
    ) -> AsyncTopicSubscription:
        """Begin a subscription to topics.

        Args:
            spec: what is asked for.
            on_message: called with each message, if it is there.
        """
        from ampsq.topics.async_subscription import AsyncManagedTopicSubscription, AsyncTopicSubscription
        from ampsq.topics.conflation_reader import make_subscription_core

        core = make_subscription_core(self.session, spec, self._options.ack_timeout, self.parts.reporting)
        managed = AsyncManagedTopicSubscription(core, self.store, self._topic_subscriptions.remove)
        await managed.open()
        self._topic_subscriptions.append(managed)
        if on_message is not None:
            managed.run(on_message)
        return AsyncTopicSubscription(managed)

    async def follow_records(self, core: RecordSubscriptionCore) -> AsyncRecordSubscription:
        """Begin a subscription to records."""
        from ampsq.records.async_subscription import AsyncRecordSubscription

        managed, found = await self.find_records(core)
        core.give(found.messages())
        return AsyncRecordSubscription(managed)

    async def find_records(self, core: RecordSubscriptionCore) -> tuple[AsyncManagedRecordSubscription, QueryResult]:
        """Begin one, and return the records that were found, of which none is given yet."""
        from ampsq.records.async_subscription import AsyncManagedRecordSubscription

        managed = AsyncManagedRecordSubscription(core, self.store, self._record_subscriptions.remove)
        found = await managed.find()
        self._record_subscriptions.append(managed)
        return managed, found

    def follow_rows(self, follower: Follower) -> AsyncRowSubscription:
        """Hand out the rows of an aggregate."""
        from ampsq.views.async_subscription import AsyncManagedRowSubscription, AsyncRowSubscription

        managed = AsyncManagedRowSubscription(follower, self.store, self._row_subscriptions.remove)
        self._row_subscriptions.append(managed)
        return AsyncRowSubscription(managed)

    # -- the end

    async def close(self) -> None:
        """End all of it; see `Client.close`."""
        if self._parts is None:
            return
        parts = self._parts
        try:
            if self._failover is not None:
                failover, self._failover = self._failover, None
                await run_to_end(asyncio.to_thread(failover.stop))
            parts.store.retry_timeout = min(parts.store.retry_timeout, CLOSE_TIMEOUT)
            for record_subscription in list(self._record_subscriptions):
                await record_subscription.close()
            for topic_subscription in list(self._topic_subscriptions):
                await topic_subscription.close()
            for subscription in list(self.subscriptions):
                await subscription.close()
            if parts.keepalive.is_started:
                await parts.store.run(self.session.announce_disconnect())
        finally:
            # It may have gone on elsewhere meanwhile.
            parts = self._parts or parts
            # Those whose closing was cancelled, or never begun.
            for subscription in list(self.subscriptions):
                subscription.abandon(parts.keepalive)
            self._parts, self.store = None, _no_store()
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
            if self._location is not None:
                await asyncio.to_thread(self._location.release)
            await self.listeners.aclose()
