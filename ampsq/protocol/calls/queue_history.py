"""Figures of a queue over the last 15 minutes, 6 hours and 7 days, in buckets of time.

A bucket has the figures as they were when it was written last. Its field is its place in a ring, so that writing it
again, late, or by two coordinators does no harm, and a queue's history has a length of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ampsq.protocol.limits import HISTORY_BUCKETS, HISTORY_RANGES
from ampsq.protocol.replies import texts
from ampsq.protocol.request import Call, command
from ampsq.protocol.schema import key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampsq.protocol.replies import RawHash

__all__ = ["BUCKETS", "RANGES", "HistorySample", "drop_history", "read_history", "write_sample"]

BUCKETS: Final = HISTORY_BUCKETS
RANGES: Final = HISTORY_RANGES


@dataclass(frozen=True, slots=True)
class HistorySample:
    """Former figures of a queue.

    Attributes:
        at: ms of the server's clock.
        entered: messages that had come in since the queue was defined.
        settled: that had left it.
        depth: that were not settled.
        oldest: ms for which the oldest of these had been there.
    """

    at: int
    entered: int
    settled: int
    depth: int
    oldest: int

    def text(self) -> str:
        """Write it as it is stored."""
        return f"{self.at} {self.entered} {self.settled} {self.depth} {self.oldest}"


def write_sample(instance: str, queue: str, sample: HistorySample) -> Call[int]:
    """Write a sample into its bucket of each range, in place of an earlier one of the same bucket."""
    words: list[str] = []
    for name, length in RANGES.items():
        words += [f"{name} {sample.at // length % BUCKETS}", sample.text()]
    return command(["HSET", key(instance, "history", queue), *words], int)


def drop_history(instance: str, queues: Iterable[str]) -> Call[int]:
    """Forget the history of queues."""
    return command(["DEL", *(key(instance, "history", queue) for queue in queues)], int)


def read_history(instance: str, queue: str, range_: str, now: int) -> Call[list[HistorySample]]:
    """Read the samples of one range, the earliest first; what the ring has of an earlier turn is left out.

    Args:
        instance: its name.
        queue: the queue.
        range_: one of `RANGES`.
        now: ms of the server's clock.
    """
    length = RANGES[range_]
    begin = (now // length - BUCKETS + 1) * length

    def read(reply: RawHash) -> list[HistorySample]:
        samples = [
            HistorySample(*map(int, text.split(" ")))
            for field, text in texts(reply).items()
            if field.partition(" ")[0] == range_
        ]
        return sorted((each for each in samples if begin <= each.at <= now), key=lambda each: each.at)

    return command(["HGETALL", key(instance, "history", queue)], read)
