"""What a subscriber says of the messages that were pushed to it: handled, given back, needed longer."""

from __future__ import annotations

import abc
import asyncio
import itertools
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from starlette.websockets import WebSocketDisconnect

from ampsq.errors import AmpsqError, DefinitionError
from ampsq.gateway.wire import leased, loaded, problem_of, told
from ampsq.messages.returns import checked_reason
from ampsq.subscriptions.delivery import AsyncMessage
from ampsq.topics.topic_message import AsyncTopicMessage
from ampsq.values import shown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.websockets import WebSocket

    from ampsq.subscriptions.async_subscription import AsyncSubscription
    from ampsq.topics.topic_subscription import AsyncTopicSubscription

    Sending = Callable[[dict[str, Any]], Awaitable[None]]

__all__ = ["Handling", "Leases", "said_by"]

Held = TypeVar("Held", AsyncMessage, AsyncTopicMessage)
#: Seconds that one look for a message takes at most.
_LOOK: Final = 1.0
#: Messages of a subscription that are known by their number, in backlogs: leases that lapsed, too.
_REMEMBERED: Final = 4
_VERBS: Final = ("ack", "cancel", "expire", "extend")


async def said_by(socket: WebSocket) -> str | bytes:
    """What a subscriber says, as text or not.

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
        """Do what the subscriber says, each order answered."""
        while True:
            said, given = await said_by(self._socket), None
            try:
                given = loaded(said)
                await self._send(await self._done(given))
            except AmpsqError as error:
                number = given.get("id") if isinstance(given, dict) else None
                # Infinity, of which Python makes a number, is none that JSON has.
                known = number if isinstance(number, int) else None
                await self._send({**problem_of(error).as_dict(), "id": known})

    @abc.abstractmethod
    async def _done(self, given: Any) -> dict[str, Any]:
        """Do it, and say so."""

    def _number(self, given: dict[str, Any]) -> int:
        number = given.get("id")
        if not isinstance(number, int) or number not in self._held:
            raise DefinitionError(f"id {shown(number)} is held by nobody here; allowed: the id of a message, once")
        return number

    async def _send(self, facts: dict[str, Any]) -> None:
        async with self._sending:
            await self._to(facts)


class Leases(_Orders[AsyncMessage]):
    """A subscription to a queue, whose messages are leased."""

    def __init__(self, socket: WebSocket, send: Sending, subscription: AsyncSubscription) -> None:
        super().__init__(socket, send)
        self._subscription = subscription

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
            await self._send(leased(message, number))

    async def _done(self, given: Any) -> dict[str, Any]:
        if (
            not isinstance(given, dict)
            or given.get("do") not in _VERBS
            or given.keys() - {"do", "id", "delay", "period", "reason"}
        ):
            raise DefinitionError(
                f'{shown(given)}: allowed is {{"do": "ack", "id": 1}}, or "cancel" with "delay", "expire", '
                'both perhaps with "reason", and "extend" with "period"'
            )
        verb, number = given["do"], self._number(given)
        message = self._held[number]
        checked_reason(given.get("reason"))
        if verb == "extend":
            await message.extend(given.get("period"))  # type: ignore[arg-type]  # it refuses what is none
        else:
            # Whatever comes of it, the lease is not held here any more.
            del self._held[number]
            await self._end(message, verb, given)
        return {"type": "settled", "do": verb, "id": number}

    @staticmethod
    async def _end(message: AsyncMessage, verb: str, given: dict[str, Any]) -> None:
        if verb == "ack":
            await message.ack(wait=True)
        elif verb == "cancel":
            await message.cancel(given.get("delay"), reason=given.get("reason"))
        else:
            await message.expire(reason=given.get("reason"))


class Handling(_Orders[AsyncTopicMessage]):
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
                await self._send({**told(message), "id": number})
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

    async def _done(self, given: Any) -> dict[str, Any]:
        if not isinstance(given, dict) or given.get("do") != "ack" or given.keys() - {"do", "id", "up_to"}:
            raise DefinitionError(
                f'{shown(given)}: allowed is {{"do": "ack", "id": 1}}, or with "up_to": true for all up to this one'
            )
        up_to, number = given.get("up_to", False), self._number(given)
        if not isinstance(up_to, bool):
            raise DefinitionError(f"up_to: {shown(up_to)}; allowed: true or false")
        numbers = [each for each in self._held if each <= number] if up_to else [number]
        *others, last = [self._held[each] for each in numbers]
        for message in others:
            await message.ack()
        # Told when it is written down; what was not, is acknowledged again.
        await last.ack(wait=True)
        for each in numbers:
            del self._held[each]
        self._has_room.set()
        return {"type": "settled", "do": "ack", "id": number}
