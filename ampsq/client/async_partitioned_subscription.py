"""A subscription to a queue of all partitions, for asyncio: one backlog, lent to where messages are."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Never

from ampsq.base.errors import AmpsqError, Closed, Unavailable, UnknownSubscription
from ampsq.base.forks import was_inherited
from ampsq.base.values import Interval
from ampsq.client.partition_rules import (
    ATTEMPTS,
    FIRST_PAUSE,
    FULL,
    LONGEST_PAUSE,
    SEPARATELY,
    STEP,
    PartitionFailures,
    check_backlog,
    check_ended,
    only_for_one,
    spec_after,
)
from ampsq.client.partition_turns import PartitionTurns
from ampsq.protocol.calls.queues import bell_channel, wait_for_bell
from ampsq.protocol.reads.instance import is_opened
from ampsq.queues.async_subscription import AsyncManagedSubscription, AsyncMessage, AsyncSubscription, handle_each
from ampsq.queues.inbox import Attention
from ampsq.transport.server_pools import ServerPools
from ampsq.transport.shard_channels import ShardChannels
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from datetime import timedelta
    from types import EllipsisType

__all__ = ["AsyncPartitionedSubscription"]

_log = logging.getLogger("ampsq")


class AsyncPartitionedSubscription(AsyncSubscription):
    """Messages of all partitions: ``async for`` over it, or await `get`. Made by `AsyncClient.subscribe`.

    Args:
        parts: the subscriptions, one of each partition, which have bells.
        end: called when it is closed.
    """

    def __init__(self, parts: Sequence[AsyncSubscription], end: Callable[[AsyncPartitionedSubscription], None]) -> None:
        self._subscriptions, self._end = list(parts), end
        self._parts = [AsyncManagedSubscription.of(each) for each in parts]
        # Their calls are soon over where a partition is away, since the others wait.
        self._stores = [each.store.of_instance(each.store.instance) for each in self._parts]
        for store in self._stores:
            store.retry_timeout = min(store.retry_timeout, ATTEMPTS)
        self._failures = PartitionFailures(len(parts), self._parts[0].store.retry_timeout)
        cores = [each.core for each in self._parts]
        # The name, backlog and filter that are asked for. A partition that is away may ask for something else yet.
        self._wanted = cores[0].registration.spec_with(None, None, ...)
        self._turns = PartitionTurns([each.leases for each in cores], self._wanted[1])
        self._attention = Attention()
        for each in cores:
            each.inbox.attention = self._attention
        # Those that listen to bells, of which one is done once its partition is away; those that look for such ones.
        self._listening: dict[int, asyncio.Task[None]] = {}
        self._mending: dict[int, asyncio.Task[None]] = {}
        self._rang = asyncio.Event()
        # Beyond some partitions a connection to each of their servers, not to each of them.
        self._channels = ShardChannels() if len(parts) > SEPARATELY else None
        self._pools, self._next_look = ServerPools(), 0.0
        if self._channels is not None:
            asyncio.get_running_loop().add_reader(self._channels.fileno(), self._hear, self._channels)
        # Held by whoever visits a partition or waits for a bell.
        self._lock = asyncio.Lock()
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(str(each.core) for each in self._parts)}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            only_for_one(name)

    @property
    def id(self) -> str:
        """The names of the subscriptions at the partitions, with commas between."""
        return ", ".join(each.id for each in self._parts)

    @property
    def max_backlog(self) -> int:
        """The effective backlog of all partitions together: what was asked for, or the sum of the queues' limits.

        It follows changed limits, as that of `Subscription` does.
        """
        self._turns.follow()
        return self._turns.max_backlog

    @property
    def late(self) -> list[Exception]:
        """Acknowledgements of batches that came too late, at most the last thousand of each partition."""
        return [error for each in self._subscriptions for error in each.late]

    def run(self, on_message: Callable[[AsyncMessage], object]) -> None:
        """Call a function with each message, and await it, in a task, until the subscription is closed."""
        self._task = asyncio.create_task(handle_each(self, on_message), name="ampsq-partitions")

    async def get(self, timeout: timedelta | float | str | None = None) -> AsyncMessage | None:  # noqa: ASYNC109
        """Wait for the next message, of whichever partition; see `Subscription.get`. Cancelling it loses no message."""
        # Mostly: no lock, and no look at the clock.
        message = self._next()
        if message is not None:
            return message
        until = None if timeout is None else time.monotonic() + Interval.parse(timeout) / 1000
        late = 0
        while True:
            self._parts[0].core.registration.check_process()
            try:
                async with asyncio.timeout(None if until is None else max(until - time.monotonic(), 0.0)):
                    await self._lock.acquire()
            except TimeoutError:
                return None
            try:
                # Another task may have visited a partition meanwhile.
                message = self._next()
                if message is not None:
                    return message
                if self._closed:
                    raise Closed("this subscription was closed")
                is_over = await self._go_on(until)
            finally:
                self._lock.release()
            # Each whose bell rings is visited once, also where nobody waits.
            late += until is not None and time.monotonic() >= until
            message = self._next()
            if message is not None or is_over or late > len(self._parts):
                return message

    def _next(self) -> AsyncMessage | None:
        """Take out the next message that is at hand."""
        managed = self._parts[self._turns.current]
        core = managed.core
        if not core.inbox.buffer:
            return None
        parts, body = core.inbox.buffer.popleft()
        return AsyncMessage(parts, body, core.leases, managed)

    async def _go_on(self, until: float | None) -> bool:
        """Visit the partition whose turn it is, or wait for a bell; True when the time is over and no bell rings."""
        self._rang.clear()
        now = time.monotonic()
        if self._channels is not None and now >= self._next_look:
            self._next_look = now + STEP
            await self._look(self._channels)
        self._failures.check(now)
        number, turns = self._turns.next(now), self._turns
        if number is None:
            # Before that is sent: from here on whoever acknowledges sees that this waits.
            self._attention.now = True
            try:
                await self._flush(turns.acknowledged())
                return await self._wait(until, STEP)
            finally:
                self._attention.now = False
        if not turns.is_full(number):
            await self._flush(turns.acknowledged(number))
            if not turns.is_worth(number):
                # All of the backlog is being worked on.
                return await self._wait(until, FULL)
        await self._visit(number)
        return False

    async def _wait(self, until: float | None, most: float) -> bool:
        left = most if until is None else min(max(until - time.monotonic(), 0.0), most)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._rang.wait()
        return until is not None and time.monotonic() >= until and not self._rang.is_set()

    def _ring(self, number: int, at: int = 0) -> None:
        self._turns.ring(number, at)
        self._rang.set()

    def _hear(self, channels: ShardChannels) -> None:
        """Note whose bells rang, or may have rung."""
        for number, at, is_lost in channels.wait(0.0):
            if is_lost:
                self._listening.pop(number, None)
                self._look_for(number)
            else:
                self._ring(number, at)

    async def _look(self, channels: ShardChannels) -> None:
        """Do what is due at partitions whose bells are heard, where no coordinator does; each if it is time to look."""
        self._hear(channels)
        for number, managed in enumerate(self._parts):
            inbox = managed.core.inbox
            if number in channels and inbox.duties.are_due:
                try:
                    if not await self._stores[number].run(inbox.do_duties()):
                        self._ring(number)
                except AmpsqError as error:
                    self._lose(number, error)

    async def _listen_to_channel(self, number: int, channels: ShardChannels) -> None:
        """Listen to the bell of a partition on the connection to its server."""
        core, store = self._parts[number].core, self._stores[number]
        us = core.registration
        # One for threads, since its connections are made there.
        aside = Store(store.route, store.instance, retry_timeout=ATTEMPTS, pools=self._pools)
        try:
            await asyncio.to_thread(channels.begin, number, aside, bell_channel(us.instance, us.id))
        except AmpsqError as error:
            self._lose(number, error)
            return
        # What a lost connection did not hear is asked for when the next one listens.
        core.inbox.duties.looks_itself = channels.is_refused

    async def _listen(self, number: int) -> None:
        """Read the bell of a partition, until it cannot be reached."""
        managed, store = self._parts[number], self._stores[number]
        inbox, us = managed.core.inbox, managed.core.registration
        while not self._closed:
            try:
                at = await store.call(wait_for_bell(us.instance, us.id, inbox.duties.wait))
                if at:
                    self._ring(number, at)
                elif inbox.duties.are_due:
                    async with self._lock:
                        if not await store.run(inbox.do_duties()):
                            self._ring(number)
            except AmpsqError as error:
                self._lose(number, error)
                return

    async def _visit(self, number: int) -> None:
        """Take messages of a partition, as many as there are credits for."""
        managed, store = self._parts[number], self._stores[number]
        if managed.core.inbox.replacement.pending is not None:
            try:
                await self._replace_at(number)
            except AmpsqError as error:
                self._lose(number, error)
                return
            self._turns.resize(self._wanted[1])
        lent, visit = self._turns.begin(number)
        try:
            try:
                answer = await store.run(managed.core.inbox.visit(lent, visit))
                self._turns.end(number, answer.leased, is_done=answer.is_done)
            except UnknownSubscription:
                self._forget(number)
                await store.run(managed.core.inbox.begin_anew(managed.pipeline))
                self._turns.end(number, 0, is_done=False)
        except AmpsqError as error:
            self._turns.fail(number, error)
            self._lose(number, error)
        else:
            self._failures.note(number, None)
            if number not in self._listening and not self._closed:
                listening = (
                    self._listen(number) if self._channels is None else self._listen_to_channel(number, self._channels)
                )
                self._listening[number] = asyncio.create_task(listening, name=f"ampsq-bell-{number}")

    async def _flush(self, numbers: Iterable[int]) -> None:
        """Send what was acknowledged of some partitions, so that its credits come back."""
        for number in numbers:
            try:
                await self._stores[number].run(self._parts[number].core.leases.flush())
            except AmpsqError as error:
                self._lose(number, error)

    def _forget(self, number: int) -> None:
        """Listen to a partition's bell no more, until it is visited."""
        task = self._listening.pop(number, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        if self._channels is not None:
            self._channels.end(number)

    def _lose(self, number: int, error: AmpsqError) -> None:
        """Go on without a partition, until it can be reached again."""
        self._failures.note(number, error)
        self._forget(number)
        self._turns.lose(number)
        self._look_for(number)

    def _look_for(self, number: int) -> None:
        self._rang.set()
        if number not in self._mending and not self._closed:
            self._mending[number] = asyncio.create_task(self._mend(number), name=f"ampsq-away-{number}")

    async def _mend(self, number: int) -> None:
        """Look for a partition that is away, until it is back."""
        pause, store = FIRST_PAUSE, self._stores[number]
        try:
            while not self._closed:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                with contextlib.suppress(AmpsqError):
                    await store.call(is_opened(store.instance))
                    self._ring(number)
                    return
        finally:
            self._mending.pop(number, None)

    async def __aiter__(self) -> AsyncIterator[AsyncMessage]:
        while True:
            managed = self._parts[self._turns.current]
            leases, registration, buffer = managed.core.leases, managed.core.registration, managed.core.inbox.buffer
            while buffer and not registration.closed:
                parts, body = buffer.popleft()
                yield AsyncMessage(parts, body, leases, managed)
            try:
                message = await self.get()
            except Closed:
                self._parts[0].core.registration.check_process()
                return
            if message is not None:
                yield message

    async def acknowledge_all(self, messages: Sequence[AsyncMessage]) -> list[AmpsqError | None]:
        """Acknowledge messages, 500 at most, in one call for each partition that has some.

        It gives what is refused of each, in their order. Who waits since all of the backlog is used goes on at once.
        """
        places: dict[AsyncManagedSubscription, list[int]] = {}
        for place, message in enumerate(messages):
            places.setdefault(message._managed, []).append(place)  # noqa: SLF001  (a friend of the class)
        answers: list[AmpsqError | None] = [None] * len(messages)

        async def acknowledge(managed: AsyncManagedSubscription, own: Sequence[int]) -> None:
            refused: Sequence[AmpsqError | None]
            try:
                refused = await managed.acknowledge_all([messages[place] for place in own])
            except AmpsqError as error:
                refused = [error] * len(own)
            for place, answer in zip(own, refused, strict=True):
                answers[place] = answer

        await asyncio.gather(*(acknowledge(managed, own) for managed, own in places.items()))
        self._rang.set()
        return answers

    async def flush(self) -> None:
        """Send the acknowledgements collected so far, and wait until they are done."""
        for each in self._subscriptions:
            await each.flush()

    async def replace(
        self,
        *,
        name: str | None = None,
        max_backlog: int | None = None,
        filter: str | EllipsisType | None = ...,  # noqa: A002  (AMPS's word)
    ) -> None:
        """Ask for something else from now on, in all partitions; see `PartitionedSubscription.replace`."""
        if max_backlog is not None:
            check_backlog(max_backlog)
        # Who waits for a bell lets the lock go.
        self._rang.set()
        async with self._lock:
            if self._closed:
                raise Closed("this subscription was closed")
            former, wanted = self._wanted, spec_after(self._wanted, name, max_backlog, filter)
            failures: list[AmpsqError] = []
            for managed in self._parts:
                # The first one finds out what is wrong with it. Where this ends early, the next visits ask for it.
                managed.core.inbox.replacement.ask(*wanted)
            self._wanted = wanted
            try:
                for number in range(len(self._parts)):
                    try:
                        await self._replace_at(number)
                    except Unavailable as error:
                        self._lose(number, error)
                        failures.append(error)
            except AmpsqError:
                self._wanted = former
                await self._replace_back(number)
                raise
            finally:
                self._turns.resize(self._wanted[1])
                # What is wanted now may have been there before.
                for each in range(len(self._parts)):
                    if each not in self._turns.away:
                        self._ring(each)
        if len(failures) == len(self._parts):
            raise failures[0]

    async def _replace_at(self, number: int) -> None:
        """Ask a partition for what is asked for now."""
        managed = self._parts[number]
        former = managed.id
        await self._stores[number].run(managed.core.replace_pending(managed.pipeline))
        if managed.id != former:
            # It had to be made anew, with another bell.
            self._forget(number)

    async def _replace_back(self, end: int) -> None:
        """Ask for what was asked for before a partition refused something else; those before it at once."""
        for number, managed in enumerate(self._parts):
            managed.core.inbox.replacement.ask(*self._wanted)
            try:
                if number < end:
                    await self._replace_at(number)
            except AmpsqError as error:
                _log.warning("partition %d does not ask yet for what it asked for before: %s", number, error)
                self._lose(number, error)

    async def close(self) -> None:
        """End the subscription at all partitions; see `PartitionedSubscription.close`."""
        if self._closed or was_inherited(self._parts[0].core.registration.process):
            return
        self._closed = True
        self._rang.set()
        tasks = [*self._listening.values(), *self._mending.values()]
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
            async with self._lock:
                # Where a partition is away, its client ends it as soon as it is back.
                for number, managed in enumerate(self._parts):
                    managed.store = self._stores[number]
                    if number in self._turns.away:
                        managed.store.retry_timeout = 0.0
                ended = await asyncio.gather(*(each.close() for each in self._subscriptions), return_exceptions=True)
        finally:
            if self._channels is not None:
                asyncio.get_running_loop().remove_reader(self._channels.fileno())
                self._channels.close()
            self._pools.close()
            self._end(self)
        check_ended([failure for failure in ended if isinstance(failure, AmpsqError)], len(self._parts))
