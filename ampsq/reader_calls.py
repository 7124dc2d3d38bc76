"""The calls of readers that limits are kept for: how far behind they are, and what they are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ampsq.flow import script_call
from ampsq.places import FIRST, parse_id, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redis.typing import EncodableT

    from ampsq.flow import Call
    from ampsq.places import Id

__all__ = ["Lag", "Order", "Report", "lag", "leave_report", "report"]


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a log goes on behind a place.

    Attributes:
        added: entries that were ever added to it.
        last: its last ID.
        first: the first one behind the place, if any.
        size: bytes of an entry, about.
        removed: the greatest ID that was removed, as far as that leaves a trace.
    """

    added: int
    last: Id
    first: Id | None
    size: int
    removed: Id = FIRST


@dataclass(frozen=True, slots=True)
class Report:
    """What a reader says of itself; see the script `report`."""

    state: str
    behind: int
    spooled: int
    oldest: int


@dataclass(frozen=True, slots=True)
class Order:
    """What a reader is told: nothing, ``offline`` or ``disconnect``; why, what is used, and the limit."""

    word: str
    reason: str
    used: int
    limit: int


def lag(places: Iterable[tuple[str, Id]]) -> Call[list[Lag]]:
    """How far topics' logs go on behind IDs."""
    arguments = [text for topic, stream_id in places for text in (topic, text_of(stream_id))]
    return script_call("lag", arguments, _read_lags, repeatable=True)


def _read_lags(reply: Any) -> list[Lag]:
    return [
        Lag(added, parse_id(last), parse_id(first) if first else None, size, parse_id(removed))
        for added, last, first, size, removed in reply
    ]


def report(reader: str, transport: str, told: Report, *, period: int, client: str, facts: str) -> Call[Order]:
    """Say how far behind a reader is.

    Args:
        reader: its name.
        transport: whose limits count.
        told: what it says.
        period: ms after which it counts as gone if it says nothing.
        client: its client's name.
        facts: what it is, JSON, for people.
    """
    arguments: list[EncodableT] = ["", reader, transport, told.state, told.behind, told.spooled, told.oldest]
    return script_call("report", [*arguments, period, client, facts], _read_order, repeatable=True)


def leave_report(reader: str) -> Call[Order]:
    """Say that a reader ended."""
    return script_call("report", ["", reader, "*", "", 0, 0, 0, 0, "", ""], _read_order, repeatable=True)


def _read_order(reply: Any) -> Order:
    return Order(reply[0].decode(), reply[1].decode(), int(reply[2]), int(reply[3]))
