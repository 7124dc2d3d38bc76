"""What a client works with at one instance: its connections, its session, its signs of life."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from ampsq.presence import Presence
from ampsq.reporting import Reporting
from ampsq.route import Route
from ampsq.session import Session
from ampsq.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq.connection_state import Listeners
    from ampsq.homes import Home

__all__ = ["Attached", "Manner"]


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
    """

    publisher: str | None
    patience: float
    heartbeat: float
    ack_timeout: float
    transport: str
    listeners: Listeners
    revive: Callable[[], None] | None


@dataclass(frozen=True, slots=True)
class Attached:
    """A client's parts at one instance."""

    session: Session
    route: Route
    store: Store
    presence: Presence
    reporting: Reporting

    @classmethod
    def to(cls, home: Home, manner: Manner, former: Session | None = None) -> Self:
        """Make them; nothing is sent.

        Args:
            home: the instance.
            manner: how the client works.
            former: its session at the instance before.
        """
        session = Session(home.instance, manner.publisher, former)
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
            Store(route, session.instance, patience=manner.patience, revive=manner.revive),
            Presence(route, session.client, manner.ack_timeout),
            Reporting(route, session.client, manner.transport),
        )

    def open(self) -> None:
        """Check the server and make the instance ready; see `Session.connect`."""
        self.store.run(self.session.connect())
        self.route.logged_on(self.session.origin)

    def stop(self) -> None:
        """End what runs beside the client; the store stays open."""
        self.presence.stop()
        self.reporting.stop()
