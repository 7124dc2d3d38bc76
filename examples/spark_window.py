"""A streaming job from a topic to a topic: departures of each airport by hour, as the hours end.

    python examples/spark_window.py

    topic departures -> Spark: a window of an hour, a watermark of two -> topic departures-by-hour

Publishes a day of flights, runs the query until nothing is left, and so on: each run starts a new query from the
checkpoint of the one before, as after a crash, and what it adds is printed. Windows come when they are over: when
departures two hours later were seen. Runs on AMPSQ_URL, else on an embedded server in .ampsq-examples, beside the
checkpoint; run it again, and nothing is published or counted twice. A query that goes on for ever has another trigger,
processingTime="10 seconds".
"""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import ampsq
from ampsq.spark import prepare_environment, publish

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FLIGHT = "day int, time_hour timestamp, origin string, carrier string, flight int"


def departures_by_hour(messages: DataFrame) -> DataFrame:
    """Count the messages of a topic by airport and hour, and write each count as a message with a key."""
    flights = messages.select(F.from_json(F.col("value").cast("string"), FLIGHT).alias("flight")).select("flight.*")
    counted = (
        flights.withWatermark("time_hour", "2 hours")
        .groupBy(F.window("time_hour", "1 hour").alias("hour"), "origin")
        .agg(F.count("*").alias("departures"))
    )
    row = F.struct("origin", F.col("hour.start").alias("hour"), "departures")
    return counted.select(F.col("origin").alias("key"), F.to_json(row).alias("value"))


def run_query(spark: SparkSession, address: dict[str, str], checkpoint: Path) -> None:
    """Count what there is now, from where the checkpoint says, and end."""
    # Where a query without a checkpoint begins.
    source = spark.readStream.format("ampsq").options(**address, topic="departures", startingBookmark="earliest").load()
    query = (
        departures_by_hour(source)
        .writeStream.format("ampsq")
        .options(**address, topic="departures-by-hour", checkpointLocation=str(checkpoint))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def publish_day(raw: DataFrame, day: int, client: ampsq.Client) -> None:
    """Publish the departures of a day in their order; a day that is recorded already is not recorded again."""
    publish(
        raw.where(F.col("day") == day),
        "departures",
        key="origin",
        order_by="time_hour",
        # One task, so that the airports' hours come side by side: what is behind the watermark does not count.
        partitions=1,
        publisher="january-by-day",
        epoch=day,
        url=client.url,
        instance=client.instance,
    )


def counts(spark: SparkSession, address: dict[str, str]) -> DataFrame:
    """Read what the query has published so far."""
    rows = spark.read.format("ampsq").options(**address, topic="departures-by-hour").load()
    count = F.from_json(F.col("value").cast("string"), "hour timestamp, departures int").alias("count")
    return rows.select(F.col("key").cast("string").alias("origin"), count).select("origin", "count.*")


def main(spark: SparkSession, client: ampsq.Client, checkpoint: Path, days: int = 2) -> list[int]:
    """Publish day by day, count behind each, and once more in the end; gives the windows after each run."""
    address = {"url": client.url, "instance": client.instance}
    client.apply(ampsq.Topic(name="departures"), ampsq.Topic(name="departures-by-hour"))
    windows = []
    with as_file(files("ampsq.cli.data") / "flights-2013-01.jsonl.bz2") as file:
        raw = spark.read.schema(FLIGHT).json(str(file))
        for day in range(1, days + 1):
            publish_day(raw, day, client)
            run_query(spark, address, checkpoint)
            windows.append(counts(spark, address).count())
            print(f"day {day} published: {windows[-1]} windows are over")
    run_query(spark, address, checkpoint)
    windows.append(counts(spark, address).count())
    print(f"nothing new: still {windows[-1]}")
    counts(spark, address).orderBy("hour", "origin").show(12, truncate=False)
    return windows


if __name__ == "__main__":
    prepare_environment()
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 2)
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.ui.showConsoleProgress", "false")
    session = builder.config("spark.log.level", "ERROR").getOrCreate()
    with ampsq.Client(data_dir=".ampsq-examples") as our_client:
        main(session, our_client, Path(".ampsq-examples", "window").resolve())
    session.stop()
