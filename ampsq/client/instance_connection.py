"""Parts of a client at one instance: its connections, its session, its signs of life."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar, cast

from ampsq.base.addresses import redacted
from ampsq.base.values import Interval, parse_transport
from ampsq.client.session import Session
from ampsq.queues.heartbeat import Keepalive
from ampsq.topics.reader_reports import Reporting
from ampsq.transport.instances import parse_policy
from ampsq.transport.route import Route, parse_heartbeat
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from ampsq.base.partitions import Partition
    from ampsq.transport.async_server_pools import AsyncServerPools
    from ampsq.transport.async_store import AsyncStore
    from ampsq.transport.connection_state import Listeners
    from ampsq.transport.instances import InstanceAddress
    from ampsq.transport.server_pools import ServerPools

__all__ = [
    "BETWEEN_ROUNDS",
    "CLOSE_TIMEOUT",
    "AnyStore",
    "ConnectionOptions",
    "InstanceConnection",
    "Parts",
]

_log = logging.getLogger("ampsq")
#: Seconds between two rounds of looking for the first instance to work at.
BETWEEN_ROUNDS: Final = 0.2
#: Seconds for which closing tries to reach a server that is away: what it holds comes back by itself.
CLOSE_TIMEOUT: Final = 1.0

# Threads do without the module of the one for asyncio.
AnyStore = TypeVar("AnyStore", Store, "AsyncStore")


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The options of a client, the same at each instance.

    Attributes:
        retry_timeout: seconds for which calls are repeated.
        heartbeat: seconds.
        ack_timeout: seconds that an acknowledgement may wait for its batch.
        transport: whose limits count for it.
        policy: where what was told may be missing at another instance: ``refuse`` or ``warn``.
        listeners: who is told what its connection comes to.
        revive: what can bring its server back.
        instances: the names of the instances where it may work.
        partition: which partition its instance is, for a client that opens them all.
        pools: the connections to servers that such clients share, for threads or for asyncio as they are.
    """

    retry_timeout: float
    heartbeat: float
    ack_timeout: float
    transport: str
    policy: str
    listeners: Listeners
    revive: Callable[[], None] | None = None
    instances: tuple[str, ...] = ()
    partition: Partition | None = None
    pools: ServerPools | AsyncServerPools | None = None

    @classmethod
    def parse(
        cls,
        listeners: Listeners,
        *,
        retry_timeout: timedelta | float | str,
        heartbeat: timedelta | float | str,
        ack_timeout: timedelta | float | str,
        transport: str,
        failover: str,
        partition: Partition | None = None,
        pools: ServerPools | AsyncServerPools | None = None,
    ) -> Self:
        """Read what a client is given; see `Client`.

        Raises:
            DefinitionError: one of them is no such thing.
        """
        return cls(
            Interval.of_argument("retry_timeout", retry_timeout) / 1000,
            parse_heartbeat(heartbeat),
            Interval.of_argument("ack_timeout", ack_timeout) / 1000,
            parse_transport(transport),
            parse_policy(failover),
            listeners,
            partition=partition,
            pools=pools,
        )


@dataclass(frozen=True)
class Parts(Generic[AnyStore]):
    """A client's parts at one instance."""

    session: Session
    route: Route
    store: AnyStore
    keepalive: Keepalive
    reporting: Reporting
    warned: set[tuple[str, str]]

    @classmethod
    def _made(
        cls,
        instance_address: InstanceAddress,
        options: ConnectionOptions,
        former: Session | None,
        store: Callable[[Route, str], AnyStore],
    ) -> Self:
        session = Session(instance_address.instance, former, options.instances, options.partition)
        route = Route(
            instance_address.url,
            session.instance,
            heartbeat=options.heartbeat,
            listeners=options.listeners,
            confirmed=lambda: session.confirmed_id,
        )
        return cls(
            session,
            route,
            store(route, session.instance),
            Keepalive(route, session.client, options.ack_timeout),
            Reporting(route, session.client, options.transport),
            options.pools.warned if options.pools is not None else set(),
        )

    def warn(self) -> None:
        """Log what is badly configured at the server, if it was examined; clients of partitions do so once a server."""
        server = self.session.server
        if server is None:
            return
        address = redacted(self.route.current.url if self.route.current is not None else self.route.url)
        for note in server.notes:
            if (address, note) not in self.warned:
                self.warned.add((address, note))
                _log.warning("%s %s at %s: %s", server.kind, server.version, address, note)

    def stop(self) -> None:
        """End what runs beside the client; the store stays open."""
        self.keepalive.stop()
        self.reporting.stop()


class InstanceConnection(Parts[Store]):
    """The connections of a `Client`."""

    @classmethod
    def to(cls, instance_address: InstanceAddress, options: ConnectionOptions, former: Session | None = None) -> Self:
        """Make them; nothing is sent.

        Args:
            instance_address: the instance.
            options: how the client works.
            former: its session at the instance before.
        """
        return cls._made(
            instance_address,
            options,
            former,
            partial(
                Store,
                retry_timeout=options.retry_timeout,
                revive=options.revive,
                pools=cast("ServerPools | None", options.pools),
            ),
        )

    def open(self) -> None:
        """Check the server and make the instance ready; see `Session.connect`."""
        try:
            self.store.run(self.session.connect())
        finally:
            self.warn()
        self.route.logged_on(self.session.origin)
