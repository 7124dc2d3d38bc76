"""What a client works with at one instance: its connections, its session, its signs of life."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

from ampsq.client.session import Session
from ampsq.queues.keepalive import Presence
from ampsq.topics.reader_reports import Reporting
from ampsq.transport.route import Route
from ampsq.transport.runner import AsyncStore, Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq.transport.connection_state import Listeners
    from ampsq.transport.instances import Home

__all__ = ["BETWEEN_ROUNDS", "AsyncAttached", "Attached", "Manner", "Parts"]

#: Seconds between two rounds of looking for the first instance to work at.
BETWEEN_ROUNDS: Final = 0.2

AnyStore = TypeVar("AnyStore", Store, AsyncStore)


@dataclass(frozen=True, slots=True)
class Manner:
    """How a client works, wherever it does.

    Attributes:
        publisher: under which name it publishes.
        patience: seconds for which calls are repeated.
        heartbeat: seconds.
        ack_timeout: seconds that an acknowledgement may wait for its batch.
        transport: whose limits count for it.
        listeners: who is told what its connection comes to.
        revive: what can bring its server back.
        homes: the names of the instances where it may work.
    """

    publisher: str | None
    patience: float
    heartbeat: float
    ack_timeout: float
    transport: str
    listeners: Listeners
    revive: Callable[[], None] | None
    homes: tuple[str, ...]


@dataclass(frozen=True)
class Parts(Generic[AnyStore]):
    """A client's parts at one instance."""

    session: Session
    route: Route
    store: AnyStore
    presence: Presence
    reporting: Reporting

    @classmethod
    def _made(cls, home: Home, manner: Manner, former: Session | None, store: Callable[[Route, str], AnyStore]) -> Self:
        session = Session(home.instance, manner.publisher, former, manner.homes)
        route = Route(
            home.url,
            session.instance,
            heartbeat=manner.heartbeat,
            listeners=manner.listeners,
            confirmed=lambda: session.confirmed_id,
        )
        return cls(
            session,
            route,
            store(route, session.instance),
            Presence(route, session.client, manner.ack_timeout),
            Reporting(route, session.client, manner.transport),
        )

    def stop(self) -> None:
        """End what runs beside the client; the store stays open."""
        self.presence.stop()
        self.reporting.stop()


class Attached(Parts[Store]):
    """Those of `Client`."""

    @classmethod
    def to(cls, home: Home, manner: Manner, former: Session | None = None) -> Self:
        """Make them; nothing is sent.

        Args:
            home: the instance.
            manner: how the client works.
            former: its session at the instance before.
        """
        return cls._made(
            home, manner, former, partial(Store, patience=manner.patience, revive=manner.revive)
        )  # fmt: skip

    def open(self) -> None:
        """Check the server and make the instance ready; see `Session.connect`."""
        self.store.run(self.session.connect())
        self.route.logged_on(self.session.origin)


class AsyncAttached(Parts[AsyncStore]):
    """Those of `AsyncClient`."""

    @classmethod
    def to(cls, home: Home, manner: Manner, former: Session | None = None) -> Self:
        """Make them; see `Attached.to`."""
        return cls._made(
            home, manner, former, partial(AsyncStore, patience=manner.patience, revive=manner.revive)
        )  # fmt: skip

    async def open(self) -> None:
        """Check the server and make the instance ready; see `Session.connect`."""
        await self.store.run(self.session.connect())
        self.route.logged_on(self.session.origin)
