"""A queue of all partitions of an instance as a stream: batches of leases, whichever partitions these are in."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from pathlib import Path

import pytest
from observing import eventually
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from test_queue_stream import drain, frame_of, running
from test_stream_write import forget_commit

from ampsq import Client, Queue
from ampsq.base.errors import BookmarkNotFound, DefinitionError, Unavailable
from ampsq.base.partitions import partition_of_key
from ampsq.coordinator import Coordinator
from ampsq.protocol.schema import key
from ampsq.spark.columns import read_schema
from ampsq.spark.queue_offsets import LeasedMessage, QueueOffset
from ampsq.spark.queue_stream import QueueStreamReader
from ampsq.transport.discovery import slot_of

# Servers of a cluster are those of the tests of faults.
sys.path.append(str(Path(__file__).parents[1] / "faults"))
from cluster_harness import three_primaries

pytestmark = pytest.mark.slow

TOTAL = 4
WORK = Queue(name="work", underlying_topic="orders", lease_period="2s", max_per_subscription_backlog=1_000)


@pytest.fixture
def options(valkey, instance):
    return {"url": f"{valkey.url}?partitions={TOTAL}", "instance": instance}


@pytest.fixture
def client(options):
    """A client of all partitions, with the queue."""
    with Client(**options) as client:
        client.apply(WORK)
        yield client


@pytest.fixture
def work(client):
    """Twenty messages of seven keys; a coordinator, which notices that a driver is gone."""
    client.publish_many("orders", [{"n": n, "key": f"k{n % 7}"} for n in range(20)], key=lambda each: each["key"])
    with coordinated(client.url, client.partitions):
        yield client


@contextlib.contextmanager
def coordinated(url, names):
    coordinator = Coordinator(url, list(names))
    thread = threading.Thread(target=coordinator.run)
    thread.start()
    try:
        yield
    finally:
        coordinator.stop()
        thread.join()


def is_done(client, number=20):
    figures = client.admin.queue_stats("work")
    return (figures.depth, figures.acknowledged) == (0, number)


def test_each_message_comes_in_one_batch_those_of_a_key_in_order_and_is_acknowledged_behind_it(
    spark, work, options, tmp_path
):
    seen, leased = [], []

    def each(batch, _):
        rows = batch.collect()
        seen.append([(json.loads(row["value"]), row["instance"], row["delivery"]) for row in rows])
        leased.append(work.admin.queue_stats("work").leased)

    with running(frame_of(spark, options, maxMessagesPerTrigger="8"), tmp_path / "c", each) as query:
        assert query.awaitTermination(120)

    # The limit is one over all partitions, of a batch and of what is held.
    assert [len(batch) for batch in seen] == [8, 8, 4]
    assert leased == [8, 8, 4]
    rows = [row for batch in seen for row in batch]
    assert sorted(body["n"] for body, _, _ in rows) == list(range(20))
    for number in range(7):
        own = [body["n"] for body, _, _ in rows if body["key"] == f"k{number}"]
        assert own == sorted(own)
    assert all(work.partitions[partition_of_key(body["key"], TOTAL)] == instance for body, instance, _ in rows)
    assert {delivery for _, _, delivery in rows} == {1}
    eventually(lambda: is_done(work), within=40.0)


def test_a_few_messages_of_many_partitions_are_no_more_tasks_than_asked_for(spark, work, options, tmp_path):
    tasks = []

    def each(batch, _):
        rows = batch.withColumn("task", F.spark_partition_id()).collect()
        assert len({row["instance"] for row in rows}) == TOTAL
        tasks.append(len({row["task"] for row in rows}))

    with running(frame_of(spark, options), tmp_path / "c", each) as query:
        assert query.awaitTermination(120)
    assert tasks == [2]
    eventually(lambda: is_done(work), within=40.0)


def test_what_comes_while_it_runs_is_heard_of_by_bells(spark, work, options, tmp_path):
    seen = []

    def each(batch, _):
        seen.extend(json.loads(row["value"])["n"] for row in batch.collect())

    with running(frame_of(spark, options), tmp_path / "c", each, processingTime="100 milliseconds") as query:
        eventually(lambda: len(seen) == 20, within=60.0)
        for n in range(20, 30):
            work.publish("orders", {"n": n}, key=f"k{n}")
        eventually(lambda: len(seen) == 30, within=60.0)
        assert query.exception() is None
    assert sorted(seen) == list(range(30))


def test_leases_are_renewed_while_a_batch_runs_and_held_until_it_is_done(spark, work, options, tmp_path):
    seen = []

    def each(batch, number):
        seen.append(sorted(row["delivery"] for row in batch.collect()))
        if number == 0:
            # More than a lease period: others must not get what this batch has.
            with work.subscribe("work", max_backlog=20) as others:
                assert others.get("3s") is None
            assert work.admin.queue_stats("work").acknowledged == 0

    with running(frame_of(spark, options), tmp_path / "c", each) as query:
        assert query.awaitTermination(120)
    assert seen == [[1] * 20]
    eventually(lambda: is_done(work), within=40.0)


def test_a_batch_that_fails_is_not_acknowledged_and_is_the_same_when_it_is_run_again(spark, work, options, tmp_path):
    seen = []

    def each(batch, number):
        seen.append((number, sorted(row["bookmark"] for row in batch.collect())))
        if len(seen) == 1:
            raise RuntimeError("the sink is away")

    frame = frame_of(spark, options, maxMessagesPerTrigger="12")
    with running(frame, tmp_path / "c", each) as query, pytest.raises(Exception, match="the sink is away"):
        query.awaitTermination(120)
    assert work.admin.queue_stats("work").acknowledged == 0
    with running(frame, tmp_path / "c", each) as query:
        assert query.awaitTermination(120)
    assert seen[0] == seen[1]
    eventually(lambda: is_done(work), within=40.0)


def test_what_was_done_before_the_driver_died_is_acknowledged_in_each_partition(spark, work, options, tmp_path):
    first = drain(frame_of(spark, options), tmp_path / "c")
    forget_commit(tmp_path / "c")
    work.publish("orders", {"n": 20}, key="k6")
    again = drain(frame_of(spark, options), tmp_path / "c")
    assert sorted(again[0][0]) == sorted(first[0][0])
    assert again[1] == [[20]]
    eventually(lambda: is_done(work, 21), within=40.0)


def test_a_filter_leaves_the_rest_to_others(spark, work, options, tmp_path):
    batches = drain(frame_of(spark, options, filter="/n < 5"), tmp_path / "c")
    assert sorted(n for runs in batches.values() for run in runs for n in run) == list(range(5))
    eventually(lambda: work.admin.queue_stats("work").depth == 15, within=40.0)


def test_a_rare_message_among_many_is_found_in_each_partition(spark, client, options, tmp_path):
    # More of them than one call applies a filter to.
    rare = [{"n": n, "rare": True} for n in range(TOTAL * 2)]
    client.publish_many("orders", [{"n": n} for n in range(8_000)], key=lambda each: str(each["n"]))
    client.publish_many("orders", rare, key=lambda each: str(each["n"]))
    batches = drain(frame_of(spark, options, filter="/rare = 1"), tmp_path / "c")
    assert sorted(n for runs in batches.values() for run in runs for n in run) == list(range(TOTAL * 2))


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"queue": "worl"}, "did you mean 'work'"),
        ({"instance": "a,b"}, "partitions= are those of one instance"),
        ({"partitions": "8"}, "has 4 partitions, and 8 are asked for"),
    ],
)
def test_what_is_wrong_is_told_when_the_stream_is_started(spark, options, tmp_path, more, told):
    asked = more.pop("partitions", None)
    url = options["url"] if asked is None else options["url"].replace(f"partitions={TOTAL}", f"partitions={asked}")
    frame = spark.readStream.format("ampsq").options(**{**options, "url": url, "queue": "work", **more}).load()
    query = frame.writeStream.foreachBatch(lambda *_: None).option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException) as refused:
        query.awaitTermination(60)
    assert told in str(refused.value)


def test_an_offset_says_the_partition_of_each_message_and_how_many_there_are():
    messages = (
        LeasedMessage("a", "1-0", 1, "x", 0),
        LeasedMessage("a", "1-0", 2, None, 3),
        LeasedMessage("b", "1-1", 1, None, 3),
    )
    offset = QueueOffset(3, "work", messages, TOTAL)
    kept = json.loads(json.dumps(offset.as_json()))
    assert kept["runs"] == [[0, "a", "1-0", "1", {"x": "0"}], [3, "a", "1-0", "2"], [3, "b", "1-1", "1"]]
    assert QueueOffset.of(kept, "work", TOTAL) == offset
    # Pieces of several logs are a part.
    assert offset.parts(1, 100) == [[[each] for each in messages]]
    for other, told in ((None, "an instance without partitions"), (8, "one with 8 partitions")):
        with pytest.raises(DefinitionError, match=f"is of one with 4 partitions, and the address of {told}"):
            QueueOffset.of(kept, "work", other)
    with pytest.raises(DefinitionError, match="another checkpointLocation"):
        QueueOffset.of(QueueOffset(1, "work", ()).as_json(), "work", TOTAL)


@pytest.mark.parametrize("number", [4, -1, "0", None, 1.5, [0]])
def test_an_offset_that_somebody_edited_is_refused_with_what_is_wrong(number):
    edited = {"batch": 1, "queue": "work", "partitions": TOTAL, "runs": [[number, "a", "1-0", "1"]]}
    with pytest.raises(DefinitionError, match=r"is no offset of a queue \(partition .* is none of 4\)"):
        QueueOffset.of(edited, "work", TOTAL)


@pytest.mark.usefixtures("work")
def test_a_topic_that_is_gone_from_one_partition_is_data_that_is_lost(client, options):
    (stream_id, _), *_ = client.clients[2]._store.redis.xrange(key(client.partitions[2], "log", "orders"))
    there = LeasedMessage("orders", stream_id.decode(), 1, None, 2)
    batch = QueueOffset(1, "work", (LeasedMessage("gone", "1-0", 1, None, 1), there), TOTAL).as_json()
    strict, lenient = (
        QueueStreamReader({**options, "queue": "work", "failOnDataLoss": each}, read_schema({"queue": "work"}))
        for each in ("true", "false")
    )
    with pytest.raises(BookmarkNotFound, match=f"not there any more: gone of {client.partitions[1]}"):
        strict.partitions({}, batch)
    (part,) = lenient.partitions({}, batch)
    assert [piece.messages for piece in part.pieces] == [(there,)]
    (rows,) = lenient.read(part)
    assert rows.column("instance").to_pylist() == [client.partitions[2]]


@pytest.fixture
def start_cluster(server_program):
    """Start three primaries, each with partitions of its own: ``start_cluster(options...)``; they end with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda *options: stack.enter_context(three_primaries(server_program("valkey"), *options))


def options_on(cluster, instance):
    """The options that name an instance with six partitions on a cluster."""
    url = "cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)
    return {"url": f"{url}?partitions=6", "instance": instance}


def keys_by_partition(total):
    found = {}
    for number in range(1_000):
        found.setdefault(partition_of_key(f"k{number}", total), f"k{number}")
    return [found[number] for number in range(total)]


def test_on_a_cluster_each_message_comes_once_while_slots_are_moved(spark, start_cluster, instance, tmp_path):
    cluster = start_cluster()
    on_cluster = options_on(cluster, instance)
    with Client(**on_cluster) as client:
        client.apply(WORK)
        client.publish_many("orders", [{"n": n} for n in range(60)], key=lambda each: f"k{each['n']}")
        seen = []

        def each(batch, number):
            if number % 2 == 0:
                # Between the leases and the tasks that read.
                name = client.partitions[number]
                slot = slot_of(name)
                source = cluster.owner(slot)
                cluster.move_by_keys(slot, next(each for each in cluster.primaries() if each is not source))
            seen.extend(json.loads(row["value"])["n"] for row in batch.collect())

        frame = frame_of(spark, on_cluster, maxMessagesPerTrigger="10")
        with running(frame, tmp_path / "c", each) as query:
            assert query.awaitTermination(120)
        assert sorted(seen) == list(range(60))
        eventually(lambda: is_done(client, 60), within=40.0)
        assert all(report.clean for report in client.admin.check("work"))


def test_a_primary_that_is_away_does_not_hold_up_the_messages_of_the_others(spark, start_cluster, instance, tmp_path):
    cluster = start_cluster()
    on_cluster = options_on(cluster, instance)
    options = {**on_cluster, "retryTimeout": "20s"}
    with Client(**on_cluster, retry_timeout="20s") as client:
        client.apply(WORK)
        keys, seen = keys_by_partition(6), []
        client.publish_many("orders", [{"n": n} for n in range(6)], key=lambda each: keys[each["n"]])
        owners = [cluster.owner(slot_of(name)) for name in client.partitions]
        there = [number for number, owner in enumerate(owners) if owner is not owners[1]]

        def each(batch, _):
            seen.extend(json.loads(row["value"])["n"] for row in batch.collect())

        with running(frame_of(spark, options), tmp_path / "c", each, processingTime="100 milliseconds") as query:
            eventually(lambda: len(seen) == 6, within=60.0)
            eventually(lambda: is_done(client, 6), within=40.0)
            owners[1].kill()
            for n in range(6, 18):
                client.publish("orders", {"n": n}, key=keys[there[n % len(there)]])
            eventually(lambda: len(seen) == 18, within=60.0)
            assert query.exception() is None
        assert sorted(seen) == list(range(18))


def test_a_batch_with_messages_of_a_partition_that_is_away_fails_and_is_the_same_when_it_is_back(
    start_cluster, instance
):
    cluster = start_cluster("--appendonly", "yes", "--appendfsync", "always")
    options = {**options_on(cluster, instance), "queue": "work", "retryTimeout": "2s"}

    def read_by_driver(end):
        return [
            json.loads(value)["n"]
            for part in reader.partitions({}, end)
            for rows in reader.read(part)
            for value in rows.column("value").to_pylist()
        ]

    with Client(options["url"], instance=instance, retry_timeout="20s") as client:
        client.apply(WORK)
        keys = keys_by_partition(6)
        client.publish_many("orders", [{"n": n} for n in range(6)], key=lambda each: keys[each["n"]])
        reader = QueueStreamReader(options, read_schema(options))
        begin = reader.initialOffset()
        end = reader.latestOffset(begin, reader.getDefaultReadLimit())
        lost = cluster.owner(slot_of(client.partitions[1]))
        lost.kill()
        with pytest.raises(Unavailable):
            read_by_driver(end)
        # Done or not: what of it is acknowledged is not known before all of it is.
        with pytest.raises(Unavailable):
            reader.latestOffset(end, reader.getDefaultReadLimit())
        with pytest.raises(Unavailable):
            QueueStreamReader(options, read_schema(options))
        lost.start()
        eventually(lambda: "cluster_state:ok" in lost.ask("CLUSTER", "INFO"), within=30.0)
        reader.stop()

        reader = QueueStreamReader(options, read_schema(options))
        assert read_by_driver(end) == list(range(6))
        eventually(lambda: reader.latestOffset(end, reader.getDefaultReadLimit()) == end, within=40.0)
        eventually(lambda: is_done(client, 6), within=40.0)
        reader.stop()
