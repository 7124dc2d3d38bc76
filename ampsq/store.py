"""The two ways to run calls and wait for them, synchronous and asyncio; the only module that opens connections.

`Store` and `AsyncStore` differ in how they wait and in nothing else: what is sent, what is repeated after a failure
and what an error means is decided once, here. redis-py repeats commands by itself, which runs a script twice: that is
switched off, and a call is repeated only where it says that this is harmless.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Self, TypeVar

import hiredis
import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from ampsq.errors import AmpsqError, Closed, DefinitionError, Rejected, ScriptBug, ServerFull, Unavailable, rejection
from ampsq.flow import Call, Pause, Post, command
from ampsq.scripts import script

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from ampsq.flow import Flow, Step

__all__ = ["AsyncChannel", "AsyncStore", "Channel", "PinnedChannel", "Store", "redacted"]

T = TypeVar("T")
_LINE = re.compile(r"user_script:(\d+)")
_RECONNECT_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
#: A script is bounded to about 10 ms; a reply that takes this long is lost, not late.
_SOCKET_TIMEOUT = 5.0
#: What redis-py raises while there is no server that could serve us. It takes the first word off the texts of those
#: that it knows, so that they cannot be told by it.
_AWAY = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.MasterDownError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.TryAgainError,
    OSError,
)
_AWAY_TEXTS = ("MISCONF", "READONLY", "LOADING", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "BUSY ")
#: Seconds for which a call may ask the server to hold its answer back.
_LONGEST_BLOCK = 10.0
#: Calls of a stream that are sent before the first one's reply is read.
_AHEAD = 2


def _options(url: str) -> dict[str, Any]:
    if not url.startswith(("redis://", "rediss://", "unix://")):
        raise DefinitionError(
            f"address {redacted(url)!r}: allowed are redis://HOST:PORT/DB, rediss://... and unix:///PATH"
        )
    try:
        redis.connection.parse_url(url)
    except ValueError as error:
        raise DefinitionError(f"address {redacted(url)!r}: {error}; allowed is redis://HOST:PORT/DB") from error
    return {"socket_timeout": _SOCKET_TIMEOUT, "socket_connect_timeout": _SOCKET_TIMEOUT, "protocol": 2}


def redacted(url: str) -> str:
    """The address without its password, for texts that people and logs see."""
    return re.sub(r"(//[^/@:]*):[^@]*@", r"\1:***@", url)


def _translate(error: Exception, call: Call[Any] | None, url: str) -> AmpsqError:
    """Turn what redis-py raised into the one exception of ours that says it."""
    text = str(error)
    if isinstance(error, redis.OutOfMemoryError) or text.startswith("OOM"):
        return ServerFull(f"{redacted(url)} is out of memory: acknowledge or expire messages, or raise maxmemory")
    if isinstance(error, _AWAY) or text.startswith(_AWAY_TEXTS):
        return Unavailable(f"{redacted(url)}: {text}")
    return rejection(text) or ScriptBug(_blame(text, call))


def _blame(text: str, call: Call[Any] | None) -> str:
    """The error with the Lua file and line that it came from, as far as they are known."""
    if call is None:
        return text
    if call.script is None:
        return f"{call.arguments[0]!r}: {text}"
    line = _LINE.search(text)
    return f"{call.script.place(int(line[1])) if line else call.script.name}: {text}"


def _never_sent(error: Exception) -> bool:
    """Whether the request cannot have reached the server: redis-py failed while it connected."""
    return isinstance(error, redis.ConnectionError) and "connecting to" in str(error)


def _packed(call: Call[Any], key: str, *, whole: bool) -> bytes:
    """The request as it travels: hiredis packs it in one go, where redis-py would look at every argument first."""
    words: Any = tuple(call.arguments)
    if call.script is not None:
        how = ("EVAL", call.script.source) if whole else ("EVALSHA", call.script.sha)
        words = (*how, 1, key, *words)
    return bytes(hiredis.pack_command(words))


class _Attempts:
    """When to send a call again: the decision is here, the waiting is the store's."""

    def __init__(self, call: Call[Any], url: str, patience: float) -> None:
        self._call, self._url, self._number = call, url, 0
        self._until = time.monotonic() + patience
        self.whole = False

    def after(self, error: Exception) -> float:
        """Seconds to wait before the next attempt; raises when there is none."""
        if isinstance(error, redis.exceptions.NoScriptError):
            self.whole = True
            return 0.0
        ours = _translate(error, self._call, self._url)
        harmless = self._call.repeatable or _never_sent(error)
        if not isinstance(ours, Unavailable) or not harmless or time.monotonic() >= self._until:
            raise ours from error
        self._call.repeated = self._call.repeated or not _never_sent(error)
        pause = _RECONNECT_PAUSES[min(self._number, len(_RECONNECT_PAUSES) - 1)]
        self._number += 1
        return pause


class Store:
    """Runs calls and waits for them in this thread; safe to share between threads.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``.
        instance: the instance whose keys the scripts work on.
        patience: seconds for which a harmless call is repeated while the server cannot be reached.
        revive: called before a call is repeated: what can bring the server back.
    """

    def __init__(
        self, url: str, instance: str, *, patience: float = 15.0, revive: Callable[[], None] | None = None
    ) -> None:
        options = _options(url)
        self.url, self.instance, self.patience, self._revive = url, instance, patience, revive
        self._closed = False
        self.key = "{" + instance + "}"
        # redis-py repeats commands by default, which runs a script twice: the only retry is ours.
        self.redis = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **options)
        self._blocking = redis.Redis.from_url(
            url, retry=Retry(NoBackoff(), 0), **{**options, "socket_timeout": _LONGEST_BLOCK + _SOCKET_TIMEOUT}
        )

    def call(self, call: Call[T]) -> T:
        """Send one call and read its reply; raises `AmpsqError`s only."""
        if self._closed:
            raise Closed("this client was closed")
        attempts = _Attempts(call, self.url, self.patience)
        while True:
            try:
                return call.read(self._send(call, whole=attempts.whole))
            except (redis.RedisError, OSError) as error:
                pause = attempts.after(error)
            if pause:
                time.sleep(pause)
                if self._revive is not None:
                    self._revive()

    def _send(self, call: Call[Any], *, whole: bool) -> Any:
        pool = (self._blocking if call.blocks else self.redis).connection_pool
        connection = pool.get_connection()
        try:
            connection.send_packed_command([_packed(call, self.key, whole=whole)])
            return connection.read_response()
        except redis.ResponseError:
            raise
        except BaseException:
            # A reply that nobody read would be taken for the answer to the next request.
            connection.disconnect()
            raise
        finally:
            pool.release(connection)

    def channel(self) -> Channel:
        """Open a connection on which calls may be sent before earlier ones are answered."""
        return Channel(self)

    def pinned(self) -> PinnedChannel:
        """Open a channel whose calls run on one connection or not at all."""
        return PinnedChannel(self)

    def stream(self, calls: Iterable[Call[T]]) -> Iterator[T]:
        """Send calls one after the other without waiting for each reply: one is answered while the next is made.

        They run in order on one connection. A failure ends the stream; calls already sent may have taken effect. Calls
        that are repeated after a lost reply are not sent ahead: one that overtook another would make it look recorded.
        """
        with self.channel() as channel:
            for call in calls:
                if call.repeatable:
                    yield self.call(call)
                    continue
                channel.post(call)
                if channel.open_calls > _AHEAD:
                    yield channel.collect()
            while channel.open_calls:
                yield channel.collect()

    def _step(self, step: Step) -> Any:
        if isinstance(step, Call):
            return self.call(step)
        if isinstance(step, Post):
            return step.channel.post(step.call)
        if isinstance(step, Pause):
            return time.sleep(step.seconds)
        return step.channel.collect()

    def run(self, flow: Flow[T]) -> T:
        """Drive a flow to its end."""
        try:
            step = next(flow)
            while True:
                try:
                    result = self._step(step)
                except AmpsqError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(result)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            # Interrupted, it learns at once that the step was not answered.
            flow.close()

    def close(self) -> None:
        """Close the connections; a call after this raises `Closed`."""
        self._closed = True
        self.redis.close()
        self._blocking.close()


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
            self._connection.send_packed_command([_packed(call, self._store.key, whole=False)])
        except BaseException as error:
            self.close()
            if isinstance(error, (redis.RedisError, OSError)):
                raise _translate(error, call, self._store.url) from error
            raise
        self._sent.append(call)

    def collect(self) -> Any:
        """Read the reply of the earliest call; raises what the server answered, or `Unavailable`."""
        if self._connection is None:
            raise Unavailable("the connection broke while calls were in flight")
        call = self._sent[0]
        try:
            reply = self._connection.read_response()
        except redis.exceptions.NoScriptError as error:
            return self._run_forgotten(call, error)
        except redis.ResponseError as error:
            ours = _translate(error, call, self._store.url)
            self._sent.popleft()
            if not isinstance(ours, Rejected):
                # Whoever posted is in doubt about all that is in flight: none of it may be read as something else.
                self.close()
            raise ours from error
        except BaseException as error:
            self.close()
            if isinstance(error, (redis.RedisError, OSError)):
                raise _translate(error, call, self._store.url) from error
            raise
        self._sent.popleft()
        return call.read(reply)

    def _run_forgotten(self, call: Call[Any], error: Exception) -> Any:  # noqa: ARG002
        """It did not run, and neither did any call behind it: they run in order after this one."""
        self._sent.popleft()
        try:
            return self._store.call(call)
        except BaseException:
            self.close()
            raise

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


class PinnedChannel(Channel):
    """A channel whose calls run on one connection or not at all: for who waits for what that connection wrote."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._is_used = False

    def post(self, call: Call[Any]) -> None:
        """Send a call; see `Channel.post`. Raises `Unavailable` when the connection is gone."""
        if self._is_used and self._connection is None:
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


class AsyncStore:
    """The same as `Store` for asyncio; one event loop a store."""

    def __init__(
        self, url: str, instance: str, *, patience: float = 15.0, revive: Callable[[], None] | None = None
    ) -> None:
        options = _options(url)
        self.url, self.instance, self.patience, self._revive = url, instance, patience, revive
        self._closed = False
        self.key = "{" + instance + "}"
        self.redis = redis.asyncio.Redis.from_url(url, retry=AsyncRetry(NoBackoff(), 0), **options)
        self._blocking = redis.asyncio.Redis.from_url(
            url, retry=AsyncRetry(NoBackoff(), 0), **{**options, "socket_timeout": None}
        )

    async def call(self, call: Call[T]) -> T:
        """Send one call and read its reply; raises `AmpsqError`s only."""
        if self._closed:
            raise Closed("this client was closed")
        attempts = _Attempts(call, self.url, self.patience)
        while True:
            try:
                return call.read(await self._send(call, whole=attempts.whole))
            except (redis.RedisError, OSError, TimeoutError) as error:
                pause = attempts.after(error)
            if pause:
                await asyncio.sleep(pause)
                if self._revive is not None:
                    await asyncio.to_thread(self._revive)

    async def _send(self, call: Call[Any], *, whole: bool) -> Any:
        request = _packed(call, self.key, whole=whole)
        client = self._blocking if call.blocks else self.redis
        connection = await client.connection_pool.get_connection()
        try:
            await connection.send_packed_command([request])
            async with asyncio.timeout(call.blocks + _SOCKET_TIMEOUT):
                return await connection.read_response()
        except redis.ResponseError:
            raise
        except BaseException:
            # Also when the task was cancelled: the reply would be taken for the answer to the next request.
            await connection.disconnect(nowait=True)
            raise
        finally:
            await client.connection_pool.release(connection)

    def channel(self) -> AsyncChannel:
        """Open a connection on which calls may be sent before earlier ones are answered."""
        return AsyncChannel(self)

    async def stream(self, calls: Iterable[Call[T]]) -> AsyncIterator[T]:
        """Send calls one after the other without waiting for each reply; see `Store.stream`."""
        async with self.channel() as channel:
            for call in calls:
                if call.repeatable:
                    yield await self.call(call)
                    continue
                await channel.post(call)
                if channel.open_calls > _AHEAD:
                    yield await channel.collect()
            while channel.open_calls:
                yield await channel.collect()

    async def _step(self, step: Step) -> Any:
        if isinstance(step, Call):
            return await self.call(step)
        if isinstance(step, Post):
            return await step.channel.post(step.call)
        if isinstance(step, Pause):
            return await asyncio.sleep(step.seconds)
        return await step.channel.collect()

    async def run(self, flow: Flow[T]) -> T:
        """Drive a flow to its end."""
        try:
            step = next(flow)
            while True:
                try:
                    result = await self._step(step)
                except AmpsqError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(result)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            # Interrupted, it learns at once that the step was not answered.
            flow.close()

    async def close(self) -> None:
        """Close the connections; a call after this raises `Closed`."""
        self._closed = True
        await self.redis.aclose()
        await self._blocking.aclose()


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
            await self._connection.send_packed_command([_packed(call, self._store.key, whole=False)])
        except BaseException as error:
            await self.close()
            if isinstance(error, (redis.RedisError, OSError)):
                raise _translate(error, call, self._store.url) from error
            raise
        self._sent.append(call)

    async def collect(self) -> Any:
        """Read the reply of the earliest call; see `Channel.collect`."""
        if self._connection is None:
            raise Unavailable("the connection broke while calls were in flight")
        call = self._sent[0]
        try:
            async with asyncio.timeout(_SOCKET_TIMEOUT):
                reply = await self._connection.read_response()
        except redis.exceptions.NoScriptError:
            self._sent.popleft()
            try:
                return await self._store.call(call)
            except BaseException:
                await self.close()
                raise
        except redis.ResponseError as error:
            ours = _translate(error, call, self._store.url)
            self._sent.popleft()
            if not isinstance(ours, Rejected):
                # Whoever posted is in doubt about all that is in flight: none of it may be read as something else.
                await self.close()
            raise ours from error
        except BaseException as error:
            await self.close()
            if isinstance(error, (redis.RedisError, OSError)):
                raise _translate(error, call, self._store.url) from error
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
