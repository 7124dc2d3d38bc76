"""Whose an entry of a log is that has no source: this incarnation's, or one's before; as lua/lib/owner.lua has it."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.flow import command
from ampsq.places import parse_id
from ampsq.schema import FIELDS, key

if TYPE_CHECKING:
    from ampsq.flow import Call
    from ampsq.places import Id

__all__ = ["Origins", "name_of", "next_incarnation", "read_origins"]

_BASE36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def next_incarnation() -> str:
    """A name for a new life of an instance: rises with time, so that an emptied server is seen to be another."""
    number, text = time.time_ns() // 1_000_000, ""
    while number:
        number, digit = divmod(number, 36)
        text = _BASE36[digit] + text
    return text + secrets.choice(_BASE36)


def name_of(origin: str) -> str:
    """The instance's name of an origin: a name, a dot, an incarnation."""
    return origin.rpartition(".")[0]


class Origins(NamedTuple):
    """The incarnations of an instance.

    Attributes:
        own: the one that it is.
        former: those before it that its logs have entries of, the first one first, each with its last ID.
    """

    own: str
    former: tuple[tuple[Id, str], ...] = ()

    def at(self, stream_id: Id) -> str:
        """Who recorded an entry of this instance's own: one that has no source."""
        return next((origin for last, origin in self.former if stream_id <= last), self.own)


def read_origins(instance: str) -> Call[Origins]:
    """Ask an instance for its incarnations."""
    return command(["HMGET", key(instance, "instance"), FIELDS["origin"], FIELDS["former"]], _parse)


def _parse(reply: list[bytes | None]) -> Origins:
    own, former = ((text or b"").decode() for text in reply)
    words = former.split(" ") if former else []
    return Origins(own, tuple((parse_id(last), origin) for last, origin in zip(words[::2], words[1::2], strict=True)))
