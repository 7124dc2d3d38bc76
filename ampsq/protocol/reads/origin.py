"""Identity of an instance, past and present: the origin of log entries without a source (see incarnations.lua)."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Final

from ampsq.base.bookmarks import Origin
from ampsq.base.log_positions import parse_id
from ampsq.protocol.request import command
from ampsq.protocol.schema import FIELDS, key

if TYPE_CHECKING:
    from ampsq.protocol.request import Call

__all__ = ["name_of", "next_incarnation", "parse_origin", "read_origin"]

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


def read_origin(instance: str) -> Call[Origin]:
    """Ask an instance who it is, and who it was; "" of one that is not there."""
    return command(["HMGET", key(instance, "instance"), FIELDS["origin"], FIELDS["former"]], parse_origin)


def parse_origin(reply: list[bytes | None]) -> Origin:
    """Read the fields `origin` and `former` of an instance."""
    own, former = ((text or b"").decode() for text in reply)
    words = former.split(" ") if former else []
    return Origin(own, [(parse_id(last), origin) for last, origin in zip(words[::2], words[1::2], strict=True)])
