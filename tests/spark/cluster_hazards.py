"""A program of its own, since one process has one master: jobs on a local cluster whose tasks and executors are lost.

    python cluster_hazards.py URL INSTANCE FOLDER

Prints one JSON object a line: what was tried, how it ended, what is recorded.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from ampsq import Client
from ampsq.protocol.schema import key
from ampsq.spark import prepare_environment

prepare_environment()

from pyspark import TaskContext  # noqa: E402 - the environment comes first
from pyspark.errors import PySparkException  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402, N812

ROWS = 8_000
FAILS_AT = 2_000


def failing(frame):
    """Each partition breaks off at its first attempt, behind so many rows."""
    seen = Counter()

    def checked(value):
        context = TaskContext.get()
        seen[context.taskAttemptId()] += 1
        if context.attemptNumber() == 0 and seen[context.taskAttemptId()] == FAILS_AT:
            raise RuntimeError("the task breaks off here")
        return value

    return frame.select(F.udf(checked, "string", useArrow=False)("value").alias("value"))


def kill_an_executor(application):
    """End one of the executors, which this driver's local cluster started."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if "CoarseGrainedExecutorBackend" in command and application in command:
            os.kill(int(folder.name), signal.SIGKILL)
            return


class Hazards:
    """Tries jobs, and tells how each ended and what is recorded."""

    def __init__(self, spark, url, instance, folder):
        self.spark, self.folder, self.number = spark, Path(folder), 0
        self.options = {"url": url, "instance": instance}
        self.client = Client(url, instance=instance)

    def tell(self, what, protocol, job):
        self.number += 1
        topic, outcome = f"{what}-{protocol}-{self.number}", "done"
        options = {**self.options, "topic": topic, "publisher": f"job-{self.number}", "commitProtocol": protocol}
        try:
            job(options)
        except PySparkException as error:
            outcome = "RowsDiffer" if "RowsDiffer" in str(error) else str(error)
        log = key(self.client.instance, "log", topic)
        found = Counter(fields[b"b"] for _, fields in self.client._store.redis.xrange(log))
        twice = sum(count - 1 for count in found.values())
        told = {"what": what, "protocol": protocol, "outcome": outcome, "rows": len(found), "twice": twice}
        sys.stdout.write(json.dumps(told) + "\n")

    def rows(self, partitions=4):
        return self.spark.range(ROWS, numPartitions=partitions).select(F.col("id").cast("string").alias("value"))

    def save(self, frame, options):
        frame.write.format("ampsq").options(**options, epoch="1").mode("append").save()

    def shuffle(self, options):
        """Rows come from many blocks, here and there: a repeated task may get them in another order."""
        self.save(failing(self.rows().repartition(2)), options)

    def sort(self, options):
        self.save(failing(self.rows().repartition(2).sortWithinPartitions("value")), options)

    def cut_anew(self, options):
        """Of the first run the driver does not hear any more: two partitions, then four."""
        source, checkpoint = self.folder / options["topic"], self.folder / f"{options['topic']}-checkpoint"
        source.mkdir()
        (source / "000.txt").write_text("".join(f"{number}\n" for number in range(2_000)))
        for partitions in (2, 4):
            frame = self.spark.readStream.format("text").load(str(source)).repartition(partitions)
            writer = frame.writeStream.format("ampsq").options(**options)
            query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
            query.awaitTermination(120)
            for file in (checkpoint / "commits").glob("*0*"):
                file.unlink()

    def lose_executor(self, options):
        """One of the two executors is killed while rows are on their way."""

        def slowly(value):
            time.sleep(0.0005)  # rows are long on their way
            return value

        killer = threading.Timer(1.5, kill_an_executor, [self.spark.sparkContext.applicationId])
        killer.start()
        frame = self.rows(2).select(F.udf(slowly, "string", useArrow=False)("value").alias("value"))
        self.save(frame, options)
        killer.join()


def session(folder):
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("hazards")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "spark.local.dir": folder,
        # A task fails between two calls, not before the first.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "250",
        # Each block is fetched alone, in an order that Spark draws anew for each attempt.
        "spark.shuffle.readHostLocalDisk": "false",
        "spark.reducer.maxReqsInFlight": "1",
        "spark.reducer.maxBlocksInFlightPerAddress": "1",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(url, instance, folder):
    spark = session(folder)
    hazards = Hazards(spark, url, instance, folder)
    for protocol in ("staged", "sequence"):
        hazards.tell("shuffle", protocol, hazards.shuffle)
        hazards.tell("cut-anew", protocol, hazards.cut_anew)
    hazards.tell("sort", "sequence", hazards.sort)
    for protocol in ("staged", "sequence"):
        hazards.tell("lose-executor", protocol, hazards.lose_executor)
    hazards.client.close()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
