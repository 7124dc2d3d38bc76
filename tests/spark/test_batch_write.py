"""Batch jobs that write: every row once, whatever Spark repeats; wrong ones refused before they start."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from ampsq import Client, Instance, Queue, Topic
from ampsq.protocol.schema import key

PROTOCOLS = ["staged", "sequence"]


def save(frame, options, **more):
    frame.write.format("ampsq").options(**options, **more).mode("append").save()


def numbers(spark, count, partitions=2):
    return spark.range(count, numPartitions=partitions).select(F.col("id").cast("string").alias("value"))


def recorded(client, topic="orders"):
    log = key(client.instance, "log", topic)
    return [fields for _, fields in client._store.redis.xrange(log)]


def values(client, topic="orders"):
    return [fields[b"b"].decode() for fields in recorded(client, topic)]


def leftovers(client):
    return client._store.redis.keys(key(client.instance, "stage", "*", "*", "*"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rows_are_recorded_once_in_order_and_a_queue_delivers_them_meanwhile(spark, client, options, protocol):
    client.apply(Queue(name="work", underlying_topic="orders"))
    with client.subscribe("work", max_backlog=100) as messages:
        save(numbers(spark, 3_000), options, topic="work", commitProtocol=protocol)
        got = []
        while len(got) < 3_000:
            message = messages.get(timeout=30)
            got.append(message.raw.decode())
            message.ack()
    assert sorted(map(int, got)) == list(range(3_000))
    for half in (range(1_500), range(1_500, 3_000)):
        # A partition's rows stay in their order.
        assert [n for n in map(int, values(client)) if n in half] == list(half)
    assert leftovers(client) == []


def test_columns_say_where_a_row_goes_and_what_is_said_of_it(spark, client, options):
    client.apply(Topic(name="orders"), Topic(name="trades"))
    at = datetime(2100, 1, 1, tzinfo=UTC)
    rows = [
        ("orders", "a", "k", {"x": "1"}, 30.0, at),
        ("trades", "b", None, None, None, None),
        ("fresh", "c", "", {}, None, None),
    ]
    schema = "topic string, value string, key string, headers map<string,string>, expiration double, at timestamp"
    save(spark.createDataFrame(rows, schema).coalesce(1), options, publisher="rows", epoch="0")

    publisher = {b"p": b"rows/0"}
    due = str(int(at.timestamp() * 1000)).encode()
    assert recorded(client) == [
        {b"b": b"a", b"h": b'{"x":"1"}', b"e": b"30000", b"d": due, b"r": b"k", **publisher, b"n": b"1"}
    ]
    assert recorded(client, "trades") == [{b"b": b"b", **publisher, b"n": b"2"}]
    assert recorded(client, "fresh") == [{b"b": b"c", **publisher, b"n": b"3"}]


def test_delays_and_lives_may_be_texts_or_intervals(spark, client, options):
    frame = numbers(spark, 1, 1).select(
        "value", F.lit("90s").alias("expiration"), F.expr("INTERVAL '1' HOUR").alias("delay")
    )
    save(frame, options, topic="orders")
    (fields,) = recorded(client)
    assert fields[b"e"] == b"90000"
    assert int(fields[b"d"]) > datetime.now(UTC).timestamp() * 1000 + 3_500_000


def failing(frame, times, at=3_000):
    """Breaks off in the middle of each partition, at its first attempts."""

    def checked(value):
        if int(value) % 4_000 == at and TaskContext.get().attemptNumber() < times:
            raise RuntimeError("the task breaks off here")
        return value

    return frame.select(F.udf(checked, "string", useArrow=False)("value").alias("value"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_task_that_is_repeated_records_no_row_twice(spark, client, options, protocol):
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    try:
        save(failing(numbers(spark, 8_000), 1), options, topic="orders", commitProtocol=protocol, chunkRows="300")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert sorted(map(int, values(client))) == list(range(8_000))
    sequences = {}
    for fields in recorded(client):
        sequences.setdefault(fields[b"p"], []).append(int(fields[b"n"]))
    assert sorted(map(len, sequences.values())) == [4_000, 4_000]
    assert all(own == list(range(1, 4_001)) for own in sequences.values())


def test_nothing_is_seen_of_a_staged_job_that_fails(spark, client, options):
    with pytest.raises(PythonException, match="breaks off"):
        save(failing(numbers(spark, 8_000), 9), options, topic="orders")
    assert values(client) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_run_that_is_submitted_again_records_nothing_twice(spark, client, options, protocol):
    more = {"topic": "orders", "publisher": "nightly", "commitProtocol": protocol}
    for epoch in (7, 7, 8):
        save(numbers(spark, 100), options, epoch=str(epoch), **more)
    with pytest.raises(AnalysisException, match="EpochPast"):
        save(numbers(spark, 100), options, epoch="7", **more)
    assert sorted(map(int, values(client))) == sorted([*range(100), *range(100)])
    assert {fields[b"p"] for fields in recorded(client)} == {b"nightly/0", b"nightly/1"}


def test_a_run_in_sequence_that_is_cut_in_another_way_fails(spark, options):
    more = {"topic": "orders", "publisher": "nightly", "epoch": "0", "commitProtocol": "sequence"}
    save(numbers(spark, 100, 2), options, **more)
    with pytest.raises(PythonException, match="RowsDiffer"):
        save(numbers(spark, 100, 4), options, **more)
    with pytest.raises(AnalysisException, match="RowsDiffer"):
        save(numbers(spark, 50, 1), options, **more)


def test_rows_share_the_instances_by_their_keys(spark, valkey, client, instance, options):
    frame = numbers(spark, 200).withColumn("key", F.expr("concat('k', value % 7)"))
    both = options | {"instance": f"{instance},{instance}-b"}
    for protocol in PROTOCOLS:
        save(frame, both, topic=protocol, commitProtocol=protocol)
    with Client(valkey.url, instance=f"{instance}-b") as other:
        for protocol in PROTOCOLS:
            here, there = ({fields[b"r"] for fields in recorded(each, protocol)} for each in (client, other))
            assert not here & there
            assert sorted(map(int, values(client, protocol) + values(other, protocol))) == list(range(200))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_run_that_names_its_instances_in_another_order_records_nothing_twice(
    spark, valkey, client, options, protocol
):
    # Some rows go by their key, the others by their partition.
    frame = numbers(spark, 200).withColumn("key", F.expr("if(value % 2 = 0, concat('k', value % 7), null)"))
    more = {"topic": "orders", "publisher": "nightly", "epoch": "7", "commitProtocol": protocol}
    one, another = client.instance, f"{client.instance}-b"
    with Client(valkey.url, instance=another) as other:
        save(frame, options | {"instance": f"{one},{another}"}, **more)
        first = values(client), values(other)
        save(frame, options | {"instance": f"{another},{one}"}, **more)
        assert (values(client), values(other)) == first
    assert sorted(map(int, [*first[0], *first[1]])) == list(range(200))
    assert all(first)


def test_a_frame_without_rows_writes_nothing(spark, client, options):
    for protocol in PROTOCOLS:
        save(numbers(spark, 0), options, topic="orders", commitProtocol=protocol)
    assert values(client) == []


def test_a_null_value_fails_the_task_and_says_so(spark, options):
    frame = spark.createDataFrame([("a",), (None,)], "value string").coalesce(1)
    with pytest.raises(PythonException, match="column 'value': 1 rows have none"):
        save(frame, options, topic="orders")


@pytest.mark.parametrize(
    ("frame", "more", "told"),
    [
        ("value", {"topics": "orders"}, "topics: no such option; did you mean 'topic'?"),
        ("value", {"topic": "orders", "commitProtocol": "twophase"}, "commitProtocol: 'twophase' is not known"),
        ("value", {"topic": "orders", "chunkRows": "5000"}, "chunkRows: 5000; allowed: 1 to 500"),
        ("value", {"topic": "a b"}, "topic: "),
        ("value", {"topic": "orders", "epoch": "3"}, "epoch: without a publisher"),
        ("value", {"topic": "orders", "publisher": "nightly"}, "epoch: missing beside publisher"),
        ("value", {}, "topic: missing; allowed: the option topic, or a column"),
        ("value AS val", {"topic": "orders"}, "value: missing"),
        ("value, value AS vlaue", {"topic": "orders"}, "vlaue: no such column"),
        (
            "value, value AS deduplication_id",
            {"topic": "orders"},
            "rows are recorded once without it; allowed: the options",
        ),
        ("value, 1 AS topic", {}, "topic: is int; allowed: string"),
        ("struct(value) AS value", {"topic": "orders"}, "to_json(value) makes a text"),
        ("value, 'orders' AS topic", {"topic": "orders"}, "topic: as a column and as an option"),
    ],
)
def test_what_is_wrong_is_told_before_the_job_starts(spark, options, frame, more, told):
    with pytest.raises(Exception, match=r"ampsq|the frame that is written") as refused:
        save(numbers(spark, 1).selectExpr(*frame.split(", ")), options, **more)
    assert told in str(refused.value)
    assert "Job aborted" not in str(refused.value)


def test_overwriting_a_log_is_refused(spark, options):
    with pytest.raises(Exception, match="a log only grows"):
        numbers(spark, 1).write.format("ampsq").options(**options, topic="orders").mode("overwrite").save()


def test_a_server_that_is_not_there_is_told_without_its_password(spark):
    options = {"url": "redis://user:geheim@127.0.0.1:9", "instance": "nowhere", "retry_timeout": "0s"}
    with pytest.raises(Exception, match=r"127\.0\.0\.1") as refused:
        save(numbers(spark, 1), options, topic="orders")
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_full_server_fails_the_job_with_our_error_and_a_repeat_is_harmless(spark, client, options, protocol):
    redis, more = client._store.redis, {"topic": "orders", "publisher": "job", "epoch": "1", "commitProtocol": protocol}
    client.apply(Topic(name="orders"))
    redis.config_set("maxmemory", "1mb")
    try:
        with pytest.raises(PythonException, match="ServerFull"):
            save(numbers(spark, 100), options, **more)
    finally:
        redis.config_set("maxmemory", "0")
    for _ in range(2):
        save(numbers(spark, 100), options, **more)
    assert sorted(map(int, values(client))) == list(range(100))


def test_a_run_is_not_begun_in_sequence_and_finished_staged(spark, options):
    more = {"topic": "orders", "publisher": "job", "epoch": "1"}
    save(numbers(spark, 100), options, commitProtocol="sequence", **more)
    with pytest.raises(AnalysisException, match="OtherProtocol"):
        save(numbers(spark, 100), options, **more)


def test_rows_are_json_that_workers_read(spark, client, options):
    client.apply(Queue(name="work", underlying_topic="orders"))
    frame = spark.createDataFrame([(1, "x")], "id int, name string").select(
        F.to_json(F.struct("*")).alias("value"), F.create_map(F.lit("by"), F.lit("spark")).alias("headers")
    )
    save(frame, options, topic="orders")
    with client.subscribe("work") as messages:
        message = messages.get(timeout=30)
        assert (message.data, message.headers) == ({"id": 1, "name": "x"}, {"by": "spark"})
        message.ack()
    assert json.loads(values(client)[0]) == {"id": 1, "name": "x"}


def test_rows_for_a_topic_that_nobody_defined_are_refused_with_its_name(spark, client, options):
    client.apply(Instance(topics="defined"), Topic(name="orders"))
    # The option's topic is looked at before the job starts
    with pytest.raises(AnalysisException, match=r"'ordres' is not defined.*did you mean 'orders'\?"):
        save(numbers(spark, 10), options, topic="ordres")
    # Those of a column are known where the rows are
    columns = numbers(spark, 10).withColumn("topic", F.lit("ordres"))
    for protocol in PROTOCOLS:
        with pytest.raises(Exception, match=r"TopicNotDefined: 'ordres' is not defined.*did you mean 'orders'\?"):
            save(columns, options, commitProtocol=protocol)

    assert set(client.admin.topics()) == {"orders"}
    assert leftovers(client) == []
