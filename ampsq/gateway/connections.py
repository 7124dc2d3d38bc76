"""The connections of a gateway: none is kept for who asks nothing, takes nothing, or is not there any more."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from uvicorn.config import Config
    from uvicorn.server import ServerState
    from websockets.frames import Frame

    from ampsq.gateway.rules import Bounds

__all__ = ["LONGEST_ORDER", "Requests", "Sockets"]

LONGEST_ORDER: Final = 64 * 2**10
"""Bytes of what a subscriber says: all that it says is short."""

#: Frames that one message may be cut into.
_FRAMES: Final = 64


class _Watch:
    """Looks at one connection from time to time, and cuts it when nothing moves that should.

    Args:
        waits_for: what its peer is to send next, another thing after each; None: it is our turn.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        bounds: Callable[[], Bounds],
        waits_for: Callable[[], object],
    ) -> None:
        self._loop, self._transport, self._bounds, self._waits_for = loop, transport, bounds, waits_for
        self._left, self._has_moved = 0, True
        self._awaited: object = None
        self._since = loop.time()
        self._timer = loop.call_later(bounds().send_timeout, self._look)

    def moved(self) -> None:
        """Something of what waited was taken."""
        self._has_moved = True

    def stop(self) -> None:
        """Stop the timer: the connection is over, or another one's."""
        self._timer.cancel()

    def _look(self) -> None:
        bounds, now, left = self._bounds(), self._loop.time(), self._transport.get_write_buffer_size()
        is_stuck = left > 0 and left >= self._left > 0 and not self._has_moved
        self._left, self._has_moved = left, False
        awaited = self._waits_for()
        if awaited is None or awaited is not self._awaited:
            self._awaited, self._since = awaited, now
        if is_stuck or now - self._since >= bounds.request_timeout:
            # What is not taken by now is not waited for: closing would.
            self._transport.abort()
            return
        self._timer = self._loop.call_later(bounds.send_timeout, self._look)


class Requests(H11Protocol):
    """A connection of HTTP.

    Args:
        bounds: gives those that hold now.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        bounds: Callable[[], Bounds],
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._bounds = bounds
        self._watch: _Watch | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Begin to watch."""
        super().connection_made(transport)
        # Asyncio does it only for sockets that name their protocol, which those of a listening one do not; without it
        # each answer waits some 40 ms for the acknowledgement of its head.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._watch = _Watch(self.loop, transport, self._bounds, self._awaited_head)

    def _awaited_head(self) -> object:
        if self.cycle is None:
            return self.conn
        return self.cycle if self.cycle.response_complete else None

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is to be watched any more."""
        if self._watch is not None:
            self._watch.stop()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        """The peer has taken something."""
        if self._watch is not None:
            self._watch.moved()
        super().resume_writing()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection on, unless there are too many."""
        if self.limit_concurrency is not None and len(self.connections) > self.limit_concurrency:
            headers = [(b"content-length", b"0"), (b"connection", b"close")]
            answer = self.conn.send(h11.Response(status_code=503, headers=headers, reason=b"Service Unavailable"))
            self.transport.write((answer or b"") + (self.conn.send(h11.EndOfMessage()) or b""))
            self.transport.close()
            return
        if self._watch is not None:
            self._watch.stop()
        super().handle_websocket_upgrade(event)


class Sockets(WebSocketsSansIOProtocol):
    """A connection of WebSocket.

    Args:
        bounds: gives those that hold now.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        bounds: Callable[[], Bounds],
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._bounds = bounds
        self._watch: _Watch | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to watch."""
        super().connection_made(transport)
        # Whether its peer lives, pings find out.
        self._watch = _Watch(self.loop, self.transport, self._bounds, lambda: None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is to be watched any more."""
        if self._watch is not None:
            self._watch.stop()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        """The peer has taken something."""
        if self._watch is not None:
            self._watch.moved()
        super().resume_writing()

    def keepalive_timeout(self) -> None:
        """Cut a connection that answers no ping: it takes no farewell either, and waiting for that would keep it."""
        super().keepalive_timeout()
        self.transport.abort()

    def handle_cont(self, event: Frame) -> None:
        """Take a further part of a message; frames without content are no way to fill memory."""
        if len(self.frames) >= _FRAMES:
            self.conn.fail(1009, "too many frames")
            self.handle_parser_exception()
            return
        super().handle_cont(event)
