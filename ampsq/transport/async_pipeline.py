"""Pipelines for asyncio: several calls are sent on one connection before the first is answered.

This is `ampsq.transport.pipeline` but for how it waits. After a refusal, `ampsq.transport.calls_in_flight` decides for
both what is repeated.
"""

# Made from transport/pipeline.py by tests/house/test_twins.py --write.

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Self, TypeVar

import redis

from ampsq.base.errors import Unavailable
from ampsq.transport.calls_in_flight import REFUSALS, CallsInFlight
from ampsq.transport.errors import is_slot_moving

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.base.errors import AmpsqError
    from ampsq.protocol.request import Call
    from ampsq.transport.calls_in_flight import AsyncCallRunner, AsyncLentConnection

__all__ = ["AsyncPipeline"]

T = TypeVar("T")


class AsyncPipeline:
    """Calls in flight on one connection, answered in order. After a failure it is empty and usable again.

    What a server refuses before it runs is done as single calls do it: `MOVED` is followed, `ASK` and `TRYAGAIN` are
    waited out, and what has too much to read is sent in parts; then all that was in flight is sent again, in order.

    Args:
        store: opens connections, and makes single calls.
        follows: False: such a refusal is raised, and so is that the instance went elsewhere; for who depends on what
            that connection has read or written.
    """

    def __init__(self, store: AsyncCallRunner, *, follows: bool = True) -> None:
        self._store, self._calls = store, CallsInFlight(store.route, follows=follows)
        self._connection: AsyncLentConnection | None = None
        # Kept, or nobody would: an event loop forgets tasks.
        self._closing: asyncio.Task[None] | None = None

    @property
    def open_calls(self) -> int:
        """Calls posted and not collected."""
        return self._calls.number

    async def post(self, call: Call[object]) -> None:
        """Send a call. Raises `Unavailable` when the connection broke: then nobody knows what ran."""
        if self._calls.refused:
            self._calls.refused.append(call)
            await self._post_refused()
            return
        if (
            self._connection is not None
            and not self._calls.sent
            and self._connection.server is not self._calls.route.current
        ):
            await self.close()
            if not self._calls.follows:
                raise self._calls.left()
        if self._connection is None:
            try:
                self._connection = await self._store.take_connection()
            except Unavailable as error:
                if not self._calls.follows or not is_slot_moving(error):
                    raise
                self._calls.refused.append(call)
                return
        try:
            await self._connection.send(call)
        except (redis.RedisError, OSError) as error:
            raise await self._failed(error, call) from error
        except BaseException:
            await self._abandon()
            raise
        self._calls.sent.append(call)

    async def post_all(self, calls: Sequence[Call[object]]) -> None:
        """Send several calls, in one write where the connection stands; raises as `post` does."""
        connection = self._connection
        if connection is None or self._calls.refused or connection.server is not self._calls.route.current:
            for call in calls:
                await self.post(call)
            return
        try:
            await connection.send(*calls)
        except (redis.RedisError, OSError) as error:
            raise await self._failed(error, calls[0]) from error
        except BaseException:
            await self._abandon()
            raise
        self._calls.sent.extend(calls)

    async def collect(self) -> object:
        """Read the reply of the earliest call; raises what the server answered, or `Unavailable`."""
        if self._calls.refused and not self._calls.sent:
            await self._post_refused()
            if self._calls.refused:
                return await self._run(self._calls.refused.popleft())
        if self._connection is None:
            raise Unavailable("the connection broke while calls were in flight")
        call = self._calls.sent[0]
        try:
            reply = await self._connection.read(call.blocks)
        except redis.ResponseError as error:
            ours = self._calls.judge(error, self._connection.server)
            if ours is None:
                return await self._send_again(self._connection, error)
            self._calls.sent.popleft()
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
        self._calls.sent.popleft()
        return call.read(reply)  # type: ignore[arg-type]  # it says of what its reply is made

    async def _post_refused(self) -> None:
        waiting, self._calls.refused = self._calls.refused, deque()
        while waiting:
            await self.post(waiting.popleft())
            if self._calls.refused:
                # There is no connection yet: `collect` waits for one.
                self._calls.refused.extend(waiting)
                return

    async def _send_again(self, connection: AsyncLentConnection, error: redis.ResponseError) -> object:
        """After a refusal: all of it in order, unless something behind it ran or waits there for what is to come."""
        if self._calls.is_read_behind:
            return await self._run(self._calls.take_refused())
        if await self._has_run_ahead(connection):
            ours = self._calls.out_of_turn(error, connection.server)
            self._calls.forget()
            await self.close()
            raise ours from error
        return await self._run(self._calls.hold_back())

    async def _has_run_ahead(self, connection: AsyncLentConnection) -> bool:
        """Read the replies of all behind the refused call; whether one of these has done something."""
        has_run = False
        for call in islice(self._calls.sent, 1, None):
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
            has_run = self._calls.is_out_of_turn(call, answer) or has_run
        return has_run

    async def _run(self, call: Call[object]) -> object:
        """Run a call by itself, as patiently as single calls are; what waits behind it comes afterwards."""
        try:
            return await self._store.call(call)
        except REFUSALS:
            raise
        except BaseException:
            await self.close()
            raise

    async def _failed(self, error: Exception, call: Call[object]) -> AmpsqError:
        """Drop the connection, and say what the failure means."""
        ours = self._calls.explain(error, call, self._connection.server if self._connection else None)
        await self._abandon()
        return ours

    async def _abandon(self) -> None:
        connection, self._connection = self._connection, None
        self._calls.forget()
        if connection is not None:
            await connection.drop()
            await connection.release()

    def forget_refused(self) -> None:
        """Drop the calls that did not run and were to be sent again; those in flight are still answered."""
        self._calls.refused.clear()

    async def close(self) -> None:
        """Give the connection back; one with unread replies is dropped."""
        connection, self._connection = self._connection, None
        is_unread = bool(self._calls.sent)
        # Before anything is waited for: what is posted next would be taken for the answer to these.
        self._calls.forget()
        if connection is not None:
            if is_unread:
                await connection.drop()
            await connection.release()

    def close_behind(self, lock: asyncio.Lock) -> None:
        """Close it, for who was cancelled, once the task that uses it has given the lock back."""
        self._closing = asyncio.create_task(self._close_under(lock))

    async def _close_under(self, lock: asyncio.Lock) -> None:
        async with lock:
            await self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
