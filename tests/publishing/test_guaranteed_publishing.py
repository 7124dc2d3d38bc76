"""Guaranteed publishing: taken once, recorded once, in order, told when it is persisted; refusals; closing."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest
from observing import eventually
from scene import data_of, pick_up

from ampsq import AsyncClient, Client, MemoryPublishStore, Queue, Topic
from ampsq.base.errors import Closed, DefinitionError, PublishStoreError
from ampsq.protocol.schema import key


def test_what_is_published_has_its_number_at_once_and_is_recorded_in_order(connect_to_each, make_store):
    client = connect_to_each()
    till = client.publisher("till-1", store=make_store())
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=100))
    # When messages are published in all ways
    assert [till.publish("orders", 0).sequence, till.publish("orders", 1, headers={"a": "b"}).sequence] == [1, 2]
    assert [each.sequence for each in till.publish_many("orders", range(2, 40), batch=7)] == list(range(3, 41))
    assert till.publish("work", 40).sequence == 41
    till.flush("30s")
    # Then all are there in order, and persisted
    assert till.last_persisted == 41
    with client.subscribe("work", max_backlog=50, publisher=till) as messages:
        found = pick_up(messages, 41)
        assert data_of(found) == list(range(41))
        assert found[1].headers == {"a": "b"}


def test_a_new_topic_is_made_and_several_topics_keep_one_order(connect, make_store, log_of):
    till = connect().publisher("till-1", store=make_store())
    for number in range(30):
        till.publish(f"topic-{number % 3}", number)
    till.flush("30s")
    for topic in range(3):
        assert log_of(f"topic-{topic}") == [(number + 1, str(number)) for number in range(topic, 30, 3)]


def test_expirations_and_delays_travel_with_their_messages(connect, make_store):
    client = connect()
    till = client.publisher("till-1", store=make_store())
    client.apply(Queue(name="work", underlying_topic="orders"))
    till.publish("orders", "later", delay="1h")
    till.publish_many("orders", ["short"], expiration="1h", headers={"a": "b"})
    till.flush("30s")
    assert (client.admin.queue_stats("work").scheduled, client.admin.queue_stats("work").waiting) == (1, 1)


def test_a_publisher_goes_on_behind_what_the_server_knows(connect, make_store, log_of):
    for start in (0, 3):
        till = connect().publisher("till-1", store=make_store())
        receipts = till.publish_many("orders", range(start, start + 3))
        assert [each.sequence for each in receipts] == [start + 1, start + 2, start + 3]
        till.close()
    assert log_of("orders") == [(number + 1, str(number)) for number in range(6)]


def test_what_was_persisted_is_told_in_order_with_its_level(connect, make_store):
    told = []
    till = connect().publisher("till-1", store=make_store(), ack_conflation="1ms", on_persisted=told.append)
    for number in range(100):
        till.publish("orders", number)
    till.flush("30s")
    eventually(lambda: told and told[-1].sequence == 100, within=30.0)
    assert [ack.sequence for ack in told] == sorted({ack.sequence for ack in told})
    assert {ack.level for ack in told} == {"memory"}


def test_persisted_acknowledgements_are_conflated(connect):
    told = []
    options = {"store": MemoryPublishStore(), "on_persisted": told.append}
    till = connect().publisher("till-1", ack_conflation="5m", **options)
    for number in range(500):
        till.publish("orders", number)
    till.flush("30s")
    # One of all of them, since nobody had to know earlier; a flush does not wait for the interval
    eventually(lambda: told, within=30.0)
    assert [ack.sequence for ack in told] == [500]


def test_a_flush_is_not_confirmed_in_parts(connect, log_of):
    """Each confirmation may wait for a disk."""
    may_go_on, is_told, told = threading.Event(), threading.Event(), []

    class Slow(MemoryPublishStore):
        def read(self, after, count):
            if after >= 1:
                may_go_on.wait(30)
            return super().read(after, count)

    def tell(ack):
        told.append(ack.sequence)
        is_told.set()

    till = connect().publisher("till-1", store=Slow(), on_persisted=tell, ack_conflation="1m")
    # Given one message that is answered, and others that are not sent yet
    till.publish("orders", 0)
    eventually(lambda: log_of("orders"), within=30.0)
    till.publish_many("orders", range(1, 500))
    # When somebody waits for all, then the one is not confirmed alone
    flushing = threading.Thread(target=till.flush, args=("30s",))
    flushing.start()
    assert not is_told.wait(0.5)
    may_go_on.set()
    flushing.join()
    eventually(lambda: told, within=30.0)
    assert told == [500]


def test_who_handles_what_is_told_and_fails_stops_nothing(connect):
    def fail(_):
        raise ValueError("no")

    till = connect().publisher("till-1", store=MemoryPublishStore(), on_persisted=fail, ack_conflation="1ms")
    till.publish("orders", 1)
    till.flush("30s")
    till.publish("orders", 2)
    till.flush("30s")
    assert till.last_persisted == 2


def test_what_the_server_refuses_is_told_and_the_rest_is_recorded(connect, make_store, log_of, valkey, instance):
    failed = []
    client = connect()
    till = client.publisher("till-1", store=make_store(), on_failed_write=failed.append)
    till.publish("orders", 0)
    till.flush("30s")
    # Given a log that is none
    with contextlib.closing(valkey.client()) as redis:
        client.apply(Topic(name="broken"))
        redis.set(key(instance, "log", "broken"), "no stream")
    # When messages to it are among others, alone and in batches
    till.publish("orders", 1)
    till.publish("broken", "a")
    till.publish_many("broken", ["b", "c"])
    till.publish_many("orders", [2, 3])
    till.flush("30s")
    # Then they are told, each, and left the store; the others are recorded, in order
    assert [(failure.sequence, failure.topic, failure.body) for failure in failed] == [
        (3, "broken", b'"a"'),
        (4, "broken", b'"b"'),
        (5, "broken", b'"c"'),
    ]
    assert "WRONGTYPE" in str(failed[0].error)
    assert log_of("orders") == [(1, "0"), (2, "1"), (6, "2"), (7, "3")]
    assert till.last_persisted == 7


def test_a_name_that_no_topic_can_have_is_refused_before_it_is_taken(connect, make_store):
    till = connect().publisher("till-1", store=make_store())
    with pytest.raises(DefinitionError):
        till.publish("no topic", 1)
    assert till.publish("orders", 1).sequence == 1
    till.flush("30s")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"persisted": "fsync"}, "go with store="),
        ({"on_persisted": print}, "go with store="),
        ({"store": MemoryPublishStore(), "persisted": "disk"}, "allowed are 'memory'"),
        ({"store": MemoryPublishStore(), "persisted": "replicas=0"}, "allowed are 'memory'"),
        ({"store": 7}, "path of a file"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(connect, options, text):
    with pytest.raises(DefinitionError, match=text):
        connect().publisher("p", **options)


def test_the_client_numbers_by_itself(connect):
    till = connect().publisher("till-1", store=MemoryPublishStore())
    with pytest.raises(DefinitionError, match="numbers its messages itself"):
        till.publish("orders", 1, sequence=5)


def test_threads_publish_at_once_and_each_one_s_order_holds(connect, make_store, log_of):
    till = connect().publisher("till-1", store=make_store())

    def publish(name):
        for number in range(100):
            till.publish("orders", f"{name} {number}")

    threads = [threading.Thread(target=publish, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    till.flush("30s")
    found = log_of("orders")
    assert [number for number, _ in found] == list(range(1, 301))
    for name in "abc":
        assert [body for _, body in found if body[1] == name] == [f'"{name} {number}"' for number in range(100)]


def test_the_asyncio_client_does_the_same(valkey, instance, make_store, log_of):
    async def main():
        told = []
        options = {"store": make_store(), "on_persisted": told.append}
        async with AsyncClient(valkey.url, instance=instance) as client, client.publisher("till-1", **options) as till:
            await client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=100))
            assert [(await till.publish("orders", number)).sequence for number in range(5)] == [1, 2, 3, 4, 5]
            receipts = await asyncio.gather(*(till.publish("orders", 5) for _ in range(5)))
            assert sorted(each.sequence for each in receipts) == [6, 7, 8, 9, 10]
            assert [each.sequence for each in await till.publish_many("orders", [6, 7])] == [11, 12]
            await till.flush("30s")
            assert till.last_persisted == 12
            async with client.subscribe("work", max_backlog=20, publisher=till) as messages:
                for _ in range(12):
                    await (await messages.get("30s")).ack()
                await till.flush("30s")
            assert (await client.admin.queue_stats("work")).acknowledged == 12
            assert [
                (each.name, each.sequence, each.client is not None) for each in await client.admin.publishers()
            ] == [("till-1", 12, True)]

    asyncio.run(main())
    assert [number for number, _ in log_of("orders")] == list(range(1, 13))


def test_closing_while_a_thread_publishes_loses_nothing_that_was_taken(valkey, instance, make_store, log_of):
    client = Client(valkey.url, instance=instance)
    till = client.publisher("till-1", store=make_store())
    till.publish("orders", b"first")
    taken, is_under_way = [1], threading.Event()

    def publish():
        with contextlib.suppress(Closed, PublishStoreError):
            while True:
                taken.append(till.publish("orders", b"more").sequence)
                if len(taken) == 500:
                    is_under_way.set()

    thread = threading.Thread(target=publish)
    thread.start()
    assert is_under_way.wait(30)
    # When the client is closed under it
    client.close()
    thread.join()
    # Then all that `publish` gave a number is recorded
    assert [number for number, _ in log_of("orders")] == taken


def test_a_handler_may_close_the_client(connect, log_of):
    closed = threading.Event()
    client = connect()
    till = client.publisher("till-1", store=MemoryPublishStore(), on_persisted=lambda _: (client.close(), closed.set()))
    till.publish("orders", 1)
    assert closed.wait(30)
    assert log_of("orders") == [(1, "1")]
    with pytest.raises(Closed):
        till.publish("orders", b"2")


@pytest.mark.parametrize("waits", [True, False], ids=["asyncio", "sync"])
def test_closing_sends_what_is_left_and_logs_off(valkey, instance, make_store, log_of, waits):
    store = make_store()

    async def main():
        async with (
            AsyncClient(valkey.url, instance=instance) as client,
            client.publisher("till-1", store=store, ack_conflation="10s") as till,
        ):
            for number in range(100):
                await till.publish("orders", number)

    if waits:
        asyncio.run(main())
    else:
        with (
            Client(valkey.url, instance=instance) as client,
            client.publisher("till-1", store=store, ack_conflation="10s") as till,
        ):
            for number in range(100):
                till.publish("orders", number)
    assert log_of("orders") == [(number + 1, str(number)) for number in range(100)]
    with Client(valkey.url, instance=instance) as other:
        assert [(each.sequence, each.client) for each in other.admin.publishers()] == [(100, None)]
    assert [thread.name for thread in threading.enumerate() if "till-1" in thread.name] == []
    assert store.held == 0


def test_publishers_are_listed_with_how_far_they_are(connect):
    client = connect()
    plain, _ = client.publisher("a"), client.publisher("b", store=MemoryPublishStore())
    bookmark = plain.publish("orders", 1).bookmark()
    first, second = client.admin.publishers()
    assert (first.name, first.sequence, first.bookmark, first.client) == ("a", 1, bookmark, None)
    assert (second.name, second.sequence, second.bookmark) == ("b", 0, None)
    assert second.client == client._session.client
