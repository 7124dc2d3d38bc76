"""A subscription of the asyncio client: ``async for`` over it, or await `get`."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, Self, TypeVar

from ampsq.base.errors import AmpsqError, Closed, Unavailable
from ampsq.base.values import Interval
from ampsq.queues.handlers import call_handler
from ampsq.queues.message import AsyncMessage
from ampsq.queues.returns import failure_text
from ampsq.queues.subscription_view import SubscriptionView

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Sequence
    from datetime import timedelta
    from types import EllipsisType

    from ampsq.base.errors import Rejected
    from ampsq.protocol.calls.queues import Verb
    from ampsq.protocol.context import ClientContext
    from ampsq.queues.heartbeat import Keepalive
    from ampsq.queues.subscription_core import SubscriptionCore
    from ampsq.transport.async_store import AsyncStore

__all__ = ["AsyncSubscription", "Subscribing"]


class _Closable(Protocol):
    async def close(self) -> None: ...


Made = TypeVar("Made", bound=_Closable)
_log = logging.getLogger("ampsq")
_STEP = 1.0
#: Seconds between two looks whether a subscription has gone on at another instance.
_MOVING = 0.02


class Subscribing(Generic[Made]):
    """A subscription in the making: await it, or enter it with ``async with``."""

    def __init__(self, making: Coroutine[Any, Any, Made], to: str) -> None:
        self._making, self._to = making, to
        self._made: Made | None = None

    def __repr__(self) -> str:
        return f"<Subscribing to {self._to}: await it, or enter it with `async with`>"

    def __await__(self) -> Generator[Any, Any, Made]:
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


class AsyncSubscription(SubscriptionView):
    """Messages pushed to one consumer: ``async for`` over it, or await `get`. Made by `AsyncClient.subscribe`."""

    def __init__(
        self,
        core: SubscriptionCore,
        store: AsyncStore,
        origin: str,
        end: Callable[[AsyncSubscription, SubscriptionCore], None],
    ) -> None:
        super().__init__(core, origin)
        self._store, self._end = store, end
        self._pipeline = store.pipeline()
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None

    async def get(self, timeout: timedelta | float | str | None = None) -> AsyncMessage | None:  # noqa: ASYNC109
        """Wait for the next message; see `Subscription.get`. Cancelling it loses no message."""
        until = None if timeout is None else time.monotonic() + Interval.parse(timeout) / 1000
        while True:
            async with self._lock:
                # Another one when it goes on at another instance.
                buffer = self._core.buffer
                if buffer:
                    message = AsyncMessage(*buffer.popleft(), self._origin, self)
                    if not self._settled or not await self._is_settled(message):
                        return message
                    continue
                self._check_open()
                wait = _STEP if until is None else min(until - time.monotonic(), _STEP)
                try:
                    await self._store.run(self._core.fetch(self._pipeline, max(wait, 0.0)))
                except Unavailable:
                    if not self._is_moving:
                        raise
                if not buffer and until is not None and time.monotonic() >= until:
                    return None
            if self._is_moving:
                await asyncio.sleep(_MOVING)

    async def __aiter__(self) -> AsyncIterator[AsyncMessage]:
        while not self._core.closed:
            try:
                message = await self.get()
            except Closed:
                return
            if message is not None:
                yield message

    async def prepare_failover(
        self, store: AsyncStore, client: ClientContext, keepalive: Keepalive
    ) -> Callable[[], Awaitable[None]]:
        """Subscribe at another instance; see `Subscription.prepare_failover`."""
        core = self._core.copy_for(client.instance, client.request())
        await store.run(core.register())
        return partial(self._resume_at, core, store, client, keepalive)

    async def _resume_at(
        self, core: SubscriptionCore, store: AsyncStore, client: ClientContext, keepalive: Keepalive
    ) -> None:
        core.keep_again()
        keepalive.add(core)
        async with self._lock:
            await self._pipeline.close()
            self._store, self._pipeline = store, store.pipeline()
            self._go_on(core, client.origin)

    async def _is_settled(self, message: AsyncMessage) -> bool:
        """Acknowledge what was acknowledged before, at another instance."""
        if not self._was_settled(message):
            return False
        await self.acknowledge(message, wait=False)
        return True

    async def replace(
        self,
        *,
        name: str | None = None,
        max_backlog: int | None = None,
        filter: str | EllipsisType | None = ...,  # noqa: A002  (AMPS's word)
    ) -> None:
        """Ask for something else from now on; see `Subscription.replace`."""
        core = self._core
        async with self._lock:
            self._check_open()
            await self._store.run(core.replace(self._pipeline, *core.spec_with(name, max_backlog, filter)))

    async def give_back(self) -> None:
        """Ask for no more messages, and return those not handed out, uncounted."""
        async with self._lock:
            await self._store.run(self._core.give_back(self._pipeline))

    def run(self, on_message: Callable[[AsyncMessage], object]) -> None:
        """Call a function with each message, and await it, in a task, until the subscription is closed."""
        self._task = asyncio.create_task(self._run(on_message), name=f"ampsq-{self.id}")

    async def _run(self, on_message: Callable[[AsyncMessage], object]) -> None:
        async for message in self:
            try:
                await call_handler(on_message, message)
            except Exception as error:  # noqa: BLE001  (whatever a handler raises is an answer)
                _log.exception("handler of %r failed; its message is cancelled", message)
                try:
                    await message.cancel(reason=failure_text(error))
                except AmpsqError as lost:
                    _log.warning("%r could not be cancelled: %s", message, lost)

    async def acknowledge(self, message: AsyncMessage, *, wait: bool) -> None:
        """See `Message.ack`."""
        if self._is_elsewhere(message, acknowledged=True):
            if wait:
                raise self._leased_elsewhere(message)
            return
        if self._core.closed and not wait:
            raise Closed("this subscription was closed, and its unacknowledged messages went back to their queues")
        if wait:
            await self._settle_here(message, "acknowledged", None, None)
        elif self._core.acknowledge(message) and not self._core.buffer:
            await self._store.run(self._core.send_acks())

    async def acknowledge_all(self, messages: Sequence[AsyncMessage]) -> list[Rejected | None]:
        """Acknowledge messages of one queue, 500 at most, in one call; gives what is refused of each, in order."""
        answers: list[Rejected | None] = [
            self._leased_elsewhere(each) if self._is_elsewhere(each, acknowledged=True) else None for each in messages
        ]
        here = [each for each, answer in zip(messages, answers, strict=True) if answer is None]
        if here:
            refused = dict(zip(here, await self._store.run(self._core.acknowledge_all(here)), strict=True))
            answers = [answer or refused[each] for each, answer in zip(messages, answers, strict=True)]
        for each, answer in zip(messages, answers, strict=True):
            each.settled = answer is None
        return answers

    async def settle(self, message: AsyncMessage, verb: Verb, period: int | None, reason: str | None = None) -> None:
        """See `Message.cancel`, `Message.expire` and `Message.extend`."""
        if self._is_elsewhere(message):
            raise self._leased_elsewhere(message)
        await self._settle_here(message, verb, period, reason)

    async def _settle_here(self, message: AsyncMessage, verb: Verb, period: int | None, reason: str | None) -> None:
        """See `Subscription._settle_here`."""
        store = self._store
        try:
            await store.run(self._core.settle(message, verb, period, reason))
        except Unavailable as lost:
            if not store.route.left:
                raise
            raise self._left_behind(message, acknowledged=verb == "acknowledged") from lost

    async def flush(self) -> None:
        """Send the acknowledgements collected so far, and wait until they are done."""
        await self._store.run(self._core.flush())

    async def close(self) -> None:
        """End the subscription: acknowledgements are sent, messages not handed out go back uncounted."""
        if self._core.closed:
            return
        self._core.closed = True
        try:
            async with self._lock:
                try:
                    await self._store.run(self._core.close(self._pipeline))
                finally:
                    await self._pipeline.close()
        except asyncio.CancelledError:
            # Another task may be at work on it.
            self._leaving = asyncio.create_task(self._leave())
            raise
        except BaseException:
            self._end(self, self._core)
            raise
        self._end(self, self._core)

    async def _leave(self) -> None:
        """Close what closing left open, and let the client's own thread end the subscription."""
        async with self._lock:
            await self._pipeline.close()
        self._core.give_up()
        self._end(self, self._core)

    def abandon(self, keepalive: Keepalive) -> None:
        """Let the client's own thread end it: closing the client was cancelled."""
        self._core.closed = True
        self._core.give_up()
        keepalive.remove(self._core)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
