"""Ours beside raw redis-py, round by round: by the time that passes, and by what server and client work."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from ampsq.bench.replies import info

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import redis

__all__ = ["Compared", "Spent", "compared", "server_seconds", "spent_by"]


@dataclass(frozen=True, slots=True)
class Spent:
    """The time of a piece of work, in microseconds a message.

    Attributes:
        wall: time that passed.
        server: what the server's process worked.
        client: what this process worked, all of its threads together.
    """

    wall: float
    server: float
    client: float

    @property
    def work(self) -> float:
        """Time that both processes worked."""
        return self.server + self.client


class Compared(TypedDict):
    """Figures of ours beside raw ones; above 1 a ratio says that ours is faster, or less work."""

    ratio: float
    ratios: list[float]
    cpu_ratio: float
    per_second: int
    raw_per_second: int
    server_us: float
    raw_server_us: float
    client_us: float
    raw_client_us: float


def server_seconds(server: redis.Redis) -> float:
    """Seconds of the processor that a server has used."""
    used = info(server, "cpu")
    return float(used["used_cpu_sys"]) + float(used["used_cpu_user"])


def spent_by(server: redis.Redis, work: Callable[[], object], count: int) -> Spent:
    """Run a piece of work on so many messages; gives what it took."""
    worked = server_seconds(server)
    began, started = time.process_time(), time.perf_counter()
    work()
    wall, client = time.perf_counter() - started, time.process_time() - began
    parts = (wall, server_seconds(server) - worked, client)
    return Spent(*(seconds / count * 1e6 for seconds in parts))


def compared(rounds: Sequence[tuple[Spent, Spent]]) -> Compared:
    """Medians of ours and raw, and the medians of the ratios of neighbours; each round is ours and raw."""
    ratios = [other.wall / own.wall for own, other in rounds]

    def middle(values: Sequence[float]) -> float:
        return round(statistics.median(values), 2)

    return {
        "ratio": middle(ratios),
        "ratios": [round(ratio, 2) for ratio in ratios],
        "cpu_ratio": middle([other.work / own.work for own, other in rounds]),
        "per_second": round(1e6 / statistics.median(own.wall for own, _ in rounds)),
        "raw_per_second": round(1e6 / statistics.median(other.wall for _, other in rounds)),
        "server_us": middle([own.server for own, _ in rounds]),
        "raw_server_us": middle([other.server for _, other in rounds]),
        "client_us": middle([own.client for own, _ in rounds]),
        "raw_client_us": middle([other.client for _, other in rounds]),
    }
