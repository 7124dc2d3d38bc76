"""Journals of queues: which messages were settled or transferred, and, where recorded, which were delivered.

An entry tells of a batch of messages: what holds for all of them, and of each one what is said of it alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.protocol.replies import facts
from ampsq.protocol.request import command
from ampsq.protocol.schema import FIELDS, VALUES, key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ampsq.protocol.replies import RawFacts
    from ampsq.protocol.request import Call

__all__ = [
    "REDRIVEN",
    "RETENTION",
    "MessageAttempts",
    "QueueEntry",
    "is_journal_whole",
    "read_deliveries",
    "read_journal",
    "read_journal_back",
]

#: The reason that the journal has of a dead letter which was put back.
REDRIVEN: Final = str(VALUES["redriven"])
#: The reason that the journal has of a message that a topic's retention gave up.
RETENTION: Final = str(VALUES["retention"])
_HOW, _REFS, _REASON, _BY, _SOURCE, _OWNER, _CAUSE, _CLIENT = (
    FIELDS[name].encode() for name in ("how", "refs", "reason", "by", "source", "owner", "cause", "client")
)
_ATTEMPTS, _RETURNS, _EPOCHS, _BOOKMARKS, _CONSUMER_REASON = (
    FIELDS[name].encode() for name in ("attempts", "returns", "epochs", "bookmarks", "consumer_reason")
)


class MessageAttempts(NamedTuple):
    """The number of times that a message was delivered, and the number of times that it was cancelled."""

    deliveries: int
    cancels: int


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """An entry of a queue's journal, or of its deliveries.

    Attributes:
        id: of the entry, ``<ms>-<number>``.
        fields: as they are stored, for this room.
    """

    id: str
    fields: Mapping[bytes, bytes]

    @classmethod
    def of(cls, stream_id: bytes, flat: Sequence[bytes]) -> QueueEntry:
        """Make it of an entry as the server gives it."""
        return cls(stream_id.decode(), dict(zip(flat[::2], flat[1::2], strict=True)))

    def _text(self, name: bytes) -> str:
        return self.fields.get(name, b"").decode(errors="replace")

    def _word(self, name: bytes, number: int) -> str:
        words = self._text(name).split(" ")
        return words[number] if number < len(words) else ""

    @property
    def milliseconds(self) -> int:
        """Time when it was written, by the server's clock."""
        return int(self.id.partition("-")[0])

    @property
    def how(self) -> str:
        """The event of the messages, a word of `ampsq.protocol.transitions.MessageEvent`; "" of deliveries."""
        return self._text(_HOW)

    @property
    def by(self) -> str:
        """Name of the client that settled them; "" where none is named."""
        return self._text(_BY)

    @property
    def reason(self) -> str:
        """Reason; of an expiry its reasons, with commas between; "" for none."""
        return self._text(_REASON)

    @property
    def consumer_reason(self) -> str:
        """Reason that a consumer gave; "" for none."""
        return self._text(_CONSUMER_REASON)

    @property
    def source(self) -> str:
        """The place where another instance wrote it, ``<origin>~<id>``; "" of one that was written here."""
        return self._text(_SOURCE)

    @property
    def owner(self) -> str:
        """The origin that transferred messages belong to from here on."""
        return self._text(_OWNER)

    @property
    def cause(self) -> str:
        """Of deliveries: why the messages came back; "" where they were delivered."""
        return self._text(_CAUSE)

    @property
    def refs(self) -> list[bytes]:
        """The messages."""
        return self.fields.get(_REFS, b"").split()

    @property
    def epochs(self) -> list[int]:
        """Of transferred messages how often each has changed its owner."""
        return [int(epoch) for epoch in self.fields.get(_EPOCHS, b"").split()]

    @property
    def bookmarks(self) -> list[bytes]:
        """Of transferred messages the bookmark that each was named by."""
        return self.fields.get(_BOOKMARKS, b"").split()

    @property
    def attempts(self) -> list[str]:
        """Of messages that expired how often each was delivered and cancelled, ``<deliveries>:<cancels>``."""
        return self._text(_ATTEMPTS).split()

    @property
    def returns(self) -> list[str]:
        """The returns of each message, for `ampsq.queues.returns.read_returns`; ``-`` for never."""
        return self._text(_RETURNS).split()

    @property
    def clients(self) -> list[str]:
        """Of deliveries: which client's subscription each was delivered to; ``-`` where it is not known."""
        return self._text(_CLIENT).split()

    def number_of(self, ref: bytes) -> int:
        """Find a message's number in the batch; -1 where it is not in it."""
        text = self.fields.get(_REFS, b"")
        # Nearly all entries are about other messages.
        if ref not in text:
            return -1
        refs = text.split(b" ")
        return refs.index(ref) if ref in refs else -1

    def attempts_of(self, number: int) -> MessageAttempts | None:
        """Of a message that expired how often it was delivered and cancelled; None where that is not told."""
        deliveries, _, cancels = self._word(_ATTEMPTS, number).partition(":")
        return MessageAttempts(int(deliveries), int(cancels)) if deliveries else None

    def returns_of(self, number: int) -> str:
        """The returns of one message, for `ampsq.queues.returns.read_returns`."""
        return self._word(_RETURNS, number)

    def epoch_of(self, number: int) -> int:
        """The number of times that a transferred message has changed its owner."""
        return int(self._word(_EPOCHS, number))

    def holder_of(self, number: int) -> str:
        """Of deliveries: which subscription a message was delivered to."""
        return self._word(_BY, number)

    def client_of(self, number: int) -> str:
        """Of deliveries: which client's subscription that was; "" where it is not known."""
        client = self._word(_CLIENT, number)
        return "" if client == "-" else client


def read_journal(instance: str, queue: str, after: str, count: int) -> Call[list[QueueEntry]]:
    """Read so many entries of a queue's journal behind an ID."""
    return _forth(key(instance, "journal", queue), after, count)


def read_deliveries(instance: str, queue: str, after: str, count: int) -> Call[list[QueueEntry]]:
    """Read so many entries of a queue's recorded deliveries behind an ID."""
    return _forth(key(instance, "deliveries", queue), after, count)


def _forth(stream: str, after: str, count: int) -> Call[list[QueueEntry]]:
    return command(["XRANGE", stream, f"({after}", "+", "COUNT", count], _entries)


def read_journal_back(
    instance: str, queue: str, before: str | None, since: int | None, count: int
) -> Call[list[QueueEntry]]:
    """Read so many entries of a queue's journal, the last one first.

    Args:
        instance: the instance's name.
        queue: the queue.
        before: the ID that all of them are before; None: the end.
        since: ms that none of them is before; None: the beginning.
        count: how many at most.
    """
    end, least = "+" if before is None else f"({before}", "-" if since is None else since
    return command(["XREVRANGE", key(instance, "journal", queue), end, least, "COUNT", count], _entries)


def _entries(reply: list[tuple[bytes, list[bytes]]]) -> list[QueueEntry]:
    return [QueueEntry.of(stream_id, flat) for stream_id, flat in reply]


def is_journal_whole(instance: str, queue: str) -> Call[bool]:
    """Ask whether a queue's journal, which is there, still has every entry that was ever written."""
    return command(["XINFO", "STREAM", key(instance, "journal", queue)], _is_whole)


def _is_whole(reply: RawFacts) -> bool:
    known = facts(reply)
    return known[b"length"] == known[b"entries-added"]
