"""Pushed streams: queues with leases, topics and records, over WebSockets; topics also as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.responses import StreamingResponse
from starlette.websockets import WebSocketDisconnect, WebSocketState

from ampsq.base.errors import AmpsqError, Closed, DefinitionError
from ampsq.base.values import is_name, shown
from ampsq.client.async_partitioned_subscription import AsyncPartitionedSubscription
from ampsq.gateway.acknowledgements import DurableStream, LeasedStream, receive_text
from ampsq.gateway.json_messages import Problem, dumped, message_frame, problem_of
from ampsq.gateway.requests import asked, number_of, refusal
from ampsq.queues.async_subscription import AsyncManagedSubscription

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Message as ASGIMessage
    from starlette.types import Receive, Scope, Send
    from starlette.websockets import WebSocket

    from ampsq.gateway.acknowledgements import Acknowledging
    from ampsq.gateway.open_streams import OpenStream
    from ampsq.gateway.requests import RequestHandler
    from ampsq.gateway.rules import Bounds
    from ampsq.queues.async_subscription import Subscribing
    from ampsq.records.async_subscription import AsyncRecordSubscription
    from ampsq.topics.async_subscription import AsyncTopicSubscription

__all__ = ["Streams"]

_log = logging.getLogger("ampsq.gateway")
#: Seconds that one look for a message takes at most, and after which an idle stream of events says that it lives.
_LOOK: Final = 1.0
_SIGN: Final = 15.0
#: Codes of the WebSocket protocol.
_POLICY, _TOO_BIG, _FAILED, _LATER = 1008, 1009, 1011, 1013
_CLOSES: Final = {401: _POLICY, 403: _POLICY, 400: _POLICY, 409: _POLICY, 413: _TOO_BIG, 429: _LATER, 503: _LATER}


class Streams:
    """Subscriptions of those who came in at a desk.

    Args:
        desk: it knows who asks and what is allowed.
    """

    def __init__(self, desk: RequestHandler) -> None:
        self._desk = desk

    @property
    def _bounds(self) -> Bounds:
        return self._desk.rules.bounds

    async def end(self, within: float) -> None:
        """End all, each told so; what they hold goes back. Gives up after so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._desk.streams.end(Problem(503, "Closed", "the gateway ends"))

    async def subscribe(self, socket: WebSocket) -> None:
        """Serve a subscription to a queue, or to a topic."""
        is_queue = "queue" in socket.query_params
        await self._serve(socket, self._queue if is_queue else self._topic)

    async def sow_and_subscribe(self, socket: WebSocket) -> None:
        """Serve the records of a topic and what changes them."""
        await self._serve(socket, self._records)

    async def _serve(self, socket: WebSocket, serve: Callable[[WebSocket, OpenStream], Awaitable[None]]) -> None:
        """Serve one socket to its end; whatever happens, it is closed with the reason, and holds nothing any more."""
        try:
            async with asyncio.timeout(self._bounds.request_timeout):
                try:
                    user = await self._desk.user(socket)
                except Problem as unknown:
                    await socket.send_denial_response(refusal(unknown))
                    return
                await socket.accept()
            with self._desk.stream(user) as stream:
                await self._report_end(socket, stream, serve(socket, stream))
                await self._close(socket, None)
        except (WebSocketDisconnect, asyncio.CancelledError):
            # Nobody is there any more, or the gateway ends.
            return
        except Exception as error:  # noqa: BLE001  (told to whoever is at the other end)
            await self._close(socket, _problem(error))

    async def _close(self, socket: WebSocket, problem: Problem | None) -> None:
        with contextlib.suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
            async with asyncio.timeout(self._bounds.send_timeout):
                if problem is None:
                    await socket.close()
                    return
                await socket.send_text(dumped(problem.as_dict()))
                await socket.close(_CLOSES.get(problem.status, _FAILED), problem.error)

    async def _report_end(self, socket: WebSocket, stream: OpenStream, serving: Awaitable[None]) -> None:
        """Serve a stream; why it is to end is told while what it held is given back.

        That takes as long as the server is away.
        """

        async def tell() -> None:
            await stream.is_over.wait()
            await self._close(socket, stream.problem)

        telling = asyncio.create_task(tell())
        try:
            await serving
        finally:
            if not stream.is_over.is_set():
                telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _send(self, socket: WebSocket, facts: dict[str, object]) -> None:
        try:
            async with asyncio.timeout(self._bounds.send_timeout):
                await socket.send_text(dumped(facts))
        except RuntimeError:
            if socket.application_state is not WebSocketState.DISCONNECTED:
                raise
            # The frame before this one, which was sent beside it, found nobody there.
            raise WebSocketDisconnect(1006) from None
        except TimeoutError:
            text = f"nothing was taken for {self._bounds.send_timeout:g} s (send_timeout); read faster, or ask for less"
            raise Problem(429, "SlowClient", text) from None

    # -- queues

    async def _queue(self, socket: WebSocket, stream: OpenStream) -> None:
        given = asked(socket, {"queue", "filter", "max_backlog"})
        name = _name(given, "queue")
        backlog = number_of(given, "max_backlog", self._bounds.max_backlog, least=1, default=1)
        text = stream.reads(self._desk.rules, name, given.get("filter"))
        # Never a topic in its stead: that would be without leases.
        if name not in await self._desk.client.admin.queues():
            raise Problem(404, "UnknownQueue", f"{name!r} is no queue here; a topic is subscribed to with topic=")
        async with self._desk.client.subscribe(name, max_backlog=backlog, filter=text) as subscription:
            acknowledge: Acknowledging = (
                subscription.acknowledge_all
                if isinstance(subscription, AsyncPartitionedSubscription)
                else AsyncManagedSubscription.of(subscription).acknowledge_all
            )
            session = LeasedStream(socket, partial(self._send, socket), subscription, acknowledge)
            await _do(stream, session.push(), session.take_orders())

    # -- topics and records

    async def _topic(self, socket: WebSocket, stream: OpenStream) -> None:
        given = asked(socket, {"topic", "filter", "bookmark", "sub_id", "max_backlog"})
        if "sub_id" in given:
            await self._durable(socket, stream, given)
            return
        if "max_backlog" in given:
            raise DefinitionError("max_backlog goes with queue=, or with sub_id=, whose messages are acknowledged")
        async with await self._reading(stream, given) as subscription:
            await _do(stream, self._push(socket, given["topic"], subscription), _drain(socket))

    async def _durable(self, socket: WebSocket, stream: OpenStream, given: dict[str, str]) -> None:
        most = self._bounds.max_backlog
        backlog = number_of(given, "max_backlog", most, least=1, default=most)
        topic, text = await self._topic_to_read(stream, given)
        async with self._desk.client.subscribe_topic(
            topic,
            bookmark=given.get("bookmark") or "most_recent",
            filter=text,
            sub_id=_own(stream.user, _name(given, "sub_id")),
            auto_ack=False,
        ) as subscription:
            session = DurableStream(socket, partial(self._send, socket), subscription, backlog)
            await _do(stream, session.push(), session.take_orders())

    async def _push(self, socket: WebSocket, topic: str, subscription: AsyncTopicSubscription) -> None:
        told_last, positions = "", self._positions(subscription)
        while told_last != "completed":
            facts = await _next(topic, subscription)
            if facts is not None:
                await self._send(socket, facts)
                told_last = str(facts["type"])
            if (position := positions.due(is_idle=facts is None)) is not None:
                await self._send(socket, {"type": "position", "position": position})

    def _positions(self, subscription: AsyncTopicSubscription) -> _Positions:
        return _Positions(subscription if self._desk.client.partitions else None)

    async def _reading(self, stream: OpenStream, given: dict[str, str]) -> Subscribing[AsyncTopicSubscription]:
        """The subscription to a topic that is asked for."""
        topic, text = await self._topic_to_read(stream, given)
        return self._desk.client.subscribe_topic(topic, bookmark=given.get("bookmark") or "now", filter=text)

    async def _topic_to_read(self, stream: OpenStream, given: dict[str, str]) -> tuple[str, str | None]:
        """The topic and the filter to read it with."""
        topic = _name(given, "topic")
        text = stream.reads(self._desk.rules, topic, given.get("filter"))
        # Read as topics, a queue's name means all that its topics ever had.
        if topic in await self._desk.client.admin.queues() and topic not in await self._desk.client.admin.topics():
            raise Problem(404, "UnknownTopic", f"{topic!r} is a queue here; it is subscribed to with queue=")
        return topic, text

    async def _records(self, socket: WebSocket, stream: OpenStream) -> None:
        given = asked(socket, {"topic", "filter", "oof", "order_by", "top_n"})
        topic, rules = _name(given, "topic"), self._desk.rules
        text = stream.reads(rules, topic, given.get("filter"))
        # What left the view may be what the user must not see.
        hidden = {"data", "base64", "headers"} if rules.entitlements.filters(stream.user, "read", topic) else set()
        if given.get("oof", "false") not in ("true", "false"):
            raise DefinitionError(f"oof={shown(given['oof'])}: allowed are true and false")
        top = number_of(given, "top_n", self._bounds.max_answer, least=1) if "top_n" in given else None
        async with self._desk.client.sow_and_subscribe(
            topic, text, order_by=given.get("order_by", ()), oof=given.get("oof") == "true", top_n=top
        ) as changes:
            await _do(stream, self._push_changes(socket, changes, hidden), _drain(socket))

    async def _push_changes(self, socket: WebSocket, changes: AsyncRecordSubscription, hidden: set[str]) -> None:
        while True:
            change = await changes.get(_LOOK)
            if change is not None:
                facts = message_frame(change)
                left = hidden if facts["type"] == "oof" else set()
                await self._send(socket, {name: value for name, value in facts.items() if name not in left})

    # -- server-sent events

    async def events(self, request: Request) -> Response:
        """A topic as server-sent events: each has its bookmark as its ID, so that a browser goes on behind it."""
        held = contextlib.AsyncExitStack()
        try:
            async with asyncio.timeout(self._bounds.request_timeout):
                user = await self._desk.user(request)
                given = asked(request, {"topic", "filter", "bookmark"})
                if last := request.headers.get("last-event-id"):
                    given["bookmark"] = last
                stream = held.enter_context(self._desk.stream(user))
                subscription = await held.enter_async_context(await self._reading(stream, given))
                # What is refused is refused before anything is answered.
                first = await _next(given["topic"], subscription)
        except BaseException as error:
            await held.aclose()
            if not isinstance(error, Exception):
                raise
            return refusal(error)
        events = _server_sent_events(first, given["topic"], subscription, stream, self._positions(subscription))
        return _Events(events, held, self._bounds.send_timeout)


class _Events(StreamingResponse):
    """Server-sent events, until nobody reads them; whatever happens, what is held for them is let go of."""

    def __init__(self, events: AsyncIterator[str], held: contextlib.AsyncExitStack, within: float) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._held, self._within = held, within

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them, each within the time that a subscriber has to take it."""

        async def send_in_time(message: ASGIMessage) -> None:
            async with asyncio.timeout(self._within):
                await send(message)

        async with self._held:
            try:
                await super().__call__(scope, receive, send_in_time)
            except TimeoutError:
                _log.info("a reader of events took nothing for %g s (send_timeout), and is closed", self._within)


async def _next(topic: str, subscription: AsyncTopicSubscription) -> dict[str, object] | None:
    """Return the next frame of a topic; None: nothing came for a while."""
    if subscription.completed:
        return {"type": "completed", "topic": topic}
    message = await subscription.get(_LOOK)
    return None if message is None else message_frame(message)


class _Positions:
    """Positions of a subscription to a topic of all partitions: another subscription can begin at each of them.

    A message's bookmark is a place in one partition. A position has a bookmark for each partition, and is long, so the
    gateway sends it each second, and when no message comes.

    Args:
        subscription: the subscription; None: of an instance without partitions, whose messages' bookmarks say it.
    """

    def __init__(self, subscription: AsyncTopicSubscription | None) -> None:
        self.are_told = subscription is not None
        self._subscription, self._told, self._next = subscription, "", time.monotonic() + _LOOK

    def due(self, *, is_idle: bool) -> str | None:
        """Return the position, where it has changed and is to be told now."""
        if self._subscription is None or not (is_idle or time.monotonic() >= self._next):
            return None
        self._next = time.monotonic() + _LOOK
        try:
            position = self._subscription.position
        except DefinitionError:
            # Of ranges nothing goes on.
            self._subscription = None
            return None
        if position == self._told:
            return None
        self._told = position
        return position


async def _server_sent_events(
    first: dict[str, object] | None,
    topic: str,
    subscription: AsyncTopicSubscription,
    stream: OpenStream,
    positions: _Positions,
) -> AsyncIterator[str]:
    clock, signed, facts = asyncio.get_running_loop().time, 0.0, first
    while not stream.is_over.is_set():
        if facts is not None:
            has_place = facts.get("bookmark") and not positions.are_told
            mark = f"id: {facts['bookmark']}\n" if has_place else ""
            yield f"{mark}event: {facts['type']}\ndata: {dumped(facts)}\n\n"
            if facts["type"] == "completed":
                return
        elif clock() >= signed + _SIGN:
            signed = clock()
            yield ":\n\n"
        if (position := positions.due(is_idle=facts is None)) is not None:
            yield f"id: {position}\nevent: position\ndata: {dumped({'type': 'position', 'position': position})}\n\n"
        try:
            facts = await _next(topic, subscription)
        except AmpsqError as error:
            stream.end(_problem(error))
    if stream.problem is not None:
        yield f"event: error\ndata: {dumped(stream.problem.as_dict())}\n\n"


async def _do(stream: OpenStream, *doing: Awaitable[object]) -> None:
    """Do all until one ends or fails, or the stream is to end; then none is done any more."""
    tasks = [asyncio.ensure_future(each) for each in (*doing, stream.is_over.wait())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            with contextlib.suppress(Closed):
                task.result()
    except (AmpsqError, Problem) as error:
        stream.end(_problem(error))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _drain(socket: WebSocket) -> None:
    """Wait until the subscriber goes; what it says is not asked for."""
    while True:
        await receive_text(socket)


def _problem(error: Exception) -> Problem:
    """Return the problem to send for the end of a subscription; a fault of ours is logged."""
    problem = problem_of(error)
    if problem.status == 500:  # noqa: PLR2004 - ours
        _log.error("a subscription failed", exc_info=error)
    return problem


def _own(user: str, sub_id: str) -> str:
    """The name of a durable subscription, which is its user's own, whatever others call theirs.

    Raises:
        DefinitionError: it is too long.
    """
    # With the length, so that no user's name and subscription read like another's.
    name = f"gateway/{len(user)}/{user}/{sub_id}"
    if not is_name(name):
        raise DefinitionError(
            f"sub_id={shown(sub_id)}: allowed is a name, with the user's one of 240 characters at most"
        )
    return name


def _name(given: dict[str, str], element: str) -> str:
    name = given.get(element, "")
    if not is_name(name):
        raise DefinitionError(f"{element}={shown(name)}: allowed is one name, in full")
    return name
