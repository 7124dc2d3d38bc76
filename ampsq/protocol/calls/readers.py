"""The calls of readers of topics: how far behind they are and what they are told, and the places of durable ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ampsq.base.log_positions import FIRST, id_text, parse_id
from ampsq.protocol.request import command, script_call
from ampsq.protocol.schema import FIELDS, key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redis.typing import EncodableT

    from ampsq.base.log_positions import Id
    from ampsq.protocol.request import Call

__all__ = [
    "DurableHolder",
    "Lag",
    "ReaderOrder",
    "Report",
    "claim",
    "holder_of",
    "lag",
    "leave_report",
    "note_place",
    "report",
]


@dataclass(frozen=True, slots=True)
class Lag:
    """The part of a log behind a place.

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
    """A reader's report on itself; see the script `report_reader`."""

    state: str
    behind: int
    spooled: int
    oldest: int


@dataclass(frozen=True, slots=True)
class ReaderOrder:
    """An order to a reader: none, ``offline`` or ``disconnect``; its reason, the use, and the limit."""

    word: str
    reason: str
    used: int
    limit: int


class DurableHolder(NamedTuple):
    """The session of a durable subscription that counts, and its client's name."""

    session: int
    client: str


def lag(places: Iterable[tuple[str, Id]]) -> Call[list[Lag]]:
    """Measure the part of each topic's log that lies behind an ID."""
    arguments = [text for topic, stream_id in places for text in (topic, id_text(stream_id))]
    return script_call("measure_lag", arguments, _read_lags, repeatable=True)


def _read_lags(reply: Sequence[tuple[int, bytes, bytes, int, bytes]]) -> list[Lag]:
    return [
        Lag(added, parse_id(last), parse_id(first) if first else None, size, parse_id(removed))
        for added, last, first, size, removed in reply
    ]


def report(reader: str, transport: str, told: Report, *, period: int, client: str, facts: str) -> Call[ReaderOrder]:
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
    return script_call("report_reader", [*arguments, period, client, facts], _read_order, repeatable=True)


def leave_report(reader: str) -> Call[ReaderOrder]:
    """Say that a reader ended."""
    return script_call("report_reader", ["", reader, "*", "", 0, 0, 0, 0, "", ""], _read_order, repeatable=True)


def _read_order(reply: tuple[bytes, bytes, int, int]) -> ReaderOrder:
    return ReaderOrder(reply[0].decode(), reply[1].decode(), int(reply[2]), int(reply[3]))


def claim(subscription: str, client: str, former: int | None = None) -> Call[int]:
    """Begin a durable subscription's session, which ends every other one of its name; gives its number.

    Args:
        subscription: its name.
        client: its client's name.
        former: of one whose session the server lost, that one's number: another client's that began later keeps
            the name. None: it begins.

    Raises:
        NameInUse: another one began later.
    """
    return script_call(
        "begin_session", ["", subscription, client, "" if former is None else former], int, repeatable=True
    )


def holder_of(instance: str, subscription: str) -> Call[DurableHolder | None]:
    """Read which session of a durable subscription counts; None: nobody claimed it."""

    def read(reply: bytes | None) -> DurableHolder | None:
        if reply is None:
            return None
        number, _, client = reply.decode().partition(" ")
        return DurableHolder(int(number), client)

    return command(["HGET", key(instance, "bookmarks", subscription), FIELDS["session"]], read)


def note_place(subscription: str, session: int, kept: Sequence[tuple[str, str]], reached: Sequence[str]) -> Call[int]:
    """Write down names and values of a durable subscription's place, and remove names.

    Raises:
        NameInUse: another one of its name began since. UnknownSession: the server lost this one.
    """
    texts = [text for two in kept for text in two]
    return script_call("save_bookmarks", [subscription, session, len(kept), *texts, *reached], int, repeatable=True)
