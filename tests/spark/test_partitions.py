"""Jobs that write to all partitions of an instance and read from them: rows are where a client puts them."""

from __future__ import annotations

import contextlib
import json

import pytest
import redis
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from ampsq import Client, Topic
from ampsq.base.errors import DefinitionError
from ampsq.base.partitions import partition_of_key
from ampsq.protocol.schema import key
from ampsq.spark import publish
from ampsq.spark.write_options import BatchWriteOptions

TOTAL = 4


@pytest.fixture
def options(valkey, instance):
    return {"url": f"{valkey.url}?partitions={TOTAL}", "instance": instance}


@pytest.fixture
def client(options):
    """A client of all partitions."""
    with Client(options["url"], instance=options["instance"]) as client:
        yield client


def by_partition(client, topic="orders"):
    with contextlib.closing(redis.from_url(client.url)) as server:
        logs = [server.xrange(key(name, "log", topic)) for name in client.partitions]
    return [[json.loads(fields[b"b"]) for _, fields in log] for log in logs]


def orders(spark, number):
    frame = spark.range(number, numPartitions=2).select("id", F.concat(F.lit("c"), F.col("id") % 7).alias("customer"))
    return frame.select(F.to_json(F.struct("*")).alias("value"), "customer")


def save(frame, options, **more):
    frame.write.format("ampsq").options(**options, topic="orders", **more).mode("append").save()


@pytest.mark.parametrize("protocol", ["staged", "sequence"])
@pytest.mark.parametrize("by", ["key", "partition_by"])
def test_rows_of_a_key_are_in_its_partition_once_and_in_order(spark, client, options, protocol, by):
    if by == "partition_by":
        client.apply(Topic(name="orders", partition_by="/customer"))
    frame = orders(spark, 200)
    frame = frame.withColumnRenamed("customer", "key") if by == "key" else frame.drop("customer")

    save(frame, options, commitProtocol=protocol, publisher="job", epoch=1)
    # Repeated, it records nothing more.
    save(frame, options, commitProtocol=protocol, publisher="job", epoch=1)

    found = by_partition(client)
    for number, rows in enumerate(found):
        assert all(partition_of_key(row["customer"], TOTAL) == number for row in rows)
    assert sorted(row["id"] for rows in found for row in rows) == list(range(200))
    one = client.publish("orders", {"customer": "c3"}, key="c3")
    assert client.partitions.index(one.origin.rpartition(".")[0]) == partition_of_key("c3", TOTAL)


def test_what_is_published_row_by_key_goes_where_the_key_s_partition_is(spark, client, options):
    frame = spark.range(100).select("id", F.concat(F.lit("c"), F.col("id") % 7).alias("customer"))

    publish(frame, "orders", key="customer", partitions=4, **options)

    for number, rows in enumerate(by_partition(client)):
        assert all(partition_of_key(row["customer"], TOTAL) == number for row in rows)


def test_a_frame_is_read_from_all_partitions(spark, client, options):
    client.publish_many("orders", [{"id": number} for number in range(100)], key=lambda each: str(each["id"]))

    frame = spark.read.format("ampsq").options(**options, topic="orders").load()

    assert sorted(json.loads(row.value)["id"] for row in frame.select("value").collect()) == list(range(100))
    assert {row.instance for row in frame.select("instance").distinct().collect()} == set(client.partitions)


def test_addresses_are_the_partitions_in_the_order_of_their_numbers(options):
    many = BatchWriteOptions.of({**options, "url": "cluster://h1,h2?partitions=12", "topic": "orders"}).addresses

    assert [each.partition.number for each in many] == list(range(12))
    assert {each.url for each in many} == {"cluster://h1,h2"}


def test_another_number_and_what_is_none_are_refused(spark, client, options):
    frame = orders(spark, 1).drop("customer")
    for url, told in (
        (options["url"].replace("partitions=4", "partitions=8"), "has 4 partitions, and 8 are asked for"),
        (options["url"].replace("partitions=4", "partitions=many"), "allowed is a whole number from 1"),
        (f"{options['url']} {client.url}", "partitions= are those of one instance"),
    ):
        with pytest.raises((DefinitionError, AnalysisException), match=told):
            publish(frame, "orders", **(options | {"url": url}))
