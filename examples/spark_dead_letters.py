"""Dead letters into Parquet, exactly once: a queue as a stream, and a sink that knows bookmarks.

    python examples/spark_dead_letters.py

    topic bookings -> queue boarding -> a worker, which gives up flights that never left
                   -> dead-letter action -> queue never-left -> readStream, foreachBatch -> .ampsq-examples/never-left

A queue as a stream is at-least-once: its messages are acknowledged when the micro-batch that has them is done, and
come again if it was not. The sink makes that once. It writes each batch to a folder of the batch's number, in place of
what an earlier attempt left there, without the bookmarks that other batches have. Here the second batch breaks off
between writing and being done; then the query is started again, and every letter is there, once.

Runs on AMPSQ_URL (with a coordinator, `ampsq coordinator`), else on an embedded server in .ampsq-examples.
"""

from __future__ import annotations

import bz2
import json
import threading
import time
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import ampsq
from ampsq.spark import prepare_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LETTER = "queue string, reason string, message struct<day int, carrier string, flight int, origin string, dest string>"
WITHIN = 60.0


class Sink:
    """Merges micro-batches into Parquet files, one folder a batch.

    Args:
        folder: where the files go.
        breaks_off: how many batches it writes before it fails, as if the driver died there; 0: it does not fail.
    """

    def __init__(self, folder: Path, breaks_off: int = 0) -> None:
        self._folder, self._breaks_off, self._written = folder, breaks_off, 0

    def write(self, batch: DataFrame, number: int) -> None:
        """Write one micro-batch, perhaps once more."""
        fresh = batch.dropDuplicates(["bookmark"])
        # They have bookmarks of this one if its checkpoint was lost, or its leases ran out while no driver was there.
        others = [str(folder) for folder in self._folder.glob("batch=*") if folder.name != f"batch={number}"]
        if others:
            fresh = fresh.join(batch.sparkSession.read.parquet(*others).select("bookmark"), "bookmark", "left_anti")
        fresh.write.mode("overwrite").parquet(str(self._folder / f"batch={number}"))
        self._written += 1
        if self._written == self._breaks_off:
            raise RuntimeError(f"broken off behind the files of batch {number}")


def drain(spark: SparkSession, address: dict[str, str], folder: Path, sink: Sink) -> None:
    """Write the letters that there are, and end."""
    letters = spark.readStream.format("ampsq").options(**address, queue="never-left", maxMessagesPerTrigger=10).load()
    body = F.from_json(F.col("value").cast("string"), LETTER).alias("letter")
    rows = letters.select("bookmark", "delivery", body).select("bookmark", "delivery", "letter.*")
    query = rows.writeStream.foreachBatch(sink.write).option("checkpointLocation", str(folder / "checkpoint"))
    running = query.trigger(availableNow=True).start()
    try:
        running.awaitTermination()
    finally:
        running.stop()


def depart(message: ampsq.Message) -> None:
    """Handle a flight: one that never left is given up."""
    if message.data["dep_time"] is None:
        raise ampsq.Reject("never left")


def make_letters(client: ampsq.Client, flights: list[dict[str, Any]]) -> int:
    """Publish flights, let a worker handle all, and wait for the letters; gives how many there are."""
    client.apply(
        ampsq.Queue(name="boarding", underlying_topic="bookings", max_per_subscription_backlog=500),
        ampsq.Queue(name="never-left", underlying_topic="never-left", max_per_subscription_backlog=500),
        ampsq.Action.dead_letter("boarding", "never-left"),
    )
    before = client.admin.queue_stats("never-left").depth
    client.publish_many("bookings", flights)
    worker = ampsq.Worker(depart, "boarding", client=client, max_backlog=500)
    thread = threading.Thread(target=worker.run)
    thread.start()
    while client.admin.queue_stats("boarding").depth:
        time.sleep(0.05)
    worker.stop()
    thread.join()
    wanted, until = before + worker.rejected, time.monotonic() + WITHIN
    while (there := client.admin.queue_stats("never-left").depth) < wanted and time.monotonic() < until:
        # A coordinator runs the dead-letter action.
        time.sleep(0.05)
    return there


def main(spark: SparkSession, client: ampsq.Client, folder: Path, days: int = 3) -> DataFrame:
    """Make dead letters of the first days of January, and drain them, with an accident; gives what is in the files."""
    packed = (files("ampsq.cli.data") / "flights-2013-01.jsonl.bz2").read_bytes()
    flights = [flight for flight in map(json.loads, bz2.decompress(packed).splitlines()) if flight["day"] <= days]
    print(f"{make_letters(client, flights)} of {len(flights):,} flights never left")
    address = {"url": client.url, "instance": client.instance}
    try:
        drain(spark, address, folder, Sink(folder / "letters", breaks_off=2))
    except StreamingQueryException:
        print(f"broken off; {client.admin.queue_stats('never-left').depth} letters are not acknowledged")
    drain(spark, address, folder, Sink(folder / "letters"))
    letters = spark.read.parquet(str(folder / "letters"))
    bookmarks = letters.select("bookmark").distinct().count()
    print(
        f"run again; {client.admin.queue_stats('never-left').depth} left, {letters.count()} rows, {bookmarks} bookmarks"
    )
    letters.groupBy("message.carrier").count().orderBy(F.desc("count"), "carrier").show()
    return letters


if __name__ == "__main__":
    prepare_environment()
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 2)
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.ui.showConsoleProgress", "false")
    # The accident would fill the screen
    session = builder.config("spark.log.level", "OFF").getOrCreate()
    with ampsq.Client(data_dir=".ampsq-examples") as our_client:
        main(session, our_client, Path(".ampsq-examples", "never-left").resolve())
    session.stop()
