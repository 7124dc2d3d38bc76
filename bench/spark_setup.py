"""Setup that measurements of Spark share: a local session beside plain processes, and ways measured in turn."""

from __future__ import annotations

import contextlib
import multiprocessing
import statistics
import time
from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict

from ampsq.bench.replies import info
from ampsq.bench.setup import Stage
from ampsq.spark import prepare_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from multiprocessing.pool import Pool

    from pyspark.sql import SparkSession

__all__ = ["PROCESSES", "Measured", "SparkStage", "WayFigures"]

#: Cores of Spark, and processes of what it is compared with.
PROCESSES: Final = 2


class Measured(NamedTuple):
    """The result of one run of a way.

    Attributes:
        per_second: messages or rows a second.
        server_us: microseconds of the server's main thread for each.
    """

    per_second: float
    server_us: float


class WayFigures(TypedDict):
    """The medians of one way over the rounds; the ratio is to the first way."""

    per_second: int
    ratio: float
    server_us: float


class SparkStage(Stage):
    """The stage of a measurement with Spark; see `Stage`."""

    @contextlib.contextmanager
    def crew(self) -> Iterator[tuple[SparkSession, Pool]]:
        """Gives a local session, and as many processes without Spark; ends both afterwards."""
        prepare_environment()
        from pyspark.sql import SparkSession  # noqa: PLC0415 - the environment comes first

        builder = SparkSession.builder.master(f"local[{PROCESSES}]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.log.level", "ERROR").config("spark.sql.shuffle.partitions", str(PROCESSES))
        session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
        try:
            with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
                yield session, pool
        finally:
            session.stop()

    def timed(self, count: int, work: Callable[[], int]) -> Measured:
        """Measure one run of what gives how many messages or rows it was done with: `count`, else it fails."""
        spent, started = self._server_time(), time.perf_counter()
        number = work()
        taken = time.perf_counter() - started
        if number != count:
            raise AssertionError(f"{number} of {count} came")
        return Measured(count / taken, (self._server_time() - spent) * 1e6 / count)

    def _server_time(self) -> float:
        """Seconds that the server's main thread has worked: what it can give is one core of them."""
        cpu = info(self.redis, "cpu")
        return float(cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"])

    def in_turn(self, ways: Mapping[str, Callable[[], Measured]]) -> dict[str, WayFigures]:
        """Measure ways of doing the same in turn, round by round, the first one uncounted.

        Args:
            ways: name -> what does it once. All are compared with the first one.

        Returns:
            Name -> the medians of how many a second, of the ratio to the first way in the same round, and of the
            server's microseconds for each.
        """
        rounds: list[dict[str, Measured]] = []
        for number in range(self.settings.rounds + 1):
            self.progress(f"round {number} of {self.settings.rounds}" if number else "first, uncounted round")
            rounds.append({name: measure() for name, measure in ways.items()})
        counted, first = rounds[1:], next(iter(ways))
        return {
            name: {
                "per_second": round(statistics.median(each[name].per_second for each in counted)),
                "ratio": round(
                    statistics.median(each[name].per_second / each[first].per_second for each in counted), 2
                ),
                "server_us": round(statistics.median(each[name].server_us for each in counted), 2),
            }
            for name in ways
        }
