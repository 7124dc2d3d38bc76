"""The route to the server: a list of addresses, the result of trying each, and the one in use.

One `Route` is shared by all connections of a client, so that all of them go to the same server. It decides; it opens
no connections but those that ask Sentinels and cluster nodes, which the asyncio client lets it do in a thread.
"""

from __future__ import annotations

import logging
import random
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import redis

from ampsq.base.addresses import join_addresses, parse_endpoints, redacted
from ampsq.base.errors import (
    AuthenticationFailed,
    ConnectionRefused,
    DefinitionError,
    NameNotResolved,
    NoAnswer,
    NotAPrimary,
    OtherIncarnation,
    PrimaryUnknown,
    StillLoading,
    TlsFailed,
    Unavailable,
)
from ampsq.base.values import Interval
from ampsq.protocol.keepalive import LONGEST_HEARTBEAT
from ampsq.protocol.reads.greeting import greet, parse_clock, read_greeting
from ampsq.transport.connection_state import ConnectionEvent, ConnectionState, Listeners
from ampsq.transport.discovery import ask_cluster, ask_sentinels, slot_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from redis.typing import EncodableT

    from ampsq.base.addresses import Endpoint

__all__ = ["BlockedConnection", "Route", "ServerAddress", "parse_heartbeat"]

_log = logging.getLogger("ampsq")
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0
#: Milliseconds of a heartbeat.
_SHORTEST, _LONGEST = 200, LONGEST_HEARTBEAT
#: After these another address is tried at once; after others, as a broken connection, the same one first.
_NOT_HERE: Final = (
    *(AuthenticationFailed, ConnectionRefused, NameNotResolved, NoAnswer, NotAPrimary),
    *(OtherIncarnation, PrimaryUnknown, StillLoading, TlsFailed),
)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class ServerAddress:
    """A server that is used, from one reconnect to the next: another object after each."""

    url: str

    def __str__(self) -> str:
        return redacted(self.url)

    def __repr__(self) -> str:
        return f"<Place {self}>"


class BlockedConnection(Protocol):
    """A connection on which somebody waits for a reply that the server holds back."""

    @property
    def server(self) -> ServerAddress:
        """The server."""

    def cut(self) -> None:
        """Let the wait fail at once, from any thread."""


class Route:
    """The way to an instance.

    Args:
        url: an address, or several: a list, or one text with commas. They are tried in order.
        instance: the instance's name.
        heartbeat: seconds after which a connection that says nothing is taken to be dead, and for connecting.
        listeners: called when the state of the connection changes.
        confirmed: gives an ID that the server has confirmed, or "": a server that does not have it lost messages.
        log_level: at which the loss of a connection is logged.
        beside: a key outside of all instances: in a cluster, the way leads to its node, where no instance is named.

    Raises:
        DefinitionError: an address is wrong.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        instance: str,
        *,
        heartbeat: float = 5.0,
        listeners: Listeners | None = None,
        confirmed: Callable[[], str] = str,
        log_level: int = logging.WARNING,
        beside: str = "",
    ) -> None:
        self.url, self.instance, self.heartbeat = join_addresses(url), instance, heartbeat
        self.log_level = log_level
        #: The slot of a cluster to whose node it leads. That of a key is that of an instance of its name.
        self.slot = slot_of(instance or beside)
        self.listeners = listeners or Listeners()
        self.current: ServerAddress | None = None
        #: Why the client does not go on at another instance; "" where there is none, or all is well.
        self.stays = ""
        #: Where the client went on instead; "" while it is here.
        self.left = ""
        #: How many nodes of a cluster sent a call on to here.
        self.detours = 0
        self._endpoints = list(parse_endpoints(url))
        self._index = 0
        self._nodes: dict[int, list[tuple[str, int]]] = {}
        self._causes: dict[int, Unavailable] = {}
        self._lock = threading.RLock()
        # One asks where the server is; who comes meanwhile waits for the answer.
        self._asking = threading.Lock()
        # Connections on which somebody waits for what the server holds back.
        self._waits: set[BlockedConnection] = set()
        self._up = False
        self._lost = ""
        self._origin = ""
        self._confirmed, self._known = confirmed, (0, 0)

    @property
    def number(self) -> int:
        """Number of addresses."""
        return len(self._endpoints)

    @property
    def is_cluster(self) -> bool:
        """Return whether the server is known to be a node of a cluster."""
        with self._lock:
            return self._endpoints[self._index].kind == "cluster"

    @property
    def is_up(self) -> bool:
        """Return whether the server in use was greeted, and is the one that the client knows."""
        return self._up

    @property
    def is_direct(self) -> bool:
        """Return whether all addresses are those of servers, so that nobody is asked where the server is."""
        with self._lock:
            return all(endpoint.kind == "server" for endpoint in self._endpoints)

    @property
    def lost_place(self) -> str:
        """A text that instances which are lost together have in common: their addresses, or the node of a cluster."""
        with self._lock:
            is_one = all(endpoint.kind != "cluster" for endpoint in self._endpoints)
            return self.url if is_one else self._lost or self.url

    # -- where to go

    def find(self) -> ServerAddress:
        """The server to use; asks Sentinels or cluster nodes where that is needed.

        Raises:
            Unavailable: they do not know it.
        """
        with self._asking:
            with self._lock:
                if self.current is not None:
                    return self.current
                index, endpoint = self._index, self._endpoints[self._index]
            try:
                # Without the lock: asking takes its time, and an event loop must not wait for that.
                url = self._look_up(index, endpoint)
            except Unavailable as error:
                error.may_have_run = False
                with self._lock:
                    if self._index == index:
                        self._next(error)
                raise
            with self._lock:
                self.current = self.current or ServerAddress(url)
                return self.current

    def _look_up(self, index: int, endpoint: Endpoint) -> str:
        if endpoint.kind == "sentinel":
            return ask_sentinels(endpoint, self.heartbeat)
        if endpoint.kind == "server":
            return endpoint.text
        hosts = dict.fromkeys((*self._nodes.get(index, ()), *endpoint.hosts))
        url, nodes = ask_cluster(endpoint, hosts, self.slot, self.heartbeat)
        self._nodes[index] = nodes or self._nodes.get(index, [])
        return url

    def redirect(self, server: ServerAddress, moved: redis.exceptions.MovedError) -> bool:
        """Follow a cluster's word that the instance is at another node; False: it is not about the instance."""
        if moved.slot_id != self.slot:
            return False
        with self._lock:
            if self.current is server:
                endpoint = self._endpoints[self._index]
                here = redis.connection.parse_url(server.url)
                host = moved.host or str(here.get("host", "localhost"))
                self._nodes.setdefault(self._index, []).append((host, moved.port))
                if endpoint.kind == "server":
                    # Where that node fails, the others are asked who follows it.
                    seeds = ((str(here.get("host", "localhost")), int(here.get("port", 6379))), (host, moved.port))
                    endpoint = self._endpoints[self._index] = endpoint.of_cluster(seeds)
                self._down(f"the cluster serves the instance at {host}:{moved.port} now")
                self.current = ServerAddress(endpoint.at(host, moved.port))
                self.cut_waits()
        return True

    def lead_to(self, url: str) -> None:
        """Use a server that somebody else has found, where none is in use."""
        with self._lock:
            if self.current is None:
                self.current = ServerAddress(url)

    def node(self, host: str, port: int) -> str:
        """The address of another node of the cluster, with the credentials and options of this one's."""
        with self._lock:
            return self._endpoints[self._index].at(host, port)

    def aside(self, server: ServerAddress, moved: redis.exceptions.MovedError) -> str:
        """The address of the node that has a key outside of the instance."""
        here = redis.connection.parse_url(server.url)
        return self.node(moved.host or str(here.get("host", "localhost")), moved.port)

    # -- what came of it

    def failed(self, server: ServerAddress, error: Unavailable, *, connecting: bool = False) -> None:
        """Note that a server could not be used, or was lost; the next look takes the next address, where that helps."""
        with self._lock:
            if self.current is not server:
                return
            self.current, self._lost = None, str(server)
            self.cut_waits()
            self._down(str(error))
            if connecting or isinstance(error, _NOT_HERE):
                self._next(error)

    def begin_wait(self, wait: BlockedConnection) -> None:
        """Have a connection cut when its server is lost, since somebody waits for what that holds back."""
        with self._lock:
            self._waits.add(wait)
            if self.current is not wait.server:
                wait.cut()

    def end_wait(self, wait: BlockedConnection) -> None:
        """Leave a connection alone again."""
        with self._lock:
            self._waits.discard(wait)

    def cut_waits(self) -> None:
        """End all waits for what a server holds back, as if their connections were lost."""
        with self._lock:
            for wait in self._waits:
                wait.cut()

    def _down(self, reason: str) -> None:
        if self._up:
            self._up = False
            whose = f"connection of instance {self.instance}" if self.instance else "connection"
            _log.log(self.log_level, "%s lost: %s", whose, reason)
            self.listeners.tell(ConnectionEvent(ConnectionState.DISCONNECTED, str(self.current or ""), reason))

    def _next(self, error: Unavailable) -> None:
        self._causes[self._index] = error
        self._index = (self._index + 1) % len(self._endpoints)

    @property
    def is_hopeless(self) -> bool:
        """Return whether every address refuses, for a reason that waiting does not change."""
        with self._lock:
            return len(self._causes) == len(self._endpoints) and all(e.is_lasting for e in self._causes.values())

    def pause(self, number: int) -> float:
        """Seconds before the next attempt: none until each address was tried; then more and more, by chance."""
        rounds, rest = divmod(number, len(self._endpoints))
        if rest:
            return 0.0
        return min(_FIRST_PAUSE * 2.0**rounds, _LONGEST_PAUSE) * random.uniform(0.5, 1.0)  # noqa: S311  (no secret)

    def summed_up(self, error: Unavailable, retry_timeout: float) -> Unavailable:
        """Return the error to raise when nothing helped: with several addresses, the failure of each."""
        beside = f"; this client works at {self.left} now" if self.left else f"; {self.stays}" if self.stays else ""
        with self._lock:
            if len(self._endpoints) == 1 and not beside:
                return error
            known = self._causes or {self._index: error}
            causes = [(str(self._endpoints[index]), cause) for index, cause in sorted(known.items())]
        lasting = next((cause for _, cause in causes if cause.is_lasting), error)
        tried = "; ".join(f"({number}) {cause}" for number, (_, cause) in enumerate(causes, 1))
        told = type(lasting)(
            f"no server of instance {self.instance!r} was reached within {retry_timeout:g} s: {tried}{beside}"
        )
        told.may_have_run = error.may_have_run
        return told

    # -- greeting

    def questions(self) -> list[tuple[EncodableT, ...]]:
        """Return the commands that every new connection sends first; `check_server` reads the replies."""
        return greet(self.instance)

    def confirmed(self) -> tuple[int, int]:
        """The last ID that is known to be recorded."""
        with self._lock:
            self._known = max(self._known, parse_clock(self._confirmed().encode()))
            return self._known

    def check_server(self, server: ServerAddress, confirmed: tuple[int, int], replies: list[object]) -> None:
        """Read the answers of a server.

        Args:
            server: the server.
            confirmed: what was known to be recorded before it was asked.
            replies: each a reply, or what was raised in its stead.

        Raises:
            NotAPrimary, OtherIncarnation: it cannot be used. RedisError: it answered that it does not serve us now.
        """
        greeting = read_greeting(replies)
        if greeting.role == "sentinel":
            raise NotAPrimary(f"{server}: this is a Sentinel: write sentinel://HOST:PORT/SERVICE")
        if greeting.role not in ("", "master"):
            raise NotAPrimary(f"{server}: this is a replica of {greeting.primary}: name the primary, or all in a list")
        for reply in replies:
            # A right that a user does not have is no reason: the calls themselves show what it may.
            if isinstance(reply, Exception) and not isinstance(reply, redis.exceptions.NoPermissionError):
                raise reply
        self._reached(server, greeting.origin, greeting.clock, confirmed)

    def _reached(self, server: ServerAddress, origin: str, clock: tuple[int, int], confirmed: tuple[int, int]) -> None:
        with self._lock:
            if self._origin and origin != self._origin:
                found = f"holds {origin!r}" if origin else "has no keys of it: it was emptied, or is another server"
                raise OtherIncarnation(
                    f"{server}: this client works on {self._origin!r}, and the server {found}; what was leased and "
                    "published there is unknown here. Make a new client, or restore the server"
                )
            if self.current is not server:
                return
            reason = ""
            if self._origin and clock < confirmed:
                reason = "the server lost messages: its last is {}-{}, and {}-{} was there".format(*clock, *confirmed)
                _log.error("%s: %s", server, reason)
                self._known = clock
                self._down("the server was restarted, or restored")
            if not self._up:
                self._up = True
                self._causes.clear()
                self.listeners.tell(ConnectionEvent(ConnectionState.CONNECTED, str(server), reason))
                if self._origin:
                    self._say(ConnectionState.LOGGED_ON)

    def logged_on(self, origin: str) -> None:
        """The instance is open under this origin: from now on no server with another one is used."""
        with self._lock:
            self._origin = origin
            self._say(ConnectionState.LOGGED_ON)

    def tell(self, server: ServerAddress | None, state: ConnectionState) -> None:
        """Say what a connection has reached, unless it is lost meanwhile."""
        with self._lock:
            if server is not None and self.current is server:
                self._say(state)

    def _say(self, state: ConnectionState) -> None:
        if self._up:
            self.listeners.tell(ConnectionEvent(state, str(self.current or "")))


def parse_heartbeat(value: timedelta | float | str) -> float:
    """Read a heartbeat: seconds.

    Raises:
        DefinitionError: it is shorter than 200ms or longer than 10s.
    """
    interval = Interval.of_argument("heartbeat", value)
    if not _SHORTEST <= interval <= _LONGEST:
        raise DefinitionError(f"heartbeat={value!r}: allowed is {_SHORTEST}ms to {_LONGEST // 1000}s")
    return interval / 1000
