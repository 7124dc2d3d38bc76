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
from typing import TYPE_CHECKING, Any, Final

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff

from ampsq.base.errors import Unavailable
from ampsq.transport.discovery import options_of
from ampsq.transport.errors import unreached

if TYPE_CHECKING:
    from ampsq.transport.route import Place, Route

__all__ = ["AsyncLine", "AsyncLines", "Line", "Lines"]

#: Connections of a pool: as good as no bound.
_UNBOUND: Final = 2**31
#: Probes of a connection on which nothing is sent, before the system gives it up.
_PROBES: Final = 3
#: Nodes of a cluster that may send us on, one after the other.
_REDIRECTS: Final = 5


def _astray(place: Place) -> Unavailable:
    error = Unavailable(f"{place}: the nodes of the cluster send one to each other: a failover is under way")
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
class Line:
    """A connection in somebody's hands; to be given back, or dropped when a reply of it was not read."""

    place: Place
    pool: redis.ConnectionPool
    connection: Any
    lines: Lines

    def send(self, request: bytes) -> None:
        """Send a packed request."""
        self.connection.send_packed_command([request], check_health=False)

    def read(self, seconds: float | None = None) -> Any:
        """Read a reply, and wait for it longer than is usual where `seconds` are given."""
        if seconds is not None and not self.connection.can_read(timeout=seconds):
            raise redis.TimeoutError(f"no answer within {seconds:g} s")
        return self.connection.read_response()

    def ask(self, *words: str) -> None:
        """Send a command."""
        self.connection.send_command(*words, check_health=False)

    def is_readable(self) -> bool:
        """Whether something came."""
        return bool(self.connection.can_read(timeout=0))

    def drop(self) -> None:
        """Close it; it can still be given back."""
        self.connection.disconnect()

    def release(self) -> None:
        """Give it back; one to a server that was left is closed."""
        if not self.lines.uses(self.pool):
            self.drop()
        self.pool.release(self.connection)


class Lines:
    """The connections of one store."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._at: tuple[Place, redis.ConnectionPool] | None = None
        self._changing = threading.Lock()

    def take(self) -> Line:
        """A connection that stands and whose server was greeted.

        Raises:
            Unavailable: there is none, and why; nothing was sent.
        """
        for _ in range(_REDIRECTS):
            place = self._route.current or self._route.find()
            pool = self.pool(place)
            try:
                return Line(place, pool, pool.get_connection(), self)
            except redis.exceptions.MovedError as error:
                if not self._route.redirect(place, error):
                    raise unreached(error, place.url) from error
            except (redis.RedisError, OSError, Unavailable) as error:
                ours = unreached(error, place.url)
                if isinstance(ours, Unavailable):
                    self._route.failed(place, ours, connecting=True)
                raise ours from error
        raise _astray(place)

    def pool(self, place: Place) -> redis.ConnectionPool:
        """redis-py's connections to a server."""
        at = self._at
        if at is not None and at[0] is place:
            return at[1]
        with self._changing:
            if self._at is None or self._at[0] is not place:
                former, pool = self._at, self._made(place)
                self._at = (place, pool)
                if former is not None:
                    former[1].disconnect(inuse_connections=False)
            return self._at[1]

    def uses(self, pool: redis.ConnectionPool) -> bool:
        """Whether these connections go to the server that is used now."""
        return self._at is not None and self._at[1] is pool

    def _made(self, place: Place) -> redis.ConnectionPool:
        greet = functools.partial(self._greet, place)
        options = {**_options(place.url, self._route.heartbeat), "redis_connect_func": greet}
        return redis.ConnectionPool.from_url(place.url, **options)

    def _greet(self, place: Place, connection: Any) -> None:
        try:
            connection.on_connect()
            confirmed, questions = self._route.confirmed(), self._route.questions()
            for question in questions:
                connection.send_command(*question, check_health=False)
            self._route.judge(place, confirmed, [self._answer(connection) for _ in questions])
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
class AsyncLine:
    """`Line` for asyncio."""

    place: Place
    pool: redis.asyncio.ConnectionPool
    connection: Any
    lines: AsyncLines
    seconds: float

    async def send(self, request: bytes) -> None:
        """Send a packed request."""
        async with asyncio.timeout(self.seconds):
            await self.connection.send_packed_command([request], check_health=False)

    async def read(self, seconds: float | None = None) -> Any:
        """Read a reply, and wait for it longer than is usual where `seconds` are given."""
        async with asyncio.timeout(self.seconds if seconds is None else seconds):
            return await self.connection.read_response()

    async def drop(self) -> None:
        """Close it; it can still be given back."""
        await self.connection.disconnect(nowait=True)

    async def release(self) -> None:
        """Give it back; one to a server that was left is closed."""
        if not self.lines.uses(self.pool):
            await self.drop()
        await self.pool.release(self.connection)


class AsyncLines:
    """The same as `Lines` for asyncio."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._at: tuple[Place, redis.asyncio.ConnectionPool] | None = None

    async def take(self) -> AsyncLine:
        """A connection that stands and whose server was greeted; see `Lines.take`."""
        for _ in range(_REDIRECTS):
            # Sentinels and cluster nodes are asked in a thread: who asks them waits.
            found = self._route.current
            place = await asyncio.to_thread(self._route.find) if found is None else found
            pool = await self.pool(place)
            try:
                connection = await pool.get_connection()
            except redis.exceptions.MovedError as error:
                if not self._route.redirect(place, error):
                    raise unreached(error, place.url) from error
            except (redis.RedisError, OSError, Unavailable) as error:
                ours = unreached(error, place.url)
                if isinstance(ours, Unavailable):
                    self._route.failed(place, ours, connecting=True)
                raise ours from error
            else:
                return AsyncLine(place, pool, connection, self, self._route.heartbeat)
        raise _astray(place)

    async def pool(self, place: Place) -> redis.asyncio.ConnectionPool:
        """redis-py's connections to a server."""
        if self._at is None or self._at[0] is not place:
            former, self._at = self._at, (place, self._made(place))
            if former is not None:
                await former[1].disconnect(inuse_connections=False)
        return self._at[1]

    def uses(self, pool: redis.asyncio.ConnectionPool) -> bool:
        """Whether these connections go to the server that is used now."""
        return self._at is not None and self._at[1] is pool

    def _made(self, place: Place) -> redis.asyncio.ConnectionPool:
        greet = functools.partial(self._greet, place)
        options = {**_options(place.url, self._route.heartbeat), "redis_connect_func": greet}
        # How long a reply may take is said where it is read: a blocked one takes longer.
        options |= {"socket_timeout": None, "retry": AsyncRetry(NoBackoff(), 0)}
        return redis.asyncio.ConnectionPool.from_url(place.url, **options)

    async def _greet(self, place: Place, connection: Any) -> None:
        try:
            async with asyncio.timeout(self._route.heartbeat):
                await connection.on_connect()
                confirmed, questions = self._route.confirmed(), self._route.questions()
                for question in questions:
                    await connection.send_command(*question, check_health=False)
                self._route.judge(place, confirmed, [await self._answer(connection) for _ in questions])
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
            await at[1].disconnect()
