"""Stores for asyncio: they run flows and single calls on connections to where a route leads.

This differs from `ampsq.transport.store` in how it waits, in nothing else. After a failure,
`ampsq.transport.attempts` decides for both whether a call is sent again.

redis-py repeats commands by itself, which runs a script twice: that is switched off. Every new connection is greeted:
a replica, and a server that holds another incarnation of the instance, are never used.
"""

# Made from transport/store.py by tests/house/test_twins.py --write.

from __future__ import annotations

import asyncio
import contextlib
import copy
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import hiredis
import redis
import redis.asyncio

from ampsq.base.cancellation import run_to_end
from ampsq.base.errors import AmpsqError, Closed, TooMuchToRead, Unavailable
from ampsq.protocol.request import Call, Collect, ForeignStep, Pause, Post, run_in_parts
from ampsq.transport.async_pipeline import AsyncPipeline
from ampsq.transport.async_server_pools import AsyncServerPools
from ampsq.transport.attempts import (
    REDIRECTS,
    SENT_AHEAD,
    Attempts,
    UpcomingCalls,
    lost_in_cluster,
    route_to,
    unsendable,
    with_raw_reply,
)
from ampsq.transport.calls_in_flight import REFUSALS
from ampsq.transport.errors import translate_connect_error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from redis.asyncio.connection import AbstractConnection as RawConnection
    from redis.typing import EncodableT

    from ampsq.protocol.request import Flow, Step
    from ampsq.transport.async_server_pools import AsyncServerPool
    from ampsq.transport.known_functions import KnownFunctions
    from ampsq.transport.route import Route, ServerAddress

__all__ = ["AsyncConnection", "AsyncConnectionPool", "AsyncStore"]

T = TypeVar("T")


class AsyncStore:
    """Runs calls and waits for them; one event loop a store.

    Args:
        where: an address or several, as `ampsq.base.addresses` reads them; or a route that others use too.
        instance: the instance whose keys the scripts work on.
        retry_timeout: seconds for which a harmless call is repeated while the server cannot be reached.
        revive: called before a call is repeated: what can bring the server back.
        pools: connections to servers that other stores use, too, who closes them; None: it has its own.
    """

    def __init__(
        self,
        where: str | Sequence[str] | Route,
        instance: str,
        *,
        retry_timeout: float = 15.0,
        revive: Callable[[], None] | None = None,
        pools: AsyncServerPools | None = None,
    ) -> None:
        self.route = route_to(where, instance)
        self.url, self.instance, self.retry_timeout, self._revive = self.route.url, instance, retry_timeout, revive
        self._closed = False
        self.key = "{" + instance + "}"
        self._connections = AsyncConnectionPool(self.route, pools)
        self._is_lent = False
        # The one that its connections belong to, from its first call on.
        self._loop: asyncio.AbstractEventLoop | None = None

    def of_instance(self, instance: str) -> AsyncStore:
        """Return a store on another instance of the same server, on this one's connections, which it does not close.

        In a cluster instances are on several servers, so that each needs a store of its own.
        """
        store = copy.copy(self)
        store.instance, store.key = instance, "{" + instance + "}"
        store._is_lent = True  # noqa: SLF001  (a store of ours)
        return store

    async def run(self, flow: Flow[T]) -> T:
        """Drive a flow to its end; raises `Closed` in another event loop than before, whose connections it has."""
        if self._loop is not (loop := asyncio.get_running_loop()):
            self._belong_to(loop, flow)
        try:
            step = flow.send(None)
            while True:
                try:
                    result = await self.call(step) if isinstance(step, Call) else await self._step(step)
                except (AmpsqError, ForeignStep) as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(result)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            # Interrupted, it learns at once that the step was not answered.
            flow.close()

    def _belong_to(self, loop: asyncio.AbstractEventLoop, flow: Flow[object]) -> None:
        if self._loop is not None:
            flow.close()
            raise Closed(
                "this client was opened in another event loop, as that of an earlier asyncio.run(); allowed: a client "
                "for each event loop, as in `async with AsyncClient(...) as client`"
            )
        self._loop = loop

    async def _step(self, step: Step) -> object:
        if isinstance(step, Post):
            if step.behind is not None:
                return await step.pipeline.post_all((step.call, step.behind))  # type: ignore[misc]  # it is asyncio's
            return await step.pipeline.post(step.call)  # type: ignore[misc]  # it is asyncio's
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        if isinstance(step, Collect):
            return await step.pipeline.collect()  # type: ignore[misc]  # see above
        raise ForeignStep(step)

    async def call(self, call: Call[T]) -> T:
        """Send one call and read its reply; raises `AmpsqError`s only."""
        if self._closed:
            raise Closed("this client was closed")
        began = time.monotonic()
        attempts: Attempts | None = None
        try:
            while True:
                connection = None
                try:
                    connection = await self._connections.take(self.key)
                    try:
                        await connection.send(call, whole=attempts is not None and attempts.whole)
                        reply = await connection.read(call.blocks)
                    except redis.ResponseError:
                        raise
                    except BaseException:
                        # A reply that nobody read would be taken for the answer to the next request.
                        await connection.drop()
                        raise
                    finally:
                        await connection.release()
                    return call.read(reply)  # type: ignore[arg-type]  # it says of what its reply is made
                except (redis.RedisError, OSError, Unavailable) as error:
                    server = connection.server if connection else None
                    attempts = attempts or Attempts(call, self.route, self.retry_timeout, began)
                    aside = attempts.detour(error, server)
                    if aside is not None:
                        raw = await self._call_aside(aside, call)
                        return call.read(raw)  # type: ignore[arg-type]  # see above
                    pause = attempts.after(error, server)
                if pause:
                    await asyncio.sleep(pause)
                    if self._revive is not None:
                        await asyncio.to_thread(self._revive)
        except TooMuchToRead as refusal:
            return await self.run(run_in_parts(call, refusal))

    async def _call_aside(self, route: Route, call: Call[object]) -> object:
        """Run a call about a key that another node of the cluster has."""
        other = AsyncStore(route, "", retry_timeout=self.retry_timeout)
        try:
            return await other.call(with_raw_reply(call))
        finally:
            await other.close()

    async def take_connection(self) -> AsyncConnection:
        """Take a connection of one's own, to be given back; raises `Unavailable`."""
        return await self._connections.take(self.key)

    def pipeline(self, *, follows: bool = True) -> AsyncPipeline:
        """Open a connection on which calls may be sent before earlier ones are answered; see `AsyncPipeline`."""
        return AsyncPipeline(self, follows=follows)

    async def stream(self, calls: Iterable[Call[T]]) -> AsyncIterator[T | AmpsqError]:
        """Send calls one after the other without waiting for each reply: one is answered while the next is made.

        They run in order on one connection. A call that the server refuses gives its error in the place of its reply:
        whoever gives the calls should give no more then; those on their way are still answered. What `calls` raises is
        raised when all before are answered. A lost connection ends the stream; calls already sent may have taken
        effect. Calls that are repeated after a lost reply are not sent ahead: one that overtook another would make it
        look recorded. Nor is anything sent behind one that may have to be made in parts.
        """
        upcoming = UpcomingCalls(calls)
        async with self.pipeline() as pipeline:
            for call in upcoming:
                if call.repeatable or not call.is_sent_ahead:
                    reply: T = await self.call(call)
                    yield reply
                    continue
                await pipeline.post(call)
                if pipeline.open_calls > SENT_AHEAD:
                    yield await self._answer(pipeline)  # type: ignore[misc]  # the reply to one of these calls
            while pipeline.open_calls:
                yield await self._answer(pipeline)  # type: ignore[misc]  # see above
        upcoming.raise_failure()

    @staticmethod
    async def _answer(pipeline: AsyncPipeline) -> object:
        try:
            return await pipeline.collect()
        except REFUSALS as refusal:
            pipeline.forget_refused()
            return refusal

    async def disconnect(self) -> None:
        """Close the connections; the next call makes another one."""
        self._loop = None
        await self._connections.close()

    async def close(self) -> None:
        """Close the connections; a call after this raises `Closed`."""
        self._closed = True
        # Connections of a loop that is closed end with it.
        if not self._is_lent and self._loop in (None, asyncio.get_running_loop()):
            await self._connections.close()


class AsyncConnectionPool:
    """The connections of one store.

    Args:
        route: the way to the server.
        pools: connections that other stores use, too; None: it has its own.
    """

    def __init__(self, route: Route, pools: AsyncServerPools | None = None) -> None:
        self.route = route
        self._pools = AsyncServerPools(is_shared=False) if pools is None else pools
        #: The server that is used now, and redis-py's connections to it.
        self.used: tuple[ServerAddress, AsyncServerPool] | None = None
        # Held over a few assignments only.
        self._changing = threading.Lock()

    async def take(self, key: str) -> AsyncConnection:
        """Take a connection that stands and whose server was greeted.

        Args:
            key: what scripts are given as their key.

        Raises:
            Unavailable: there is none, and why; nothing was sent.
        """
        moved: Exception | None = None
        for _ in range(REDIRECTS):
            current, used = self.route.current, self.used
            if current is None and not self.route.is_direct:
                # Sentinels and cluster nodes are asked in a thread: who asks them waits.
                current = await asyncio.to_thread(self.route.find)
            server = self.route.find() if current is None else current
            is_known = used is not None and used[0] is server and not used[1].is_left
            pool = used[1] if used is not None and is_known else await self.pool(server)
            try:
                raw = await pool.lend()
                known = pool.known[raw]
                if server not in known.greeted:
                    await self._greet(server, pool, raw)
                return AsyncConnection(server, pool, raw, self, key, known.functions)
            except redis.exceptions.MovedError as error:
                if not self.route.redirect(server, error):
                    raise translate_connect_error(error, server.url) from error
                moved = error
            except (redis.RedisError, OSError, Unavailable) as error:
                ours = translate_connect_error(error, server.url)
                if isinstance(ours, Unavailable):
                    self.route.failed(server, ours, connecting=True)
                raise ours from error
        raise lost_in_cluster(server) from moved

    async def pool(self, server: ServerAddress) -> AsyncServerPool:
        """Return redis-py's connections to a server; those to another one, which was left, are closed."""
        with self._changing:
            former, used = None, self.used
            if used is None or used[0] is not server or used[1].is_left:
                former = used[1] if used is not None else None
                used = self.used = (server, self._pools.pool(server, self.route.heartbeat, former))
        if former is not None and former.is_left:
            # Whoever comes next finds the new ones, and would never close these.
            await run_to_end(former.disconnect(inuse_connections=False))
        return used[1]

    async def _greet(self, server: ServerAddress, pool: AsyncServerPool, connection: RawConnection) -> None:
        try:
            async with asyncio.timeout(self.route.heartbeat):
                await self._check(server, connection)
        except BaseException:
            await connection.disconnect(nowait=True)
            await pool.release(connection)
            raise
        pool.known[connection].greeted.add(server)

    async def _check(self, server: ServerAddress, connection: RawConnection) -> None:
        confirmed, questions = self.route.confirmed(), self.route.questions()
        # In one write: what is no server of ours answers the first line and is gone, and its answer is read.
        await connection.send_packed_command(connection.pack_commands(questions), check_health=False)
        self.route.check_server(server, confirmed, [await self._answer(connection) for _ in questions])

    @staticmethod
    async def _answer(connection: RawConnection) -> object:
        try:
            return await connection.read_response()
        except redis.ResponseError as error:
            return error

    async def close(self) -> None:
        """Close all of them, but those that other stores use, too."""
        with self._changing:
            used, self.used = self.used, None
        if used is not None and not self._pools.is_shared:
            await self._pools.close()


@dataclass(slots=True, eq=False)
class AsyncConnection:
    """A connection in somebody's hands; to be given back, or dropped when a reply of it was not read."""

    server: ServerAddress
    pool: AsyncServerPool
    raw: RawConnection
    owner: AsyncConnectionPool
    key: str
    functions: KnownFunctions | None = None
    # Replies that were read, and that are to come. `asked`: behind how many replies the text of functions is to come.
    answered: int = 0
    unanswered: int = 0
    asked: deque[int] = field(default_factory=deque)

    async def send(self, *calls: Call[object], whole: bool = False) -> None:
        """Send calls in one write; `whole`: with the text of their scripts, for a server that does not know them.

        Raises:
            DefinitionError: one of them cannot be packed; nothing was sent.
        """
        requests: list[bytes] = []
        asked: list[int] = []
        for number, call in enumerate(calls, self.answered + self.unanswered):
            words: tuple[EncodableT, ...] = tuple(call.arguments)
            if call.script is not None:
                script = ("EVAL", call.script.source) if whole else ("EVALSHA", call.script.sha)
                if self.functions is not None and not whole:
                    name = self.functions.names.get(call.script.name)
                    if name is None and self.functions.is_due(call.script.name):
                        if self.unanswered:
                            # Something is always in flight on some connections: the answer comes before the call's own.
                            question = self.functions.question().arguments
                            requests.append(hiredis.pack_command(tuple(question)))  # type: ignore[arg-type]
                            asked.append(number)
                        else:
                            await self._read_functions(self.functions)
                            name = self.functions.names.get(call.script.name)
                    script = script if name is None else ("FCALL", name)
                words = (*script, 0, *words) if call.is_keyless else (*script, 1, call.key or self.key, *words)
            try:
                # In one go, where redis-py would look at every argument first.
                request = hiredis.pack_command(words)  # type: ignore[arg-type]  # its stub knows requests of one word
            except (UnicodeEncodeError, TypeError) as error:
                raise unsendable(error, words) from error
            if call.packed is not None:
                more = call.packed
                request = b"*%d%b%b" % (len(words) + more.number, request[request.index(b"\r") :], more.text)
            requests.append(request)
        # redis-py writes each element by itself.
        async with asyncio.timeout(self.owner.route.heartbeat):
            await self.raw.send_packed_command([b"".join(requests)], check_health=False)
        self.unanswered += len(calls)
        self.asked.extend(asked)

    async def _read_functions(self, functions: KnownFunctions) -> None:
        """Read the text of the server functions, while nothing else is on its way."""
        try:
            await self.send(functions.question())
            reply = await self.read()
        except redis.ResponseError as error:
            reply = error
        except (redis.RedisError, OSError) as error:
            raise translate_connect_error(error, self.server.url) from error
        functions.learn(reply)

    async def read(self, blocks: float = 0.0) -> object:
        """Read the reply to a call, which the server may hold back for so many seconds."""
        if self.functions is not None and self.asked and self.asked[0] == self.answered:
            self.asked.popleft()
            await self._read_asked(self.functions)
        self.answered, self.unanswered = self.answered + 1, self.unanswered - 1
        if blocks:
            self.owner.route.begin_wait(self)
        try:
            async with asyncio.timeout(self.owner.route.heartbeat + blocks):
                return await self.raw.read_response()
        except redis.ResponseError as error:
            if self.functions is not None and self.functions.is_missing(str(error)):
                # The script does the same.
                raise redis.exceptions.NoScriptError(str(error)) from error
            raise
        finally:
            if blocks:
                self.owner.route.end_wait(self)

    async def _read_asked(self, functions: KnownFunctions) -> None:
        """Read the text of the server functions, which was asked for in front of a call."""
        try:
            async with asyncio.timeout(self.owner.route.heartbeat):
                reply: object = await self.raw.read_response()
        except redis.ResponseError as error:
            reply = error
        functions.learn(reply)

    def cut(self) -> None:
        """Let who waits for a reply find the connection lost, from any thread."""
        # Nothing of redis-py ends a wait of another thread.
        writer = self.raw._writer  # noqa: SLF001
        if writer is not None:
            with contextlib.suppress(OSError):
                writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def is_greeted_as(self, server: ServerAddress) -> bool:
        """Return whether it may be used as this server of a route: it was lent as that before."""
        return server in self.pool.known[self.raw].greeted

    async def drop(self) -> None:
        """Close it; it can still be given back."""
        await self.raw.disconnect(nowait=True)

    async def release(self) -> None:
        """Give it back; one to a server that was left is closed."""
        if self.pool.is_left:
            await self.drop()
        await self.pool.take_back(self.raw)
