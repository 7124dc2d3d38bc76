"""`spark.readStream.format("ampsq")`: topics on and on."""

from __future__ import annotations

import contextlib
import json

import pytest
from observing import eventually
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from ampsq import Topic
from ampsq.base.errors import DefinitionError
from ampsq.protocol.schema import key
from ampsq.spark.batch_reading import batch_reader
from ampsq.spark.columns import read_schema
from ampsq.spark.reading import read_part
from ampsq.spark.stream_reading import stream_reader

pytestmark = pytest.mark.slow

ALL = ReadAllAvailable()
LIMITED = ReadMaxRows(1)


@pytest.fixture
def client(client):
    client.store = client._store
    client.apply(Topic(name="orders"))
    return client


@pytest.fixture
def reader(options):
    """A reader as Spark makes it; what it began is ended with the test."""
    with contextlib.ExitStack() as stack:

        def make(topic="orders", **more):
            given = {**options, **({"topic": topic} if topic else {}), **more}
            made = stream_reader({name.lower(): value for name, value in given.items()}, read_schema(given))
            stack.callback(made.stop)
            return made

        yield make


def add(client, *ids, topic="orders"):
    log = key(client.instance, "log", topic)
    pipe = client.store.redis.pipeline(transaction=False)
    for ms in ids:
        pipe.xadd(log, {"b": json.dumps({"id": ms})}, id=f"{ms}-0")
    pipe.execute()


def read(reader, start, end):
    """Return what the tasks of a batch give, part by part."""
    parts = reader.partitions(start, end)
    return [
        [
            json.loads(value.as_py())["id"]
            for batch in read_part(part, reader._options, reader._schema)
            for value in batch.column("value")
        ]
        for part in parts
    ]


def places(client, offset):
    return offset[client.instance]["topics"]


def test_a_stream_begins_at_the_end_or_where_it_is_told(client, reader):
    add(client, 1, 2)

    assert places(client, reader().initialOffset()) == {"orders": "2-0"}
    assert places(client, reader(startingBookmark="earliest").initialOffset()) == {"orders": "0-0"}
    assert places(client, reader(startingTimestamp="2").initialOffset()) == {"orders": "1-18446744073709551615"}
    offset = json.dumps({client.instance: {"orders": "1-0"}})
    assert places(client, reader(startingBookmark=offset).initialOffset()) == {"orders": "1-0"}


def test_a_batch_ends_where_the_logs_do_and_without_news_where_it_began(client, reader):
    add(client, 1, 2)
    stream = reader(startingBookmark="earliest")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)

    assert read(stream, start, end) == [[1, 2]]
    assert stream.latestOffset(end, ALL) == end
    add(client, 3)
    assert read(stream, end, stream.latestOffset(end, ALL)) == [[3]]


@pytest.mark.parametrize("limit", [1, 100, 2_500])
def test_no_batch_has_more_than_was_admitted_and_each_has_that(client, reader, limit):
    add(client, *range(1, 6_001))
    stream = reader(startingBookmark="earliest", maxOffsetsPerTrigger=str(limit))
    offset, came = stream.initialOffset(), []

    for _ in range(4):
        former, offset = offset, stream.latestOffset(offset, stream.getDefaultReadLimit())
        came.append([each for part in read(stream, former, offset) for each in part])

    assert [len(each) for each in came] == [min(limit, max(6_000 - limit * n, 0)) for n in range(4)]
    assert [each for rows in came for each in rows] == list(range(1, min(limit * 4, 6_000) + 1))


def test_a_limit_is_shared_in_proportion_and_nobody_starves(client, reader):
    client.apply(Topic(name="trades"))
    add(client, *range(1, 901))
    add(client, *range(1, 101), topic="trades")
    stream = reader(None, topics="orders,trades", startingBookmark="earliest", maxRowsPerTrigger="100")
    start = stream.initialOffset()

    assert places(client, stream.latestOffset(start, LIMITED)) == {"orders": "90-0", "trades": "10-0"}


def test_bytes_are_limited_about(client, reader):
    add(client, *range(1_000, 2_000))
    stream = reader(startingBookmark="earliest", maxBytesPerTrigger="1KB")
    start = stream.initialOffset()

    ((*rows,),) = read(stream, start, stream.latestOffset(start, LIMITED))
    assert 50 <= len(rows) <= 110


def test_too_little_waits_for_more_but_not_for_ever(client, reader):
    add(client, 1, 2, 3)
    patient = reader(startingBookmark="earliest", minOffsetsPerTrigger="4")
    start = patient.initialOffset()
    assert patient.latestOffset(start, LIMITED) == start
    add(client, 4)
    assert places(client, patient.latestOffset(start, LIMITED)) == {"orders": "4-0"}

    hasty = reader(startingBookmark="earliest", minOffsetsPerTrigger="9", maxTriggerDelay="0s")
    assert places(client, hasty.latestOffset(start, LIMITED)) == {"orders": "4-0"}
    ending = reader(startingBookmark="earliest", minOffsetsPerTrigger="9")
    ending.prepareForTriggerAvailableNow()
    assert places(client, ending.latestOffset(start, LIMITED)) == {"orders": "4-0"}


def test_available_now_ends_where_the_logs_ended_when_it_began(client, reader):
    add(client, 1, 2, 3)
    stream = reader(startingBookmark="earliest", maxOffsetsPerTrigger="2")
    stream.prepareForTriggerAvailableNow()
    add(client, 4)
    offset = stream.initialOffset()
    ends = []
    for _ in range(3):
        offset = stream.latestOffset(offset, LIMITED)
        ends.append(places(client, offset)["orders"])

    assert ends == ["2-0", "3-0", "3-0"]


def test_a_batch_that_is_run_again_has_the_same_parts_whatever_the_options_say(client, reader):
    add(client, *range(1, 4_001))
    stream = reader(startingBookmark="earliest", minPartitions="4")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    first = read(stream, start, end)

    again = json.loads(json.dumps(end))
    assert read(reader(minPartitions="7", maxRowsPerPartition="10"), start, again) == first
    assert [len(part) for part in first] == [1_000] * 4


def test_topics_that_come_are_read_from_their_beginning(client, reader):
    add(client, 1)
    stream = reader(None, topicPattern="^(orders|new)")
    start = stream.initialOffset()
    client.apply(Topic(name="new-1"))
    # An ID below what was read elsewhere is not passed over
    add(client, 1, 2, topic="new-1")
    end = stream.latestOffset(start, ALL)

    assert places(client, end) == {"orders": "1-0", "new-1": "2-0"}
    assert read(stream, start, end) == [[1, 2]]


def test_what_was_trimmed_behind_a_stream_fails_or_is_left_out(client, reader):
    add(client, 1, 2, 3)
    stream = reader(startingBookmark="earliest", maxOffsetsPerTrigger="1")
    offset = stream.latestOffset(stream.initialOffset(), LIMITED)
    # Somebody else's deletion heeds no hold
    client.store.redis.xdel(key(client.instance, "log", "orders"), "2-0")

    with pytest.raises(Exception, match=r"trimmed up to 2-0, behind 1-0.*failOnDataLoss=false"):
        stream.latestOffset(offset, LIMITED)
    lenient = reader(failOnDataLoss="false")
    end = lenient.latestOffset(offset, ALL)
    assert read(lenient, offset, end) == [[3]]


def test_a_server_that_lost_its_last_messages_fails_or_is_gone_on_with(client, reader):
    add(client, 1, 2, 3)
    stream = reader(startingBookmark="earliest")
    offset = stream.latestOffset(stream.initialOffset(), ALL)
    client.store.redis.delete(key(client.instance, "log", "orders"))
    add(client, 1, 2)

    with pytest.raises(Exception, match="goes up to 2-0, before 3-0"):
        stream.latestOffset(offset, ALL)
    lenient = reader(failOnDataLoss="false")
    assert lenient.latestOffset(offset, ALL) == offset
    lost = json.loads(json.dumps(offset))
    add(client, 4)
    end = lenient.latestOffset(lost, ALL)
    assert read(lenient, lost, end) == [[4]]


def test_an_instance_made_anew_fails_or_is_read_from_its_beginning(client, reader):
    add(client, 5, 6)
    offset = {client.instance: {"origin": "x.before", "topics": {"orders": "9-0"}, "cuts": {}}}

    with pytest.raises(Exception, match=r"the offset is of x\.before"):
        reader().latestOffset(offset, ALL)
    lenient = reader(failOnDataLoss="false")
    end = lenient.latestOffset(offset, ALL)
    assert read(lenient, offset, end) == [[5, 6]]
    assert end[client.instance]["origin"] == client.origin


def test_a_stream_holds_its_logs_from_where_it_is(client, reader):
    add(client, 1, 2, 3)
    stream = reader(startingBookmark="earliest", maxOffsetsPerTrigger="2", holdPeriod="300ms")
    offset = stream.latestOffset(stream.initialOffset(), LIMITED)
    holds = key(client.instance, "holds", "orders")

    stream.latestOffset(offset, LIMITED)

    def held():
        return {value.split(b" ")[0] for value in client.store.redis.hvals(holds)}

    eventually(lambda: held() == {b"2-1"})
    stream.stop()
    assert held() == set()


def test_many_looks_without_news_are_cheap(client, reader):
    add(client, 1)
    stream = reader()
    offset = stream.initialOffset()
    stream.latestOffset(offset, ALL)
    client.store.redis.config_resetstat()

    for _ in range(10):
        assert stream.latestOffset(offset, ALL) == offset

    stats = client.store.redis.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] == 10
    assert "cmdstat_zadd" not in stats


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"topics": "a,b"}, "topic: given beside topics; allowed: one of"),
        ({"maxOffsetsPerTrigger": "5", "maxRowsPerTrigger": "5"}, "beside maxOffsetsPerTrigger, the same"),
        ({"endingBookmark": "now"}, "endingBookmark: of a stream, which does not end"),
        ({"maxBytesPerTrigger": "lots"}, "maxBytesPerTrigger: 'lots' is not a size"),
        ({"maxOffsetPerTrigger": "5"}, "did you mean 'maxOffsetsPerTrigger'"),
    ],
)
@pytest.mark.usefixtures("client")
def test_what_is_wrong_is_said_when_the_stream_is_made(reader, given, text):
    with pytest.raises(DefinitionError) as caught:
        reader(**given)
    assert text in str(caught.value)


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("make", [batch_reader, stream_reader])
def test_a_schema_of_the_users_own_is_refused(options, make):
    own = read_schema({"topic": "orders"})
    with pytest.raises(DefinitionError, match="schema: what is read has its own columns"):
        make({**options, "topic": "orders"}, StructType(own.fields[:-1]))


def test_a_query_reads_what_is_there_in_batches_and_goes_on_from_its_checkpoint(client, spark, options, tmp_path):
    client.publish_many("orders", ({"id": number} for number in range(1_000)))
    given = {**options, "topic": "orders", "startingBookmark": "earliest", "maxOffsetsPerTrigger": "300"}

    def run():
        """IDs that came, and rows of each batch."""
        sizes, came = [], []

        def take(frame, _):
            rows = [json.loads(row.value)["id"] for row in frame.select("value").collect()]
            sizes.append(len(rows))
            came.extend(rows)

        frame = spark.readStream.format("ampsq").options(**given).load()
        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination(60)
        return sizes, came

    sizes, came = run()
    assert sizes == [300, 300, 300, 100]
    assert sorted(came) == list(range(1_000))
    client.publish_many("orders", ({"id": number} for number in range(1_000, 1_050)))
    assert run() == ([50], list(range(1_000, 1_050)))
