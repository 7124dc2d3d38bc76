"""Keys of several servers, of which a server tells when one changes: one connection to each server, one thread.

A server that was asked for a key tells of its next change once (`CLIENT TRACKING`). So who has read a log to its end
asks for the key, then looks once more, and needs to look no more until the server tells.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import selectors
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import hiredis
import redis

from ampsq.base.errors import AmpsqError, Unavailable
from ampsq.protocol.keepalive import HEARTBEAT
from ampsq.transport.attempts import pool_options
from ampsq.transport.errors import translate_connect_error, translate_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.connection import Connection as RawConnection

    from ampsq.transport.route import Route, ServerAddress

__all__ = ["KeyNews", "TrackedKeys"]

_log = logging.getLogger("ampsq")
#: Seconds between two looks whether servers answer, and still are those that serve the instances.
_LOOKS: Final = 1.0
#: redis-py asks some servers to announce their maintenance, where it speaks this protocol; not all its versions can.
_ANNOUNCES_MAINTENANCE: Final = importlib.util.find_spec("redis.maint_notifications") is not None


def _as_it_is(push: object) -> object:
    return push


#: `asked`: from here on the server tells of the next change. `changed`: it has told. `lost`: it tells nothing.
_What: TypeAlias = Literal["asked", "changed", "lost"]


class KeyNews(NamedTuple):
    """Something that is known of the keys of a number."""

    number: int
    what: _What


@dataclass(slots=True, eq=False)
class _Link:
    """A connection to a server.

    Attributes:
        raw: the connection.
        url: the server.
        heartbeat: seconds between two questions whether the server is there, and in which it answers.
        numbers: the number of each key that the server was asked for.
        asked: for each answer that is to come, in order: the number that asked; None: it is no such answer.
        pinged: when it was asked whether it is there; None: it has answered.
        next_ping: when it is asked next.
        watched: the socket that is waited on, also once it was closed: the selector knows it until it is taken off.
    """

    raw: RawConnection
    url: str
    heartbeat: float
    numbers: dict[bytes, int] = field(default_factory=dict)
    asked: deque[int | None] = field(default_factory=deque)
    pinged: float | None = None
    next_ping: float = 0.0
    watched: socket.socket | None = None

    @property
    def socket(self) -> socket.socket | None:
        """The socket; None: it was closed."""
        return self.raw._sock  # noqa: SLF001  (redis-py shows it nowhere else)


class _Tracked(NamedTuple):
    """Keys that a server was asked for, and where their instance was then."""

    link: _Link
    keys: tuple[bytes, ...]
    route: Route
    server: ServerAddress


class TrackedKeys:
    """Keys whose servers tell of their next change, each group of them under a number. One thread at a time waits.

    Attributes:
        is_refused: a server refused to track keys for this user, and sends no news of them.
    """

    def __init__(self) -> None:
        self.is_refused = False
        self._links: dict[str, _Link] = {}
        self._tracked: dict[int, _Tracked] = {}
        # News for the next `wait` to return, which a call of another thread came upon.
        self._news: deque[KeyNews] = deque()
        self._selector = selectors.DefaultSelector()
        self._awoken, self._waking = socket.socketpair()
        self._awoken.setblocking(False)
        self._waking.setblocking(False)
        self._selector.register(self._awoken, selectors.EVENT_READ, None)
        self._next_look = 0.0
        # Held while something is sent, read or noted, never while something is waited for but a connection.
        self._changing = threading.RLock()
        self._closed = False

    def fileno(self) -> int:
        """Return what an event loop watches: it can be read when `wait` has something to tell."""
        return int(self._selector.fileno())

    def ask(self, number: int, route: Route, keys: Sequence[str]) -> None:
        """Ask for the next change of any of some keys of an instance, in place of what the number asked for before.

        Args:
            number: says what has changed.
            route: leads to the server.
            keys: of one slot; at least one.

        Raises:
            AmpsqError: the server cannot be reached.
        """
        server = route.current
        if server is None:
            server = route.find()
        with self._changing:
            if self._closed:
                return
            link = self._links.get(server.url)
            if link is None:
                link = self._links[server.url] = self._linked(route, server)
            self._forget(number)
            names = tuple(each.encode() for each in keys)
            self._tracked[number] = _Tracked(link, names, route, server)
            link.numbers.update(dict.fromkeys(names, number))
            link.asked.append(number)
            try:
                link.raw.send_command("EXISTS", *keys, check_health=False)
            except (redis.RedisError, OSError) as error:
                del self._tracked[number]
                self._lose(link)
                raise translate_error(error, None, server.url) from error

    def _linked(self, route: Route, server: ServerAddress) -> _Link:
        heartbeat = route.heartbeat
        options = pool_options(server.url, heartbeat)
        # Of the third one, so that the server tells on the connection that asks.
        options["protocol"] = 3
        if _ANNOUNCES_MAINTENANCE:
            from redis.maint_notifications import MaintNotificationsConfig  # noqa: PLC0415  (not in all versions)

            options["maint_notifications_config"] = MaintNotificationsConfig(enabled=False)
        try:
            raw: RawConnection = redis.ConnectionPool.from_url(server.url, **options).get_connection()
            # Else redis-py drops it.
            raw._parser.set_invalidation_push_handler(_as_it_is)  # noqa: SLF001  (redis-py takes it nowhere else)
            raw.send_command("CLIENT", "TRACKING", "ON", check_health=False)
        except (redis.RedisError, OSError) as error:
            ours = translate_connect_error(error, server.url)
            if isinstance(ours, Unavailable):
                route.failed(server, ours, connecting=True)
            raise ours from error
        link = _Link(raw, server.url, heartbeat, asked=deque([None]), next_ping=time.monotonic() + heartbeat)
        if (watched := link.socket) is not None:
            self._selector.register(watched, selectors.EVENT_READ, link)
            link.watched = watched
        return link

    def _forget(self, number: int) -> None:
        tracked = self._tracked.pop(number, None)
        if tracked is not None:
            for each in tracked.keys:
                tracked.link.numbers.pop(each, None)

    def _lose(self, link: _Link) -> None:
        """Tell of all that a connection was to tell of that nobody tells it any more."""
        with self._changing:
            if self._links.get(link.url) is not link:
                return
            del self._links[link.url]
            for number in [number for number, each in self._tracked.items() if each.link is link]:
                del self._tracked[number]
                self._news.append(KeyNews(number, "lost"))
            if link.watched is not None:
                self._selector.unregister(link.watched)
                link.watched = None
            link.raw.disconnect()
        self.wake()

    def wait(self, seconds: float) -> list[KeyNews]:
        """Wait until there is news, at most so many seconds or until it is awoken."""
        for key, _ in self._selector.select(0.0 if self._news else seconds):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    while self._awoken.recv(1024):
                        pass
            else:
                self._read(key.data)
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + _LOOKS
            self._look(now)
        with self._changing:
            found = list(self._news)
            self._news.clear()
        return found

    def _read(self, link: _Link) -> None:
        with self._changing:
            try:
                while self._links.get(link.url) is link and link.raw.can_read(timeout=0):
                    try:
                        reply = link.raw.read_response(push_request=True)
                    except redis.ResponseError as error:
                        reply = error
                    self._take_in(link, reply)
            except (AmpsqError, redis.RedisError, OSError):
                self._lose(link)

    def _take_in(self, link: _Link, reply: object) -> None:
        if isinstance(reply, hiredis.PushNotification):
            match list(reply):
                case [b"invalidate", list() as keys]:
                    for number in dict.fromkeys(link.numbers.get(each) for each in keys):
                        self._tell(number, "changed")
                case [b"invalidate", None]:
                    # All keys of the server are gone.
                    for number in list(dict.fromkeys(link.numbers.values())):
                        self._tell(number, "changed")
            return
        number = link.asked.popleft()
        if isinstance(reply, redis.exceptions.NoPermissionError):
            if not self.is_refused:
                _log.warning("%s: %s; the rules of its user are those of an older release", link.url, reply)
            # Asked again, it would be refused again: whoever waits looks from time to time.
            self.is_refused = True
        if number is None:
            link.pinged = None
            return
        if isinstance(reply, redis.exceptions.MovedError) and (tracked := self._tracked.get(number)) is not None:
            tracked.route.redirect(tracked.server, reply)
        self._tell(number, "lost" if isinstance(reply, Exception) else "asked")

    def _tell(self, number: int | None, what: _What) -> None:
        if number is not None and number in self._tracked:
            self._news.append(KeyNews(number, what))
            if what != "asked":
                self._forget(number)

    def _look(self, now: float) -> None:
        """Lose the servers that do not answer, and what is at another server."""
        with self._changing:
            for link in list(self._links.values()):
                if link.pinged is not None and now - link.pinged > link.heartbeat:
                    self._lose(link)
                elif link.pinged is None and now >= link.next_ping:
                    link.pinged, link.next_ping = now, now + link.heartbeat
                    link.asked.append(None)
                    try:
                        link.raw.send_command(*HEARTBEAT, check_health=False)
                    except (redis.RedisError, OSError):
                        self._lose(link)
            for number, each in list(self._tracked.items()):
                if each.route.current is not each.server:
                    self._tell(number, "lost")

    def wake(self) -> None:
        """Have `wait` return at once."""
        with contextlib.suppress(OSError):
            self._waking.send(b".")

    def close(self) -> None:
        """Ask for nothing any more."""
        with self._changing:
            self._closed = True
            self._tracked.clear()
            for link in list(self._links.values()):
                self._lose(link)
            self._news.clear()
        self._selector.close()
        self._awoken.close()
        self._waking.close()
