"""Topics' logs: their ends, and their entries in pages.

An entry is given as it came, its ID and its fields, names and values in turn: logs are read fast. What the fields say
`ampsq.protocol.entries` knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ampsq.base.log_positions import parse_id
from ampsq.protocol.replies import last_id, pairs, streams
from ampsq.protocol.request import command
from ampsq.protocol.schema import key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ampsq.base.log_positions import Id
    from ampsq.protocol.entries import RawEntry
    from ampsq.protocol.request import Call

__all__ = [
    "LogFacts",
    "LogPages",
    "has_log",
    "last_ids",
    "log_end",
    "log_key",
    "log_length",
    "log_memory",
    "read_first_entry",
    "read_last_entry",
    "read_log",
    "read_log_entry",
    "read_log_facts",
    "read_logs",
]

#: Of each log that has news its entries, by the log's name; see `read_logs`.
LogPages: TypeAlias = "Mapping[bytes, list[RawEntry]]"


@dataclass(frozen=True, slots=True)
class LogFacts:
    """A log in numbers.

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


def log_key(instance: str, topic: str) -> bytes:
    """Name a topic's log, for `read_logs`, which is asked for the same ones again and again."""
    return key(instance, "log", topic).encode()


def has_log(instance: str, topic: str) -> Call[bool]:
    """Ask whether a topic has had an entry."""
    return command(["EXISTS", key(instance, "log", topic)], bool)


def log_length(instance: str, topic: str) -> Call[int]:
    """Count the entries of a log."""
    return command(["XLEN", key(instance, "log", topic)], int)


def log_memory(instance: str, topic: str) -> Call[int]:
    """Measure the memory of a log, bytes, about."""
    return command(["MEMORY", "USAGE", key(instance, "log", topic)], lambda reply: int(reply or 0))


def log_end(instance: str, topic: str) -> Call[Id]:
    """Read the ID of a log's last entry; `FIRST` where it has none."""
    return command(["XREVRANGE", key(instance, "log", topic), "+", "-", "COUNT", 1], last_id)


def read_first_entry(instance: str, topic: str) -> Call[RawEntry | None]:
    """Read the first entry of a log."""
    return command(["XRANGE", key(instance, "log", topic), "-", "+", "COUNT", 1], _only)


def read_last_entry(instance: str, topic: str) -> Call[RawEntry | None]:
    """Read the last entry of a log."""
    return command(["XREVRANGE", key(instance, "log", topic), "+", "-", "COUNT", 1], _only)


def read_log_entry(instance: str, topic: str, stream_id: str) -> Call[RawEntry | None]:
    """Read the entry that has an ID; None where the log does not have it any more."""
    return command(["XRANGE", key(instance, "log", topic), stream_id, stream_id], _only)


def read_log(instance: str, topic: str, after: str, count: int, last: str = "+") -> Call[list[RawEntry]]:
    """Read so many entries behind an ID ("": from the first one on), up to another one ("+": all that there is)."""
    begin = f"({after}" if after else "-"
    return command(["XRANGE", key(instance, "log", topic), begin, last, "COUNT", count], list["RawEntry"])


def read_log_facts(instance: str, topic: str) -> Call[LogFacts]:
    """Read how much a log has, and had; refused where the topic never had an entry, see `has_log`."""
    return command(["XINFO", "STREAM", key(instance, "log", topic)], _read_facts)


def read_logs(cursors: Sequence[tuple[bytes, str]], count: int, wait: float = 0.0) -> Call[LogPages]:
    """Read in one moment what several logs have behind IDs, `count` entries each; only of those that have some.

    Args:
        cursors: names of logs, as `log_key` gives them, and IDs.
        count: of each log.
        wait: seconds to wait for news, if there are none.
    """
    block: list[str | int] = ["BLOCK", max(round(wait * 1000), 1)] if wait > 0 else []
    names, ids = zip(*cursors, strict=True)
    return command(["XREAD", "COUNT", count, *block, "STREAMS", *names, *ids], streams, blocks=max(wait, 0.0))


def last_ids(instance: str, pages: LogPages) -> dict[str, Id]:
    """Of each topic that pages have entries of, the ID of the last one."""
    prefix = len(log_key(instance, ""))
    return {name[prefix:].decode(): parse_id(entries[-1][0]) for name, entries in pages.items()}


def _only(reply: Any) -> RawEntry | None:
    return reply[0] if reply else None


def _read_facts(reply: Any) -> LogFacts:
    known = dict(pairs(reply))
    first = known[b"first-entry"]
    return LogFacts(
        known[b"length"],
        known[b"entries-added"],
        parse_id(first[0]) if first else None,
        parse_id(known[b"last-generated-id"]),
        parse_id(known[b"max-deleted-entry-id"]),
    )
