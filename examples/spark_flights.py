"""Flights as a batch job: cleaned by Spark, handled by the workers of a queue, counted by Spark.

    python examples/spark_flights.py

    flights-2013-01.jsonl.bz2 -> Spark cleans -> topic flights -> queue arrivals -> two workers -> topic delays -> Spark

Prints the delays of January 2013 by carrier. Runs on AMPSQ_URL, else on an embedded server, whose data stay in
.ampsq-examples. Run it again: nothing is published twice, no work is left, the table is the same.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import ampsq
from ampsq.spark import prepare_environment, publish

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame

WORKERS = 2
#: Minutes of half a day.
HALF_DAY = 720
#: A flight with this delay or less, minutes, is on time.
ON_TIME = 15
#: What is read of each flight; times of day as 517 for 5:17.
FLIGHT = """carrier string, flight int, origin string, dest string, time_hour timestamp,
    dep_time int, dep_delay int, arr_time int, sched_arr_time int, air_time int"""
#: What a flight that left and arrived has.
ARRIVED = ["dep_time", "arr_time", "air_time"]
DELAY = "flight string, carrier string, minutes int"


def clean(raw: DataFrame) -> DataFrame:
    """Keep the flights that left and arrived, with times of day in minutes."""

    def minutes(column: str) -> Column:
        return (F.floor(F.col(column) / 100) * 60 + F.col(column) % 100).cast("int")

    return raw.dropna(subset=ARRIVED).select(
        "carrier",
        "flight",
        "origin",
        "dest",
        F.date_format("time_hour", "yyyy-MM-dd HH:mm").alias("hour"),
        F.col("dep_delay").alias("left_late"),
        minutes("arr_time").alias("arrived"),
        minutes("sched_arr_time").alias("scheduled"),
    )


def delay_of(flight: dict[str, int]) -> int:
    """Return the delay of a flight's arrival, minutes; the late start tells the day, which times of day leave open."""
    made_up = flight["arrived"] - flight["scheduled"] - flight["left_late"]
    return flight["left_late"] + (made_up + HALF_DAY) % (2 * HALF_DAY) - HALF_DAY


def work(url: str, instance: str) -> None:
    """Handle flights until the process is told to stop: each is acknowledged when its delay is published."""
    with ampsq.Client(url, instance=instance) as client:

        def handle(message: ampsq.Message) -> None:
            flight = message.data
            delay = {"flight": str(message.bookmark), "carrier": flight["carrier"], "minutes": delay_of(flight)}
            client.publish("delays", delay)

        ampsq.Worker(handle, "arrivals", client=client, max_backlog=500).run(signals=True)


@contextlib.contextmanager
def workers(client: ampsq.Client) -> Iterator[None]:
    """Let processes work as long as the block runs."""
    context = multiprocessing.get_context("spawn")
    running = [context.Process(target=work, args=(client.url, client.instance)) for _ in range(WORKERS)]
    for worker in running:
        worker.start()
    try:
        yield
    finally:
        for worker in running:
            worker.terminate()
            worker.join()


def wait_until_done(client: ampsq.Client) -> None:
    """Wait until the queue has nothing left."""
    while client.admin.queue_stats("arrivals").depth:
        time.sleep(0.2)


def delays_by_carrier(delays: DataFrame) -> DataFrame:
    """Count the results; one that a worker published twice, since it died before it acknowledged, counts once."""
    rows = delays.select(F.from_json(F.col("value").cast("string"), DELAY).alias("delay")).select("delay.*")
    return (
        rows.dropDuplicates(["flight"])
        .groupBy("carrier")
        .agg(
            F.count("*").alias("flights"),
            F.round(F.avg("minutes"), 1).alias("mean_minutes"),
            F.round(F.avg((F.col("minutes") <= ON_TIME).cast("int")) * 100, 1).alias("percent_on_time"),
        )
        .orderBy(F.desc("flights"))
    )


def main(spark: SparkSession, client: ampsq.Client, days: int = 31) -> DataFrame:
    """Run the job over the first days of January; gives the table."""
    url, instance = client.url, client.instance
    client.apply(
        ampsq.Topic(name="delays"),
        ampsq.Queue(name="arrivals", underlying_topic="flights", max_per_subscription_backlog=500),
    )
    with as_file(files("ampsq.cli.data") / "flights-2013-01.jsonl.bz2") as file:
        raw = spark.read.schema(f"day int, {FLIGHT}").json(str(file)).where(F.col("day") <= days)
        publish(
            clean(raw),
            "flights",
            key="carrier",
            order_by=["hour", "flight"],
            # These make it one run of one job, however often it is run: what is recorded is not recorded again.
            publisher=f"january-{days}",
            epoch=1,
            url=url,
            instance=instance,
        )
    print(f"published; the queue has {client.admin.queue_stats('arrivals').depth:,} flights for {WORKERS} workers")
    with workers(client):
        wait_until_done(client)
    table = delays_by_carrier(
        spark.read.format("ampsq").options(url=url, instance=instance, topic="delays").load()
    ).cache()
    table.show(truncate=False)
    return table


if __name__ == "__main__":
    prepare_environment()
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 4)
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.ui.showConsoleProgress", "false")
    session = builder.config("spark.log.level", "ERROR").getOrCreate()
    with ampsq.Client(data_dir=".ampsq-examples") as our_client:
        main(session, our_client)
    session.stop()
