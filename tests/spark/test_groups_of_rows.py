"""Groups of rows: jobs write them as publishers do, and a queue as a stream gives those of its messages."""

from __future__ import annotations

import json

import pytest
from observing import eventually
from pyspark.errors import PythonException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from test_batch_write import recorded, save
from test_queue_stream import frame_of, running

from ampsq import Client, Queue
from ampsq.base.errors import DefinitionError
from ampsq.base.partitions import partition_of_key
from ampsq.protocol.limits import BATCH
from ampsq.spark import publish
from ampsq.spark.queue_offsets import LeasedMessage, QueueOffset

SCHEMA = "value string, group string"


@pytest.fixture
def coordinated(client, valkey, coordinate):
    """A client of an instance with a coordinator."""
    coordinate(valkey.url)
    return client


def test_a_row_has_the_group_that_its_column_says(spark, client, options):
    client.apply(Queue(name="work", underlying_topic="orders", group_by="/customer", max_per_subscription_backlog=9))
    body = json.dumps({"customer": "of the body"})
    rows = [(body, "alice"), (body, None), (body, ""), (body, "bob"), (body, "alice")]

    save(spark.createDataFrame(rows, SCHEMA).coalesce(1), options, topic="orders")

    assert [fields.get(b"g") for fields in recorded(client)] == [b"alice", None, None, b"bob", b"alice"]
    with client.subscribe("work", max_backlog=9) as messages:
        got = [messages.get(30).group for _ in range(3)]
        # One of each at a time: the others come once these are settled.
        assert (got, messages.get(0)) == (["alice", "of the body", "bob"], None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "told"),
    [("a" * 256, "column 'group': group=.* has 256 bytes; allowed are at most 255"), ("a\0b", "without NUL")],
)
def test_a_group_that_no_publisher_may_say_is_refused(spark, client, options, group, told):
    with pytest.raises(PythonException, match=told):
        save(spark.createDataFrame([("1", "fine"), ("2", group)], SCHEMA).coalesce(1), options, topic="orders")
    assert recorded(client) == []


@pytest.mark.slow
@pytest.mark.parametrize("by", ["a column's name", "an expression"])
def test_publish_takes_the_groups_of_a_column_that_stays_in_the_body(spark, client, options, by):
    frame = spark.range(6, numPartitions=1).select("id", (F.col("id") % 2).alias("shop"))

    publish(frame, "sales", group="shop" if by == "a column's name" else F.concat(F.lit("shop "), "shop"), **options)

    found = [(json.loads(fields[b"b"])["shop"], fields[b"g"].decode()) for fields in recorded(client, "sales")]
    assert found == [(n % 2, f"{n % 2}" if by == "a column's name" else f"shop {n % 2}") for n in range(6)]


@pytest.mark.slow
def test_publish_refuses_a_group_that_is_said_twice_or_of_no_column(spark, options):
    frame = spark.createDataFrame([("1", "a")], SCHEMA)
    with pytest.raises(DefinitionError, match="group: no column 'tenant'; allowed: one of value, group"):
        publish(frame, "sales", group="tenant", **options)
    with pytest.raises(DefinitionError, match="group: is a column, too; allowed: group='group'"):
        publish(frame, "sales", group=F.upper("group"), **options)


@pytest.mark.slow
def test_a_row_without_a_key_goes_to_the_partition_of_its_group_where_a_client_puts_it(spark, valkey, instance):
    options = {"url": f"{valkey.url}?partitions=4", "instance": instance}
    rows = [(json.dumps(n), None if n % 5 == 4 else f"g{n % 5}") for n in range(40)]
    with Client(**options) as client:
        save(spark.createDataFrame(rows, SCHEMA).coalesce(1), options, topic="orders")
        for number, own in enumerate(client.clients):
            groups = {fields[b"g"].decode() for fields in recorded(own) if b"g" in fields}
            assert all(partition_of_key(group, 4) == number for group in groups)
        found = [fields for own in client.clients for fields in recorded(own)]
        assert sorted(json.loads(fields[b"b"]) for fields in found) == list(range(40))
        # It chooses the partition, and is no key.
        assert not any(b"r" in fields for fields in found)


@pytest.mark.slow
def test_a_queue_as_a_stream_gives_the_group_of_each_message_and_its_batches_in_order(
    spark, coordinated, options, tmp_path
):
    client = coordinated
    client.apply(
        Queue(name="work", underlying_topic="orders", group_by="/g", group_batch=5, max_per_subscription_backlog=1_000)
    )
    client.publish_many("orders", [{"g": g, "n": n} for n in range(10) for g in ("a", "b")])
    client.publish("orders", {"n": 0}, group="said")
    client.publish("orders", {"n": 0})
    seen = []

    def each(batch, _):
        rows = [
            (json.loads(row["value"]), row["group"], row["task"])
            for row in batch.withColumn("task", F.spark_partition_id()).collect()
        ]
        assert all(group == body.get("g", group) for body, group, _ in rows)
        for group in ("a", "b"):
            own = [(body["n"], task) for body, of, task in rows if of == group]
            # What came together is in one task, in its order.
            assert [n for n, _ in own] == sorted(n for n, _ in own)
            assert len({task for _, task in own}) <= 1
        seen.append({group: [body["n"] for body, of, _ in rows if of == group] for _, group, _ in rows})

    with running(frame_of(spark, options, minPartitions="4"), tmp_path / "c", each) as query:
        assert query.awaitTermination(120)
    assert seen[0] == {"a": [0, 1, 2, 3, 4], "b": [0, 1, 2, 3, 4], "said": [0], None: [0]}
    assert [found.get("a") for found in seen[1:]] == [[5, 6, 7, 8, 9]]
    eventually(lambda: client.admin.queue_stats("work").depth == 0, within=40.0)


@pytest.mark.slow
def test_a_batch_that_fails_holds_its_groups_and_is_the_same_again(spark, coordinated, options, tmp_path):
    client = coordinated
    client.apply(Queue(name="work", underlying_topic="orders", group_by="/g", max_per_subscription_backlog=1_000))
    client.publish_many("orders", [{"g": g, "n": n} for n in range(2) for g in ("a", "b")])
    seen = []

    def each(batch, _):
        seen.append(sorted((row["group"], json.loads(row["value"])["n"]) for row in batch.collect()))
        if len(seen) == 1:
            raise RuntimeError("the sink is away")

    frame = frame_of(spark, options)
    with running(frame, tmp_path / "c", each) as query, pytest.raises(Exception, match="the sink is away"):
        query.awaitTermination(120)
    with running(frame, tmp_path / "c", each) as query:
        assert query.awaitTermination(120)
    assert seen == [[("a", 0), ("b", 0)], [("a", 0), ("b", 0)], [("a", 1), ("b", 1)]]


def test_an_offset_keeps_groups_and_reads_one_without():
    messages = (
        LeasedMessage("a", "1-0", 1, "x"),
        LeasedMessage("a", "1-1", 2),
        LeasedMessage("a", "1-2", 1, "y"),
        LeasedMessage("a", "1-3", 1, "x"),
        LeasedMessage("b", "1-4", 1),
    )
    offset = QueueOffset(3, "work", messages)
    kept = offset.as_json()
    assert kept["runs"] == [["a", "1-0 1-1 1-2 1-3", "1 2 1 1", {"x": "0 3", "y": "2"}], ["b", "1-4", "1"]]
    assert QueueOffset.of(json.loads(json.dumps(kept)), "work") == offset
    for wrong in (5, {"x": "a"}, {"x": 0}):
        with pytest.raises(DefinitionError, match="is no offset of a queue"):
            QueueOffset.of({"batch": 1, "queue": "work", "runs": [["a", "1-0", "1", wrong]]}, "work")


def test_neighbours_of_a_group_stay_in_one_part_and_no_part_grows_without_bounds():
    def cut(groups, number, most):
        messages = tuple(LeasedMessage("a", f"1-{n}", 1, group) for n, group in enumerate(groups))
        return [sum(map(len, part)) for part in QueueOffset(1, "work", messages).parts(number, most)]

    assert cut("aaabbbcc", 4, 100) == [3, 3, 2]
    assert cut([None] * 8, 4, 100) == [2, 2, 2, 2]
    assert cut(["a"] * 2_000, 1, 100) == [100 + BATCH] * 3 + [200]
