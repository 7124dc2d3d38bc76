"""Rate of Spark writing into a topic beside plain publishers in Python: ``python -m ampsq.bench.spark_write``.

``--json``: one line; ``--no-append-only``: on a server that keeps nothing on disk.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import time
import uuid
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import redis

from ampsq.bench.server import private_server
from ampsq.bench.setup import BenchSettings
from ampsq.bench.spark_setup import PROCESSES, SparkStage
from ampsq.client.client import Client
from ampsq.definitions.queue import Topic
from ampsq.protocol.reads.streams import log_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.pool import Pool

    from pyspark.sql import DataFrame, Row, SparkSession

    from ampsq.bench.spark_setup import Measured, WayFigures

__all__ = ["SparkWrite"]

_FILL: Final = "x" * 170
#: Messages of a call of the plain publisher: what `publish_many` does by default.
_BATCH: Final = 100
#: Commands of a pipeline of `XADD`.
_PIPELINE: Final = 500


class SparkWrite(SparkStage):
    """The measurement, on one server; see `Stage`."""

    def run(self) -> tuple[dict[str, WayFigures], dict[str, float]]:
        """Write as many rows in each way in turn, and let micro-batches go from a topic to another."""
        with self.crew() as (session, pool):
            return self._rates(session, pool), self._latency(session)

    def _rates(self, session: SparkSession, pool: Pool) -> dict[str, WayFigures]:
        count = self.settings.messages * 50
        rows = session.range(count, numPartitions=PROCESSES).selectExpr(
            f"""concat('{{"id": ', id, ', "text": "{_FILL}"}}') AS value"""
        )
        ways: dict[str, Callable[[str], None]] = {
            "plain Python": lambda instance: plain(pool, self.url, instance, count),
            "staged": lambda instance: self._write(rows, instance, "staged"),
            "sequence": lambda instance: self._write(rows, instance, "sequence"),
            "foreachPartition, XADD": lambda instance: added(rows, self.url, log_of("orders").key(instance)),
        }
        return self.in_turn({name: partial(self._measured, write, count) for name, write in ways.items()})

    def _measured(self, write: Callable[[str], None], count: int) -> Measured:
        client = self.client()
        client.apply(Topic(name="orders"))

        def work() -> int:
            write(client.instance)
            return int(self.redis.xlen(log_of("orders").key(client.instance)))

        measured = self.timed(count, work)
        self.remove(client)
        return measured

    def _write(self, rows: DataFrame, instance: str, protocol: str) -> None:
        writer = rows.write.format("ampsq").option("url", self.url).option("instance", instance)
        writer.option("topic", "orders").option("commitProtocol", protocol).mode("append").save()

    def _latency(self, session: SparkSession) -> dict[str, float]:
        """From the publishing of a message to when its row is in another topic, ms; one at a time."""
        client, times = self.client(), []
        client.apply(Topic(name="orders"), Topic(name="copies"))
        options = {"url": self.url, "instance": client.instance}
        frame = session.readStream.format("ampsq").options(**options, topic="orders", startingBookmark="epoch").load()
        with tempfile.TemporaryDirectory(prefix="ampsq-bench-") as folder:
            copied = frame.select("value").writeStream.format("ampsq").options(**options, topic="copies")
            query = copied.option("checkpointLocation", folder).trigger(processingTime="0 seconds").start()
            with client.subscribe_topic("copies") as copies:
                for number in range(self.settings.rounds * 4 + 2):
                    self.progress(f"micro-batch {number + 1}")
                    started = time.perf_counter()
                    client.publish("orders", {"sent": datetime.now().astimezone().isoformat(), "id": uuid.uuid4().hex})
                    if copies.get("60s") is None:
                        raise AssertionError("no row came within a minute")
                    times.append(time.perf_counter() - started)
            query.stop()
        self.remove(client)
        # The first ones start Python.
        own = sorted(times[2:])
        return {"p50_ms": round(1000 * own[len(own) // 2]), "most_ms": round(1000 * own[-1])}


def plain(pool: Pool, url: str, instance: str, count: int) -> None:
    """Publish with `publish_many` in processes that share the work."""
    share = count // PROCESSES
    pool.starmap(_publish, [(url, instance, number * share, share) for number in range(PROCESSES)])


def _publish(url: str, instance: str, first: int, count: int) -> None:
    with Client(url, instance=instance) as client:
        numbers = range(first, first + count)
        client.publish_many("orders", (f'{{"id": {n}, "text": "{_FILL}"}}'.encode() for n in numbers), batch=_BATCH)


def added(rows: DataFrame, url: str, log: str) -> None:
    """Write with `foreachPartition` and pipelined `XADD`, as one does without a source; nothing is exact there."""

    def add(partition: Iterator[Row]) -> None:
        with redis.Redis.from_url(url, protocol=2) as server:
            while some := list(itertools.islice(partition, _PIPELINE)):
                pipeline = server.pipeline(transaction=False)
                for row in some:
                    pipeline.xadd(log, {"b": row.value})
                pipeline.execute()

    rows.foreachPartition(add)


def _main() -> None:
    def progress(what: str) -> None:
        sys.stderr.write(f"{what} ...\n")

    with private_server(append_only="--no-append-only" not in sys.argv) as url:
        figures, latency = SparkWrite(url, BenchSettings(), progress).run()
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps({**figures, "micro-batches": latency}) + "\n")
        return
    sys.stdout.write(
        f"{'writing, ' + str(PROCESSES) + ' processes':<26}{'rows/s':>12}{'of plain':>10}{'server, us a row':>18}\n"
    )
    for name, row in figures.items():
        sys.stdout.write(f"{name:<26}{row['per_second']:>12,}{row['ratio']:>10.2f}{row['server_us']:>18.2f}\n")
    sys.stdout.write(f"a row from topic to topic: {latency['p50_ms']} ms, {latency['most_ms']} ms at most\n")


if __name__ == "__main__":
    _main()
