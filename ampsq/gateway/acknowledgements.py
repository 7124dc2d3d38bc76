"""Acknowledgements of pushed messages by their subscriber: handled, given back, needed longer."""

from __future__ import annotations

import abc
import asyncio
import itertools
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from starlette.websockets import WebSocketDisconnect

from ampsq.base.errors import AmpsqError, DefinitionError
from ampsq.base.values import shown
from ampsq.gateway.frames import Cancel, Extend, read_handled, read_order
from ampsq.gateway.json_messages import leased_frame, loaded, message_frame, problem_of
from ampsq.protocol.limits import BATCH
from ampsq.queues.async_subscription import AsyncMessage
from ampsq.topics.async_subscription import AsyncTopicMessage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.websockets import WebSocket

    from ampsq.gateway.frames import Ack, Expire, Handled, Order
    from ampsq.queues.async_subscription import AsyncSubscription
    from ampsq.topics.async_subscription import AsyncTopicSubscription

    Acknowledging = Callable[[Sequence[AsyncMessage]], Awaitable[Sequence[AmpsqError | None]]]
    Sending = Callable[[dict[str, Any]], Awaitable[None]]

__all__ = ["DurableStream", "LeasedStream", "receive_text"]

Held = TypeVar("Held", AsyncMessage, AsyncTopicMessage)
#: Seconds that one look for a message takes at most.
_LOOK: Final = 1.0
#: Messages of a subscription that are known by their number, in backlogs: leases that lapsed, too.
_REMEMBERED: Final = 4


class _Frame(NamedTuple):
    """A frame of a subscriber: an order, or what is wrong with it."""

    number: int | None
    order: Order | Handled | None = None
    wrong: AmpsqError | None = None

    @property
    def is_ack(self) -> bool:
        return self.order is not None and self.order.do == "ack"


async def receive_text(socket: WebSocket) -> str | bytes:
    """Receive a subscriber's frame, as text or not.

    Raises:
        WebSocketDisconnect: it has gone.
    """
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1005))
    found: str | bytes = message.get("text") or message.get("bytes") or b""
    return found


class _Orders(abc.ABC, Generic[Held]):
    """One subscription: what it holds, by the numbers that its subscriber has of it.

    Args:
        socket: on which the subscriber speaks.
        send: sends it something.
    """

    def __init__(self, socket: WebSocket, send: Sending) -> None:
        self._socket, self._to = socket, send
        self._numbers = itertools.count(1)
        self._held: dict[int, Held] = {}
        self._sending = asyncio.Lock()

    async def take_orders(self) -> None:
        """Do what the subscriber says, in its order, each order answered.

        Acknowledgements that are here by then are done in one call: those that came while others were done.
        """
        waiting: asyncio.Queue[_Frame | None] = asyncio.Queue(BATCH)
        reading = asyncio.create_task(self._read(waiting))
        try:
            while True:
                said = [await waiting.get()]
                while not waiting.empty() and len(said) < BATCH:
                    said.append(waiting.get_nowait())
                for is_ack, run in itertools.groupby(said, lambda each: each is not None and each.is_ack):
                    some = [each for each in run if each is not None]
                    await (self._answer_all(some) if is_ack else self._answer_each(some))
                if said[-1] is None:
                    raise WebSocketDisconnect(1005)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, waiting: asyncio.Queue[_Frame | None]) -> None:
        try:
            while True:
                await waiting.put(self._read_frame(await receive_text(self._socket)))
        except WebSocketDisconnect:
            # What was said before is done.
            await waiting.put(None)

    def _read_frame(self, text: str | bytes) -> _Frame:
        given = None
        try:
            given = loaded(text)
            order = self._order(given)
        except AmpsqError as error:
            number = given.get("id") if isinstance(given, dict) else None
            # Infinity, of which Python makes a number, is none that JSON has.
            return _Frame(number if type(number) is int else None, wrong=error)
        return _Frame(order.id, order)

    async def _answer_all(self, said: list[_Frame]) -> None:
        orders = [each.order for each in said if each.order is not None]
        for order, wrong in zip(orders, await self._acknowledge(orders), strict=True):
            await self._answer(order.id, order, wrong)

    async def _answer_each(self, said: list[_Frame]) -> None:
        for number, order, wrong in said:
            error = wrong
            if order is not None:
                try:
                    await self._do(order)
                except AmpsqError as refused:
                    error = refused
            await self._answer(number, order, error)

    async def _answer(self, number: int | None, order: Order | Handled | None, wrong: AmpsqError | None) -> None:
        if wrong is not None:
            await self._send({**problem_of(wrong).as_dict(), "id": number})
        elif order is not None:
            await self._send({"type": "settled", "do": order.do, "id": number})

    @abc.abstractmethod
    def _order(self, given: Any) -> Order | Handled:
        """Read an order; raises DefinitionError."""

    @abc.abstractmethod
    async def _acknowledge(self, orders: list[Any]) -> list[AmpsqError | None]:
        """Do acknowledgements; gives what is refused of each."""

    async def _do(self, order: Any) -> None:
        """Do what is no acknowledgement."""

    @staticmethod
    def _unknown(number: int) -> DefinitionError:
        return DefinitionError(f"id {shown(number)} is held by nobody here; allowed: the id of a message, once")

    async def _send(self, facts: dict[str, Any]) -> None:
        async with self._sending:
            await self._to(facts)


class LeasedStream(_Orders[AsyncMessage]):
    """A subscription to a queue, whose messages are leased.

    Args:
        subscription: the subscription.
        acknowledge_all: acknowledges messages of it in one call; gives what is refused of each.
    """

    def __init__(
        self, socket: WebSocket, send: Sending, subscription: AsyncSubscription, acknowledge_all: Acknowledging
    ) -> None:
        super().__init__(socket, send)
        self._subscription, self._acknowledge_all = subscription, acknowledge_all

    async def push(self) -> None:
        """Send what is delivered, as far as the backlog allows."""
        await self._send({"type": "subscribed", "max_backlog": self._subscription.max_backlog})
        while True:
            message = await self._subscription.get(_LOOK)
            if message is None:
                continue
            number = next(self._numbers)
            if not message.is_barrier:
                self._held[number] = message
            # What lapsed is not told, and must not pile up.
            while len(self._held) > self._subscription.max_backlog * _REMEMBERED:
                del self._held[next(iter(self._held))]
            await self._send(leased_frame(message, number))

    def _order(self, given: Any) -> Order:
        return read_order(given)

    async def _acknowledge(self, orders: list[Ack]) -> list[AmpsqError | None]:
        answers: dict[int, AmpsqError | None] = {}
        messages: dict[int, AsyncMessage] = {}
        for place, order in enumerate(orders):
            if order.id in self._held:
                # Whatever comes of it, the lease is not held here any more.
                messages[place] = self._held.pop(order.id)
            else:
                answers[place] = self._unknown(order.id)
        if messages:
            refused: Sequence[AmpsqError | None]
            try:
                refused = await self._acknowledge_all(list(messages.values()))
            except AmpsqError as error:
                refused = [error] * len(messages)
            answers |= zip(messages, refused, strict=True)
        return [answers[place] for place in range(len(orders))]

    async def _do(self, order: Cancel | Expire | Extend) -> None:
        if order.id not in self._held:
            raise self._unknown(order.id)
        if isinstance(order, Extend):
            await self._held[order.id].extend(order.period)
            return
        message = self._held.pop(order.id)
        if isinstance(order, Cancel):
            await message.cancel(order.delay, reason=order.reason)
        else:
            await message.expire(reason=order.reason)


class DurableStream(_Orders[AsyncTopicMessage]):
    """A durable subscription to a topic: what its subscriber has handled is kept at the server.

    Args:
        subscription: durable, and told of each message that is handled.
        backlog: messages that may be pushed and not handled.
    """

    def __init__(self, socket: WebSocket, send: Sending, subscription: AsyncTopicSubscription, backlog: int) -> None:
        super().__init__(socket, send)
        self._subscription, self._backlog = subscription, backlog
        self._has_room = asyncio.Event()

    async def push(self) -> None:
        """Send what comes, as far as the backlog allows, until the end of what was asked for."""
        await self._send({"type": "subscribed", "max_backlog": self._backlog})
        subscription = self._subscription
        while not (subscription.completed and not self._held):
            if len(self._held) >= self._backlog or subscription.completed:
                await self._wait_for_room()
                continue
            message = await subscription.get(_LOOK)
            if message is not None:
                number = next(self._numbers)
                self._held[number] = message
                await self._send({**message_frame(message), "id": number})
        await self._send({"type": "completed"})

    async def _wait_for_room(self) -> None:
        self._has_room.clear()
        try:
            async with asyncio.timeout(_LOOK):
                await self._has_room.wait()
        except TimeoutError:
            # It keeps its hold on the logs as long as it is asked.
            self._subscription.pause()
            await self._subscription.get(0)
            self._subscription.resume()

    def _order(self, given: Any) -> Handled:
        return read_handled(given)

    async def _acknowledge(self, orders: list[Handled]) -> list[AmpsqError | None]:
        answers: list[AmpsqError | None] = []
        handled: dict[int, AsyncTopicMessage] = {}
        for order in orders:
            if order.id in handled or order.id not in self._held:
                answers.append(self._unknown(order.id))
                continue
            answers.append(None)
            numbers = [each for each in self._held if each <= order.id] if order.up_to else [order.id]
            handled |= {each: self._held[each] for each in numbers}
        try:
            for message in handled.values():
                await message.ack()
            # Told when it is written down; what was not, is acknowledged again.
            if handled:
                await self._subscription.flush()
        except AmpsqError as error:
            return [answer or error for answer in answers]
        for each in handled:
            del self._held[each]
        self._has_room.set()
        return answers
