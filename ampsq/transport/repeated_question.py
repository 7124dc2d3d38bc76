"""A question that is put to a server again and again while nothing changes there: whether all is as it was.

The answers are compared as the server writes them, and taken apart only where they differ: a process that rests has
nothing of itself in the processor's caches, so that each function which it calls costs ten times what it costs a busy
one.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import hiredis
import redis

from ampsq.base.errors import AmpsqError
from ampsq.protocol.reads.clock import server_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.protocol.request import Call
    from ampsq.transport.store import Connection, Store

__all__ = ["RepeatedQuestion"]

#: Bytes of one read.
_ROOM: Final = 65_536
#: How the server's clock begins, and its lines.
_CLOCK: Final = b"*2\r\n$"
_CLOCK_LINES: Final = 5


class RepeatedQuestion:
    """Plain commands on a connection of their own, for one thread."""

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._request, self._number = b"", 0
        # The answers to all but the clock, as they came last.
        self._answers = b""

    @property
    def is_open(self) -> bool:
        """Return whether there is something to ask on; False: it is to be put anew."""
        return self._connection is not None

    def put(self, store: Store, calls: Sequence[Call[object]]) -> None:
        """Ask something else from now on; where the server cannot be reached, `ask` says so.

        Args:
            store: says which server.
            calls: plain commands.
        """
        packed = [hiredis.pack_command(tuple(call.arguments)) for call in (*calls, server_time())]  # type: ignore[arg-type]  # its stub knows requests of one word
        self._request, self._number, self._answers = b"".join(packed), len(packed), b""
        if self._connection is None or self._connection.server is not store.route.current:
            self.close()
            with contextlib.suppress(AmpsqError, redis.RedisError, OSError):
                self._connection = store.take_connection()

    def ask(self, store: Store) -> float | None:
        """Ask, and return the server's clock, in seconds, where all answers are as they were the last time.

        Returns:
            The clock; None: they are not, or that is not known.
        """
        connection = self._connection
        if connection is None or connection.server is not store.route.current:
            self.close()
            return None
        # Of redis-py nothing reads what is not taken apart.
        link, known = connection.raw._sock, self._answers  # noqa: SLF001
        try:
            if link is None:
                raise redis.ConnectionError("the connection was closed")
            link.sendall(self._request)
            found: bytes = link.recv(_ROOM)
            if not (known and found.startswith(known) and found.count(b"\n", len(known)) == _CLOCK_LINES):
                found = self._read(found)
        except (redis.RedisError, hiredis.HiredisError, OSError):
            self.close()
            return None
        end = found.rindex(_CLOCK)
        self._answers = found[:end]
        if not known or end != len(known) or not found.startswith(known):
            return None
        _, _, seconds, _, microseconds, _ = found[end:].split(b"\r\n")
        return int(seconds) + int(microseconds) / 1e6

    def _read(self, found: bytes) -> bytes:
        """Read to the end of the last answer; gives all of it."""
        connection = self._connection
        if connection is None or (link := connection.raw._sock) is None:  # noqa: SLF001  (see `ask`)
            raise redis.ConnectionError("the connection was closed")
        reader, left, whole = hiredis.Reader(), self._number, b""
        while True:
            if not found:
                raise redis.ConnectionError("the server closed the connection")
            whole += found
            reader.feed(found)
            while left and reader.gets() is not False:
                left -= 1
            if not left:
                break
            found = link.recv(_ROOM)
        if reader.has_data() or whole.rfind(_CLOCK) < 0:
            raise redis.ConnectionError("the server answers something else")
        return whole

    def close(self) -> None:
        """End the connection; the next question has one of its own."""
        connection, self._connection, self._answers = self._connection, None, b""
        if connection is not None:
            with contextlib.suppress(redis.RedisError, OSError):
                connection.drop()
                connection.release()
