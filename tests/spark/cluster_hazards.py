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
from collections import Counter
from pathlib import Path

from ampsq import Client
from ampsq.schema import key
from ampsq.spark import prepare_environment

prepare_environment()

from pyspark import TaskContext  # noqa: E402 - the environment comes first
from pyspark.errors import PySparkException  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402, N812

ROWS = 20_000
FAILS_AT = 3_000


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


def rows(spark, partitions=8):
    return spark.range(ROWS, numPartitions=partitions).select(F.col("id").cast("string").alias("value"))


def shuffled(spark):
    """Rows come from many blocks, here and there: a repeated task may get them in another order."""
    return failing(rows(spark).repartition(2))


def kill_an_executor(tracker, done):
    """End one of the executors, which this driver started, once rows are on their way."""
    done.wait(20)
    for line in os.popen("ps -eo pid,ppid,args").read().splitlines():
        pid, parent, command = line.split(None, 2)
        if "CoarseGrainedExecutorBackend" in command and str(tracker) in command and parent != "1":
            os.kill(int(pid), signal.SIGKILL)
            return


def main(url, instance, folder):
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName(f"hazards-{instance}")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "spark.local.dir": folder,
        # Each block is fetched alone, in an order that Spark draws anew for each attempt.
        "spark.shuffle.readHostLocalDisk": "false",
        "spark.reducer.maxReqsInFlight": "1",
        "spark.reducer.maxBlocksInFlightPerAddress": "1",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    client = Client(url, instance=instance)
    number = 0

    def tell(what, protocol, job, *, publisher=None):
        nonlocal number
        number += 1
        topic, outcome = f"{what}-{protocol}-{number}", "done"
        try:
            job(topic, publisher or f"job-{number}", protocol)
        except PySparkException as error:
            outcome = next((name for name in ("RowsDiffer", "breaks off") if name in str(error)), str(error))
        log = key(instance, "log", topic)
        found = Counter(fields[b"b"] for _, fields in client._store.redis.xrange(log))
        twice = sum(count - 1 for count in found.values())
        print(json.dumps({"what": what, "protocol": protocol, "outcome": outcome, "rows": len(found), "twice": twice}))

    def save(frame, topic, publisher, protocol):
        writer = frame.write.format("ampsq").option("url", url).option("instance", instance).option("topic", topic)
        writer.option("publisher", publisher).option("commitProtocol", protocol).mode("append").save()

    for protocol in ("staged", "sequence", "sequence"):
        tell("shuffle", protocol, lambda *target: save(shuffled(spark), *target))
    tell("sorted", "sequence", lambda *t: save(failing(rows(spark).repartition(2).sortWithinPartitions("value")), *t))

    def cut_anew(topic, publisher, protocol):
        # Of the first run the driver does not hear any more: two partitions, then four.
        source = Path(folder, topic)
        source.mkdir()
        (source / "000.txt").write_text("".join(f"{n}\n" for n in range(2_000)))
        for partitions in (2, 4):
            frame = spark.readStream.format("text").load(str(source)).repartition(partitions)
            writer = frame.writeStream.format("ampsq").option("url", url).option("instance", instance)
            writer = writer.option("topic", topic).option("publisher", publisher).option("commitProtocol", protocol)
            checkpoint = Path(folder, f"{topic}-checkpoint")
            query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
            query.awaitTermination(120)
            for file in (checkpoint / "commits").glob("*0*"):
                file.unlink()

    for protocol in ("staged", "sequence"):
        tell("cut-anew", protocol, cut_anew)

    for protocol in ("staged", "sequence"):
        begun = threading.Event()
        killer = threading.Thread(target=kill_an_executor, args=(f"hazards-{instance}", begun))

        def slowly(topic, publisher, protocol, begun=begun, killer=killer):
            def each(value):
                import time  # noqa: PLC0415 - in the executor

                time.sleep(0.0002)
                return value

            killer.start()
            threading.Timer(1.5, begun.set).start()
            frame = rows(spark, 2).select(F.udf(each, "string", useArrow=False)("value").alias("value"))
            save(frame, topic, publisher, protocol)

        tell("executor-killed", protocol, slowly)
        killer.join()
    client.close()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
