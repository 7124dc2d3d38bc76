"""Calls in flight: several are sent on one connection before the first is answered."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

import redis

from ampsq.base.errors import Rejected, ServerFull, TooMuchToRead, Unavailable
from ampsq.protocol.reads.server import load_script
from ampsq.transport.errors import is_slot_moving, translate_error

if TYPE_CHECKING:
    from ampsq.base.errors import AmpsqError
    from ampsq.protocol.request import Call
    from ampsq.transport.route import Route, ServerAddress

__all__ = [
    "REFUSALS",
    "AsyncCallRunner",
    "AsyncLentConnection",
    "AsyncPipeline",
    "CallRunner",
    "LentConnection",
    "PinnedPipeline",
    "Pipeline",
]

T = TypeVar("T")
#: Say that one call did nothing, and nothing of the others in flight.
REFUSALS: Final = (Rejected, ServerFull)


class LentConnection(Protocol):
    """A connection, as far as a channel needs it."""

    server: ServerAddress

    def send(self, call: Call[Any]) -> None:
        """Send a call."""

    def read(self, blocks: float) -> Any:
        """Read a reply, which the server may hold back for so many seconds."""

    def drop(self) -> None:
        """Close it; it can still be given back."""

    def release(self) -> None:
        """Give it back."""


class AsyncLentConnection(Protocol):
    """The same for asyncio."""

    server: ServerAddress

    async def send(self, call: Call[Any]) -> None:
        """Send a call."""

    async def read(self, blocks: float) -> Any:
        """Read a reply, which the server may hold back for so many seconds."""

    async def drop(self) -> None:
        """Close it; it can still be given back."""

    async def release(self) -> None:
        """Give it back."""


class CallRunner(Protocol):
    """A store, as far as a channel needs it: the way to the server, a connection, and single calls."""

    route: Route

    def take_connection(self) -> LentConnection:
        """Give a connection of one's own."""

    def call(self, call: Call[T]) -> T:
        """Send one call and read its reply."""


class AsyncCallRunner(Protocol):
    """The same for asyncio."""

    route: Route

    async def take_connection(self) -> AsyncLentConnection:
        """Give a connection of one's own."""

    async def call(self, call: Call[T]) -> T:
        """Send one call and read its reply."""


class _CallsInFlight:
    """What pipelines know of their calls, whichever way they wait: what is repeated after a refusal is decided here."""

    def __init__(self, route: Route, *, follows: bool) -> None:
        self._route, self._follows = route, follows
        self._sent: deque[Call[Any]] = deque()
        # They did not run, nor did any behind them: to be sent before anything else. Nothing is in flight until then.
        self._refused: deque[Call[Any]] = deque()

    @property
    def open_calls(self) -> int:
        """Calls posted and not collected."""
        return len(self._sent) + len(self._refused)

    def _judge(self, error: redis.ResponseError, place: ServerAddress) -> AmpsqError | None:
        """What the answer to the earliest call means; None: it was refused before it ran, and may be sent again."""
        if isinstance(error, redis.exceptions.NoScriptError):
            return None
        ours = translate_error(error, self._sent[0], place.url)
        if isinstance(ours, TooMuchToRead) and self._follows and self._sent[0].parts is not None:
            return None
        if isinstance(ours, Unavailable):
            if self._follows and not ours.may_have_run:
                return None
            if isinstance(error, redis.exceptions.MovedError):
                self._route.redirect(place, error)
            ours.may_have_run = ours.may_have_run or len(self._sent) > 1
        return ours

    def _is_out_of_turn(self, call: Call[Any], error: redis.ResponseError | None) -> bool:
        """Whether a call behind a refused one has done what belongs after it; an error is what it was answered."""
        if error is None:
            return not call.only_reads
        ours = translate_error(error, call, "")
        if isinstance(ours, Unavailable):
            return ours.may_have_run
        return not isinstance(error, redis.exceptions.NoScriptError) and not isinstance(ours, REFUSALS)

    def _out_of_turn(self, error: redis.ResponseError, place: ServerAddress) -> Unavailable:
        """What to raise then."""
        ours = translate_error(error, self._sent[0], place.url)
        is_forgotten = isinstance(error, redis.exceptions.NoScriptError)
        text = f"{place}: the server forgot its scripts" if is_forgotten else str(ours)
        return Unavailable(f"{text}; meanwhile it ran what was sent later")

    def _hold_back(self) -> Call[Any]:
        """Take the earliest call, which was refused like all behind it: they come after it."""
        call = self._sent.popleft()
        self._refused.extend(self._sent)
        self._sent.clear()
        return call

    def _explain(self, error: Exception, call: Call[Any], place: ServerAddress | None) -> AmpsqError:
        """What a failure means: the connection is of no use any more, and what is in flight may have run."""
        ours = translate_error(error, call, place.url if place else "")
        if isinstance(ours, Unavailable):
            ours.may_have_run = ours.may_have_run or any(each is not call for each in self._sent)
            if place is not None:
                self._route.failed(place, ours)
        return ours

    def forget_refused(self) -> None:
        """Drop the calls that did not run and were to be sent again; those in flight are still answered."""
        self._refused.clear()

    def _forget(self) -> None:
        self._sent.clear()
        self._refused.clear()


class Pipeline(_CallsInFlight):
    """Calls in flight on one connection, answered in order. After a failure it is empty and usable again.

    What a server refuses before it runs is done as single calls do it: `MOVED` is followed, `ASK` and `TRYAGAIN` are
    waited out, and what has too much to read is sent in parts; then all that was in flight is sent again, in order.

    Args:
        store: opens connections, and makes single calls.
        follows: False: such a refusal is raised, and so is that the instance went elsewhere; for who depends on what
            that connection has read or written.
    """

    def __init__(self, store: CallRunner, *, follows: bool = True) -> None:
        super().__init__(store.route, follows=follows)
        self._store = store
        self._connection: LentConnection | None = None

    def post(self, call: Call[Any]) -> None:
        """Send a call. Raises `Unavailable` when the connection broke: then nobody knows what ran."""
        if self._refused:
            self._refused.append(call)
            self._post_refused()
            return
        if self._connection is not None and not self._sent and self._connection.server is not self._route.current:
            self.close()
            if not self._follows:
                raise _left(self._route)
        if self._connection is None:
            try:
                self._connection = self._store.take_connection()
            except Unavailable as error:
                if not self._follows or not is_slot_moving(error):
                    raise
                self._refused.append(call)
                return
        try:
            self._connection.send(call)
        except (redis.RedisError, OSError) as error:
            raise self._failed(error, call) from error
        except BaseException:
            self._abandon()
            raise
        self._sent.append(call)

    def collect(self) -> Any:
        """Read the reply of the earliest call; raises what the server answered, or `Unavailable`."""
        if self._refused and not self._sent:
            self._post_refused()
            if self._refused:
                return self._run(self._refused.popleft())
        if self._connection is None:
            raise Unavailable("the connection broke while calls were in flight")
        call = self._sent[0]
        try:
            reply = self._connection.read(call.blocks)
        except redis.ResponseError as error:
            ours = self._judge(error, self._connection.server)
            if ours is None:
                return self._send_again(self._connection, error)
            self._sent.popleft()
            if not isinstance(ours, REFUSALS):
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

    def _post_refused(self) -> None:
        waiting, self._refused = self._refused, deque()
        while waiting:
            self.post(waiting.popleft())
            if self._refused:
                # There is no connection yet: `collect` waits for one.
                self._refused.extend(waiting)
                return

    def _send_again(self, connection: LentConnection, error: redis.ResponseError) -> Any:
        """After a refusal: all of it in order, unless something behind it ran."""
        if self._has_run_ahead(connection):
            ours = self._out_of_turn(error, connection.server)
            self._forget()
            self.close()
            raise ours from error
        return self._run(self._hold_back())

    def _has_run_ahead(self, connection: LentConnection) -> bool:
        """Read the replies of all behind the refused call; whether one of these has done something."""
        has_run = False
        for call in islice(self._sent, 1, None):
            answer: redis.ResponseError | None = None
            try:
                connection.read(call.blocks)
            except redis.ResponseError as error:
                answer = error
            except (redis.RedisError, OSError) as error:
                raise self._failed(error, call) from error
            except BaseException:
                self._abandon()
                raise
            has_run = self._is_out_of_turn(call, answer) or has_run
        return has_run

    def _run(self, call: Call[Any]) -> Any:
        """Run a call by itself, as patiently as single calls are; what waits behind it comes afterwards."""
        try:
            return self._store.call(call)
        except REFUSALS:
            raise
        except BaseException:
            self.close()
            raise

    def _failed(self, error: Exception, call: Call[Any]) -> AmpsqError:
        """Drop the connection, and say what the failure means."""
        ours = self._explain(error, call, self._connection.server if self._connection else None)
        self._abandon()
        return ours

    def _abandon(self) -> None:
        connection, self._connection = self._connection, None
        self._forget()
        if connection is not None:
            connection.drop()
            connection.release()

    def close(self) -> None:
        """Give the connection back; one with unread replies is dropped."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._sent:
                connection.drop()
            connection.release()
        self._forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _left(route: Route) -> Unavailable:
    return Unavailable(f"the connection to {route.instance!r} was left: the instance is served elsewhere now")


class PinnedPipeline(Pipeline):
    """A channel whose calls run on one connection or not at all: for who waits for what that connection wrote."""

    def __init__(self, store: CallRunner) -> None:
        super().__init__(store, follows=False)
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
            self.ask(load_script(name))

    def _judge(self, error: redis.ResponseError, place: ServerAddress) -> AmpsqError | None:
        if isinstance(error, redis.exceptions.NoScriptError):
            return Unavailable("the server forgot its scripts; they are loaded again")
        return super()._judge(error, place)


class AsyncPipeline(_CallsInFlight):
    """`Pipeline` for asyncio."""

    def __init__(self, store: AsyncCallRunner, *, follows: bool = True) -> None:
        super().__init__(store.route, follows=follows)
        self._store = store
        self._connection: AsyncLentConnection | None = None
        # Kept, or nobody would: an event loop forgets tasks.
        self._closing: asyncio.Task[None] | None = None

    async def post(self, call: Call[Any]) -> None:
        """Send a call; see `Pipeline.post`."""
        if self._refused:
            self._refused.append(call)
            await self._post_refused()
            return
        if self._connection is not None and not self._sent and self._connection.server is not self._route.current:
            await self.close()
            if not self._follows:
                raise _left(self._route)
        if self._connection is None:
            try:
                self._connection = await self._store.take_connection()
            except Unavailable as error:
                if not self._follows or not is_slot_moving(error):
                    raise
                self._refused.append(call)
                return
        try:
            await self._connection.send(call)
        except (redis.RedisError, OSError) as error:
            raise await self._failed(error, call) from error
        except BaseException:
            await self._abandon()
            raise
        self._sent.append(call)

    async def collect(self) -> Any:
        """Read the reply of the earliest call; see `Pipeline.collect`."""
        if self._refused and not self._sent:
            await self._post_refused()
            if self._refused:
                return await self._run(self._refused.popleft())
        if self._connection is None:
            raise Unavailable("the connection broke while calls were in flight")
        call = self._sent[0]
        try:
            reply = await self._connection.read(call.blocks)
        except redis.ResponseError as error:
            ours = self._judge(error, self._connection.server)
            if ours is None:
                return await self._send_again(self._connection, error)
            self._sent.popleft()
            if not isinstance(ours, REFUSALS):
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

    async def _post_refused(self) -> None:
        waiting, self._refused = self._refused, deque()
        while waiting:
            await self.post(waiting.popleft())
            if self._refused:
                # There is no connection yet: `collect` waits for one.
                self._refused.extend(waiting)
                return

    async def _send_again(self, connection: AsyncLentConnection, error: redis.ResponseError) -> Any:
        """After a refusal: all of it in order, unless something behind it ran."""
        if await self._has_run_ahead(connection):
            ours = self._out_of_turn(error, connection.server)
            self._forget()
            await self.close()
            raise ours from error
        return await self._run(self._hold_back())

    async def _has_run_ahead(self, connection: AsyncLentConnection) -> bool:
        """Read the replies of all behind the refused call; whether one of these has done something."""
        has_run = False
        for call in islice(self._sent, 1, None):
            answer: redis.ResponseError | None = None
            try:
                await connection.read(call.blocks)
            except redis.ResponseError as error:
                answer = error
            except (redis.RedisError, OSError) as error:
                raise await self._failed(error, call) from error
            except BaseException:
                await self._abandon()
                raise
            has_run = self._is_out_of_turn(call, answer) or has_run
        return has_run

    async def _run(self, call: Call[Any]) -> Any:
        """Run a call by itself, as patiently as single calls are; what waits behind it comes afterwards."""
        try:
            return await self._store.call(call)
        except REFUSALS:
            raise
        except BaseException:
            await self.close()
            raise

    async def _failed(self, error: Exception, call: Call[Any]) -> AmpsqError:
        """Drop the connection, and say what the failure means."""
        ours = self._explain(error, call, self._connection.server if self._connection else None)
        await self._abandon()
        return ours

    async def _abandon(self) -> None:
        connection, self._connection = self._connection, None
        self._forget()
        if connection is not None:
            await connection.drop()
            await connection.release()

    async def close(self) -> None:
        """Give the connection back; one with unread replies is dropped."""
        connection, self._connection = self._connection, None
        is_unread = bool(self._sent)
        # Before anything is awaited: what is posted next would be taken for the answer to these.
        self._forget()
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
