"""Latencies of a queue's messages, as percentiles over a range of time."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ampsq.base.errors import DefinitionError
from ampsq.base.values import shown
from ampsq.catalog.suggestions import with_suggestions
from ampsq.protocol.calls import queue_stats as stats_calls
from ampsq.protocol.calls.queue_latencies import Latencies
from ampsq.protocol.calls.queue_latencies import read_latencies as read_buckets
from ampsq.protocol.limits import HISTORY_RANGES
from ampsq.protocol.reads.clock import server_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.base.histogram import Histogram
    from ampsq.protocol.calls.queue_latencies import LatencyBucket

__all__ = ["LatencyPercentiles", "QueueLatencies", "join_buckets", "percentiles_of", "read_latencies"]


@dataclass(frozen=True, slots=True)
class LatencyPercentiles:
    """Percentiles of how long messages took, in seconds; None where none was measured.

    Attributes:
        samples: how many messages were measured, about one in a hundred.
        p50: within which half of them took.
        p95: within which 95 of a hundred took.
        p99: within which 99 of a hundred took. Each is interpolated; of what took more than an hour it is an hour.
    """

    samples: int
    p50: float | None
    p95: float | None
    p99: float | None


def percentiles_of(histogram: Histogram) -> LatencyPercentiles:
    """Take the percentiles from a histogram."""
    return LatencyPercentiles(histogram.count, *(histogram.quantile(share) for share in (0.5, 0.95, 0.99)))


@dataclass(frozen=True, slots=True, repr=False)
class QueueLatencies:
    """Latencies of a queue's messages over a range of time.

    Attributes:
        queue: its name.
        over: the range: ``15m``, ``6h`` or ``7d``.
    """

    queue: str
    over: str
    _whole: Latencies

    @property
    def delivery(self) -> LatencyPercentiles:
        """From publishing to the first delivery to an application, by the clock of this instance.

        A message counts from when it was recorded here, one that was published for later from when it is due.
        """
        return percentiles_of(self._whole.delivery)

    @property
    def handling(self) -> LatencyPercentiles:
        """From a delivery to the acknowledgement; what was cancelled, expired or came back is not in it."""
        return percentiles_of(self._whole.handling)

    @classmethod
    def merged(cls, parts: Sequence[QueueLatencies]) -> QueueLatencies:
        """Return those of a queue of all partitions, of those of each."""
        return cls(parts[0].queue, parts[0].over, Latencies.merged(part._whole for part in parts))  # noqa: SLF001  (its own)

    def __repr__(self) -> str:
        return f"QueueLatencies({self.queue!r}, {self.over!r}, delivery={self.delivery}, handling={self.handling})"

    def as_dict(self) -> dict[str, object]:
        """As JSON values."""
        figures = {"delivery": asdict(self.delivery), "handling": asdict(self.handling)}
        return {"queue": self.queue, "over": self.over, **figures}


def join_buckets(queue: str, over: str, buckets: Sequence[LatencyBucket]) -> QueueLatencies:
    """Make the latencies of a queue over a range, of those of its buckets of time."""
    return QueueLatencies(queue, over, Latencies.merged(bucket.latencies for bucket in buckets))


@with_suggestions("queue")
async def read_latencies(instance: str, queue: str, over: str) -> QueueLatencies:
    """Read how long messages of a queue took; see `Admin.queue_latencies`."""
    if not isinstance(over, str) or over not in HISTORY_RANGES:
        raise DefinitionError(f"over={shown(over)}: allowed is {', '.join(map(repr, HISTORY_RANGES))}")
    found = await read_buckets(instance, queue, over, await server_time())
    if not found:
        # Refuses what is no queue.
        await stats_calls.stats(queue)
    return join_buckets(queue, over, found)
