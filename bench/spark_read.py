"""How fast Spark reads a topic beside raw `XRANGE` with as many processes: ``python -m ampsq.bench.spark_read``."""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, Final

import redis

from ampsq.bench.server import private_server
from ampsq.bench.stage import Settings, Stage
from ampsq.models import Topic
from ampsq.schema import key
from ampsq.spark import prepare_environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.pool import Pool

    from ampsq.client import Client

__all__ = ["SparkRead"]

_BODY: Final = b'{"id": 1, "symbol": "AAPL", "price": 12.5, "x": "' + b"x" * 149 + b'"}'
_PROCESSES: Final = 2
#: Entries of a page of the raw side, the best of 250, 500, 1,000 and 10,000.
_PAGE: Final = 500


class SparkRead(Stage):
    """The measurement, on one server; see `Stage`."""

    def run(self) -> dict[str, Any]:
        """Batch reads of a million messages beside raw ones, in turn."""
        client, count = self.client(), self.settings.messages * 50
        self.progress(f"reading with Spark: {count:,} messages")
        client.apply(Topic(name="orders"))
        client.publish_many("orders", itertools.repeat(_BODY, count), batch=500)
        prepare_environment()
        from pyspark.sql import SparkSession  # noqa: PLC0415 - the environment comes first

        builder = SparkSession.builder.master(f"local[{_PROCESSES}]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.log.level", "ERROR")
        session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
        with multiprocessing.get_context("spawn").Pool(_PROCESSES) as pool:
            out = self._rates(session, pool, client, count)
        session.stop()
        self.remove(client)
        return out

    def _rates(self, session: Any, pool: Pool, client: Client, count: int) -> dict[str, Any]:
        def spark(**options: str) -> float:
            given = {"url": self.url, "instance": client.instance, "topic": "orders", **options}
            frame = session.read.format("ampsq").options(**given).load()
            started = time.perf_counter()
            number, _ = frame.selectExpr("count(*)", "sum(length(value))").collect()[0]
            return _rate(count, number, started)

        def stream() -> float:
            given = {"url": self.url, "instance": client.instance, "topic": "orders", "startingBookmark": "earliest"}
            batch = {"maxOffsetsPerTrigger": str(count // 4), "minPartitions": str(_PROCESSES)}
            frame = session.readStream.format("ampsq").options(**given, **batch).load()
            with tempfile.TemporaryDirectory(prefix="ampsq-bench-") as folder:
                writer = frame.writeStream.format("noop").option("checkpointLocation", folder)
                started = time.perf_counter()
                query = writer.trigger(availableNow=True).start()
                query.awaitTermination()
                return _rate(count, sum(progress.numInputRows for progress in query.recentProgress), started)

        parts = {"minPartitions": str(_PROCESSES), "maxRowsPerPartition": str(count)}
        ways: dict[str, Callable[[], float]] = {
            "raw": lambda: raw_read(pool, self.url, key(client.instance, "log", "orders"), count),
            "count and length": lambda: spark(**parts),
            "parts of 100,000": lambda: spark(maxRowsPerPartition="100000"),
            "a stream in 4 batches": stream,
            "with a filter": lambda: spark(**parts, filter="/price > 10"),
        }
        found: dict[str, list[float]] = {}
        for number in range(-1, self.settings.rounds):
            self.progress(f"round {number + 1} of {self.settings.rounds}" if number >= 0 else "first, uncounted round")
            for name, measure in ways.items():
                rate = measure()
                if number >= 0:
                    found.setdefault(name, []).append(rate)
        raws = found["raw"]
        return {
            name: {
                "per_second": round(statistics.median(rates)),
                "ratio": round(statistics.median(own / other for own, other in zip(rates, raws, strict=True)), 2),
            }
            for name, rates in found.items()
        }


def _rate(count: int, number: int, started: float) -> float:
    if number != count:
        raise AssertionError(f"{number} of {count} messages came")
    return count / (time.perf_counter() - started)


def raw_read(pool: Pool, url: str, log: str, count: int) -> float:
    """Read a stream page by page in processes that share it, as users of redis-py write it; gives messages a second."""
    with redis.Redis.from_url(url, protocol=2) as server:
        ends: Any = [server.xrange(log, count=1)[0][0], server.xrevrange(log, count=1)[0][0]]
    first, last = (int(end.partition(b"-")[0]) for end in ends)
    # The middle by time: the log was written at one pace.
    middle = (first + last) // 2
    started = time.perf_counter()
    numbers = pool.starmap(_read_range, [(url, log, "-", f"({middle}-0"), (url, log, f"{middle}-0", "+")])
    return _rate(count, sum(number for number, _ in numbers), started)


def _read_range(url: str, log: str, after: str, last: str) -> tuple[int, int]:
    number, size = 0, 0
    with redis.Redis.from_url(url, protocol=2) as server:
        while True:
            entries: Any = server.xrange(log, after, last, count=_PAGE)
            number += len(entries)
            size += sum(len(fields[b"b"]) for _, fields in entries)
            if len(entries) < _PAGE:
                return number, size
            after = "(" + entries[-1][0].decode()


def _main() -> None:
    def progress(what: str) -> None:
        sys.stderr.write(f"{what} ...\n")

    with private_server() as url:
        figures = SparkRead(url, Settings(), progress).run()
    sys.stdout.write(f"{'reading, ' + str(_PROCESSES) + ' processes':<24}{'messages/s':>12}{'of raw':>8}\n")
    for name, row in figures.items():
        sys.stdout.write(f"{name:<24}{row['per_second']:>12,}{row['ratio']:>8.2f}\n")


if __name__ == "__main__":
    _main()
