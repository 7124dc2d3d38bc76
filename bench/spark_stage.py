"""What measurements of Spark share: a local session beside plain processes, and ways that are measured in turn."""

from __future__ import annotations

import contextlib
import multiprocessing
import statistics
from typing import TYPE_CHECKING, Any, Final

from ampsq.bench.stage import Stage
from ampsq.spark import prepare_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from multiprocessing.pool import Pool

    from pyspark.sql import SparkSession

__all__ = ["PROCESSES", "SparkStage"]

#: Cores of Spark, and processes of what it is compared with.
PROCESSES: Final = 2


class SparkStage(Stage):
    """Where something is measured with Spark; see `Stage`."""

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

    def in_turn(self, ways: Mapping[str, Callable[[], float]]) -> dict[str, dict[str, Any]]:
        """Measure ways of doing the same in turn, round by round, the first one uncounted.

        Args:
            ways: name -> what does it and gives how many a second. All are compared with the first one.

        Returns:
            Name -> the medians of how many a second and of the ratio to the first way in the same round.
        """
        rounds: list[dict[str, float]] = []
        for number in range(self.settings.rounds + 1):
            self.progress(f"round {number} of {self.settings.rounds}" if number else "first, uncounted round")
            rounds.append({name: measure() for name, measure in ways.items()})
        counted, first = rounds[1:], next(iter(ways))
        return {
            name: {
                "per_second": round(statistics.median(each[name] for each in counted)),
                "ratio": round(statistics.median(each[name] / each[first] for each in counted), 2),
            }
            for name in ways
        }
