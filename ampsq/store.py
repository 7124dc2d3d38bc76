"""The two ways to run calls and wait for them, synchronous and asyncio; the only module that opens connections.

`Store` and `AsyncStore` differ in how they wait and in nothing else: what is sent, what is repeated after a failure
and what an error means is decided once, here. redis-py repeats commands by itself, which runs a script twice: that is
switched off, and a call is repeated only where it says that this is harmless.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from ampsq.addresses import check_address
from ampsq.causes import never_sent, translated
from ampsq.channels import SOCKET_TIMEOUT, AsyncChannel, Channel, packed
from ampsq.errors import AmpsqError, Closed, Unavailable
from ampsq.flow import Call, Pause, Post

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from ampsq.flow import Flow, Step

__all__ = ["AsyncStore", "Store"]

T = TypeVar("T")
_RECONNECT_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
#: Seconds for which a call may ask the server to hold its answer back.
_LONGEST_BLOCK = 10.0
#: Calls of a stream that are sent before the first one's reply is read.
_AHEAD = 2


def _options(url: str) -> dict[str, Any]:
    check_address(url)
    return {"socket_timeout": SOCKET_TIMEOUT, "socket_connect_timeout": SOCKET_TIMEOUT, "protocol": 2}


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
        ours = translated(error, self._call, self._url)
        harmless = self._call.repeatable or never_sent(error)
        if not isinstance(ours, Unavailable) or not harmless or time.monotonic() >= self._until:
            raise ours from error
        self._call.repeated = self._call.repeated or not never_sent(error)
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
            url, retry=Retry(NoBackoff(), 0), **{**options, "socket_timeout": _LONGEST_BLOCK + SOCKET_TIMEOUT}
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
            connection.send_packed_command([packed(call, self.key, whole=whole)])
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
        request = packed(call, self.key, whole=whole)
        client = self._blocking if call.blocks else self.redis
        connection = await client.connection_pool.get_connection()
        try:
            await connection.send_packed_command([request])
            async with asyncio.timeout(call.blocks + SOCKET_TIMEOUT):
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
