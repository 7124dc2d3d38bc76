"""Listening for what wakes a coordinator: one connection to a server, with a channel of each of its instances."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Final

import redis

from ampsq.base.errors import AmpsqError
from ampsq.protocol.keepalive import HEARTBEAT, wake_channel
from ampsq.transport.discovery import slot_of
from ampsq.transport.errors import translate_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ampsq.transport.store import Connection, Store

__all__ = ["Wakeups"]

_log = logging.getLogger("ampsq")
#: Channels of one command.
_TOGETHER: Final = 200
#: Seconds between two questions whether the server is there, and after which one that was not answered means it is not.
_ASK_EVERY: Final = 10.0
_ANSWER_WITHIN: Final = 5.0
#: Seconds of one wait for what comes; who closes the connection ends it.
_WAIT: Final = 60.0


class Wakeups:
    """A thread that reads what scripts send.

    Args:
        store: on the server.
        wake: called with the instance and what happened there, in the thread.
        lost: called when the connection was lost, in the thread.
        left: called with an instance for which the server sends nothing, since its slot is at another node; in the
            thread.

    Attributes:
        is_refused: this user may not listen.
    """

    def __init__(
        self,
        store: Store,
        wake: Callable[[str, str], None],
        lost: Callable[[], None],
        left: Callable[[str], None] | None = None,
    ) -> None:
        self._store, self._wake, self._lost, self._left = store, wake, lost, left
        self._instances: dict[str, str] = {}
        self._connection: Connection | None = None
        self._asked_at: float | None = None
        self._next_question = 0.0
        # Held while something is sent, never while something is waited for.
        self._sending = threading.Lock()
        self.is_refused = self._has_ended = False

    @property
    def is_open(self) -> bool:
        """Return whether the server sends events."""
        return self._connection is not None

    def open(self, instances: Iterable[str]) -> None:
        """Listen on a new connection.

        Raises:
            AmpsqError: that is not possible now.
        """
        connection = self._store.take_connection()
        try:
            with self._sending:
                if self._has_ended:
                    connection.drop()
                    connection.release()
                    return
                self._connection, self._asked_at, self._instances = connection, None, {}
                self._next_question = time.monotonic() + _ASK_EVERY
                self._subscribe(list(instances))
        except (redis.RedisError, OSError) as error:
            self.close()
            raise translate_error(error, None, self._store.url) from error
        threading.Thread(target=self._read, args=(connection,), name="coordinator-wakeups", daemon=True).start()

    def listen(self, instances: Iterable[str]) -> None:
        """Listen for these instances and for no others; raises as `open` does."""
        try:
            self._change(dict.fromkeys(instances))
        except (redis.RedisError, OSError) as error:
            self.close()
            raise translate_error(error, None, self._store.url) from error

    def _change(self, wanted: Iterable[str]) -> None:
        with self._sending:
            known = set(self._instances.values())
            wanted = set(wanted)
            gone = [channel for channel, name in self._instances.items() if name not in wanted]
            for first in range(0, len(gone), _TOGETHER):
                self._ask("SUNSUBSCRIBE", *gone[first : first + _TOGETHER])
            for channel in gone:
                del self._instances[channel]
            self._subscribe([name for name in wanted if name not in known])

    def check(self) -> bool:
        """Ask from time to time whether the server is there; False where it has not answered in time."""
        now = time.monotonic()
        with self._sending:
            if self._asked_at is not None:
                return now - self._asked_at < _ANSWER_WITHIN
            if self._connection is not None and now >= self._next_question:
                self._asked_at, self._next_question = now, now + _ASK_EVERY
                try:
                    self._ask(*HEARTBEAT)
                except (redis.RedisError, OSError):
                    return False
        return True

    def _subscribe(self, instances: list[str]) -> None:
        for first in range(0, len(instances), _TOGETHER):
            some = {wake_channel(name): name for name in instances[first : first + _TOGETHER]}
            # First, since a node may refuse one before the next one is asked for.
            self._instances.update(some)
            # In a cluster the channels of a command are of one slot; elsewhere there are no slots.
            for words in ([channel] for channel in some) if self._left is not None else [list(some)]:
                self._ask("SSUBSCRIBE", *words)

    def _ask(self, *words: str) -> None:
        if self._connection is not None:
            self._connection.ask(*words)

    def _read(self, connection: Connection) -> None:
        """Read until the connection is lost, or left."""
        try:
            while self._connection is connection:
                if connection.is_readable(_WAIT):
                    try:
                        message = connection.read()
                    except redis.ResponseError as error:
                        message = error
                    self._take_in(message)
        except (AmpsqError, redis.RedisError, OSError) as error:
            if self._connection is connection:
                self.is_refused = isinstance(error, redis.exceptions.NoPermissionError)
                _log.debug("the connection by which coordinators are woken: %s", error)
        except Exception:  # noqa: BLE001  (without this thread nothing is noticed but by looking)
            # Closed by us while it was read.
            if self._connection is connection and not self._has_ended:
                _log.exception("the connection by which coordinators are woken failed")
        if self._connection is connection and not self._has_ended:
            self.close()
            self._lost()

    def _take_in(self, message: object) -> None:
        match message:
            case [b"smessage", bytes(channel), bytes(what)]:
                instance = self._instances.get(channel.decode(errors="replace"))
                if instance is not None:
                    self._wake(instance, what.decode(errors="replace"))
            case [b"sunsubscribe", bytes(channel), _] if channel.decode(errors="replace") in self._instances:
                # Its slot was moved to another node.
                self._leave([channel.decode(errors="replace")])
            case redis.exceptions.MovedError() as error:
                self._leave([channel for channel, name in self._instances.items() if slot_of(name) == error.slot_id])
            case redis.ResponseError() as error:
                raise error
            case [b"pong", _] | b"PONG":
                self._asked_at = None
            case _:
                pass

    def _leave(self, channels: Iterable[str]) -> None:
        """Say which instances the server serves no more; whoever asks for one again listens anew."""
        with self._sending:
            left = [name for name in (self._instances.pop(channel, None) for channel in channels) if name is not None]
        for name in left:
            if self._left is not None:
                self._left(name)

    def end(self) -> None:
        """End the connection for good."""
        self._has_ended = True
        self.close()

    def close(self) -> None:
        """End the connection; the thread ends by that."""
        with self._sending:
            connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(redis.RedisError, OSError):
                connection.drop()
                connection.release()
