"""Connections to where a route leads; the only module that opens those on which calls run.

redis-py repeats commands by itself, which runs a script twice: that is switched off. Every new connection is greeted:
a replica, and a server that holds another incarnation of the instance, are never used.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff

from ampsq.base.errors import Unavailable
from ampsq.transport.discovery import options_of
from ampsq.transport.errors import translate_connect_error

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ampsq.transport.route import Route, ServerAddress

__all__ = ["AsyncConnection", "AsyncConnectionPool", "Connection", "ConnectionPool", "run_to_end"]

T = TypeVar("T")

#: Connections of a pool: as good as no bound.
_UNBOUND: Final = 2**31
#: Probes of a connection on which nothing is sent, before the system gives it up.
_PROBES: Final = 3
#: Nodes of a cluster that may send us on, one after the other.
_REDIRECTS: Final = 5


async def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Await what must not be left half done: cancelled meanwhile, even again, it says so when the work is done."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None or task.cancelled():
        return task.result()
    # Else its exception would be one that nobody asked for.
    task.exception()
    raise cancelled


def _astray(server: ServerAddress) -> Unavailable:
    error = Unavailable(f"{server}: the nodes of the cluster send one to each other: a failover is under way")
    error.may_have_run = False
    return error


def _options(url: str, seconds: float) -> dict[str, Any]:
    # One more than redis-py has by default would look like a server that is lost; how many there are, calls bound.
    options = {**options_of(seconds), "max_connections": _UNBOUND}
    if url.startswith("unix://"):
        return options
    wanted = {
        "TCP_KEEPIDLE": max(round(seconds), 1),
        "TCP_KEEPINTVL": max(round(seconds / _PROBES), 1),
        "TCP_KEEPCNT": _PROBES,
        # Milliseconds after which what was sent and not confirmed ends the connection.
        "TCP_USER_TIMEOUT": round(2000 * seconds),
    }
    known = {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}
    return {**options, "socket_keepalive": True, "socket_keepalive_options": known}


@dataclass(slots=True, eq=False)
class Connection:
    """A connection in somebody's hands; to be given back, or dropped when a reply of it was not read."""

    server: ServerAddress
    pool: redis.ConnectionPool
    raw: Any
    owner: ConnectionPool

    def send(self, request: bytes) -> None:
        """Send a packed request."""
        self.raw.send_packed_command([request], check_health=False)

    def read(self, seconds: float | None = None) -> Any:
        """Read a reply, and wait for it longer than is usual where `seconds` are given."""
        if seconds is not None and not self.raw.can_read(timeout=seconds):
            raise redis.TimeoutError(f"no answer within {seconds:g} s")
        return self.raw.read_response()

    def ask(self, *words: str) -> None:
        """Send a command."""
        self.raw.send_command(*words, check_health=False)

    def is_readable(self) -> bool:
        """Whether something came."""
        return bool(self.raw.can_read(timeout=0))

    def drop(self) -> None:
        """Close it; it can still be given back."""
        self.raw.disconnect()

    def release(self) -> None:
        """Give it back; one to a server that was left is closed."""
        if not self.owner.uses(self.pool):
            self.drop()
        self.pool.release(self.raw)


class ConnectionPool:
    """The connections of one store."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._at: tuple[ServerAddress, redis.ConnectionPool] | None = None
        self._changing = threading.Lock()

    def take(self) -> Connection:
        """A connection that stands and whose server was greeted.

        Raises:
            Unavailable: there is none, and why; nothing was sent.
        """
        moved: Exception | None = None
        for _ in range(_REDIRECTS):
            server = self._route.current or self._route.find()
            pool = self.pool(server)
            try:
                return Connection(server, pool, pool.get_connection(), self)
            except redis.exceptions.MovedError as error:
                if not self._route.redirect(server, error):
                    raise translate_connect_error(error, server.url) from error
                moved = error
            except (redis.RedisError, OSError, Unavailable) as error:
                ours = translate_connect_error(error, server.url)
                if isinstance(ours, Unavailable):
                    self._route.failed(server, ours, connecting=True)
                raise ours from error
        raise _astray(server) from moved

    def pool(self, server: ServerAddress) -> redis.ConnectionPool:
        """redis-py's connections to a server."""
        at = self._at
        if at is not None and at[0] is server:
            return at[1]
        with self._changing:
            if self._at is None or self._at[0] is not server:
                former, pool = self._at, self._made(server)
                self._at = (server, pool)
                if former is not None:
                    former[1].disconnect(inuse_connections=False)
            return self._at[1]

    def uses(self, pool: redis.ConnectionPool) -> bool:
        """Whether these connections go to the server that is used now."""
        return self._at is not None and self._at[1] is pool

    def _made(self, server: ServerAddress) -> redis.ConnectionPool:
        greet = functools.partial(self._greet, server)
        options = {**_options(server.url, self._route.heartbeat), "redis_connect_func": greet}
        return redis.ConnectionPool.from_url(server.url, **options)

    def _greet(self, server: ServerAddress, connection: Any) -> None:
        try:
            connection.on_connect()
            confirmed, questions = self._route.confirmed(), self._route.questions()
            for question in questions:
                connection.send_command(*question, check_health=False)
            self._route.check_server(server, confirmed, [self._answer(connection) for _ in questions])
        except BaseException:
            connection.disconnect()
            raise

    @staticmethod
    def _answer(connection: Any) -> Any:
        try:
            return connection.read_response()
        except redis.ResponseError as error:
            return error

    def close(self) -> None:
        """Close all of them."""
        with self._changing:
            at, self._at = self._at, None
        if at is not None:
            at[1].disconnect()


@dataclass(slots=True, eq=False)
class AsyncConnection:
    """`Connection` for asyncio."""

    server: ServerAddress
    pool: redis.asyncio.ConnectionPool
    raw: Any
    owner: AsyncConnectionPool
    seconds: float

    async def send(self, request: bytes) -> None:
        """Send a packed request."""
        async with asyncio.timeout(self.seconds):
            await self.raw.send_packed_command([request], check_health=False)

    async def read(self, seconds: float | None = None) -> Any:
        """Read a reply, and wait for it longer than is usual where `seconds` are given."""
        async with asyncio.timeout(self.seconds if seconds is None else seconds):
            return await self.raw.read_response()

    async def drop(self) -> None:
        """Close it; it can still be given back."""
        await self.raw.disconnect(nowait=True)

    async def release(self) -> None:
        """Give it back; one to a server that was left is closed."""
        if not self.owner.uses(self.pool):
            await self.drop()
        await self.pool.release(self.raw)


class AsyncConnectionPool:
    """The same as `ConnectionPool` for asyncio."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._at: tuple[ServerAddress, redis.asyncio.ConnectionPool] | None = None

    async def take(self) -> AsyncConnection:
        """A connection that stands and whose server was greeted; see `ConnectionPool.take`."""
        moved: Exception | None = None
        for _ in range(_REDIRECTS):
            # Sentinels and cluster nodes are asked in a thread: who asks them waits.
            found = self._route.current
            server = await asyncio.to_thread(self._route.find) if found is None else found
            pool = await self.pool(server)
            try:
                connection = await pool.get_connection()
            except redis.exceptions.MovedError as error:
                if not self._route.redirect(server, error):
                    raise translate_connect_error(error, server.url) from error
                moved = error
            except (redis.RedisError, OSError, Unavailable) as error:
                ours = translate_connect_error(error, server.url)
                if isinstance(ours, Unavailable):
                    self._route.failed(server, ours, connecting=True)
                raise ours from error
            else:
                return AsyncConnection(server, pool, connection, self, self._route.heartbeat)
        raise _astray(server) from moved

    async def pool(self, server: ServerAddress) -> redis.asyncio.ConnectionPool:
        """redis-py's connections to a server."""
        if self._at is None or self._at[0] is not server:
            former, self._at = self._at, (server, self._made(server))
            if former is not None:
                # Whoever comes next finds the new ones, and would never close these.
                await run_to_end(former[1].disconnect(inuse_connections=False))
        return self._at[1]

    def uses(self, pool: redis.asyncio.ConnectionPool) -> bool:
        """Whether these connections go to the server that is used now."""
        return self._at is not None and self._at[1] is pool

    def _made(self, server: ServerAddress) -> redis.asyncio.ConnectionPool:
        greet = functools.partial(self._greet, server)
        options = {**_options(server.url, self._route.heartbeat), "redis_connect_func": greet}
        # How long a reply may take is said where it is read: a blocked one takes longer.
        options |= {"socket_timeout": None, "retry": AsyncRetry(NoBackoff(), 0)}
        return redis.asyncio.ConnectionPool.from_url(server.url, **options)

    async def _greet(self, server: ServerAddress, connection: Any) -> None:
        try:
            async with asyncio.timeout(self._route.heartbeat):
                await connection.on_connect()
                confirmed, questions = self._route.confirmed(), self._route.questions()
                for question in questions:
                    await connection.send_command(*question, check_health=False)
                self._route.check_server(server, confirmed, [await self._answer(connection) for _ in questions])
        except BaseException:
            await connection.disconnect(nowait=True)
            raise

    @staticmethod
    async def _answer(connection: Any) -> Any:
        try:
            return await connection.read_response()
        except redis.ResponseError as error:
            return error

    async def close(self) -> None:
        """Close all of them."""
        at, self._at = self._at, None
        if at is not None:
            await run_to_end(at[1].disconnect())
