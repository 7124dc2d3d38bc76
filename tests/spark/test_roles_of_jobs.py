"""Jobs as users of roles: what writes is a publisher, what reads a worker, and the server refuses them nothing."""

from __future__ import annotations

import contextlib
import json
import tempfile

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from ampsq import Client, Queue

pytestmark = pytest.mark.slow

DONE_WITHOUT = {("command", "config|get"), ("command", "client|setinfo"), ("command", "client")}


@pytest.fixture
def admin(login, instance):
    with Client(login("admin"), instance=instance) as admin:
        admin.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=100))
        yield admin


@pytest.mark.parametrize("server", ["valkey"], indirect=True)
def test_jobs_write_as_publishers_and_read_and_take_as_workers(spark, server, admin, login, coordinate):
    with contextlib.closing(server.client()) as plain, tempfile.TemporaryDirectory() as checkpoint:
        coordinate(login("coordinator"))
        plain.acl_log_reset()
        writing = {"url": login("publisher"), "instance": admin.instance}
        reading = {"url": login("worker"), "instance": admin.instance}

        # when: rows are written in both ways, read as a frame, and taken from the queue
        rows = spark.range(20, numPartitions=2).select(F.to_json(F.struct(F.col("id").alias("n"))).alias("value"))
        for number, protocol in enumerate(("staged", "sequence")):
            some = rows.limit(10) if number else rows
            some.write.format("ampsq").options(**writing, topic="orders", commitProtocol=protocol).mode("append").save()
        found = spark.read.format("ampsq").options(**reading, topic="orders").load().collect()
        taken = []
        frame = spark.readStream.format("ampsq").options(**reading, queue="work").load()
        query = (
            frame.writeStream.foreachBatch(lambda batch, _: taken.extend(batch.collect()))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()

        # then: all of it is done, and nothing was refused
        assert sorted(json.loads(row["value"])["n"] for row in found) == sorted([*range(20), *range(10)])
        assert len(taken) == 30
        assert admin.admin.queue_stats("work").acknowledged == 30
        told = {(each["reason"], each["object"], each["username"]) for each in plain.acl_log()}
        assert {each for each in told if each[:2] not in DONE_WITHOUT} == set()
