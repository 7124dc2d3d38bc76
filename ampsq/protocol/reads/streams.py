"""Entries of an instance's streams: logs, journals, and what clients and instances tell each other by.

An entry is as the server gives it, its ID and its fields, names and values in turn: logs are read fast.
`ampsq.protocol.entries` reads what is in one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ampsq.base.log_positions import parse_id
from ampsq.protocol import replies
from ampsq.protocol.request import command
from ampsq.protocol.schema import key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from redis.typing import EncodableT

    from ampsq.base.log_positions import Id
    from ampsq.protocol.entries import RawEntry
    from ampsq.protocol.replies import RawFacts, RawStreams
    from ampsq.protocol.request import Call

__all__ = [
    "LogPages",
    "Stream",
    "StreamFacts",
    "entries_behind",
    "entries_between",
    "events_of",
    "find_entry",
    "find_news",
    "first_entry",
    "journal_of",
    "last_entries",
    "last_id",
    "last_ids",
    "latest_ids",
    "log_key",
    "log_of",
    "read_logs",
    "read_streams",
    "stream_exists",
    "stream_facts",
    "stream_length",
    "stream_memory",
    "wait_for_any",
    "wait_for_streams",
]

#: Of each log that has news its entries, by the log's name; see `read_logs`.
LogPages: TypeAlias = "Mapping[bytes, list[RawEntry]]"


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
        """Return its key: for calls of this room, for rules of rights, and for what is compared with plain commands."""
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
    """A stream in numbers.

    Attributes:
        length: entries that it has.
        added: entries that were ever added to it.
        first: the ID of the first one that it has; None where it has none.
        last: the last ID that was given in it.
        deleted: the greatest ID that was deleted from between others; `FIRST` for none.
    """

    length: int
    added: int
    first: Id | None
    last: Id
    deleted: Id


def entries_behind(instance: str, stream: Stream, after: str, count: int, *, until: str = "+") -> Call[list[RawEntry]]:
    """Read the first entries behind an ID ("": from the first one on); `until`: the last ID that is wanted."""
    return entries_between(instance, stream, f"({after}" if after else "-", until, count)


def entries_between(instance: str, stream: Stream, first: str, last: str, count: int) -> Call[list[RawEntry]]:
    """Read the first entries from one ID up to another."""
    return command(["XRANGE", stream.key(instance), first, last, "COUNT", count], list["RawEntry"])


def last_id(instance: str, stream: Stream) -> Call[Id]:
    """Read the ID of the last entry that is there; 0-0 where none is."""
    return command(
        ["XREVRANGE", stream.key(instance), "+", "-", "COUNT", 1],
        replies.last_id,
    )


def last_entries(instance: str, stream: Stream, count: int, *, before: str = "") -> Call[list[RawEntry]]:
    """Read the last entries that are there, the last one first; `before`: those before an ID, "": before none."""
    end = f"({before}" if before else "+"
    return command(["XREVRANGE", stream.key(instance), end, "-", "COUNT", count], list["RawEntry"])


def latest_ids(instance: str, stream: Stream, since: int, most: int) -> Call[list[str]]:
    """Read the IDs of the last entries from a moment on, ms, the last one first."""

    def read(reply: Sequence[RawEntry]) -> list[str]:
        return [stream_id.decode() for stream_id, _ in reply]

    return command(["XREVRANGE", stream.key(instance), "+", since, "COUNT", most], read)


def first_entry(instance: str, stream: Stream) -> Call[RawEntry | None]:
    """Read the first entry that is there."""
    return command(["XRANGE", stream.key(instance), "-", "+", "COUNT", 1], _only)


def find_entry(instance: str, stream: Stream, stream_id: str) -> Call[RawEntry | None]:
    """Read the entry that has an ID; None where the stream does not have it any more."""
    return command(["XRANGE", stream.key(instance), stream_id, stream_id], _only)


def _only(reply: Sequence[RawEntry]) -> RawEntry | None:
    return reply[0] if reply else None


def stream_length(instance: str, stream: Stream) -> Call[int]:
    """Count the entries of a stream."""
    return command(["XLEN", stream.key(instance)], int)


def stream_exists(instance: str, stream: Stream) -> Call[bool]:
    """Ask whether anything was ever written to a stream."""
    return command(["EXISTS", stream.key(instance)], bool)


def stream_facts(instance: str, stream: Stream) -> Call[StreamFacts]:
    """Read how much a stream has, and had; refused where it never had an entry, see `stream_exists`."""
    return command(["XINFO", "STREAM", stream.key(instance)], _read_facts)


def _read_facts(reply: RawFacts) -> StreamFacts:
    known = replies.facts(reply)
    first = known[b"first-entry"]
    return StreamFacts(
        replies.number(known[b"length"]),
        replies.number(known[b"entries-added"]),
        parse_id(first[0]) if isinstance(first, list | tuple) else None,
        _id(known[b"last-generated-id"]),
        _id(known[b"max-deleted-entry-id"]),
    )


def _id(fact: object) -> Id:
    if not isinstance(fact, bytes):
        raise TypeError(f"the server gave {fact!r}, where an ID is due")
    return parse_id(fact)


def stream_memory(instance: str, stream: Stream) -> Call[int]:
    """Measure the memory of a stream, bytes, about."""
    return command(["MEMORY", "USAGE", stream.key(instance)], lambda reply: int(reply or 0))


def read_streams(instance: str, places: Mapping[Stream, str], count: int) -> Call[dict[Stream, list[RawEntry]]]:
    """Read the first entries behind an ID of each stream, `count` of each at most; streams without any are left out."""
    return command(["XREAD", "COUNT", count, *_streams(instance, places)], _by_stream(instance, places))


def wait_for_streams(instance: str, places: Mapping[Stream, str], seconds: float) -> Call[bool]:
    """Wait until one of the streams has an entry behind its ID; False when the time is over."""
    block = max(round(seconds * 1000), 1)
    return command(["XREAD", "COUNT", 1, "BLOCK", block, *_streams(instance, places)], bool, blocks=seconds)


def wait_for_any(places: Mapping[str, str], seconds: float) -> Call[list[str]]:
    """Wait until a stream of any instance has an entry behind its ID; gives the keys of those that have.

    Args:
        places: key of a stream -> an ID.
        seconds: at most.
    """
    block = max(round(seconds * 1000), 1)
    words: list[EncodableT] = ["XREAD", "COUNT", 1, "BLOCK", block, "STREAMS", *places, *places.values()]

    def read(reply: RawStreams) -> list[str]:
        return [name.decode() for name in replies.streams(reply)]

    return command(words, read, blocks=seconds)


def find_news(instance: str, places: Mapping[Stream, str], wait: float) -> Call[list[Stream]]:
    """Tell which streams have an entry behind their IDs, waiting so many seconds at most where none has."""
    block: list[EncodableT] = ["BLOCK", max(round(wait * 1000), 1)] if wait > 0 else []
    find = _by_stream(instance, places)
    asked = ["XREAD", "COUNT", 1, *block, *_streams(instance, places)]
    return command(asked, lambda reply: [*find(reply)], blocks=max(wait, 0.0))


def _streams(instance: str, places: Mapping[Stream, str]) -> Iterable[EncodableT]:
    return ["STREAMS", *(stream.key(instance) for stream in places), *places.values()]


def _by_stream(instance: str, places: Iterable[Stream]) -> Callable[[RawStreams], dict[Stream, list[RawEntry]]]:
    names = {stream.key(instance).encode(): stream for stream in places}

    def read(reply: RawStreams) -> dict[Stream, list[RawEntry]]:
        return {names[name]: rows for name, rows in replies.streams(reply).items()}

    return read


def log_key(instance: str, topic: str) -> bytes:
    """Name a topic's log, for `read_logs`, which is asked for the same ones again and again."""
    return key(instance, "log", topic).encode()


def read_logs(cursors: Sequence[tuple[bytes, str]], count: int, wait: float = 0.0) -> Call[LogPages]:
    """Read in one moment what several logs have behind IDs, `count` entries each; only of those that have some.

    Args:
        cursors: names of logs, as `log_key` gives them, and IDs.
        count: of each log.
        wait: seconds to wait for news, if there are none.
    """
    block: list[str | int] = ["BLOCK", max(round(wait * 1000), 1)] if wait > 0 else []
    names, ids = zip(*cursors, strict=True)
    return command(["XREAD", "COUNT", count, *block, "STREAMS", *names, *ids], replies.streams, blocks=max(wait, 0.0))


def last_ids(instance: str, pages: LogPages) -> dict[str, Id]:
    """Of each topic that pages have entries of, the ID of the last one."""
    prefix = len(log_key(instance, ""))
    return {name[prefix:].decode(): parse_id(entries[-1][0]) for name, entries in pages.items()}
