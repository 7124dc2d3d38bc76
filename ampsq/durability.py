"""Reading only what cannot be lost any more: what a fully durable subscription waits for."""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ampsq.errors import AmpsqError, DefinitionError, ServerUnsuitable, Unavailable
from ampsq.flow import Collect, Post, command
from ampsq.schema import key
from ampsq.values import shown

if TYPE_CHECKING:
    from ampsq.flow import Call, Flow

__all__ = ["Durability"]

Asked = TypeVar("Asked")
_log = logging.getLogger("ampsq")
_CONNECTED = re.compile(rb"connected_slaves:(\d+)")
_REPLICAS = re.compile(r"replicas=([1-9][0-9]?)")
_ALLOWED: Final = "False, True or 'fsync' (on the server's disk), or 'replicas=1', with how many replicas must have it"
#: Milliseconds of one wait for disk or replicas.
_WAIT: Final = 1000
_YES: Final = "fsync"
#: Seconds after which it is told that messages wait, and after which it is told again.
_TELL: Final = 5.0
_TELL_AGAIN: Final = 60.0


class Durability(Generic[Asked]):
    """What must be true of a message before it is handed on.

    Args:
        instance: the instance's name.
        wish: `fully_durable` of a subscription: True or ``fsync``: on the server's disk; ``replicas=<n>``: acknowledged
            by so many replicas.

    Raises:
        DefinitionError: it is none of these.
    """

    def __init__(self, instance: str, wish: object) -> None:
        found = _REPLICAS.fullmatch(wish) if isinstance(wish, str) else None
        if wish is not True and wish != _YES and found is None:
            raise DefinitionError(f"fully_durable={shown(wish)}: allowed is {_ALLOWED}")
        self._marker = key(instance, "marker")
        self._replicas = int(found[1]) if found else 0
        # What the server answers is on its disk by then.
        self._is_given = False
        # What was read and is not durable yet, as far as is known.
        self._pending: tuple[Asked, Any] | None = None
        # When it is to be told that what was read waits; None: nothing does.
        self._tell_at: float | None = None

    def examine(self) -> Flow[None]:
        """See that the server can say what is durable.

        Raises:
            ServerUnsuitable: it cannot. That replicas are missing is only told, in the log: they may come.
        """
        if self._replicas:
            facts = yield command(["INFO", "replication"], bytes)
            connected = int((_CONNECTED.search(facts) or [0, 0])[1])
            if connected < self._replicas:
                _log.warning(
                    "fully_durable='replicas=%d': the server has %d replicas connected; until there are enough, and "
                    "they have what was published, nothing is handed out",
                    *(self._replicas, connected),
                )
            return
        facts = yield command(["INFO", "persistence"], bytes)
        if b"aof_enabled:1" not in facts:
            raise ServerUnsuitable(
                "fully_durable needs an append-only file on the server, which has none: set appendonly yes; or "
                "fully_durable='replicas=1'"
            )
        try:
            settings = yield command(["CONFIG", "GET", "appendfsync"], list)
        except AmpsqError:
            settings = []
        self._is_given = settings[1:] == [b"always"]
        if not self._is_given and not (yield command(["COMMAND", "INFO", "WAITAOF"], lambda reply: bool(reply[0]))):
            raise ServerUnsuitable(
                "fully_durable needs WAITAOF, which this server does not have (Redis 7.2 or newer, Valkey 8 or newer "
                "have it), or appendfsync always"
            )

    def read(self, channel: Any, request: Asked, call: Call[Any], wait: float) -> Flow[tuple[Asked, Any] | None]:
        """Read something, and give it when it is durable; None when it is not within `wait` seconds: ask again.

        What is given was asked for by that request, or by the one before that was not answered yet. When the
        connection breaks the server may have come back without what was read: then it is read again.
        """
        if self._is_given:
            return request, (yield call)
        until = time.monotonic() + wait
        try:
            if self._pending is None:
                yield Post(channel, call)
                reply = yield Collect(channel)
                if not reply:
                    return request, reply
                # A server waits for the last write of a connection: this one, behind all that was read before on it.
                yield Post(channel, command(["SET", self._marker, "1"], bool))
                yield Collect(channel)
                self._pending = request, reply
            if not (yield from self._is_durable(channel, until)):
                return None
            found, self._pending = self._pending, None
        except Unavailable:
            self._pending = None
            # This waits until there is a server again.
            yield command(["PING"], bool)
            return None
        except BaseException:
            self._pending = None
            raise
        return found

    def forget(self) -> None:
        """What was read and is not durable yet is read again: by another connection, perhaps."""
        self._pending = None

    def _is_durable(self, channel: Any, until: float) -> Flow[bool]:
        while True:
            left = max(min(round((until - time.monotonic()) * 1000), _WAIT), 1)
            wait: list[str | int] = ["WAIT", self._replicas, left] if self._replicas else ["WAITAOF", 1, 0, left]
            yield Post(channel, command(wait, _number, blocks=left / 1000))
            count = yield Collect(channel)
            if count >= max(self._replicas, 1):
                self._tell_at = None
                return True
            self._tell_waiting(count)
            if time.monotonic() >= until:
                return False

    def _tell_waiting(self, count: int) -> None:
        """Tell what is missing, once it has been so for a while."""
        now = time.monotonic()
        if self._tell_at is None:
            self._tell_at = now + _TELL
        if now < self._tell_at:
            return
        self._tell_at = now + _TELL_AGAIN
        lacking = f"{count} of {self._replicas} replicas have them" if self._replicas else "they are not on its disk"
        _log.warning("a fully durable subscription hands out nothing: messages wait on the server, and %s", lacking)


def _number(reply: Any) -> int:
    return int(reply[0]) if isinstance(reply, list) else int(reply)
