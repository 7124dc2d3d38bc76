"""The two ways to run calls and wait for them, synchronous and asyncio.

`Store` and `AsyncStore` differ in how they wait and in nothing else: what is sent, what is repeated after a failure
and what an error means is decided once, here. A call is repeated only where it was not done, or says that this is
harmless; where to, the route knows (`ampsq.transport.route`), and connections come from
`ampsq.transport.connection_pool`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import redis

from ampsq.base.errors import AmpsqError, Closed, TooMuchToRead, Unavailable
from ampsq.protocol.request import Call, Collect, ForeignStep, Pause, Post, run_in_parts
from ampsq.transport.connection_pool import AsyncConnectionPool, ConnectionPool
from ampsq.transport.discovery import slot_of
from ampsq.transport.errors import may_repeat, translate_error
from ampsq.transport.pipeline import REFUSALS, AsyncPipeline, PinnedPipeline, Pipeline, pack_request
from ampsq.transport.route import Route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

    from ampsq.protocol.request import Flow, Step
    from ampsq.transport.connection_pool import AsyncConnection, Connection
    from ampsq.transport.route import ServerAddress

__all__ = ["AsyncStore", "Store"]

T = TypeVar("T")
#: Calls of a stream that are sent before the first one's reply is read.
_AHEAD = 2
#: Nodes that may send a call about another key on, one after the other.
_DETOURS = 5


class _Attempts:
    """When to send a call again, and where: the decision is here, the waiting is the store's."""

    def __init__(self, call: Call[Any], route: Route, retry_timeout: float) -> None:
        self._call, self._route, self._number = call, route, 0
        self._retry_timeout = min(retry_timeout, call.patience)
        self._until = time.monotonic() + self._retry_timeout
        self.whole = False

    def after(self, error: Exception, place: ServerAddress | None) -> float:
        """Seconds to wait before the next attempt; raises when there is none.

        Args:
            error: what came instead of an answer.
            place: the server that the call was sent to; None: to none.
        """
        if isinstance(error, redis.exceptions.NoScriptError):
            self.whole = True
            return 0.0
        if place is not None and isinstance(error, redis.exceptions.MovedError):
            self._route.redirect(place, error)
        ours = translate_error(error, self._call, place.url if place else "")
        if place is not None and isinstance(ours, Unavailable) and _is_lost(error, ours):
            self._route.failed(place, ours)
        if not isinstance(ours, Unavailable) or not may_repeat(ours, self._call):
            raise ours from error
        # Every address is tried once, however short `retry_timeout` is.
        is_over = time.monotonic() >= self._until and self._number + 1 >= self._route.number
        if self._route.is_hopeless or is_over or self._route.left:
            ours.may_have_run = ours.may_have_run or self._call.repeated
            raise self._route.summed_up(ours, self._retry_timeout) from error
        self._call.repeated = self._call.repeated or ours.may_have_run
        self._number += 1
        return self._route.pause(self._number)


def _is_lost(error: Exception, ours: Unavailable) -> bool:
    """Whether the connection is of no use any more; a server that only refuses for now keeps it."""
    if isinstance(error, redis.exceptions.AskError):
        return False
    return not isinstance(error, redis.ResponseError) or type(ours) is not Unavailable or "CLUSTERDOWN" in str(ours)


def _detour(route: Route, server: ServerAddress, moved: redis.exceptions.MovedError, call: Call[Any]) -> Route:
    """The way to another node of the cluster that has a key outside of the instance; raises `Unavailable`."""
    if route.detours >= _DETOURS:
        raise translate_error(moved, call, server.url) from moved
    there = Route(route.aside(server, moved), "", heartbeat=min(route.heartbeat, call.patience))
    there.detours = route.detours + 1
    return there


def _elsewhere(call: Call[Any]) -> Call[Any]:
    """The same call, whose reply is still to be read."""
    return Call(call.script, call.arguments, lambda reply: reply, call.repeatable, patience=call.patience)


def _route_to(where: str | Sequence[str] | Route, instance: str) -> Route:
    return where if isinstance(where, Route) else Route(where, instance)


class _Upcoming(Generic[T]):
    """The calls of a stream, up to where making them fails: that is raised when those before it are answered."""

    def __init__(self, calls: Iterable[Call[T]]) -> None:
        self._calls = iter(calls)
        self._failure: Exception | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Call[T]:
        try:
            return next(self._calls)
        except StopIteration:
            raise
        except Exception as error:
            self._failure = error
            raise StopIteration from error

    def raise_failure(self) -> None:
        """Raise what ended the calls, if that was not their end."""
        if self._failure is not None:
            raise self._failure


class Store:
    """Runs calls and waits for them in this thread; safe to share between threads.

    Args:
        where: an address or several, as `ampsq.base.addresses` reads them; or a route that others use too.
        instance: the instance whose keys the scripts work on.
        retry_timeout: seconds for which a harmless call is repeated while the server cannot be reached.
        revive: called before a call is repeated: what can bring the server back.
    """

    def __init__(
        self,
        where: str | Sequence[str] | Route,
        instance: str,
        *,
        retry_timeout: float = 15.0,
        revive: Callable[[], None] | None = None,
    ) -> None:
        self.route = _route_to(where, instance)
        self.url, self.instance, self.retry_timeout, self._revive = self.route.url, instance, retry_timeout, revive
        self._closed = False
        self.key = "{" + instance + "}"
        self._connections = ConnectionPool(self.route)

    @property
    def redis(self) -> redis.Redis:
        """A client of redis-py's on the connections of the server that is used now; for tools and tests."""
        return redis.Redis(connection_pool=self._connections.pool(self.route.current or self.route.find()))

    def take_connection(self) -> Connection:
        """A connection of one's own, to be given back; raises `Unavailable`."""
        return self._connections.take()

    def call(self, call: Call[T]) -> T:
        """Send one call and read its reply; raises `AmpsqError`s only."""
        if self._closed:
            raise Closed("this client was closed")
        attempts = _Attempts(call, self.route, self.retry_timeout)
        try:
            while True:
                connection = None
                try:
                    connection = self._connections.take()
                    return call.read(self._send(connection, call, whole=attempts.whole))
                except redis.exceptions.MovedError as error:
                    if connection is not None and error.slot_id != slot_of(self.instance):
                        return call.read(self._aside(_detour(self.route, connection.server, error, call), call))
                    pause = attempts.after(error, connection.server if connection else None)
                except (redis.RedisError, OSError, Unavailable) as error:
                    pause = attempts.after(error, connection.server if connection else None)
                if pause:
                    time.sleep(pause)
                    if self._revive is not None:
                        self._revive()
        except TooMuchToRead as refusal:
            return self.run(run_in_parts(call, refusal))

    def _send(self, connection: Connection, call: Call[Any], *, whole: bool) -> Any:
        try:
            connection.send(pack_request(call, self.key, whole=whole))
            return connection.read(call.blocks + self.route.heartbeat if call.blocks else None)
        except redis.ResponseError:
            raise
        except BaseException:
            # A reply that nobody read would be taken for the answer to the next request.
            connection.drop()
            raise
        finally:
            connection.release()

    def _aside(self, route: Route, call: Call[Any]) -> Any:
        """Run a call about a key that another node of the cluster has."""
        with contextlib.closing(Store(route, "", retry_timeout=self.retry_timeout)) as other:
            return other.call(_elsewhere(call))

    def pipeline(self, *, follows: bool = True) -> Pipeline:
        """Open a connection on which calls may be sent before earlier ones are answered; see `Pipeline`."""
        return Pipeline(self, follows=follows)

    def pinned(self) -> PinnedPipeline:
        """Open a channel whose calls run on one connection or not at all."""
        return PinnedPipeline(self)

    def stream(self, calls: Iterable[Call[T]]) -> Iterator[T | AmpsqError]:
        """Send calls one after the other without waiting for each reply: one is answered while the next is made.

        They run in order on one connection. A call that the server refuses gives its error in the place of its reply:
        whoever gives the calls should give no more then; those on their way are still answered. What `calls` raises is
        raised when all before are answered. A lost connection ends the stream; calls already sent may have taken
        effect. Calls that are repeated after a lost reply are not sent ahead: one that overtook another would make it
        look recorded. Nor is anything sent behind one that may have to be made in parts.
        """
        upcoming = _Upcoming(calls)
        with self.pipeline() as pipeline:
            for call in upcoming:
                if call.repeatable or not call.is_sent_ahead:
                    yield self.call(call)
                    continue
                pipeline.post(call)
                if pipeline.open_calls > _AHEAD:
                    yield self._answer(pipeline)
            while pipeline.open_calls:
                yield self._answer(pipeline)
        upcoming.raise_failure()

    @staticmethod
    def _answer(pipeline: Pipeline) -> Any:
        try:
            return pipeline.collect()
        except REFUSALS as refusal:
            pipeline.forget_refused()
            return refusal

    def _step(self, step: Step) -> Any:
        if isinstance(step, Call):
            return self.call(step)
        if isinstance(step, Post):
            return step.pipeline.post(step.call)
        if isinstance(step, Pause):
            return time.sleep(step.seconds)
        if isinstance(step, Collect):
            return step.pipeline.collect()
        raise ForeignStep(step)

    def run(self, flow: Flow[T]) -> T:
        """Drive a flow to its end."""
        try:
            step = flow.send(None)
            while True:
                try:
                    result = self._step(step)
                except (AmpsqError, ForeignStep) as error:
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
        self._connections.close()


class AsyncStore:
    """The same as `Store` for asyncio; one event loop a store."""

    def __init__(
        self,
        where: str | Sequence[str] | Route,
        instance: str,
        *,
        retry_timeout: float = 15.0,
        revive: Callable[[], None] | None = None,
    ) -> None:
        self.route = _route_to(where, instance)
        self.url, self.instance, self.retry_timeout, self._revive = self.route.url, instance, retry_timeout, revive
        self._closed = False
        self.key = "{" + instance + "}"
        self._connections = AsyncConnectionPool(self.route)

    async def take_connection(self) -> AsyncConnection:
        """A connection of one's own, to be given back; raises `Unavailable`."""
        return await self._connections.take()

    async def call(self, call: Call[T]) -> T:
        """Send one call and read its reply; raises `AmpsqError`s only."""
        if self._closed:
            raise Closed("this client was closed")
        attempts = _Attempts(call, self.route, self.retry_timeout)
        try:
            while True:
                connection = None
                try:
                    connection = await self._connections.take()
                    return call.read(await self._send(connection, call, whole=attempts.whole))
                except redis.exceptions.MovedError as error:
                    if connection is not None and error.slot_id != slot_of(self.instance):
                        return call.read(await self._aside(_detour(self.route, connection.server, error, call), call))
                    pause = attempts.after(error, connection.server if connection else None)
                except (redis.RedisError, OSError, Unavailable) as error:
                    pause = attempts.after(error, connection.server if connection else None)
                if pause:
                    await asyncio.sleep(pause)
                    if self._revive is not None:
                        await asyncio.to_thread(self._revive)
        except TooMuchToRead as refusal:
            return await self.run(run_in_parts(call, refusal))

    async def _send(self, connection: AsyncConnection, call: Call[Any], *, whole: bool) -> Any:
        try:
            await connection.send(pack_request(call, self.key, whole=whole))
            return await connection.read(call.blocks + self.route.heartbeat if call.blocks else None)
        except redis.ResponseError:
            raise
        except BaseException:
            # Also when the task was cancelled: the reply would be taken for the answer to the next request.
            await connection.drop()
            raise
        finally:
            await connection.release()

    async def _aside(self, route: Route, call: Call[Any]) -> Any:
        """Run a call about a key that another node of the cluster has."""
        other = AsyncStore(route, "", retry_timeout=self.retry_timeout)
        try:
            return await other.call(_elsewhere(call))
        finally:
            await other.close()

    def pipeline(self, *, follows: bool = True) -> AsyncPipeline:
        """Open a connection on which calls may be sent before earlier ones are answered; see `Pipeline`."""
        return AsyncPipeline(self, follows=follows)

    async def stream(self, calls: Iterable[Call[T]]) -> AsyncIterator[T | AmpsqError]:
        """Send calls one after the other without waiting for each reply; see `Store.stream`."""
        upcoming = _Upcoming(calls)
        async with self.pipeline() as pipeline:
            for call in upcoming:
                if call.repeatable or not call.is_sent_ahead:
                    reply: T = await self.call(call)
                    yield reply
                    continue
                await pipeline.post(call)
                if pipeline.open_calls > _AHEAD:
                    yield await self._answer(pipeline)
            while pipeline.open_calls:
                yield await self._answer(pipeline)
        upcoming.raise_failure()

    @staticmethod
    async def _answer(pipeline: AsyncPipeline) -> Any:
        try:
            return await pipeline.collect()
        except REFUSALS as refusal:
            pipeline.forget_refused()
            return refusal

    async def _step(self, step: Step) -> Any:
        if isinstance(step, Call):
            return await self.call(step)
        if isinstance(step, Post):
            return await step.pipeline.post(step.call)
        if isinstance(step, Pause):
            return await asyncio.sleep(step.seconds)
        if isinstance(step, Collect):
            return await step.pipeline.collect()
        raise ForeignStep(step)

    async def run(self, flow: Flow[T]) -> T:
        """Drive a flow to its end."""
        try:
            step = flow.send(None)
            while True:
                try:
                    result = await self._step(step)
                except (AmpsqError, ForeignStep) as error:
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
        await self._connections.close()
