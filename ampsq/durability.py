"""Reading only what cannot be lost any more: what a fully durable subscription waits for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ampsq.errors import AmpsqError, DefinitionError, ServerUnsuitable, Unavailable
from ampsq.flow import Collect, Post, command
from ampsq.schema import key
from ampsq.values import shown

if TYPE_CHECKING:
    from ampsq.flow import Call, Flow

__all__ = ["Durability"]

_REPLICAS = re.compile(r"replicas=([1-9][0-9]?)")
_ALLOWED: Final = "False, True or 'fsync' (on the server's disk), or 'replicas=1', with how many replicas must have it"
#: Milliseconds of one wait for disk or replicas: shorter than what a reply may take.
_WAIT: Final = 1000
_YES: Final = "fsync"


class Durability:
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

    def examine(self) -> Flow[None]:
        """See that the server can say what is durable.

        Raises:
            ServerUnsuitable: it cannot.
        """
        if self._replicas:
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

    def read(self, channel: Any, call: Call[Any]) -> Flow[Any]:
        """Read something, and give it when it is durable; when that cannot be known, it is read again."""
        if self._is_given:
            return (yield call)
        while True:
            try:
                yield Post(channel, call)
                reply = yield Collect(channel)
                if reply:
                    yield from self._await(channel)
            except Unavailable:
                # The server may have come back without what was read.
                yield command(["PING"], bool)
            else:
                return reply

    def _await(self, channel: Any) -> Flow[None]:
        # A server waits for the last write of a connection: this one, behind all that was read before on it.
        yield Post(channel, command(["SET", self._marker, "1"], bool))
        yield Collect(channel)
        wait: list[str | int] = ["WAIT", self._replicas, _WAIT] if self._replicas else ["WAITAOF", 1, 0, _WAIT]
        while True:
            yield Post(channel, command(wait, _number))
            if (yield Collect(channel)) >= max(self._replicas, 1):
                return


def _number(reply: Any) -> int:
    return int(reply[0]) if isinstance(reply, list) else int(reply)
