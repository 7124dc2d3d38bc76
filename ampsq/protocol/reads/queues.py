"""Single facts of a queue; `ampsq.protocol.calls.queue_stats.stats` reads its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.log_positions import parse_id
from ampsq.protocol.limits import EVENTS
from ampsq.protocol.reads.streams import events_of, first_entry, stream_length
from ampsq.protocol.replies import names, pairs
from ampsq.protocol.request import command
from ampsq.protocol.schema import FIELDS, key

if TYPE_CHECKING:
    from ampsq.protocol.entries import RawEntry
    from ampsq.protocol.replies import RawHash
    from ampsq.protocol.request import Call

__all__ = [
    "AvailabilityEvent",
    "DueEntry",
    "count_remote",
    "has_lost_events",
    "lease_period",
    "queue_topics",
    "read_availability_events",
    "read_timetable",
]

_REFS: Final = FIELDS["refs"].encode()


class DueEntry(NamedTuple):
    """An entry of the timetable.

    Attributes:
        kind: what is due: ``leases``, ``dispatch``, ``ready``, ``scheduled``, ``expiry``, ``expirations``, ...
        of: of which queue or topic.
        at: when, ms.
    """

    kind: str
    of: str
    at: int


def lease_period(instance: str, queue: str) -> Call[int]:
    """Read the lease period of a queue, ms; 0: leases do not lapse, or there is no such queue."""
    # It is the first of the numbers, see `ampsq.protocol.schema.COMPILED`.
    return command(
        ["HGET", key(instance, "queue", queue), FIELDS["compiled"]], lambda reply: int((reply or b"0").split(b" ")[0])
    )


def queue_topics(instance: str, queue: str) -> Call[list[str]]:
    """Read the topics that a queue has begun to read."""
    return command(["HKEYS", key(instance, "cursors", queue)], names)


def count_remote(instance: str, queue: str) -> Call[int]:
    """Count the messages of a queue that wait here and that other instances own."""
    return command(["ZCARD", key(instance, "remote", queue)], int)


def read_timetable(instance: str, count: int) -> Call[list[DueEntry]]:
    """Read so many entries of what is due, the earliest first."""
    return command(["ZRANGE", key(instance, "due"), 0, count - 1, "WITHSCORES"], _due)


def _due(reply: RawHash) -> list[DueEntry]:
    found = []
    for member, score in pairs(reply):
        kind, _, rest = member.decode(errors="replace").partition(" ")
        found.append(DueEntry(kind, rest.partition(" ")[0], int(float(score))))
    return found


class AvailabilityEvent(NamedTuple):
    """An event of a watched queue.

    Attributes:
        id: of the entry.
        refs: messages whose availability may have changed.
    """

    id: str
    refs: list[bytes]


def read_availability_events(instance: str, queue: str, after: str, count: int) -> Call[list[AvailabilityEvent]]:
    """Read so many of what a watched queue told behind an ID."""
    return command(["XRANGE", key(instance, "events", queue), f"({after}", "+", "COUNT", count], _events)


def _events(reply: list[RawEntry]) -> list[AvailabilityEvent]:
    return [
        AvailabilityEvent(stream_id.decode(), dict(zip(flat[::2], flat[1::2], strict=True)).get(_REFS, b"").split())
        for stream_id, flat in reply
    ]


async def has_lost_events(instance: str, queue: str, after: str) -> bool:
    """Tell whether a watched queue may have told something behind an ID that is not to be read any more."""
    length = await stream_length(instance, events_of(queue))
    oldest = await first_entry(instance, events_of(queue))
    return oldest is not None and length >= EVENTS and parse_id(oldest[0]) > parse_id(after)
