"""Single facts of a queue; `ampsq.protocol.calls.queues.stats` reads its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ampsq.protocol.replies import pairs
from ampsq.protocol.request import command
from ampsq.protocol.schema import FIELDS, key

if TYPE_CHECKING:
    from ampsq.protocol.request import Call

__all__ = ["DueEntry", "lease_period", "queue_topics", "read_timetable"]


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
    return command(["HKEYS", key(instance, "cursors", queue)], lambda reply: [topic.decode() for topic in reply])


def read_timetable(instance: str, count: int) -> Call[list[DueEntry]]:
    """Read so many entries of what is due, the earliest first."""
    return command(["ZRANGE", key(instance, "due"), 0, count - 1, "WITHSCORES"], _due)


def _due(reply: Any) -> list[DueEntry]:
    found = []
    for member, score in pairs(reply):
        kind, _, rest = member.decode(errors="replace").partition(" ")
        found.append(DueEntry(kind, rest.partition(" ")[0], int(float(score))))
    return found
