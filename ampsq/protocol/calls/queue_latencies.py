"""Latencies of a queue's messages: from publishing to delivery, and from delivery to acknowledgement.

Clients measure one message in a hundred and tell it with a sign of life (lua/queues/lib/latency_buckets.lua). Messages
count from when they were recorded at this instance, by its clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ampsq.base.histogram import Histogram
from ampsq.protocol.limits import HISTORY_BUCKETS, HISTORY_RANGES
from ampsq.protocol.request import Call, command
from ampsq.protocol.schema import key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Latencies", "LatencyBucket", "latency_lines", "parse_latencies", "read_latencies"]


@dataclass(frozen=True, slots=True)
class Latencies:
    """Histograms of what some messages of a queue took.

    Attributes:
        delivery: from publishing to the first delivery to an application; of a message for later, from when it is due.
        handling: from a delivery to the acknowledgement.
    """

    delivery: Histogram = field(default_factory=Histogram)
    handling: Histogram = field(default_factory=Histogram)

    @classmethod
    def merged(cls, parts: Iterable[Latencies]) -> Latencies:
        """Return all that several have."""
        whole = cls()
        for part in parts:
            whole.delivery.merge(part.delivery)
            whole.handling.merge(part.handling)
        return whole


@dataclass(frozen=True, slots=True)
class LatencyBucket:
    """Measurements of one bucket of time.

    Attributes:
        at: ms of the server's clock when it begins.
        latencies: what was told to the server in it.
    """

    at: int
    latencies: Latencies


def latency_lines(latencies: Mapping[str, Latencies]) -> str:
    """Write what was measured of queues as the script takes it; "" where that is nothing."""
    return "\n".join(f"{queue}|{each.delivery.text()}|{each.handling.text()}" for queue, each in latencies.items())


def parse_latencies(stored: str) -> tuple[int, Latencies]:
    """Read a field: the number of its bucket of time, and what is in it."""
    number, delivery, handling = stored.split("|")
    return int(number), Latencies(Histogram.parse(delivery), Histogram.parse(handling))


def read_latencies(instance: str, queue: str, range_: str, now: int) -> Call[list[LatencyBucket]]:
    """Read what was measured over one range, by buckets of time, the earliest first; those without are left out.

    Args:
        instance: its name.
        queue: the queue.
        range_: one of `HISTORY_RANGES`.
        now: ms of the server's clock.
    """
    length = HISTORY_RANGES[range_]
    last = now // length
    numbers = range(last - HISTORY_BUCKETS + 1, last + 1)

    def read(reply: Sequence[bytes | None]) -> list[LatencyBucket]:
        found: list[LatencyBucket] = []
        for number, stored in zip(numbers, reply, strict=True):
            # What the ring has of an earlier turn is none of this range.
            if stored is not None and (parsed := parse_latencies(stored.decode()))[0] == number:
                found.append(LatencyBucket(number * length, parsed[1]))
        return found

    places = [f"{range_} {number % HISTORY_BUCKETS}" for number in numbers]
    return command(["HMGET", key(instance, "latencies", queue), *places], read)
