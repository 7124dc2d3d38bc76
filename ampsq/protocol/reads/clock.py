"""The server's clock, and the clock of an instance: the last ID that was given to any message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampsq.base.log_positions import FIRST, parse_id
from ampsq.protocol.request import command
from ampsq.protocol.schema import key

if TYPE_CHECKING:
    from ampsq.base.log_positions import Id
    from ampsq.protocol.request import Call

__all__ = ["exact_server_time", "last_given_id", "server_time"]


def server_time() -> Call[int]:
    """Read the server's clock, ms since 1970."""
    return command(["TIME"], _milliseconds)


def _milliseconds(reply: list[bytes]) -> int:
    return int(reply[0]) * 1000 + int(reply[1]) // 1000


def exact_server_time() -> Call[float]:
    """Read the server's clock, ms since 1970 with microseconds behind the point."""
    return command(["TIME"], lambda reply: int(reply[0]) * 1000 + int(reply[1]) / 1000)


def last_given_id(instance: str) -> Call[Id]:
    """Read the last ID that an instance gave to a message of any topic."""
    return command(["GET", key(instance, "clock")], lambda reply: parse_id(reply) if reply else FIRST)
