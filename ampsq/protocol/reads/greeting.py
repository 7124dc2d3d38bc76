"""The first questions of a new connection: whether the server is a primary, whose keys it has, and how far they go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ampsq.base.log_positions import FIRST
from ampsq.protocol.schema import FIELDS, key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.typing import EncodableT

    from ampsq.base.log_positions import Id

__all__ = ["ASK_SLOTS", "Greeting", "greet", "parse_clock", "read_greeting"]

#: Asks a node which node of its cluster has which slots.
ASK_SLOTS: Final = ("CLUSTER", "SLOTS")


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first answer of a server.

    Attributes:
        role: ``master``, ``slave`` or ``sentinel``; "" where this user may not ask.
        primary: host and port of a replica's primary; "" of others.
        origin: of the instance; "" where it is not there, or this user may not ask.
        clock: the last ID that was given to any topic.
    """

    role: str
    primary: str
    origin: str
    clock: Id


def greet(instance: str) -> list[tuple[EncodableT, ...]]:
    """Say what a connection to an instance asks, or one to a server alone ("")."""
    if not instance:
        return [("ROLE",)]
    return [("ROLE",), ("HGET", key(instance, "instance"), FIELDS["origin"]), ("GET", key(instance, "clock"))]


def read_greeting(replies: Sequence[object]) -> Greeting:
    """Read the replies, each as it came; an exception in the stead of one that was refused."""
    known = [None if isinstance(reply, Exception) else reply for reply in replies]
    role, origin, clock = (*known, None, None, None)[:3]
    word, primary = "", ""
    if isinstance(role, list):
        word = role[0].decode()
        primary = f"{role[1].decode()}:{role[2]}" if word not in ("master", "sentinel") else ""
    return Greeting(word, primary, _bytes(origin).decode(), parse_clock(_bytes(clock)))


def _bytes(reply: object) -> bytes:
    return reply if isinstance(reply, bytes) else b""


def parse_clock(text: bytes | None) -> Id:
    """Read the last ID that was given, which may be anybody's text; `FIRST` where it is none."""
    milliseconds, _, sequence = (text or b"").decode().partition("-")
    return (int(milliseconds), int(sequence or 0)) if milliseconds.isdigit() else FIRST
