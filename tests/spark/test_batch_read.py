"""`spark.read.format("ampsq")`: ranges of topics as frames."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from ampsq import Client, Queue, Topic
from ampsq.base.errors import BookmarkNotFound
from ampsq.protocol.schema import key
from ampsq.spark.batch_reading import batch_reader
from ampsq.spark.columns import read_schema


@pytest.fixture
def read(spark, options):
    """Read a topic with options: ``read("orders", filter=...)``."""

    def frame(topic="orders", **more):
        return spark.read.format("ampsq").options(**options, **({"topic": topic} if topic else {}), **more).load()

    return frame


def values(frame):
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def numbers(frame):
    return sorted(json.loads(row.value)["id"] for row in frame.select("value").collect())


def add(client, *ids, topic="orders", **fields):
    """Entries at given milliseconds."""
    log = key(client.instance, "log", topic)
    for ms in ids:
        client.store.redis.xadd(log, {"b": json.dumps({"id": ms}), **fields}, id=f"{ms}-0")


@pytest.fixture
def client(client):
    client.store = client._store
    client.apply(Topic(name="orders"))
    return client


def test_every_message_is_a_row_with_what_is_known_of_it(client, read):
    bookmark = client.publish("orders", {"id": 1}, headers={"desk": "7"})
    client.publish("orders", b"\x00\xff")
    client.store.redis.xadd(key(client.instance, "log", "orders"), {"b": "x", "r": "IBM", "p": "till", "n": "12"})
    client.store.redis.xadd(key(client.instance, "log", "orders"), {"symbol": "IBM", "qty": "5"})

    first, second, third, foreign = read(includeHeaders="true").orderBy("bookmark").collect()

    assert (first.topic, first.instance, first.bookmark) == ("orders", client.instance, str(bookmark))
    assert (bytes(first.value), first.headers) == (b'{"id":1}', {"desk": "7"})
    assert (first.key, first.publisher, first.sequence, second.headers) == (None, None, None, None)
    recorded = int(bookmark.id.partition("-")[0]) / 1000
    assert first.timestamp.astimezone(dt.UTC) == dt.datetime.fromtimestamp(recorded, dt.UTC)
    assert bytes(second.value) == b"\x00\xff"
    assert (bytes(third.key), third.publisher, third.sequence) == (b"IBM", "till", 12)
    # What somebody wrote without ampsq is its fields
    assert json.loads(foreign.value) == {"symbol": "IBM", "qty": "5"}


def test_what_is_for_one_queue_alone_is_no_row(client, read):
    add(client, 1, 2)
    add(client, 3, q="work")

    assert numbers(read()) == [1, 2]


def test_a_range_begins_behind_a_bookmark_and_ends_with_one(client, read):
    bookmarks = [client.publish("orders", {"id": number}) for number in range(6)]

    assert numbers(read(startingBookmark=bookmarks[1], endingBookmark=bookmarks[4])) == [2, 3, 4]
    assert numbers(read(startingBookmark=bookmarks[4])) == [5]
    assert numbers(read(endingBookmark=bookmarks[0])) == [0]
    assert numbers(read(startingBookmark="latest")) == []


def test_a_range_of_times_has_its_start_and_not_its_end(client, read):
    add(client, 1_000, 2_000, 3_000)

    assert numbers(read(startingTimestamp="2000", endingTimestamp="3000")) == [2_000]
    assert numbers(read(startingTimestamp="1970-01-01T00:00:02Z")) == [2_000, 3_000]


def test_a_batch_goes_on_from_the_offset_of_a_stream(client, read):
    add(client, 1, 2, 3, 4)

    offset = {client.instance: {"origin": client.origin, "topics": {"orders": "2-0"}, "cuts": {}}}
    assert numbers(read(startingBookmark=json.dumps(offset))) == [3, 4]
    plain = json.dumps({client.instance: {"orders": "3-0"}})
    assert numbers(read(startingBookmark=plain)) == [4]
    assert numbers(read(endingBookmark=plain)) == [1, 2, 3]


def test_topics_are_named_listed_matched_or_those_of_a_queue(client, read):
    client.apply(
        Topic(name="trades"),
        Topic(name="other"),
        Queue(name="work", underlying_topic="^(orders|trades)$", default_publish_target="orders"),
    )
    for number, topic in enumerate(("orders", "trades", "other")):
        client.publish(topic, {"id": number})

    assert numbers(read("orders")) == [0]
    assert numbers(read(None, topics="orders, other")) == [0, 2]
    assert numbers(read(None, topicPattern="^o")) == [0, 2]
    assert numbers(read("work")) == [0, 1]
    assert client.admin.queue_stats("work").depth == 2


def test_a_log_is_cut_into_parts_of_about_the_same_size(client, read):
    client.publish_many("orders", ({"id": number} for number in range(5_000)))

    frame = read(minPartitions="4")
    assert frame.rdd.getNumPartitions() == 4
    sizes = [row["count"] for row in frame.groupBy("instance").count().collect()]
    assert sizes == [5_000]
    parts = frame.selectExpr("spark_partition_id() as part").groupBy("part").count().collect()
    assert [row["count"] for row in parts] == [1_250] * 4
    assert read(maxRowsPerPartition="1000").rdd.getNumPartitions() == 5
    assert read().rdd.getNumPartitions() == 1


def test_pages_of_all_sizes_give_every_message_once(client, read):
    client.publish_many("orders", ({"id": number, "x": "y" * (number % 7 * 900)} for number in range(3_000)))

    for rows in ("7", "10000"):
        assert numbers(read(pageRows=rows)) == list(range(3_000))


def test_a_filter_is_applied_before_rows_get_to_spark(client, read):
    client.publish_many("orders", ({"id": number, "symbol": "AB"[number % 2]} for number in range(10)))
    client.store.redis.xadd(key(client.instance, "log", "orders"), {"id": "100", "symbol": "A"})

    assert values(read(filter="/symbol = 'A' AND /id > 6")) == [b'{"id":"100","symbol":"A"}', b'{"id":8,"symbol":"A"}']


def test_conditions_of_the_query_narrow_what_is_read(client, spark, read):
    client.apply(Topic(name="trades"))
    add(client, 1_000, 2_000, 3_000)
    add(client, 1_500, topic="trades")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(None, topics="orders,trades", filterPushdown="true")
        at = "timestamp_millis({})".format
        assert numbers(frame.where(f"timestamp > {at(1000)} AND timestamp <= {at(2000)}")) == [1_500, 2_000]
        assert numbers(frame.where(f"timestamp >= {at(1000)} AND timestamp < {at(2000)}")) == [1_000, 1_500]
        assert numbers(frame.where(f"topic = 'orders' AND timestamp = {at(2000)}")) == [2_000]
        assert numbers(frame.where("topic IN ('trades', 'x') AND length(value) > 1")) == [1_500]
        assert frame.where("topic = 'trades'").rdd.getNumPartitions() == 1
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_several_instances_are_one_frame(client, spark, valkey, options):
    other = f"{client.instance}-b"
    with Client(valkey.url, instance=other) as second:
        second.apply(Topic(name="orders"))
        client.publish("orders", {"id": 1})
        second.publish("orders", {"id": 2})
    both = {**options, "instance": f"{client.instance},{other}"}
    frame = spark.read.format("ampsq").options(**both, topic="orders").load()

    assert {(row.instance, json.loads(row.value)["id"]) for row in frame.collect()} == {
        (client.instance, 1),
        (other, 2),
    }


def test_what_was_trimmed_fails_or_is_left_out(client, read):
    bookmarks = [client.publish("orders", {"id": number}) for number in range(6)]
    client.admin.trim("orders", age="0s")
    client.publish("orders", {"id": 6})

    with pytest.raises(Exception, match=r"was trimmed up to .*failOnDataLoss=false"):
        read(startingBookmark=bookmarks[1]).collect()
    assert numbers(read(startingBookmark=bookmarks[1], failOnDataLoss="false")) == [6]
    # The epoch is whatever there is, and behind what was trimmed nothing is missing
    assert numbers(read()) == [6]
    assert numbers(read(startingBookmark=bookmarks[5])) == [6]


def test_an_offset_of_another_incarnation_or_ahead_of_the_log_fails(client, read):
    add(client, 1, 2)

    other = json.dumps({client.instance: {"origin": "x.other", "topics": {"orders": "1-0"}}})
    with pytest.raises(Exception, match=r"the offset is of x\.other"):
        read(startingBookmark=other).collect()
    assert numbers(read(startingBookmark=other, failOnDataLoss="false")) == [1, 2]
    ahead = json.dumps({client.instance: {"orders": "9-0"}})
    with pytest.raises(Exception, match="goes up to 2-0, before 9-0"):
        read(startingBookmark=ahead).collect()


def test_logs_are_held_while_a_job_reads(client, read):
    add(client, 1_000, 2_000)

    frame = read(startingTimestamp="2000")
    assert numbers(frame) == [2_000]

    holds = client.store.redis.hgetall(key(client.instance, "holds", "orders"))
    assert {value.split(b" ")[0] for value in holds.values()} == {b"2000-0"}
    assert all(holder.startswith(b"replay spark-") for holder in holds)


@pytest.fixture
def tasks(options):
    """A reader and its parts, without Spark around them: ``tasks(topic=...)``."""

    def make(**more):
        given = {**options, "topic": "orders", **more}
        reader = batch_reader(given, read_schema(given))
        return reader, reader.partitions()

    return make


def ids_of(batches):
    return [json.loads(value.as_py())["id"] for batch in batches for value in batch.column("value")]


def test_what_is_removed_while_a_task_reads_fails_or_is_left_out(client, tasks):
    add(client, *range(1, 501))
    (strict, (part,)), (lenient, (same,)) = tasks(), tasks(failOnDataLoss="false")
    # Somebody else's deletion heeds no hold
    client.store.redis.xdel(key(client.instance, "log", "orders"), "300-0")

    with pytest.raises(BookmarkNotFound, match="was trimmed up to 300-0 while it was read from 0-0 on"):
        list(strict.read(part))
    assert ids_of(lenient.read(same)) == [*range(1, 300), *range(301, 501)]
    # What was removed before the job was planned is none of it
    reader, (later,) = tasks()
    assert len(ids_of(reader.read(later))) == 499


def test_a_task_goes_on_where_its_connection_broke(client, tasks):
    add(client, *range(1, 1_001))
    reader, (part,) = tasks(pageRows="100")
    batches = reader.read(part)
    first = next(batches)

    client.store.redis.client_kill_filter(_type="normal", skipme=True)

    assert ids_of([first, *batches]) == list(range(1, 1_001))


def test_a_task_holds_the_log_while_it_reads(client, tasks):
    add(client, *range(1, 1_001))
    reader, (part,) = tasks(pageRows="100", startingBookmark=f"orders~{client.origin}~5-0")
    holds = key(client.instance, "holds", "orders")
    client.store.redis.delete(holds)

    next(reader.read(part))

    assert [value.split(b" ")[0] for value in client.store.redis.hvals(holds)] == [b"5-1"]


def test_what_others_wrote_under_our_fields_is_null_where_it_cannot_be_read(client, tasks):
    fields = {"b": "1", "h": "no JSON", "p": b"\xff", "n": "many"}
    client.store.redis.xadd(key(client.instance, "log", "orders"), fields)
    reader, (part,) = tasks(includeHeaders="true")

    (row,) = next(reader.read(part)).to_pylist()
    assert (row["headers"], row["publisher"], row["sequence"]) == (None, "\ufffd", None)


def test_moments_beyond_what_spark_knows_are_the_last_one(client, tasks):
    client.store.redis.xadd(key(client.instance, "log", "orders"), {"b": "1"}, id="18446744073709551614-0")
    reader, (part,) = tasks()

    (batch,) = reader.read(part)
    assert batch.column("timestamp").cast("int64").to_pylist() == [2**63 - 1]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"topic": "ordrs"}, "'ordrs' is neither a topic nor a queue; did you mean 'orders'?"),
        ({"topic": "orders", "startingBokmark": "now"}, "no such option; did you mean 'startingBookmark'?"),
        ({"topic": "orders", "startingBookmark": "yesterday"}, "startingBookmark: 'yesterday' is no place; allowed: e"),
        ({"topic": "orders", "startingTimestamp": "2026-01-01T00:00:00"}, "has no time zone"),
        ({"topic": "orders", "topics": "a"}, "allowed: one of topic, topics, topicPattern and queue"),
        ({}, "topic: missing; allowed: one of topic"),
        ({"topic": "orders", "filter": "/id >"}, "filter: column"),
        ({"topic": "orders", "minPartitions": "0"}, "minPartitions: '0' is no whole number"),
        (
            {"topic": "orders", "failOnDataLoss": "maybe"},
            "failOnDataLoss: 'maybe' is not known; allowed: true or false",
        ),
        ({"topic": "orders", "holdPeriod": "0s"}, "holdPeriod: 0s; allowed: 100ms or longer"),
        ({"queue": "work"}, "queue: of a batch; allowed: readStream"),
        ({"topic": "orders", "startingBookmark": '{"nowhere": {"orders": "1-0"}}'}, "the offset's instance 'nowhere'"),
    ],
)
@pytest.mark.usefixtures("client")
def test_what_is_wrong_is_said_before_a_job_starts(read, given, text):
    with pytest.raises(Exception, match="ampsq") as caught:
        read(given.pop("topic", None), **given).collect()
    assert text in str(caught.value)


def test_an_instance_that_is_not_there_is_told_and_not_made(client, spark, options):
    wrong = {**options, "instance": f"{client.instance}x"}

    with pytest.raises(Exception, match=f"did you mean '{client.instance}'"):
        spark.read.format("ampsq").options(**wrong, topic="orders").load().collect()
    assert not client.store.redis.exists(key(f"{client.instance}x", "instance"))


def test_the_password_of_an_address_is_in_no_error(spark):
    wrong = {"url": "redis://me:hunter2@127.0.0.1:1", "retry_timeout": "0s", "topic": "orders"}

    with pytest.raises(Exception, match=r"127\.0\.0\.1:1") as caught:
        spark.read.format("ampsq").options(**wrong).load().collect()
    assert "hunter2" not in str(caught.value)
