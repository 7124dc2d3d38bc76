"""A program whose driver is killed by the test: a stream from a topic to a topic, until it ends or is ended.

python dying_driver.py URL INSTANCE CHECKPOINT PROTOCOL
"""

from __future__ import annotations

import sys

from ampsq.spark import prepare_environment

prepare_environment()

from pyspark.sql import SparkSession  # noqa: E402 - the environment comes first


def main(url, instance, checkpoint, protocol):
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.log.level", "OFF").config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    options = {"url": url, "instance": instance}
    frame = spark.readStream.format("ampsq").options(
        **options, topic="orders", startingBookmark="epoch", maxOffsetsPerTrigger=100, minPartitions=2
    )
    writer = frame.load().select("value").writeStream.format("ampsq").options(**options, topic="copies")
    writer = writer.option("commitProtocol", protocol).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
