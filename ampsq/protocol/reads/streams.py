"""Entries of an instance's streams: logs, journals, and what clients and instances tell each other by.

An entry is as the server gives it; `ampsq.protocol.entries` reads what is in one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ampsq.base.log_positions import parse_id
from ampsq.protocol import replies
from ampsq.protocol.request import command
from ampsq.protocol.schema import key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from redis.typing import EncodableT

    from ampsq.base.log_positions import Id
    from ampsq.protocol.entries import RawEntry
    from ampsq.protocol.request import Call

__all__ = [
    "Stream",
    "StreamFacts",
    "entries_behind",
    "entries_between",
    "events_of",
    "find_news",
    "first_entry",
    "journal_of",
    "last_id",
    "latest_ids",
    "log_of",
    "read_streams",
    "stream_exists",
    "stream_facts",
    "stream_length",
    "wait_for_streams",
]


@dataclass(frozen=True, slots=True)
class Stream:
    """One of an instance's streams.

    Attributes:
        kind: a name of `ampsq.protocol.schema.KEYS`, as ``log``.
        of: whose it is: a topic, a queue or an action; "" where an instance has one of the kind.
    """

    kind: str
    of: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.of}" if self.of else self.kind

    def key(self, instance: str) -> str:
        """Its key: for calls of this room, for rules of rights, and for what is compared with plain commands."""
        return key(instance, self.kind, self.of) if self.of else key(instance, self.kind)


def log_of(topic: str) -> Stream:
    """The log of a topic."""
    return Stream("log", topic)


def journal_of(queue: str) -> Stream:
    """The journal of a queue."""
    return Stream("journal", queue)


def events_of(queue: str) -> Stream:
    """The stream that names messages of a watched queue whose availability may have changed."""
    return Stream("events", queue)


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """A server's facts about a stream.

    Attributes:
        last_given: the last ID that an entry of it ever had.
        added: entries that were ever added.
    """

    last_given: Id
    added: int


def _entries(reply: Any) -> list[RawEntry]:
    found: list[RawEntry] = reply
    return found


def entries_behind(instance: str, stream: Stream, after: str, count: int, *, until: str = "+") -> Call[list[RawEntry]]:
    """Read the first entries behind an ID; `until`: the last ID that is wanted."""
    return entries_between(instance, stream, f"({after}", until, count)


def entries_between(instance: str, stream: Stream, first: str, last: str, count: int) -> Call[list[RawEntry]]:
    """Read the first entries from one ID up to another."""
    return command(["XRANGE", stream.key(instance), first, last, "COUNT", count], _entries)


def last_id(instance: str, stream: Stream) -> Call[Id]:
    """Read the ID of the last entry that is there; 0-0 where none is."""
    return command(
        ["XREVRANGE", stream.key(instance), "+", "-", "COUNT", 1],
        replies.last_id,
    )


def latest_ids(instance: str, stream: Stream, since: int, most: int) -> Call[list[str]]:
    """Read the IDs of the last entries from a moment on, ms, the last one first."""
    return command(
        ["XREVRANGE", stream.key(instance), "+", since, "COUNT", most],
        lambda reply: [stream_id.decode() for stream_id, _ in reply],
    )


def first_entry(instance: str, stream: Stream) -> Call[RawEntry | None]:
    """Read the first entry that is there."""
    return command(
        ["XRANGE", stream.key(instance), "-", "+", "COUNT", 1], lambda reply: _entries(reply)[0] if reply else None
    )


def stream_length(instance: str, stream: Stream) -> Call[int]:
    """Count the entries of a stream."""
    return command(["XLEN", stream.key(instance)], int)


def stream_exists(instance: str, stream: Stream) -> Call[bool]:
    """Ask whether anything was ever written to a stream."""
    return command(["EXISTS", stream.key(instance)], bool)


def stream_facts(instance: str, stream: Stream) -> Call[StreamFacts]:
    """Read what is known of a stream that exists."""
    return command(["XINFO", "STREAM", stream.key(instance)], _read_facts)


def _read_facts(reply: Any) -> StreamFacts:
    facts = dict(replies.pairs(reply))
    return StreamFacts(parse_id(facts[b"last-generated-id"]), int(facts[b"entries-added"]))


def read_streams(instance: str, places: Mapping[Stream, str], count: int) -> Call[dict[Stream, list[RawEntry]]]:
    """Read the first entries behind an ID of each stream, `count` of each at most; streams without any are left out."""
    return command(["XREAD", "COUNT", count, *_streams(instance, places)], _by_stream(instance, places))


def wait_for_streams(instance: str, places: Mapping[Stream, str], seconds: float) -> Call[bool]:
    """Wait until one of the streams has an entry behind its ID; False when the time is over."""
    block = max(round(seconds * 1000), 1)
    return command(["XREAD", "COUNT", 1, "BLOCK", block, *_streams(instance, places)], bool, blocks=seconds)


def find_news(instance: str, places: Mapping[Stream, str], wait: float) -> Call[list[Stream]]:
    """Tell which streams have an entry behind their IDs, waiting so many seconds at most where none has."""
    block: list[EncodableT] = ["BLOCK", max(round(wait * 1000), 1)] if wait > 0 else []
    find = _by_stream(instance, places)
    asked = ["XREAD", "COUNT", 1, *block, *_streams(instance, places)]
    return command(asked, lambda reply: [*find(reply)], blocks=max(wait, 0.0))


def _streams(instance: str, places: Mapping[Stream, str]) -> Iterable[EncodableT]:
    return ["STREAMS", *(stream.key(instance) for stream in places), *places.values()]


def _by_stream(instance: str, places: Iterable[Stream]) -> Callable[[Any], dict[Stream, list[RawEntry]]]:
    names = {stream.key(instance).encode(): stream for stream in places}

    def read(reply: Any) -> dict[Stream, list[RawEntry]]:
        return {names[name]: rows for name, rows in replies.streams(reply).items()}

    return read
