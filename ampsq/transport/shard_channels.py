"""Sharded channels of several servers, heard by whoever waits for them: one connection to each server, one thread."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import redis

from ampsq.base.errors import AmpsqError
from ampsq.protocol.keepalive import HEARTBEAT
from ampsq.transport.blocking_reads import EndedRead
from ampsq.transport.errors import translate_error

if TYPE_CHECKING:
    from ampsq.transport.route import ServerAddress
    from ampsq.transport.store import Connection, Store

__all__ = ["ShardChannels"]

_log = logging.getLogger("ampsq")
#: Seconds between two looks whether servers answer, and still are those that serve the instances.
_LOOKS: Final = 1.0
#: What came before a channel was listened to counts as the oldest.
_BEFORE: Final = 1


@dataclass(slots=True, eq=False)
class _Link:
    """A connection to a server.

    Attributes:
        connection: the connection.
        heartbeat: seconds between two questions whether the server is there, and in which it answers.
        channels: the numbers of those that are listened to.
        asked: those that the server was asked for and has not confirmed, in order.
        pinged: when it was asked whether it is there; None: it has answered.
        next_ping: when it is asked next.
        watched: the socket that is waited on, also once it was closed: the selector knows it until it is taken off.
    """

    connection: Connection
    heartbeat: float
    channels: dict[str, int] = field(default_factory=dict)
    asked: deque[str] = field(default_factory=deque)
    pinged: float | None = None
    next_ping: float = 0.0
    watched: socket.socket | None = None

    @property
    def socket(self) -> socket.socket | None:
        """The socket; None: it was closed."""
        return self.connection.raw._sock  # noqa: SLF001  (redis-py shows it nowhere else)


@dataclass(frozen=True, slots=True)
class _Listening:
    """A channel that is listened to.

    Attributes:
        link: the connection.
        channel: its name.
        store: leads to the server.
        server: where that was when this began.
    """

    link: _Link
    channel: str
    store: Store
    server: ServerAddress

    @property
    def is_there(self) -> bool:
        """Return whether the instance is still at that server."""
        return self.store.route.current is self.server


class ShardChannels:
    """Channels by which scripts tell when something happened, each under a number. One thread at a time waits.

    Attributes:
        is_refused: this user may not listen to one of them: nothing is heard there.
    """

    def __init__(self) -> None:
        self.is_refused = False
        self._links: dict[str, _Link] = {}
        self._listening: dict[int, _Listening] = {}
        # Those that nobody hears any more, since their connection was lost where somebody else used it.
        self._lost: deque[int] = deque()
        self._selector = selectors.DefaultSelector()
        self._awoken, self._waking = socket.socketpair()
        self._awoken.setblocking(False)
        self._waking.setblocking(False)
        self._selector.register(self._awoken, selectors.EVENT_READ, None)
        self._next_look = 0.0
        # Held while something is sent or noted, never while something is waited for.
        self._changing = threading.RLock()
        self._closed = False

    def __contains__(self, number: int) -> bool:
        return number in self._listening

    def fileno(self) -> int:
        """Return what an event loop watches: it can be read when `wait` has something to tell."""
        return int(self._selector.fileno())

    def begin(self, number: int, store: Store, channel: str) -> None:
        """Listen to a channel of an instance, under a number that has none.

        When the server has confirmed it, `wait` tells of it once, as if something had happened before.

        Args:
            number: says what has happened.
            store: leads to the server.
            channel: its name, in the slot of the instance.

        Raises:
            AmpsqError: the server cannot be reached.
        """
        with self._changing:
            server = store.route.current
            link = self._links.get(server.url) if server is not None else None
            if server is not None and link is not None:
                # What its calls run on was greeted, and this leads there, too.
                self._listen(number, link, _Listening(link, channel, store, server))
                return
        connection = store.take_connection()
        server, is_kept = connection.server, False
        try:
            with self._changing:
                if self._closed:
                    return
                link = self._links.get(server.url)
                if link is None:
                    link = self._links[server.url] = self._linked(store, connection)
                    is_kept = True
                self._listen(number, link, _Listening(link, channel, store, server))
        finally:
            if not is_kept:
                connection.release()

    def _listen(self, number: int, link: _Link, listening: _Listening) -> None:
        channel = listening.channel
        link.channels[channel] = number
        link.asked.append(channel)
        self._listening[number] = listening
        try:
            link.connection.ask("SSUBSCRIBE", channel)
        except (redis.RedisError, OSError) as error:
            del self._listening[number], link.channels[channel]
            self._lose(link)
            raise translate_error(error, None, listening.server.url) from error

    def _linked(self, store: Store, connection: Connection) -> _Link:
        heartbeat = store.route.heartbeat
        link = _Link(connection, heartbeat, next_ping=time.monotonic() + heartbeat)
        if (watched := link.socket) is not None:
            self._selector.register(watched, selectors.EVENT_READ, link)
            link.watched = watched
        return link

    def end(self, number: int) -> None:
        """Listen to the channel of a number no more, if it has one."""
        with self._changing:
            listening = self._listening.pop(number, None)
            if listening is None:
                return
            link = listening.link
            link.channels.pop(listening.channel, None)
            try:
                link.connection.ask("SUNSUBSCRIBE", listening.channel)
            except (redis.RedisError, OSError):
                self._lose(link)

    def _lose(self, link: _Link) -> None:
        """Tell of all channels of a connection that they are not heard any more."""
        with self._changing:
            if link not in self._links.values():
                return
            self._links = {url: each for url, each in self._links.items() if each is not link}
            for number in link.channels.values():
                if self._listening.pop(number, None) is not None:
                    self._lost.append(number)
            if link.watched is not None:
                self._selector.unregister(link.watched)
                link.watched = None
            link.connection.drop()
            link.connection.release()
        self.wake()

    def wait(self, seconds: float) -> list[EndedRead]:
        """Wait until something happens, at most so many seconds or until it is awoken."""
        ended: list[EndedRead] = []
        for key, _ in self._selector.select(0.0 if self._lost else seconds):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    while self._awoken.recv(1024):
                        pass
            else:
                self._read(key.data, ended)
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + _LOOKS
            self._look(now)
        while self._lost:
            ended.append(EndedRead(self._lost.popleft(), found=0, is_lost=True))
        return ended

    def _read(self, link: _Link, ended: list[EndedRead]) -> None:
        try:
            while link.connection.is_readable():
                try:
                    message = link.connection.read()
                except redis.ResponseError as error:
                    message = error
                self._take_in(link, message, ended)
        except (AmpsqError, redis.RedisError, OSError):
            self._lose(link)

    def _take_in(self, link: _Link, message: object, ended: list[EndedRead]) -> None:
        with self._changing:
            match message:
                case [b"smessage", bytes(channel), bytes(at)]:
                    number = link.channels.get(channel.decode())
                    if number is not None:
                        ended.append(EndedRead(number, int(at), is_lost=False))
                case [b"ssubscribe", bytes(channel), _]:
                    link.asked.popleft()
                    number = link.channels.get(channel.decode())
                    if number is not None:
                        ended.append(EndedRead(number, _BEFORE, is_lost=False))
                case [b"sunsubscribe", bytes(channel), _]:
                    # Where we did not ask for it, its slot is at another server now.
                    self._forget(link.channels.get(channel.decode()))
                case redis.ResponseError() as error:
                    self._refused(link, error)
                case [b"pong", _] | b"PONG":
                    link.pinged = None

    def _refused(self, link: _Link, error: redis.ResponseError) -> None:
        """Note that a channel is not this server's, or may not be listened to."""
        if not link.asked:
            return
        number = link.channels.get(link.asked.popleft())
        listening = self._listening.get(number) if number is not None else None
        if isinstance(error, redis.exceptions.NoPermissionError):
            # Asked again, it would be refused again: whoever waits looks from time to time.
            if not self.is_refused and listening is not None:
                _log.warning("%s: %s; the rules of its user are those of an older release", listening.server, error)
            self.is_refused = True
            return
        if listening is not None and isinstance(error, redis.exceptions.MovedError):
            listening.store.route.redirect(listening.server, error)
        self._forget(number)

    def _forget(self, number: int | None) -> None:
        listening = self._listening.pop(number, None) if number is not None else None
        if number is not None and listening is not None:
            listening.link.channels.pop(listening.channel, None)
            self._lost.append(number)

    def _look(self, now: float) -> None:
        """Lose the servers that do not answer, and what is at another server."""
        with self._changing:
            for link in list(self._links.values()):
                if link.pinged is not None and now - link.pinged > link.heartbeat:
                    self._lose(link)
                elif link.pinged is None and now >= link.next_ping:
                    link.pinged, link.next_ping = now, now + link.heartbeat
                    try:
                        link.connection.ask(*HEARTBEAT)
                    except (redis.RedisError, OSError):
                        self._lose(link)
            for number in [number for number, each in self._listening.items() if not each.is_there]:
                self._leave(number)

    def _leave(self, number: int) -> None:
        self.end(number)
        self._lost.append(number)

    def wake(self) -> None:
        """Have `wait` return at once."""
        with contextlib.suppress(OSError):
            self._waking.send(b".")

    def close(self) -> None:
        """Listen to nothing any more."""
        with self._changing:
            self._closed = True
            for link in list(self._links.values()):
                link.channels.clear()
                self._lose(link)
            self._listening.clear()
            self._lost.clear()
        self._selector.close()
        self._awoken.close()
        self._waking.close()
