"""Calls in flight: several are sent on one connection before the first is answered."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

import hiredis
import redis

from ampsq.base.errors import DefinitionError, Rejected, Unavailable
from ampsq.protocol.request import command
from ampsq.protocol.scripts import script
from ampsq.transport.errors import translate_error

if TYPE_CHECKING:
    from ampsq.base.errors import AmpsqError
    from ampsq.protocol.request import Call
    from ampsq.transport.connection_pool import AsyncConnection, Connection
    from ampsq.transport.route import Route, ServerAddress

__all__ = ["AsyncCallRunner", "AsyncPipeline", "CallRunner", "PinnedPipeline", "Pipeline", "pack_request"]

T = TypeVar("T")
#: Characters of a refused text that an error shows.
_SHOWN: Final = 60


def pack_request(call: Call[Any], key: str, *, whole: bool) -> bytes:
    """The request as it travels: hiredis packs it in one go, where redis-py would look at every argument first.

    Raises:
        DefinitionError: a name or another text has halves of characters (surrogates), as bytes of an argument that are
            not UTF-8 become.
    """
    words: Any = tuple(call.arguments)
    if call.script is not None:
        how = ("EVAL", call.script.source) if whole else ("EVALSHA", call.script.sha)
        words = (*how, 1, key, *words)
    try:
        return bytes(hiredis.pack_command(words))
    except UnicodeEncodeError as error:
        raise DefinitionError(
            f"{error.object[:_SHOWN]!r} is not a text in UTF-8; allowed: names and texts that are"
        ) from error


class CallRunner(Protocol):
    """A store, as far as a channel needs it: the way to the server, a connection, and single calls."""

    route: Route
    key: str

    def take_connection(self) -> Connection:
        """Give a connection of one's own."""

    def call(self, call: Call[T]) -> T:
        """Send one call and read its reply."""


class AsyncCallRunner(Protocol):
    """The same for asyncio."""

    route: Route
    key: str

    async def take_connection(self) -> AsyncConnection:
        """Give a connection of one's own."""

    async def call(self, call: Call[T]) -> T:
        """Send one call and read its reply."""


class Pipeline:
    """Calls in flight on one connection, answered in order. After a failure it is empty and usable again."""

    def __init__(self, store: CallRunner) -> None:
        self._store = store
        self._connection: Connection | None = None
        self._sent: deque[Call[Any]] = deque()

    @property
    def open_calls(self) -> int:
        """Calls sent and not collected."""
        return len(self._sent)

    def post(self, call: Call[Any]) -> None:
        """Send a call. Raises `Unavailable` when the connection broke: then nobody knows what ran."""
        if self._connection is not None and not self._sent and self._connection.server is not self._store.route.current:
            self.close()
        if self._connection is None:
            self._connection = self._store.take_connection()
        try:
            self._connection.send(pack_request(call, self._store.key, whole=False))
        except (redis.RedisError, OSError) as error:
            raise self._failed(error, call) from error
        except BaseException:
            self._abandon()
            raise
        self._sent.append(call)

    def collect(self) -> Any:
        """Read the reply of the earliest call; raises what the server answered, or `Unavailable`."""
        if self._connection is None:
            raise Unavailable("the connection broke while calls were in flight")
        call = self._sent[0]
        try:
            reply = self._connection.read(call.blocks + self._store.route.heartbeat if call.blocks else None)
        except redis.exceptions.NoScriptError as error:
            return self._run_forgotten(call, error)
        except redis.ResponseError as error:
            ours = translate_error(error, call, self._connection.server.url)
            self._sent.popleft()
            if not isinstance(ours, Rejected):
                # The outcome of all that is in flight is unknown to whoever posted: none of it may be read as something
                # else.
                self.close()
            raise ours from error
        except (redis.RedisError, OSError) as error:
            raise self._failed(error, call) from error
        except BaseException:
            self._abandon()
            raise
        self._sent.popleft()
        return call.read(reply)

    def _run_forgotten(self, call: Call[Any], error: Exception) -> Any:  # noqa: ARG002  (of those that run nothing else)
        """It did not run, and neither did any call behind it: they run in order after this one."""
        self._sent.popleft()
        try:
            return self._store.call(call)
        except BaseException:
            self.close()
            raise

    def _failed(self, error: Exception, call: Call[Any]) -> AmpsqError:
        """Drop the connection, and say what the failure means."""
        place = self._abandon()
        ours = translate_error(error, call, place.url if place else "")
        if place is not None and isinstance(ours, Unavailable):
            self._store.route.failed(place, ours)
        return ours

    def _abandon(self) -> ServerAddress | None:
        connection, self._connection = self._connection, None
        self._sent.clear()
        if connection is None:
            return None
        connection.drop()
        connection.release()
        return connection.server

    def close(self) -> None:
        """Give the connection back; one with unread replies is dropped."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._sent:
                connection.drop()
            connection.release()
        self._sent.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PinnedPipeline(Pipeline):
    """A channel whose calls run on one connection or not at all: for who waits for what that connection wrote."""

    def __init__(self, store: CallRunner) -> None:
        super().__init__(store)
        self._is_used = False

    def post(self, call: Call[Any]) -> None:
        """Send a call; see `Pipeline.post`. Raises `Unavailable` when the connection is gone."""
        is_elsewhere = self._connection is not None and self._connection.server is not self._store.route.current
        if self._is_used and (self._connection is None or is_elsewhere):
            self.close()
            raise Unavailable("the connection broke while calls were in flight")
        self._is_used = True
        super().post(call)

    def ask(self, call: Call[T]) -> T:
        """Send a call and read its reply, and that of nothing else."""
        self.post(call)
        reply: T = self.collect()
        return reply

    def load(self, *scripts: str) -> None:
        """Let the server know scripts, by name, before they are sent as hashes."""
        for name in scripts:
            self.ask(command(["SCRIPT", "LOAD", script(name).source], bool))

    def _run_forgotten(self, call: Call[Any], error: Exception) -> Any:  # noqa: ARG002
        self.close()
        raise Unavailable("the server forgot its scripts; they are loaded again") from error


class AsyncPipeline:
    """`Pipeline` for asyncio."""

    def __init__(self, store: AsyncCallRunner) -> None:
        self._store = store
        self._connection: AsyncConnection | None = None
        self._sent: deque[Call[Any]] = deque()
        # Kept, or nobody would: an event loop forgets tasks.
        self._closing: asyncio.Task[None] | None = None

    @property
    def open_calls(self) -> int:
        """Calls sent and not collected."""
        return len(self._sent)

    async def post(self, call: Call[Any]) -> None:
        """Send a call; see `Pipeline.post`."""
        if self._connection is not None and not self._sent and self._connection.server is not self._store.route.current:
            await self.close()
        if self._connection is None:
            self._connection = await self._store.take_connection()
        try:
            await self._connection.send(pack_request(call, self._store.key, whole=False))
        except (redis.RedisError, OSError) as error:
            raise await self._failed(error, call) from error
        except BaseException:
            await self._abandon()
            raise
        self._sent.append(call)

    async def collect(self) -> Any:
        """Read the reply of the earliest call; see `Pipeline.collect`."""
        if self._connection is None:
            raise Unavailable("the connection broke while calls were in flight")
        call = self._sent[0]
        try:
            reply = await self._connection.read(call.blocks + self._store.route.heartbeat if call.blocks else None)
        except redis.exceptions.NoScriptError:
            self._sent.popleft()
            try:
                return await self._store.call(call)
            except BaseException:
                await self.close()
                raise
        except redis.ResponseError as error:
            ours = translate_error(error, call, self._connection.server.url)
            self._sent.popleft()
            if not isinstance(ours, Rejected):
                # The outcome of all that is in flight is unknown to whoever posted: none of it may be read as something
                # else.
                await self.close()
            raise ours from error
        except (redis.RedisError, OSError) as error:
            raise await self._failed(error, call) from error
        except BaseException:
            await self._abandon()
            raise
        self._sent.popleft()
        return call.read(reply)

    async def _failed(self, error: Exception, call: Call[Any]) -> AmpsqError:
        """Drop the connection, and say what the failure means."""
        place = await self._abandon()
        ours = translate_error(error, call, place.url if place else "")
        if place is not None and isinstance(ours, Unavailable):
            self._store.route.failed(place, ours)
        return ours

    async def _abandon(self) -> ServerAddress | None:
        connection, self._connection = self._connection, None
        self._sent.clear()
        if connection is None:
            return None
        await connection.drop()
        await connection.release()
        return connection.server

    async def close(self) -> None:
        """Give the connection back; one with unread replies is dropped."""
        connection, self._connection = self._connection, None
        is_unread = bool(self._sent)
        # Before anything is awaited: what is posted next would be taken for the answer to these.
        self._sent.clear()
        if connection is not None:
            if is_unread:
                await connection.drop()
            await connection.release()

    def close_behind(self, lock: asyncio.Lock) -> None:
        """Close it, for who was cancelled, once the task that uses it under a lock has given that back."""
        self._closing = asyncio.create_task(self._close_under(lock))

    async def _close_under(self, lock: asyncio.Lock) -> None:
        async with lock:
            await self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
