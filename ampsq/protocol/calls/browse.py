"""The calls that look at a queue's messages, available or not, and take nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias

from ampsq.base.message_types import MessageType
from ampsq.protocol.entries import read_entry
from ampsq.protocol.replies import texts
from ampsq.protocol.request import Call, script_call

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "BrowsePage",
    "Browsed",
    "Rank",
    "Walk",
    "WatchReply",
    "begin_walk",
    "browse",
    "explain",
    "find_available",
    "watch_availability",
]

#: Score and member in the order of delivery.
Rank: TypeAlias = "tuple[float, bytes]"
#: A message that was browsed, as it comes: reference, log entry, deliveries, holder, rank and its text.
_BrowsedRow: TypeAlias = "tuple[bytes, list[bytes], int | bytes, bytes, bytes, bytes]"


class WatchReply(NamedTuple):
    """A queue that is watched.

    Attributes:
        last: the ID of the last thing that it told.
        since: since when, ms, it tells without a gap.
    """

    last: str
    since: str


@dataclass(frozen=True, slots=True)
class Walk:
    """Bounds of a walk over a queue's messages.

    Attributes:
        end: the last ID of all that was recorded when it began.
        room: unread messages that belong to the active part; None: all.
        sorted: whether the queue judges its messages.
        type: the queue's message type.
        cursors: topic -> last ID read.
    """

    end: str
    room: int | None
    sorted: bool
    type: MessageType
    cursors: dict[str, str]


@dataclass(frozen=True, slots=True)
class Browsed:
    """A message that was looked at, not delivered.

    Attributes:
        ref: its place in the queue.
        fields: its own, of its log entry.
        deliveries: how often it was delivered and came back.
        holder: the subscription that holds it; empty when it is available.
        rank: its place in the order of delivery.
        source: where it was published first, as `ampsq.protocol.entries.source_in` says it.
    """

    ref: bytes
    fields: dict[bytes, bytes]
    deliveries: int
    holder: bytes
    rank: Rank
    source: str

    @classmethod
    def of(
        cls, ref: bytes, flat: Sequence[bytes], deliveries: int = 0, holder: bytes = b"", rank: Rank = (0.0, b"")
    ) -> Self:
        """Make it of its log entry, names and values in turn."""
        fields, source = read_entry(flat)
        return cls(ref, fields, deliveries, holder, rank, source)


@dataclass(frozen=True, slots=True)
class BrowsePage:
    """One step of a walk: where the next begins (None: nowhere), available messages looked at, and those that match."""

    next: str | None
    available: int
    messages: list[Browsed]


def begin_walk(queue: str) -> Call[Walk]:
    """Begin a walk over a queue's messages."""

    def read(reply: tuple[bytes, int, int, bytes, *tuple[bytes, ...]]) -> Walk:
        end, room, placed, word, *cursors = reply
        active = None if room < 0 else int(room)
        return Walk(end.decode(), active, bool(placed), MessageType.parse(word.decode()), texts(cursors))

    return script_call("begin_browse", [queue], read, repeatable=True)


def _browsed(flat: Sequence[object]) -> list[Browsed]:
    found = []
    for i in range(0, len(flat), 6):
        row: _BrowsedRow = flat[i : i + 6]  # type: ignore[assignment]  # six in turn
        ref, entry, deliveries, holder, score, member = row
        found.append(Browsed.of(ref, entry, int(deliveries), holder, (float(score), member)))
    return found


def browse(queue: str, source: str, after: str, until: str, tree: str) -> Call[BrowsePage]:
    """Look through a part of one source: ready, sorted, held, leases, or "log <topic>" up to an ID; nothing changes.

    Args:
        queue: the queue.
        source: where to look.
        after: the `next` of the step before, "" at first; of a log, an ID.
        until: the last ID of a log to look at.
        tree: of the filter that messages must match, "" for all.
    """
    return script_call(
        "browse",
        ["", queue, source, after, until, tree],
        lambda reply: BrowsePage(reply[0].decode() or None, int(reply[1]), _browsed(reply[2:])),
        repeatable=True,
    )


def find_available(queue: str, refs: Sequence[bytes]) -> Call[list[Browsed | None]]:
    """Find which of at most 500 messages are available now; None in the place of one that is not.

    The answer may be about the first ones only, at least one, where they are large: ask again for the rest.
    """

    def read(reply: tuple[int, *tuple[object, ...]]) -> list[Browsed | None]:
        found = {item.ref: item for item in _browsed(reply[1:])}
        return [found.get(ref) for ref in refs[: int(reply[0])]]

    return script_call("read_available", ["", queue, *refs], read, repeatable=True)


def explain(queue: str, ref: str) -> Call[list[tuple[str, str]]]:
    """Look where one message is and what keeps it there, ref "" for the head; gives names and values."""

    def read(reply: list[bytes]) -> list[tuple[str, str]]:
        texts = [text.decode(errors="surrogateescape") for text in reply]
        return list(zip(texts[::2], texts[1::2], strict=True))

    return script_call("explain", ["", queue, ref], read, repeatable=True)


def watch_availability(queue: str, period: int) -> Call[WatchReply]:
    """Let a queue tell for `period` ms which messages' availability may have changed."""
    return script_call(
        "watch_queue",
        ["", queue, period],
        lambda reply: WatchReply(reply[0].decode(), reply[1].decode()),
        repeatable=True,
    )
