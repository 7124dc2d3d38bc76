"""Calls in flight: several are sent on one connection before the first is answered."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Self

import hiredis
import redis

from ampsq.causes import translated
from ampsq.errors import Rejected, Unavailable

if TYPE_CHECKING:
    from ampsq.flow import Call
    from ampsq.store import AsyncStore, Store

__all__ = ["SOCKET_TIMEOUT", "AsyncChannel", "Channel", "packed"]

#: Seconds. A script is bounded to about 10 ms; a reply that takes this long is lost, not late.
SOCKET_TIMEOUT = 5.0


def packed(call: Call[Any], key: str, *, whole: bool) -> bytes:
    """The request as it travels: hiredis packs it in one go, where redis-py would look at every argument first."""
    words: Any = tuple(call.arguments)
    if call.script is not None:
        how = ("EVAL", call.script.source) if whole else ("EVALSHA", call.script.sha)
        words = (*how, 1, key, *words)
    return bytes(hiredis.pack_command(words))


class Channel:
    """Calls in flight on one connection, answered in order. After a failure it is empty and usable again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._connection: Any = None
        self._sent: deque[Call[Any]] = deque()

    @property
    def open_calls(self) -> int:
        """Calls sent and not collected."""
        return len(self._sent)

    def post(self, call: Call[Any]) -> None:
        """Send a call. Raises `Unavailable` when the connection broke: then nobody knows what ran."""
        try:
            if self._connection is None:
                self._connection = self._store.redis.connection_pool.get_connection()
            self._connection.send_packed_command([packed(call, self._store.key, whole=False)])
        except BaseException as error:
            self.close()
            if isinstance(error, (redis.RedisError, OSError)):
                raise translated(error, call, self._store.url) from error
            raise
        self._sent.append(call)

    def collect(self) -> Any:
        """Read the reply of the earliest call; raises what the server answered, or `Unavailable`."""
        if self._connection is None:
            raise Unavailable("the connection broke while calls were in flight")
        call = self._sent[0]
        try:
            reply = self._connection.read_response()
        except redis.exceptions.NoScriptError:
            # It did not run, and neither did any call behind it: they run in order after this one.
            self._sent.popleft()
            try:
                return self._store.call(call)
            except BaseException:
                self.close()
                raise
        except redis.ResponseError as error:
            ours = translated(error, call, self._store.url)
            self._sent.popleft()
            if not isinstance(ours, Rejected):
                # Whoever posted is in doubt about all that is in flight: none of it may be read as something else.
                self.close()
            raise ours from error
        except BaseException as error:
            self.close()
            if isinstance(error, (redis.RedisError, OSError)):
                raise translated(error, call, self._store.url) from error
            raise
        self._sent.popleft()
        return call.read(reply)

    def close(self) -> None:
        """Give the connection back; one with unread replies is dropped."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._sent:
                connection.disconnect()
            self._store.redis.connection_pool.release(connection)
        self._sent.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncChannel:
    """`Channel` for asyncio."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._connection: Any = None
        self._sent: deque[Call[Any]] = deque()

    @property
    def open_calls(self) -> int:
        """Calls sent and not collected."""
        return len(self._sent)

    async def post(self, call: Call[Any]) -> None:
        """Send a call; see `Channel.post`."""
        try:
            if self._connection is None:
                self._connection = await self._store.redis.connection_pool.get_connection()
            await self._connection.send_packed_command([packed(call, self._store.key, whole=False)])
        except BaseException as error:
            await self.close()
            if isinstance(error, (redis.RedisError, OSError)):
                raise translated(error, call, self._store.url) from error
            raise
        self._sent.append(call)

    async def collect(self) -> Any:
        """Read the reply of the earliest call; see `Channel.collect`."""
        if self._connection is None:
            raise Unavailable("the connection broke while calls were in flight")
        call = self._sent[0]
        try:
            async with asyncio.timeout(SOCKET_TIMEOUT):
                reply = await self._connection.read_response()
        except redis.exceptions.NoScriptError:
            self._sent.popleft()
            try:
                return await self._store.call(call)
            except BaseException:
                await self.close()
                raise
        except redis.ResponseError as error:
            ours = translated(error, call, self._store.url)
            self._sent.popleft()
            if not isinstance(ours, Rejected):
                # Whoever posted is in doubt about all that is in flight: none of it may be read as something else.
                await self.close()
            raise ours from error
        except BaseException as error:
            await self.close()
            if isinstance(error, (redis.RedisError, OSError)):
                raise translated(error, call, self._store.url) from error
            raise
        self._sent.popleft()
        return call.read(reply)

    async def close(self) -> None:
        """Give the connection back; one with unread replies is dropped."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._sent:
                await connection.disconnect(nowait=True)
            await self._store.redis.connection_pool.release(connection)
        self._sent.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
