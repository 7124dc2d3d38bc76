"""Connections to servers that stores of threads share: those of all partitions of an instance, or of one store.

`ampsq.transport.async_server_pools` is made from this file.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import redis

from ampsq.transport.attempts import pool_options
from ampsq.transport.known_functions import known_functions

if TYPE_CHECKING:
    from redis.connection import Connection as RawConnection

    from ampsq.transport.known_functions import KnownFunctions
    from ampsq.transport.route import ServerAddress

__all__ = ["ServerPool", "ServerPools"]

#: Whether redis-py's connections tell all that `lend` asks. Those of releases before 8 do not: redis-py lends them.
_TELL_THEIR_STATE: Final = all(
    hasattr(redis.Connection, name) for name in ("is_connected", "can_read", "should_reconnect")
)


@dataclass(slots=True, eq=False)
class _KnownConnection:
    """Knowledge of a connection since it was made.

    Attributes:
        functions: what it knows of the server's functions; None: this process uses none.
        poller: tells whether anything has come; None: redis-py does. Its look is a read that fails, which takes 7 us.
        greeted: the servers of routes as which it was greeted: one of each route.
    """

    functions: KnownFunctions | None
    poller: select.poll | None
    greeted: set[ServerAddress] = field(default_factory=set)


def _poller_of(connection: RawConnection) -> select.poll | None:
    link: object = connection._sock  # noqa: SLF001  (redis-py has no other name for it)
    if type(link) is not socket.socket:
        # What comes by TLS need not be a reply.
        return None
    poller = select.poll()
    poller.register(link, select.POLLIN)
    return poller


class ServerPool(redis.ConnectionPool):
    """Redis-py's connections to a server, lent without its figures and retries: these were a third of a client's call.

    Where a connection is not as it mostly is, closed or with something that nobody read, redis-py mends it.

    Args:
        server: the server.
        heartbeat: seconds in which a new connection has to be ready.
        options: those of redis-py.

    Attributes:
        known: what is known of each connection.
        is_left: it is used no more: whoever gives a connection back ends it.
    """

    def __init__(self, *, server: ServerAddress, heartbeat: float, **options: object) -> None:
        super().__init__(redis_connect_func=self._begin, **options)  # type: ignore[arg-type]  # `pool_options` has types
        self._server, self._heartbeat = server, heartbeat
        self.known: dict[RawConnection, _KnownConnection] = {}
        self.is_left = False

    @classmethod
    def to(cls, server: ServerAddress, heartbeat: float) -> ServerPool:
        """Return one without connections yet."""
        options = pool_options(server.url, heartbeat)
        made: ServerPool = cls.from_url(server.url, server=server, heartbeat=heartbeat, **options)
        return made

    def _begin(self, connection: RawConnection) -> None:
        self.known[connection] = _KnownConnection(known_functions(self._server), _poller_of(connection))
        try:
            connection.on_connect()
        except BaseException:
            connection.disconnect()
            raise

    def lend(self) -> RawConnection:
        """Lend a connection that stands, mostly the one that was given back last; raises as redis-py does."""
        connection, is_ready = self._pop() if _TELL_THEIR_STATE else None, False
        if connection is not None:
            try:
                # One that never reached the server is not known yet.
                poller = self.known[connection].poller if connection.is_connected else None
                is_silent = poller is not None and not poller.poll(0)
                is_ready = connection.is_connected and (is_silent or not connection.can_read())
            except (redis.RedisError, OSError):
                # It was closed.
                is_ready = False
            finally:
                if not is_ready:
                    self._put(connection)
        if connection is None or not is_ready:
            connection = self.get_connection()
        return connection

    def take_back(self, connection: RawConnection) -> None:
        """Take back a connection that was lent."""
        if not _TELL_THEIR_STATE or connection.should_reconnect() or not self._put(connection):
            self.release(connection)

    def _pop(self) -> RawConnection | None:
        if self.pid != os.getpid():
            return None
        with self._lock:
            if not self._available_connections:
                return None
            connection: RawConnection = self._available_connections.pop()
            self._in_use_connections.add(connection)
            return connection

    def _put(self, connection: RawConnection) -> bool:
        """Put it to those that nobody uses; False: it is none of this process's."""
        with self._lock:
            if self.pid != os.getpid() or connection not in self._in_use_connections:
                return False
            self._in_use_connections.remove(connection)
            self._available_connections.append(connection)
            return True


class ServerPools:
    """Connections to servers, by their addresses: those of one store, or of several that share them.

    Instances of one server share a connection where their calls come one after the other, as those of a client of all
    partitions do. Each instance greets each connection that it is lent.

    Args:
        is_shared: by several stores, whose options are the same.

    Attributes:
        warned: address and text of what was logged of servers, which clients that share connections say once.
    """

    def __init__(self, *, is_shared: bool = True) -> None:
        self.is_shared = is_shared
        self.warned: set[tuple[str, str]] = set()
        self._pools: dict[str, ServerPool] = {}
        # Held over a few assignments only.
        self._changing = threading.Lock()

    def pool(self, server: ServerAddress, heartbeat: float, former: ServerPool | None) -> ServerPool:
        """Return the connections to a server.

        Args:
            server: the server.
            heartbeat: seconds in which a new connection has to be ready.
            former: what the store used up to now, since when it lost that server, or went to another one.
        """
        with self._changing:
            if former is not None and (not self.is_shared or self._pools.get(server.url) is former):
                # Another store may not know yet that the server was lost.
                former.is_left = True
            found = self._pools.get(server.url)
            if found is None or found.is_left:
                found = self._pools[server.url] = ServerPool.to(server, heartbeat)
            return found

    def close(self) -> None:
        """Close all connections."""
        with self._changing:
            pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.is_left = True
        for pool in pools.values():
            pool.disconnect()
