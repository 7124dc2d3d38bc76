"""Rate of Spark reading a topic beside raw `XRANGE` with as many processes: ``python -m ampsq.bench.spark_read``."""

from __future__ import annotations

import itertools
import sys
import tempfile
from typing import TYPE_CHECKING, Final

import redis

from ampsq.bench.replies import entries
from ampsq.bench.server import private_server
from ampsq.bench.setup import BenchSettings
from ampsq.bench.spark_setup import PROCESSES, SparkStage
from ampsq.definitions.queue import Topic
from ampsq.protocol.reads.streams import log_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.pool import Pool

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ampsq.bench.spark_setup import Measured, WayFigures
    from ampsq.client.client import Client

__all__ = ["SparkRead"]

_BODY: Final = b'{"id": 1, "symbol": "AAPL", "price": 12.5, "x": "' + b"x" * 149 + b'"}'
#: Entries of a page of the raw side, the best of 250, 500, 1,000 and 10,000.
_PAGE: Final = 500


class SparkRead(SparkStage):
    """The measurement, on one server; see `Stage`."""

    def run(self) -> dict[str, WayFigures]:
        """Batch reads of a million messages beside raw ones, in turn."""
        client, count = self.client(), self.settings.messages * 50
        self.progress(f"reading with Spark: {count:,} messages")
        client.apply(Topic(name="orders"))
        client.publish_many("orders", itertools.repeat(_BODY, count), batch=500)
        with self.crew() as (session, pool):
            out = self._rates(session, pool, client, count)
        self.remove(client)
        return out

    def _rates(self, session: SparkSession, pool: Pool, client: Client, count: int) -> dict[str, WayFigures]:
        given = {"url": self.url, "instance": client.instance, "topic": "orders"}

        def spark(**options: str) -> Measured:
            frame = session.read.format("ampsq").options(**given, **options).load()
            return self.timed(count, lambda: int(frame.selectExpr("count(*)", "sum(length(value))").collect()[0][0]))

        def stream() -> Measured:
            batch = {"maxOffsetsPerTrigger": str(count // 4), "minPartitions": str(PROCESSES)}
            frame = session.readStream.format("ampsq").options(**given, **batch, startingBookmark="earliest").load()
            with tempfile.TemporaryDirectory(prefix="ampsq-bench-") as folder:
                writer = frame.writeStream.format("noop").option("checkpointLocation", folder)
                return self.timed(count, lambda: _run(writer.trigger(availableNow=True)))

        log = log_of("orders").key(client.instance)
        parts = {"minPartitions": str(PROCESSES), "maxRowsPerPartition": str(count)}
        ways: dict[str, Callable[[], Measured]] = {
            "raw": lambda: self.timed(count, lambda: raw_read(pool, self.url, log)),
            "count and length": lambda: spark(**parts),
            "parts of 100,000": lambda: spark(maxRowsPerPartition="100000"),
            "a stream in 4 batches": stream,
            "with a filter": lambda: spark(**parts, filter="/price > 10"),
        }
        return self.in_turn(ways)


def _run(writer: DataStreamWriter) -> int:
    """Run a stream to its end; gives its rows."""
    query = writer.start()
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


def raw_read(pool: Pool, url: str, log: str) -> int:
    """Read a stream page by page in processes that share it, as users of redis-py write it; gives how many entries."""
    with redis.Redis.from_url(url, protocol=2) as server:
        ends = [entries(server.xrange(log, count=1))[0][0], entries(server.xrevrange(log, count=1))[0][0]]
    first, last = (int(end.partition(b"-")[0]) for end in ends)
    # The middle by time: the log was written at one pace.
    middle = (first + last) // 2
    numbers = pool.starmap(_read_range, [(url, log, "-", f"({middle}-0"), (url, log, f"{middle}-0", "+")])
    return sum(number for number, _ in numbers)


def _read_range(url: str, log: str, after: str, last: str) -> tuple[int, int]:
    number, size = 0, 0
    with redis.Redis.from_url(url, protocol=2) as server:
        while True:
            page = entries(server.xrange(log, after, last, count=_PAGE))
            number += len(page)
            size += sum(len(fields[b"b"]) for _, fields in page)
            if len(page) < _PAGE:
                return number, size
            after = "(" + page[-1][0].decode()


def _main() -> None:
    def progress(what: str) -> None:
        sys.stderr.write(f"{what} ...\n")

    with private_server() as url:
        figures = SparkRead(url, BenchSettings(), progress).run()
    sys.stdout.write(
        f"{'reading, ' + str(PROCESSES) + ' processes':<24}{'messages/s':>12}{'of raw':>8}{'server, us each':>17}\n"
    )
    for name, row in figures.items():
        sys.stdout.write(f"{name:<24}{row['per_second']:>12,}{row['ratio']:>8.2f}{row['server_us']:>17.2f}\n")


if __name__ == "__main__":
    _main()
