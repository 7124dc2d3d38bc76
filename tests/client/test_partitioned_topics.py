"""Subscriptions to topics of all partitions, on one server: live, from a place on, durable."""

# Long: one scene, a client of all partitions that reads topics, with each way to begin and to end.

from __future__ import annotations

import asyncio
import logging
import threading
import time
from datetime import UTC, datetime

import pytest
from observing import eventually
from partitioned import TOTAL, key_of, messages_of, origin_of

from ampsq import (
    AsyncClient,
    Client,
    ConflatedTopic,
    MemoryBookmarkStore,
    Queue,
    SqliteBookmarkStore,
    Topic,
)
from ampsq.base.errors import BookmarkNotFound, Closed, DefinitionError, NameInUse, UnknownTopic

ORDERS = Topic(name="orders", partition_by="/key")


@pytest.fixture
def client(connect_partitions):
    made = connect_partitions()
    made.apply(ORDERS)
    return made


def numbers(messages):
    return [message.data["number"] for message in messages]


def drained(subscription, timeout="300ms"):
    return list(iter(lambda: subscription.get(timeout), None))


def taken(subscription, number):
    return [subscription.get("5s") for _ in range(number)]


def check_order(messages):
    """Each key's messages come in their order."""
    by_key = {}
    for message in messages:
        by_key.setdefault(message.data["key"], []).append(message.data["number"])
    for of_one in by_key.values():
        assert of_one == sorted(of_one)


# -- live and from a place on


def test_what_comes_is_handed_out_whichever_partition_has_it(client):
    client.publish_many("orders", messages_of(20, 2))

    with client.subscribe_topic("orders", filter="/number >= 10") as messages:
        assert messages.get("100ms") is None
        bookmarks = client.publish_many("orders", messages_of(20, 10))

        found = taken(messages, 190)

        assert {message.bookmark for message in found} == {*bookmarks[10:]}
        assert len({origin_of(message.bookmark) for message in found}) == TOTAL
        assert found[0].topic == "orders"
        check_order(found)
        assert messages.get("100ms") is None
        assert messages.missed == ()
        assert not messages.completed
        assert "PartitionedTopicSubscription" in repr(messages)
        with pytest.raises(DefinitionError, match="origin is not there"):
            _ = messages.origin
    assert client._subscriptions == []
    with pytest.raises(Closed):
        messages.get("1s")


def test_a_waiting_reader_gets_a_message_at_once(client):
    with client.subscribe_topic("orders") as messages:
        messages.get(0)
        publishing = threading.Timer(0.2, lambda: client.publish("orders", {"key": "k", "number": 1}))
        publishing.start()
        started = time.monotonic()
        assert messages.get("10s").data["number"] == 1
        assert time.monotonic() - started < 5
        publishing.join()


@pytest.mark.parametrize("bookmark", ["epoch", 0, "[epoch:now]"])
def test_what_is_there_is_replayed(client, bookmark):
    client.publish_many("orders", messages_of(20, 30))

    with client.subscribe_topic("orders", bookmark=bookmark) as messages:
        found = taken(messages, 600)
        check_order(found)
        assert sorted(numbers(found)) == list(range(600))
        assert messages.get("100ms") is None
        assert messages.completed is (bookmark == "[epoch:now]")


def test_iterating_over_a_range_ends_with_it(client):
    client.publish_many("orders", messages_of(20, 5))
    # Places in time are of milliseconds.
    time.sleep(0.002)
    at = datetime.now(UTC)
    # See above.
    time.sleep(0.002)
    client.publish_many("orders", messages_of(20, 2))

    with client.subscribe_topic("orders", bookmark=f"[epoch:{at.isoformat()}]") as messages:
        assert len(list(messages)) == 100
    with client.subscribe_topic("orders", bookmark=at) as messages:
        assert len(drained(messages)) == 40


def test_a_topic_that_only_some_partitions_have_is_read_in_all(client):
    client.publish("letters", {"n": 1}, key="a")
    assert sum("letters" in each.admin.topics() for each in client.clients) == 1

    with client.subscribe_topic("letters", bookmark="[epoch:now]") as messages:
        assert [message.data["n"] for message in messages] == [1]
    # A name that is like it is taken for a slip of the pen at one instance.
    client.publish("letter", {"n": 0}, key="b")
    with client.subscribe_topic("letters", bookmark="epoch") as messages:
        assert messages.get("5s").data["n"] == 1
        for number in range(8):
            client.publish("letters", {"n": number}, key=str(number))
        assert sorted(message.data["n"] for message in taken(messages, 8)) == list(range(8))
    with pytest.raises(UnknownTopic):
        client.subscribe_topic("leters")


def test_topics_that_a_pattern_matches_and_those_of_a_queue_are_read(client):
    client.apply(Queue(name="work", underlying_topic="orders"), Topic(name="orders-north", partition_by="/key"))
    client.publish_many("orders", messages_of(20, 1))
    client.publish_many("orders-north", messages_of(20, 1))

    with client.subscribe_topic("^orders", bookmark="epoch") as messages:
        assert {message.topic for message in taken(messages, 40)} == {"orders", "orders-north"}
    with client.subscribe_topic("work", bookmark="epoch") as messages:
        assert len(taken(messages, 20)) == 20
    with pytest.raises(UnknownTopic, match="subscribe"):
        client.subscribe_topic("work")


def test_threads_that_share_it_get_each_message_once(client):
    client.publish_many("orders", messages_of(20, 50))
    found, ended = [], threading.Event()

    def read():
        while not ended.is_set():
            if (message := messages.get("200ms")) is not None:
                found.append(message.data["number"])

    with client.subscribe_topic("orders", bookmark="epoch") as messages:
        threads = [threading.Thread(target=read) for _ in range(3)]
        for each in threads:
            each.start()
        eventually(lambda: len(found) >= 1_000, within=20.0)
        ended.set()
        for each in threads:
            each.join()
    assert sorted(found) == list(range(1_000))


def test_a_handler_is_called_with_each_message(client, caplog):
    found = []

    def handle(message):
        if message.data["number"] == 3:
            raise RuntimeError("three")
        found.append(message.data["number"])

    with client.subscribe_topic("orders", bookmark="epoch", on_message=handle):
        client.publish_many("orders", messages_of(20, 2))
        eventually(lambda: len(found) == 39, within=10.0)
    assert "it does not count as handled" in caplog.text


def test_it_pauses_and_goes_on(client):
    with client.subscribe_topic("orders") as messages:
        messages.pause()
        client.publish_many("orders", messages_of(20, 1))
        assert messages.is_paused
        assert messages.get("200ms") is None
        messages.resume()
        assert len(taken(messages, 20)) == 20


def test_a_rate_is_that_of_all_partitions_together(client):
    client.publish_many("orders", messages_of(20, 2))

    with client.subscribe_topic("orders", bookmark="epoch", rate=50) as messages:
        started = time.monotonic()
        assert len(taken(messages, 40)) == 40
        assert time.monotonic() - started > 0.6


def test_the_recorded_pace_is_that_of_all_partitions_together(client):
    for number in range(6):
        client.publish("orders", {"key": f"k{number}", "number": number})
        # The pace that is recorded.
        time.sleep(0.1)

    with client.subscribe_topic("orders", bookmark="epoch", rate="1X") as messages:
        started = time.monotonic()
        assert len(taken(messages, 6)) == 6
        assert time.monotonic() - started > 0.3


def test_conflated_messages_are_the_latest_of_each_key(client):
    client.apply(ConflatedTopic(name="latest", underlying_topic="orders", key="/key", interval="200ms"))
    assert [type(each) for each in client.admin.definitions()] == [Topic, ConflatedTopic]

    with client.subscribe_topic("orders", conflation="200ms", conflation_key=["/key"]) as messages:
        client.publish_many("orders", messages_of(20, 10))
        assert sorted(numbers(taken(messages, 20))) == list(range(180, 200))
        with pytest.raises(DefinitionError, match="it is conflated"):
            _ = messages.position
    with client.subscribe_topic("latest", filter="/number > 0") as messages:
        client.publish_many("orders", messages_of(20, 10))
        assert sorted(numbers(taken(messages, 20))) == list(range(180, 200))
    with pytest.raises(DefinitionError, match="takes no bookmark"):
        client.subscribe_topic("latest", bookmark="epoch")


# -- positions


def test_a_position_names_a_place_in_each_partition_and_another_one_goes_on_there(client):
    client.publish_many("orders", messages_of(20, 10))

    with client.subscribe_topic("orders", bookmark="epoch") as messages:
        begun = messages.position
        first = taken(messages, 77)
        position = messages.position
    # The origins are those of the partitions; where nothing was handed out, the beginning is named.
    assert [each.split("~")[1].rpartition(".")[0] for each in position.split(",")] == [*client.partitions]
    client.publish_many("orders", messages_of(20, 1))

    with client.subscribe_topic("orders", bookmark=position) as messages:
        rest = taken(messages, 143)
        assert messages.get("100ms") is None
    assert len({message.bookmark for message in [*first, *rest]}) == 220
    with client.subscribe_topic("orders", bookmark=begun) as messages:
        assert len(taken(messages, 220)) == 220
    with client.subscribe_topic("orders", bookmark=position.split(",")) as messages:
        assert len(taken(messages, 143)) == 143


def test_a_position_from_now_on_has_nothing_of_before(client):
    client.publish_many("orders", messages_of(20, 1))
    with client.subscribe_topic("orders") as messages:
        position = messages.position
    client.publish_many("orders", messages_of(20, 2))

    with client.subscribe_topic("orders", bookmark=position) as messages:
        assert len(drained(messages)) == 40


@pytest.mark.parametrize("bookmark", ["now", "epoch", "a message", "a time"])
@pytest.mark.parametrize("name", ["orders", "^orders"])
def test_one_instance_has_a_position_too(server, instance, bookmark, name):
    with Client(server.url, instance=f"{instance}-one") as one:
        one.apply(Topic(name="orders"), Topic(name="orders-north"))
        first = one.publish("orders", {"n": 0})
        one.publish("orders-north", {"n": 1})
        # Places in time are of milliseconds.
        time.sleep(0.002)
        asked = {"a message": first, "a time": datetime.now(UTC)}.get(bookmark, bookmark)
        with one.subscribe_topic(name, bookmark=asked) as messages:
            begun = messages.position
        one.publish_many("orders", [{"n": number} for number in range(2, 10)])
        with one.subscribe_topic(name, bookmark=asked if bookmark != "now" else begun) as messages:
            expected = [message.data["n"] for message in drained(messages)]
        with one.subscribe_topic(name, bookmark=begun) as messages:
            found = [message.data["n"] for message in taken(messages, 3)]
            position = messages.position
        with one.subscribe_topic(name, bookmark=position) as messages:
            assert found + [message.data["n"] for message in drained(messages)] == expected
        with (
            one.subscribe_topic(name, bookmark="[epoch:now]") as messages,
            pytest.raises(DefinitionError, match="it is of ranges"),
        ):
            _ = messages.position


def test_bookmarks_that_do_not_say_where_each_partition_begins_are_refused(client):
    bookmarks = client.publish_many("orders", messages_of(20, 1))

    for bookmark in (bookmarks[0], [bookmarks[0], bookmarks[0]]):
        with pytest.raises(DefinitionError, match=r"says nothing of partitions? .*; allowed: a bookmark of each"):
            client.subscribe_topic("orders", bookmark=bookmark)
    with pytest.raises(DefinitionError, match=r"a range that begins or ends at .* is of one partition"):
        client.subscribe_topic("orders", bookmark=f"[{bookmarks[0]}:now)")
    with pytest.raises(DefinitionError, match=r"'till\|5', which names a publisher's message, is not there"):
        client.subscribe_topic("orders", bookmark="till|5")
    with pytest.raises(DefinitionError, match="is of instance 'elsewhere', which is no partition here"):
        client.subscribe_topic("orders", bookmark="orders~elsewhere.t6w1xk~1-0")
    # With a place that all have, the earlier of both counts in its partition.
    with client.subscribe_topic("orders", bookmark=[bookmarks[0], "now"]) as messages:
        behind = [each for each in bookmarks[1:] if each.origin == bookmarks[0].origin]
        assert [message.bookmark for message in drained(messages)] == behind


# -- durable ones


STORES = {
    "beside the logs": lambda _: None,
    "memory": lambda _: MemoryBookmarkStore(),
    "file": lambda folder: SqliteBookmarkStore(folder / "places.db"),
}


@pytest.mark.parametrize("where", STORES)
def test_a_durable_one_goes_on_behind_what_was_handled_in_each_partition(connect_partitions, client, tmp_path, where):
    store = STORES[where](tmp_path)
    client.publish_many("orders", messages_of(20, 20))
    options = {"sub_id": "audit", "bookmark_store": store}

    with client.subscribe_topic("orders", **options) as messages:
        assert messages.id == "audit"
        found = [message.bookmark for message in taken(messages, 151)]
        # The last one was handed out, and nobody asked for another one.
        del found[-1]
    client.publish_many("orders", messages_of(20, 1))

    later = connect_partitions()
    with later.subscribe_topic("orders", **options) as messages:
        for message in messages:
            found.append(message.bookmark)
            if len(found) == 300:
                break
        # Breaking off does not say that it was handled.
        del found[-1]
    with later.subscribe_topic("orders", auto_ack=False, **options) as messages:
        rest = taken(messages, 121)
        assert messages.get("100ms") is None
        for message in rest[::2]:
            message.ack()
        found += [message.bookmark for message in rest[::2]]
        messages.flush()
    with later.subscribe_topic("orders", **options) as messages:
        found += [message.bookmark for message in taken(messages, 60)]
        assert messages.get("100ms") is None
    assert len(found) == len(set(found)) == 420


def test_what_was_killed_loses_nothing_and_doubles_only_what_was_not_written_down(client, connect_partitions):
    client.publish_many("orders", messages_of(20, 20))
    one = connect_partitions()
    killed = one.subscribe_topic("orders", sub_id="audit", auto_ack=False)
    handled = taken(killed, 100)
    for message in handled:
        message.ack()
    killed.flush()
    lost = {message.bookmark for message in taken(killed, 50)}

    # When another one takes over
    with client.subscribe_topic("orders", sub_id="audit") as messages:
        rest = {message.bookmark for message in taken(messages, 300)}
        assert messages.get("100ms") is None
        assert lost <= rest
        assert not rest & {message.bookmark for message in handled}
        # Then the former one is told, whenever it asks
        for _ in range(2):
            with pytest.raises(NameInUse):
                eventually(lambda: taken(killed, 400), within=1.0)


def test_another_bookmark_forgets_what_was_kept(client):
    client.publish_many("orders", messages_of(20, 2))
    with client.subscribe_topic("orders", sub_id="audit") as messages:
        assert len(drained(messages, "100ms")) == 40

    with client.subscribe_topic("orders", sub_id="audit", bookmark="epoch") as messages:
        assert len(taken(messages, 40)) == 40


# -- away and trimmed


def test_what_was_trimmed_is_told(client):
    client.publish_many("orders", messages_of(20, 10))
    with client.subscribe_topic("orders", bookmark="epoch") as messages:
        taken(messages, 150)
        position = messages.position
    for each in client.clients:
        assert each.admin.trim("orders", age="0s").removed > 0

    with client.subscribe_topic("orders", bookmark=position) as messages:
        assert messages.get("100ms") is None
        assert messages.missed == ("orders",)
    with pytest.raises(BookmarkNotFound, match="was trimmed up to"):
        client.subscribe_topic("orders", bookmark=position, bookmark_not_found="fail")
    assert [each._connection.all_subscriptions for each in client.clients] == [[]] * TOTAL


# -- asyncio


def test_all_of_it_awaited(server, instance, caplog):
    caplog.set_level(logging.WARNING, logger="ampsq")

    async def scene():
        async with AsyncClient(server.url, instance=instance, partitions=TOTAL) as client:
            await client.apply(ORDERS)
            await client.publish_many("orders", messages_of(20, 10), key=key_of)
            async with client.subscribe_topic("orders", bookmark="epoch", sub_id="audit") as messages:
                found = [await messages.get("5s") for _ in range(77)]
                check_order(found)
                position = messages.position
            async with client.subscribe_topic("orders", bookmark=position) as messages:
                rest = [await messages.get("5s") for _ in range(123)]
                assert await messages.get("100ms") is None
            assert len({message.bookmark for message in [*found, *rest]}) == 200
            async with await client.subscribe_topic("orders", sub_id="audit", auto_ack=False) as messages:
                assert len([await messages.get("5s") for _ in range(124)]) == 124
                await messages.flush()
            async with client.subscribe_topic("orders", bookmark="[epoch:now]") as messages:
                assert len([message async for message in messages]) == 200
                assert messages.completed
            async with client.subscribe_topic("orders", bookmark="epoch", rate=1_000) as messages:
                assert len([await messages.get("5s") for _ in range(50)]) == 50
            handled, done = [], asyncio.Event()

            async def handle(message):
                handled.append(message.data["number"])
                if len(handled) == 200:
                    done.set()

            messages = await client.subscribe_topic("orders", bookmark="epoch", on_message=handle)
            async with asyncio.timeout(10):
                await done.wait()
            waiting = asyncio.create_task(messages.get("10s"))
            # It waits by now.
            await asyncio.sleep(0.1)
            waiting.cancel()
            await messages.close()
            with pytest.raises(Closed):
                await messages.get("1s")
            with pytest.raises(UnknownTopic):
                await client.subscribe_topic("order", bookmark="[epoch:now]")
        assert client._subscriptions == []

    asyncio.run(scene())
