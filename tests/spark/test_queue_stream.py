"""A queue as a stream: leases that are batches, acknowledged when Spark has done with them, and no sooner."""

from __future__ import annotations

import contextlib
import json

import pytest
from observing import eventually
from pyspark.errors import StreamingQueryException
from test_stream_write import forget_commit

from ampsq import Client, Queue, Topic
from ampsq.base.errors import BookmarkNotFound, DefinitionError
from ampsq.spark.columns import read_schema
from ampsq.spark.queue_offsets import LeasedMessage, QueueOffset
from ampsq.spark.queue_stream import QueueStreamReader

pytestmark = pytest.mark.slow


@pytest.fixture
def work(client, valkey, coordinate):
    """A queue with twenty messages; a coordinator, which notices that a driver is gone."""
    coordinate(valkey.url)
    client.apply(Queue(name="work", underlying_topic="orders", lease_period="2s", max_per_subscription_backlog=1_000))
    client.publish_many("orders", [{"n": n} for n in range(20)])
    return client


def frame_of(spark, options, **more):
    return spark.readStream.format("ampsq").options(**options, queue="work", **more).load()


@contextlib.contextmanager
def running(frame, checkpoint, each, **trigger):
    """A query whose batches are given to a function, with their numbers."""
    writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(**trigger or {"availableNow": True}).start()
    try:
        yield query
    finally:
        query.stop()


def drain(frame, checkpoint):
    """Run to the end; gives the rows of each batch."""
    batches = {}

    def each(batch, number):
        batches.setdefault(number, []).append([json.loads(row["value"])["n"] for row in batch.collect()])

    with running(frame, checkpoint, each) as query:
        assert query.awaitTermination(120)
    return batches


def settled(client):
    return client.admin.queue_stats("work").acknowledged


def test_each_message_comes_in_a_batch_and_is_acknowledged_behind_it(spark, work, options, tmp_path):
    batches = drain(frame_of(spark, options, maxMessagesPerTrigger="8"), tmp_path / "c")
    assert [sorted(n for run in batches[number] for n in run) for number in sorted(batches)] == [
        list(range(8)),
        list(range(8, 16)),
        list(range(16, 20)),
    ]
    eventually(lambda: settled(work) == 20, within=40.0)
    assert work.admin.queue_stats("work").depth == 0


def test_rows_have_the_columns_of_topics_and_how_often_they_were_delivered(spark, work, options, tmp_path):
    with work.subscribe("work") as messages:
        messages.get(30).cancel()
    rows = []
    with running(
        frame_of(spark, options, includeHeaders="true"), tmp_path / "c", lambda b, _: rows.extend(b.collect())
    ) as q:
        assert q.awaitTermination(120)
    assert {row["topic"] for row in rows} == {"orders"}
    assert sorted(row["delivery"] for row in rows) == [1] * 19 + [2]
    assert all(row["bookmark"].startswith("orders~") and row["headers"] is None for row in rows)


def test_leases_are_renewed_while_a_batch_runs_and_held_until_it_is_done(spark, work, options, tmp_path):
    seen = []

    def each(batch, number):
        seen.append([row["delivery"] for row in batch.collect()])
        if number == 0:
            # More than a lease period: others must not get what this batch has.
            with work.subscribe("work") as others:
                assert others.get("3s") is None
            assert settled(work) == 0

    with running(frame_of(spark, options), tmp_path / "c", each) as query:
        assert query.awaitTermination(120)
    assert seen == [[1] * 20]
    eventually(lambda: settled(work) == 20, within=40.0)


def test_a_batch_that_fails_is_not_acknowledged_and_is_the_same_when_it_is_run_again(spark, work, options, tmp_path):
    seen = []

    def each(batch, number):
        seen.append((number, sorted(row["bookmark"] for row in batch.collect())))
        if len(seen) == 1:
            raise RuntimeError("the sink is away")

    frame = frame_of(spark, options, maxMessagesPerTrigger="8")
    with running(frame, tmp_path / "c", each) as query, pytest.raises(Exception, match="the sink is away"):
        query.awaitTermination(120)
    assert settled(work) == 0
    with running(frame, tmp_path / "c", each) as query:
        assert query.awaitTermination(120)
    assert seen[0] == seen[1]
    eventually(lambda: work.admin.queue_stats("work").depth == 0, within=40.0)
    assert {bookmark for _, bookmarks in seen for bookmark in bookmarks} == {b for _, one in seen[1:] for b in one}


def test_what_was_done_before_the_driver_died_is_acknowledged_when_it_comes_again(spark, work, options, tmp_path):
    first = drain(frame_of(spark, options), tmp_path / "c")
    forget_commit(tmp_path / "c")
    work.publish("orders", {"n": 20})
    again = drain(frame_of(spark, options), tmp_path / "c")
    assert sorted(again[0][0]) == sorted(first[0][0])
    assert again[1] == [[20]]
    eventually(lambda: work.admin.queue_stats("work").depth == 0, within=40.0)


def test_a_filter_leaves_the_rest_to_others(spark, work, options, tmp_path):
    batches = drain(frame_of(spark, options, filter="/n < 5"), tmp_path / "c")
    assert sorted(n for runs in batches.values() for run in runs for n in run) == list(range(5))
    eventually(lambda: work.admin.queue_stats("work").depth == 15, within=40.0)


def test_messages_of_several_topics_and_those_for_one_queue_alone_come_too(spark, client, options, tmp_path):
    client.apply(
        Topic(name="a"),
        Topic(name="b"),
        Queue(
            name="work",
            underlying_topic="^[ab]$",
            default_publish_target="a",
            max_per_subscription_backlog=100,
        ),
    )
    for n in range(6):
        client.publish("ab"[n % 2], {"n": n})
    batches = drain(frame_of(spark, options), tmp_path / "c")
    assert sorted(n for runs in batches.values() for run in runs for n in run) == list(range(6))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"queue": "worl"}, "did you mean 'work'"),
        ({"maxMessages": "3"}, "maxMessages: no such option"),
        ({"filter": "/n <"}, "filter: "),
        ({"instance": "a,b"}, "instance: several"),
        ({"topic": "orders"}, "queue"),
    ],
)
@pytest.mark.usefixtures("work")
def test_what_is_wrong_is_told_when_the_stream_is_started(spark, options, tmp_path, more, told):
    frame = spark.readStream.format("ampsq").options(**{**options, "queue": "work", **more}).load()
    query = frame.writeStream.foreachBatch(lambda *_: None).option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException) as refused:
        query.awaitTermination(60)
    # Spark hands a stream's options over in small letters.
    assert told.lower() in str(refused.value).lower()


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize("columns", ["value binary", "topic string, value string, delivery int"])
def test_a_schema_of_the_users_own_is_refused(spark, options, tmp_path, columns):
    frame = spark.readStream.format("ampsq").schema(columns).options(**options, queue="work").load()
    query = frame.writeStream.foreachBatch(lambda *_: None).option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException, match="schema: what is read has its own columns"):
        query.awaitTermination(60)


def test_an_offset_says_everything_that_its_batch_is_made_of():
    messages = (
        LeasedMessage("a", "1-0", 1),
        LeasedMessage("a", "1-1", 2),
        LeasedMessage("b", "1-2", 1),
        LeasedMessage("a", "1-3", 1),
    )
    offset = QueueOffset(3, "work", messages)
    assert QueueOffset.of(json.loads(json.dumps(offset.as_json())), "work") == offset
    # A part may be of several topics, in pieces.
    assert offset.parts(2, 100) == [[list(messages[:2])], [[messages[2]], [messages[3]]]]
    assert offset.parts(1, 1) == [[[each]] for each in messages]
    with pytest.raises(DefinitionError, match="another checkpointLocation"):
        QueueOffset.of(offset.as_json(), "mail")
    with pytest.raises(DefinitionError, match="no offset of a queue"):
        QueueOffset.of({"i": {}}, "work")


@pytest.mark.parametrize(
    "more",
    [{"batch": "x"}, {"runs": 5}, {"runs": [["a"]]}, {"runs": [["a", "1-b", "1"]]}, {"runs": [["a", "1-0 1-1", "1"]]}],
)
def test_an_offset_that_somebody_edited_is_refused_with_what_is_wrong(more):
    with pytest.raises(DefinitionError, match="is no offset of a queue"):
        QueueOffset.of({"batch": 1, "queue": "work", "runs": [], **more}, "work")


@pytest.mark.usefixtures("work")
def test_a_batch_whose_topic_is_gone_is_data_that_is_lost(options):
    batch = QueueOffset(1, "work", (LeasedMessage("gone", "1-0", 1),)).as_json()
    strict, lenient = (
        QueueStreamReader({**options, "queue": "work", "failOnDataLoss": each}, read_schema({"queue": "work"}))
        for each in ("true", "false")
    )
    with pytest.raises(BookmarkNotFound, match="not there any more: gone"):
        strict.partitions({}, batch)
    assert lenient.partitions({}, batch) == []


@pytest.mark.parametrize("partitions", [None, 4])
def test_a_stream_that_ends_with_what_is_there_ends_behind_what_a_filter_takes_long_to_find(
    options, valkey, instance, partitions, monkeypatch
):
    # Each look for messages is one call, as on a crowded machine.
    monkeypatch.setattr("ampsq.spark.queue_leases._LOOK", 0.0)
    url = valkey.url if partitions is None else f"{valkey.url}?partitions={partitions}"
    with Client(url, instance=instance) as client:
        client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=1_000))
        client.publish_many("orders", [{"n": n} for n in range(8_000)], key=lambda each: str(each["n"]))
        client.publish_many("orders", [{"n": n, "rare": 1} for n in range(8)], key=lambda each: str(each["n"]))
        reader = QueueStreamReader(
            {**options, "url": url, "queue": "work", "filter": "/rare = 1"}, read_schema({"queue": "work"})
        )
        reader.prepareForTriggerAvailableNow()
        at, seen = reader.initialOffset(), []
        while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
            seen += [
                json.loads(value)["n"]
                for part in reader.partitions(at, end)
                for rows in reader.read(part)
                for value in rows.column("value").to_pylist()
            ]
            at = end
        reader.stop()
    assert sorted(seen) == list(range(8))
