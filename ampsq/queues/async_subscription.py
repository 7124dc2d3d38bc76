"""A subscription of the asyncio client: ``async for`` over it, or await `get`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from functools import partial
from typing import TYPE_CHECKING, Generic, Never, NoReturn, Protocol, Self, TypeVar

from ampsq.base.errors import AmpsqError, Closed, Unavailable
from ampsq.base.values import Interval
from ampsq.base.waiting import acquire
from ampsq.queues.failover import SettledElsewhere
from ampsq.queues.handlers import call_handler
from ampsq.queues.idle_duties import LONGEST_WAIT
from ampsq.queues.message import MessageView, head_of
from ampsq.queues.returns import failure_text, report_text
from ampsq.queues.settling import acknowledge_all, settle

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterable,
        AsyncIterator,
        Awaitable,
        Callable,
        Coroutine,
        Generator,
        Iterable,
        Sequence,
    )
    from datetime import timedelta
    from types import EllipsisType

    from ampsq.base.errors import Rejected
    from ampsq.protocol.calls.queues import Parts, Verb
    from ampsq.protocol.context import ClientContext
    from ampsq.queues.heartbeat import Keepalive
    from ampsq.queues.lease_table import LeaseTable
    from ampsq.queues.subscription_core import SubscriptionCore
    from ampsq.transport.async_store import AsyncStore

__all__ = ["AsyncManagedSubscription", "AsyncMessage", "AsyncSubscription", "Subscribing", "handle_each"]


class _Closable(Protocol):
    async def close(self) -> None: ...


Made = TypeVar("Made", bound=_Closable)
_log = logging.getLogger("ampsq")
#: Seconds of one wait inside an endless one, and between two looks whether a reader has let the subscription go.
_STEP = LONGEST_WAIT
_LETS_GO = 0.02
#: Seconds between two looks whether a subscription has gone on at another instance.
_MOVING = 0.02


class Subscribing(Generic[Made]):
    """A subscription in the making: await it, or enter it with ``async with``."""

    def __init__(self, making: Coroutine[object, Never, Made], to: str) -> None:
        self._making, self._to = making, to
        self._made: Made | None = None

    def __repr__(self) -> str:
        return f"<Subscribing to {self._to}: await it, or enter it with `async with`>"

    def __await__(self) -> Generator[object, Never, Made]:
        return self._making.__await__()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            # Whoever looks at objects asks for such names; before `__init__` there is nothing to tell of.
            raise AttributeError(name)
        raise AttributeError(f"{self!r} has no {name!r} yet: the subscription that it makes has", name=name, obj=self)

    def __aiter__(self) -> NoReturn:
        raise TypeError(f"{self!r}: `async for message in await client.subscribe(...)`")

    async def __aenter__(self) -> Made:
        self._made = await self._making
        return self._made

    async def __aexit__(self, *_: object) -> None:
        if self._made is not None:
            await self._made.close()


class AsyncMessage(MessageView):
    """A message delivered to an `AsyncSubscription`; every verb as in `Message`, awaited."""

    __slots__ = ("_managed",)

    def __init__(self, parts: Parts, body: bytes, leases: LeaseTable, managed: AsyncManagedSubscription) -> None:
        self._parts = parts
        self._body = body
        self._leases = leases
        self._managed = managed
        self.settled = False
        if parts[1] in leases.measured:
            leases.samples.handed_out(parts)

    async def ack(self, *, wait: bool = False) -> None:
        """Say that it was processed; see `Message.ack`."""
        inbox = self._managed.core.inbox
        if wait:
            await self._managed.settle(self._leases, self._parts, "acknowledged", None)
        elif self._leases.acknowledge(self._parts) or (inbox.attention.now and inbox.may_let_come(self._parts)):
            await self._managed.send_batch()
        self.settled = True

    async def cancel(self, delay: timedelta | float | str | None = None, *, reason: str | None = None) -> None:
        """Hand it back; see `Message.cancel`."""
        period = Interval.parse(delay) if delay is not None else None
        await self._managed.settle(self._leases, self._parts, "cancelled", period, reason)
        self.settled = True

    async def expire(self, *, reason: str | None = None) -> None:
        """Remove it unprocessed; see `Message.expire`."""
        await self._managed.settle(self._leases, self._parts, "expired", None, reason)
        self.settled = True

    async def extend(self, period: timedelta | float | str) -> None:
        """Hold it for `period` from now on; see `Message.extend`."""
        await self._managed.settle(self._leases, self._parts, "extended", Interval.parse(period))

    async def report(self, done: float, text: str = "") -> None:
        """Say how far its processing is, and hold it as long again; see `Message.report`."""
        await self._managed.settle(self._leases, self._parts, "extended", None, report_text(done, text))


async def handle_each(messages: AsyncIterable[AsyncMessage], on_message: Callable[[AsyncMessage], object]) -> None:
    """Call a function with each message, and await it; as for threads."""
    async for message in messages:
        try:
            await call_handler(on_message, message)
        except Exception as error:  # noqa: BLE001  (whatever a handler raises is an answer)
            _log.exception("handler of %r failed; its message is cancelled", message)
            try:
                await message.cancel(reason=failure_text(error))
            except AmpsqError as lost:
                _log.warning("%r could not be cancelled: %s", message, lost)


class AsyncManagedSubscription:
    """One subscription with what moves it; `AsyncSubscription` is what an application sees of it.

    Args:
        core: the subscription at the instance where its client works.
        store: runs its flows.
        end: called when it is closed.

    Attributes:
        core, store: these; others when it goes on at another instance.
        pipeline: for what is sent ahead.
        lock: held by who reads, or changes the subscription.
        turnstile: held by who waits for the lock to change the subscription, so that readers let it in.
        elsewhere: what was settled of another instance that does not know it.
        is_moving: between leaving an instance and going on at another one.
        is_given_back: no more messages are asked for: nothing is waited for.
    """

    def __init__(
        self,
        core: SubscriptionCore,
        store: AsyncStore,
        end: Callable[[AsyncManagedSubscription, SubscriptionCore], None],
    ) -> None:
        self.core, self.store, self._end = core, store, end
        self.pipeline = store.pipeline()
        self.lock = asyncio.Lock()
        self.turnstile = asyncio.Lock()
        self.elsewhere = SettledElsewhere()
        self.is_moving = self.is_given_back = False
        self._task: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, subscription: AsyncSubscription) -> AsyncManagedSubscription:
        """Return the managed subscription of a subscription, for the gateway and a worker."""
        return subscription._managed  # noqa: SLF001  (its other half)

    @property
    def id(self) -> str:
        """The subscription's name on the instance."""
        return self.core.registration.id

    def run(self, on_message: Callable[[AsyncMessage], object]) -> None:
        """Call a function with each message, and await it, in a task, until the subscription is closed."""
        self._task = asyncio.create_task(self._run(on_message), name=f"ampsq-{self.id}")

    async def _run(self, on_message: Callable[[AsyncMessage], object]) -> None:
        await handle_each(AsyncSubscription(self), on_message)

    async def is_free_before(self, until: float) -> bool:
        """Let who waits to change the subscription, and who reads it, go first; False when the time is over before."""
        async with self.turnstile:
            pass
        is_free = await acquire(self.lock, timeout=until - time.monotonic())
        if is_free:
            self.lock.release()
        return is_free

    @contextlib.asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """Hold the lock, to change the subscription; see `ManagedSubscription.changing`."""
        async with self.turnstile:
            seconds = 0.0
            while not await acquire(self.lock, timeout=seconds):
                await self.store.run(self.core.inbox.end_wait())
                seconds = _LETS_GO
            try:
                yield
            finally:
                self.lock.release()

    # -- settling

    async def settle(
        self, leases: LeaseTable, parts: Parts, verb: Verb, period: int | None, reason: str | None = None
    ) -> None:
        """Settle a message at once; see `ManagedSubscription.settle`."""
        if leases.left_for is not None:
            raise self.elsewhere.refusal(leases.origin, parts, verb)
        store = self.store
        try:
            await store.run(settle(leases, parts, verb, period, reason))
        except Unavailable as lost:
            if not store.route.left:
                raise
            # The client went on at another instance meanwhile, so nobody asks this one again.
            raise self.elsewhere.refusal(leases.origin, parts, verb) from lost

    async def acknowledge_all(self, messages: Sequence[AsyncMessage]) -> list[Rejected | None]:
        """Acknowledge messages of one queue, 500 at most, in one call; gives what is refused of each, in order."""
        leases, refusal = self.core.leases, self.elsewhere.refusal
        answers: list[Rejected | None] = [
            None if each.origin == leases.origin else refusal(each.origin, head_of(each), "acknowledged")
            for each in messages
        ]
        here = [each for each, answer in zip(messages, answers, strict=True) if answer is None]
        if here:
            heads = [head_of(each) for each in here]
            refused = dict(zip(here, await self.store.run(acknowledge_all(leases, heads)), strict=True))
            answers = [answer or refused[each] for each, answer in zip(messages, answers, strict=True)]
        for each, answer in zip(messages, answers, strict=True):
            each.settled = answer is None
        return answers

    async def send_batch(self) -> None:
        """Send acknowledgements that have become many or are waited for, unless a fetch is to come soon that does."""
        if not self.core.inbox.buffer:
            await self.store.run(self.core.leases.flush(waits=False))

    async def is_settled(self, parts: Parts) -> bool:
        """Acknowledge what was acknowledged before, at another instance; it is not handed out."""
        leases = self.core.leases
        if not self.elsewhere.take_out(parts, leases.origin):
            return False
        if leases.acknowledge(parts):
            await self.send_batch()
        return True

    async def flush(self) -> None:
        """See `Subscription.flush`."""
        await self.store.run(self.core.leases.flush())

    # -- at another instance

    async def prepare_failover(
        self, store: AsyncStore, client: ClientContext, keepalive: Keepalive
    ) -> Callable[[], Awaitable[None]]:
        """Subscribe at another instance; see `ManagedSubscription.prepare_failover`."""
        core = self.core.copy_for(client.instance, client.request(), client.origin)
        await store.run(core.registration.register())
        return partial(self._resume_at, core, store, keepalive)

    def suspend(self) -> None:
        """From here on the instance is out of reach, and what `prepare_failover` gave follows."""
        self.is_moving = True

    async def _resume_at(self, core: SubscriptionCore, store: AsyncStore, keepalive: Keepalive) -> None:
        # Who keeps acknowledgements does so where it publishes now.
        core.leases.keep_in(core.leases.keeper)
        keepalive.add(core)
        async with self.changing():
            await self.pipeline.close()
            self.store, self.pipeline = store, store.pipeline()
            former, self.core = self.core, core
            self.elsewhere.leave(former.leases)
            former.registration.closed = True
            self.is_moving = False

    # -- ending

    async def give_back(self, unstarted: Iterable[AsyncMessage] = ()) -> None:
        """Ask for no more messages, and return others; see `ManagedSubscription.give_back`."""
        self.is_given_back = True
        async with self.changing():
            self.core.inbox.unwanted += [head_of(message) for message in unstarted]
            await self.store.run(self.core.give_back(self.pipeline))

    async def close(self) -> None:
        """See `Subscription.close`."""
        if self.core.registration.closed:
            return
        self.core.registration.closed = True
        try:
            async with self.changing():
                try:
                    await self.store.run(self.core.close(self.pipeline))
                finally:
                    await self.pipeline.close()
        except asyncio.CancelledError:
            # Another task may be at work on it.
            self._leaving = asyncio.create_task(self._leave())
            raise
        except BaseException:
            self._end(self, self.core)
            raise
        self._end(self, self.core)

    async def _leave(self) -> None:
        """Close what closing left open, and let the client's own thread end the subscription."""
        async with self.lock:
            await self.pipeline.close()
        self.core.inbox.ahead.give_up()
        self._end(self, self.core)

    def abandon(self, keepalive: Keepalive) -> None:
        """Let the client's own thread end it: closing the client was cancelled."""
        self.core.registration.closed = True
        self.core.inbox.ahead.give_up()
        keepalive.remove(self.core)


class AsyncSubscription:
    """Messages pushed to one consumer: ``async for`` over it, or await `get`. Made by `AsyncClient.subscribe`."""

    def __init__(self, managed: AsyncManagedSubscription) -> None:
        self._managed = managed

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._managed.core}>"

    @property
    def id(self) -> str:
        """The subscription's name on the instance."""
        return self._managed.id

    @property
    def max_backlog(self) -> int:
        """The effective backlog: the least of what was asked and of the queues' limits.

        Where a limit is changed, it follows with the next sign of life, within ten seconds.
        """
        return self._managed.core.registration.max_backlog

    @property
    def late(self) -> list[Exception]:
        """Acknowledgements of batches that came too late, at most the last thousand."""
        return list(self._managed.core.leases.late.errors)

    async def get(self, timeout: timedelta | float | str | None = None) -> AsyncMessage | None:  # noqa: ASYNC109
        """Wait for the next message; see `Subscription.get`. Cancelling it loses no message."""
        seconds = math.inf if timeout is None else Interval.parse(timeout) / 1000
        return self._at_hand() or await self._wait_for_next(seconds)

    async def _wait_for_next(self, seconds: float) -> AsyncMessage | None:
        managed = self._managed
        until = time.monotonic() + seconds
        while not managed.is_given_back:
            is_taken = managed.turnstile.locked() or managed.lock.locked()
            if is_taken and not await managed.is_free_before(until):
                return None
            async with managed.lock:
                # Another one when it goes on at another instance.
                core = managed.core
                if core.inbox.buffer:
                    parts, body = core.inbox.buffer.popleft()
                    if not managed.elsewhere.bookmarks or not await managed.is_settled(parts):
                        return AsyncMessage(parts, body, core.leases, managed)
                    continue
                if core.registration.closed:
                    raise Closed("this subscription was closed")
                wait = min(until - time.monotonic(), _STEP)
                try:
                    await managed.store.run(core.inbox.fetch(managed.pipeline, max(wait, 0.0)))
                except Unavailable:
                    if not managed.is_moving:
                        raise
                if not core.inbox.buffer and time.monotonic() >= until:
                    return None
            if managed.is_moving:
                await asyncio.sleep(_MOVING)
        return None

    def _at_hand(self) -> AsyncMessage | None:
        """Return the next message where it is here already, and nobody has the subscription or waits for it: mostly."""
        managed = self._managed
        core = managed.core
        if not core.inbox.buffer or managed.is_given_back or managed.elsewhere.bookmarks:
            return None
        if managed.turnstile.locked() or managed.lock.locked():
            return None
        return AsyncMessage(*core.inbox.buffer.popleft(), core.leases, managed)

    async def __aiter__(self) -> AsyncIterator[AsyncMessage]:
        while not self._managed.core.registration.closed:
            try:
                message = self._at_hand()
                if message is None:
                    message = await self.get()
            except Closed:
                return
            if message is not None:
                yield message

    async def flush(self) -> None:
        """Send the acknowledgements collected so far, and wait until they are done."""
        await self._managed.store.run(self._managed.core.leases.flush())

    async def replace(
        self,
        *,
        name: str | None = None,
        max_backlog: int | None = None,
        filter: str | EllipsisType | None = ...,  # noqa: A002  (AMPS's word)
    ) -> None:
        """Ask for something else from now on; see `Subscription.replace`."""
        managed = self._managed
        async with managed.changing():
            core = managed.core
            core.registration.check_open()
            await managed.store.run(core.replace(managed.pipeline, name, max_backlog, filter))

    async def close(self) -> None:
        """End the subscription: acknowledgements are sent, messages not handed out go back uncounted."""
        await self._managed.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
