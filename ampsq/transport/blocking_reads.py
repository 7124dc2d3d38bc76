"""Blocking reads at several servers at once, in one thread: that of whoever waits for them."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import redis

from ampsq.base.errors import AmpsqError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq.protocol.request import Call
    from ampsq.transport.store import Connection, Store

__all__ = ["BlockingReads", "EndedRead"]

#: Seconds between two looks whether a read was not answered in time.
_LOOKS: Final = 1.0


class EndedRead(NamedTuple):
    """A read that has ended.

    Attributes:
        number: that under which it was begun.
        found: what it gave; 0: its time is over.
        is_lost: nobody knows what it would give next, since its connection broke or leads to a server that was left.
    """

    number: int
    found: int
    is_lost: bool


@dataclass(slots=True)
class _Read:
    """A read that is on its way.

    Attributes:
        store: whose connection it uses.
        connection: the connection.
        make: gives the read.
        call: the one that was sent last.
        until: when its answer is there at the latest, by the monotonic clock.
        watched: the socket that is waited on, also once it was closed: the selector knows it until it is taken off.
    """

    store: Store
    connection: Connection
    make: Callable[[], Call[int]]
    call: Call[int]
    until: float
    watched: socket.socket | None = None

    @property
    def link(self) -> socket.socket | None:
        """The socket; None: it was closed."""
        return self.connection.raw._sock  # noqa: SLF001  (redis-py shows it nowhere else)

    def drop(self) -> None:
        """End it, answered or not."""
        self.connection.drop()
        self.connection.release()


class BlockingReads:
    """Blocking reads that give a number, 0 where their time is over. One thread at a time uses it."""

    def __init__(self) -> None:
        self._reads: dict[int, _Read] = {}
        self._selector = selectors.DefaultSelector()
        self._awoken, self._waking = socket.socketpair()
        self._awoken.setblocking(False)
        self._waking.setblocking(False)
        self._selector.register(self._awoken, selectors.EVENT_READ, None)
        self._next_look = 0.0

    def __contains__(self, number: int) -> bool:
        return number in self._reads

    def begin(self, number: int, store: Store, make: Callable[[], Call[int]]) -> None:
        """Send a read under a number that has none, and again whenever it was answered.

        Args:
            number: says which one has ended.
            store: leads to the server.
            make: gives the read.

        Raises:
            AmpsqError: the server cannot be reached.
        """
        self._send(number, _Read(store, store.take_connection(), make, make(), 0.0))

    def _send(self, number: int, read: _Read) -> bool:
        read.until = time.monotonic() + read.call.blocks + read.store.route.heartbeat
        link = None
        with contextlib.suppress(redis.RedisError, OSError):
            read.connection.send(read.call)
            link = read.link
        if link is None:
            read.drop()
            return False
        self._selector.register(link, selectors.EVENT_READ, number)
        read.watched = link
        self._reads[number] = read
        return True

    def end(self, number: int) -> None:
        """End the read of a number, if it has one."""
        read = self._reads.pop(number, None)
        if read is not None:
            self._unregister(read)
            read.drop()

    def _unregister(self, read: _Read) -> None:
        if read.watched is not None:
            self._selector.unregister(read.watched)
            read.watched = None

    def wait(self, seconds: float) -> list[EndedRead]:
        """Wait until reads end, at most so many seconds or until it is awoken. What was answered is sent again."""
        ended = []
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    while self._awoken.recv(1024):
                        pass
            elif (found := self._answer(key.data)) is not None:
                ended.append(found)
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + _LOOKS
            late = [number for number, read in self._reads.items() if now > read.until]
            for number in late:
                self.end(number)
                ended.append(EndedRead(number, found=0, is_lost=True))
        return ended

    def _answer(self, number: int) -> EndedRead | None:
        """Read an answer; None: there is none yet."""
        read = self._reads[number]
        try:
            # What encryption sends for itself is no answer.
            if not read.connection.is_readable():
                return None
            found = read.call.read(read.connection.read())  # type: ignore[arg-type]  # it says of what its reply is made
        except (AmpsqError, redis.RedisError, OSError):
            self.end(number)
            return EndedRead(number, found=0, is_lost=True)
        del self._reads[number]
        self._unregister(read)
        if read.connection.server is not read.store.route.current:
            read.drop()
            return EndedRead(number, found, is_lost=True)
        read.call = read.make()
        return EndedRead(number, found, is_lost=not self._send(number, read))

    def wake(self) -> None:
        """Have `wait` return at once."""
        with contextlib.suppress(OSError):
            self._waking.send(b".")

    def close(self) -> None:
        """End all reads."""
        for number in list(self._reads):
            self.end(number)
        self._selector.close()
        self._awoken.close()
        self._waking.close()
