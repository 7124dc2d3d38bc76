"""Subscriptions and workers of all partitions of an instance, on one server."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from observing import eventually
from partitioned import TOTAL, WORK, client_of_partitions, key_of, messages_of

from ampsq import AsyncClient, AsyncWorker, Client, MemoryPublishStore, Queue
from ampsq.base.errors import (
    Closed,
    DefinitionError,
    Unavailable,
    UnknownQueue,
)
from ampsq.base.partitions import partition_of_key
from ampsq.client.partition_rules import PartitionFailures, check_backlog
from ampsq.protocol.calls.subscriptions import unsubscribe
from ampsq.worker import Worker

client = client_of_partitions


def drain(subscription, number):
    messages = []
    deadline = time.monotonic() + 30
    while len(messages) < number and time.monotonic() < deadline:
        message = subscription.get("1s")
        if message is not None:
            messages.append((message.data, message.bookmark))
            message.ack()
    return messages


def test_a_subscription_gets_every_message_once_and_those_of_a_key_in_order(client):
    client.apply(WORK)
    client.publish_many("orders", messages_of(20, 50), key=key_of)

    with client.subscribe("work", max_backlog=80) as subscription:
        assert subscription.max_backlog == 80
        got = drain(subscription, 1_000)
        assert subscription.get(0) is None

    by_key = {}
    for message, _ in got:
        by_key.setdefault(message["key"], []).append(message["number"])
    assert by_key == {f"k{key}": list(range(key, 1_000, 20)) for key in range(20)}
    figures = client.admin.queue_stats("work")
    assert (figures.depth, figures.acknowledged, figures.delivered, figures.leased) == (0, 1_000, 1_000, 0)


def test_a_partition_with_much_does_not_hold_up_the_others(client):
    client.apply(WORK)
    busy = next(f"k{number}" for number in range(99) if partition_of_key(f"k{number}", TOTAL) == 0)
    quiet = next(f"k{number}" for number in range(99) if partition_of_key(f"k{number}", TOTAL) == 3)
    client.publish_many("orders", [{"key": busy}] * 2_000, key=key_of)
    client.publish("orders", {"key": quiet}, key=quiet)

    with client.subscribe("work", max_backlog=200) as subscription:
        place = next(
            number for number, (message, _) in enumerate(drain(subscription, 2_001)) if message["key"] == quiet
        )

    assert place < 400


def test_no_more_is_held_than_the_backlog(client):
    client.apply(WORK)
    client.publish_many("orders", messages_of(20, 5), key=key_of)

    with client.subscribe("work", max_backlog=6) as subscription:
        held = [subscription.get("2s") for _ in range(6)]
        assert all(held)
        assert subscription.get("200ms") is None
        assert client.admin.queue_stats("work").leased == 6
        held[0].ack(wait=True)
        assert subscription.get("5s") is not None
    assert client.admin.queue_stats("work").leased == 0


def test_what_comes_while_a_subscription_waits_wakes_it(client):
    client.apply(WORK)
    with client.subscribe("work", max_backlog=4) as subscription:
        for key in ("a", "b", "c", "d", "e"):
            threading.Timer(0.1, client.publish, ("orders", {"key": key}), {"key": key}).start()
            message = subscription.get("10s")
            assert message.data == {"key": key}
            message.ack(wait=True)


def test_a_handler_gets_the_messages_and_what_it_raises_cancels_one(client):
    client.apply(Queue(**{**WORK.elements(), "max_cancels": 1}))
    seen = []

    def handle(message):
        seen.append(message.data)
        if len(seen) == 1:
            raise ValueError("no")
        message.ack()

    client.publish_many("orders", messages_of(8, 1), key=key_of)
    with client.subscribe("work", max_backlog=4, on_message=handle):
        eventually(lambda: client.admin.queue_stats("work").acknowledged >= 7, within=10.0)
    assert len(seen) >= 8


def test_threads_share_a_subscription(client):
    client.apply(WORK)
    client.publish_many("orders", messages_of(20, 20), key=key_of)
    got, lock = [], threading.Lock()

    with client.subscribe("work", max_backlog=40) as subscription:

        def take():
            while (message := subscription.get("1s")) is not None:
                with lock:
                    got.append(message.data["number"])
                message.ack()

        threads = [threading.Thread(target=take) for _ in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert sorted(got) == list(range(400))


def test_a_closed_subscription_gives_back_what_was_not_handed_out_and_says_so(client):
    client.apply(WORK)
    client.publish_many("orders", messages_of(20, 5), key=key_of)
    subscription = client.subscribe("work", max_backlog=40)
    assert subscription.get("5s") is not None
    assert len(subscription.id.split(", ")) == TOTAL
    assert repr(subscription).startswith("<PartitionedSubscription ")
    subscription.flush()
    assert subscription.late == []

    subscription.close()
    subscription.close()

    with pytest.raises(Closed):
        subscription.get()
    assert list(subscription) == []
    figures = client.admin.queue_stats("work")
    assert (figures.depth, figures.leased, figures.subscriptions) == (100, 0, 0)


def test_a_client_that_is_closed_closes_its_subscriptions(client, connect_partitions):
    client.apply(WORK)
    other = connect_partitions()
    other.subscribe("work", max_backlog=4)
    assert client.admin.queue_stats("work").subscriptions == 1

    other.close()
    other.close()

    assert client.admin.queue_stats("work").subscriptions == 0
    with pytest.raises(Closed):
        other.publish("orders", 1)


def keys_by_partition(total):
    """Return a key of each partition."""
    found = {}
    for number in range(10_000):
        found.setdefault(partition_of_key(f"k{number}", total), f"k{number}")
    return [found[number] for number in range(total)]


def test_one_message_at_a_time_comes_from_64_partitions_in_the_order_of_ringing(connect_partitions):
    many = connect_partitions(partitions=64)
    many.apply(WORK)
    keys = keys_by_partition(64)
    order = [(7 * number + 3) % 64 for number in range(64)]
    with many.subscribe("work", max_backlog=1) as subscription:
        # However slow it is here, no read of a bell is over meanwhile.
        for part in subscription._parts:
            part.core.inbox.duties.wait = 60.0
        # Each was visited, and its bell waits.
        assert subscription.get("300ms") is None
        for number in order:
            many.publish("orders", {"key": keys[number]}, key=keys[number])
        got = []
        for turn in range(64):
            message = subscription.get("10s")
            got.append(message.data["key"])
            if turn % 16 == 0:
                assert many.admin.queue_stats("work").leased == 1
            message.ack()
        assert subscription.get(0) is None
    assert got == [keys[number] for number in order]


def test_a_partition_with_much_is_left_for_the_others_after_a_hundred_visits(client):
    client.apply(WORK)
    busy, quiet = keys_by_partition(TOTAL)[0], keys_by_partition(TOTAL)[3]
    client.publish_many("orders", [{"key": busy}] * 400, key=key_of)
    client.publish("orders", {"key": quiet}, key=quiet)

    with client.subscribe("work", max_backlog=1) as subscription:
        place = next(number for number, (message, _) in enumerate(drain(subscription, 401)) if message["key"] == quiet)

    assert place <= 100


def test_what_is_settled_elsewhere_makes_room_for_whoever_waits(client):
    client.apply(WORK)
    client.publish_many("orders", messages_of(20, 2), key=key_of)
    with client.subscribe("work", max_backlog=3) as subscription:
        held = [subscription.get("5s") for _ in range(3)]
        threading.Timer(0.2, held[1].ack).start()
        began = time.monotonic()
        assert subscription.get("10s") is not None
        assert 0.1 < time.monotonic() - began < 5.0
        assert subscription.get("100ms") is None


def test_a_subscription_is_closed_at_once_while_somebody_waits(connect_partitions):
    many = connect_partitions(partitions=64)
    many.apply(WORK)
    subscription = many.subscribe("work", max_backlog=10)
    ended = []

    def wait():
        with pytest.raises(Closed):
            subscription.get()
        ended.append(time.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: len(subscription._bells._reads) == 64, within=10.0)
    began = time.thread_time()
    subscription.close()
    busy = time.thread_time() - began
    thread.join(10)
    # What it does is little, and it waits for nothing but its calls.
    assert ended
    assert busy < 0.1
    assert many.admin.queue_stats("work").subscriptions == 0


def test_what_the_queues_allow_in_all_partitions_together_bounds_a_backlog(client, caplog):
    client.apply(WORK)
    with client.subscribe("work", max_backlog=1_000) as subscription:
        assert subscription.max_backlog == 50 * TOTAL
    assert "max_backlog 1000 is cut to 200" in caplog.text


def test_a_subscription_that_its_partitions_lost_is_made_again(client):
    client.apply(WORK)
    with client.subscribe("work", max_backlog=3) as subscription:
        assert subscription.get(0) is None
        former = subscription.id.split(", ")
        for one, name in zip(client.clients, former, strict=True):
            one._store.call(unsubscribe(name, {}))
        client.publish_many("orders", messages_of(20, 1), key=key_of)
        # Its bells are gone with it: it finds out by the visits that are made now and then, too.
        assert len(drain(subscription, 20)) == 20
        assert not set(former) & set(subscription.id.split(", "))


@pytest.mark.parametrize("backlog", [-1, "9", True, 1.5])
def test_a_backlog_that_is_none_is_refused(backlog):
    with pytest.raises(DefinitionError, match="allowed is a whole number, 0 or more"):
        check_backlog(backlog)


def test_a_publisher_keeps_the_acknowledgements_of_all_partitions(client, connect_partitions):
    client.apply(WORK)
    client.publish_many("orders", messages_of(20, 5), key=key_of)
    till = client.publisher("till", store=MemoryPublishStore())
    with client.subscribe("work", max_backlog=30, publisher=till) as subscription:
        for _ in range(30):
            subscription.get("20s").ack()
        # They are the publisher's to send, whether anybody asks for more or not
        till.flush("20s")
        assert client.admin.queue_stats("work").acknowledged == 30
        assert len(drain(subscription, 70)) == 70
    till.flush("20s")
    assert client.admin.queue_stats("work").acknowledged == 100

    # One that keeps nothing, or is another client's, is refused, and leaves no subscription
    with pytest.raises(DefinitionError, match="has no store"):
        client.subscribe("work", publisher=client.publisher("bare"))
    with pytest.raises(DefinitionError, match="one of this client"):
        connect_partitions().subscribe("work", publisher=till)
    assert client.admin.queue_stats("work").subscriptions == 0


def test_acknowledgements_that_a_publisher_keeps_are_sent_when_the_server_is_back(start_server, instance, tmp_path):
    server = start_server(appendonly=True)
    with (
        Client(server.url, instance=instance, partitions=TOTAL, retry_timeout="0s") as client,
        client.publisher("till", store=str(tmp_path / "till.db")) as till,
    ):
        client.apply(WORK)
        client.publish_many("orders", messages_of(20, 1), key=key_of)
        subscription = client.subscribe("work", max_backlog=20, publisher=till)
        held = [subscription.get("20s") for _ in range(20)]
        assert None not in held

        server.process.kill()
        server.process.wait()
        for message in held:
            message.ack()
        with pytest.raises(Unavailable):
            subscription.close()
        start_server(appendonly=True, data_dir=server.directory)

        till.flush("20s")
        eventually(lambda: client.admin.queue_stats("work").acknowledged == 20, within=20.0)
        assert client.admin.queue_stats("work").depth == 0


def test_a_queue_that_is_not_there_leaves_no_subscription(client):
    client.apply(WORK)

    with pytest.raises(UnknownQueue):
        client.subscribe("works", max_backlog=4)
    assert client.admin.queue_stats("work").subscriptions == 0


def test_partitions_that_are_away_do_not_end_a_subscription_while_one_is_there():
    failures, away = PartitionFailures(2), Unavailable("away")

    failures.note(0, away)
    failures.check()
    failures.note(1, away)
    with pytest.raises(Unavailable):
        failures.check()
    # Raised once: the next call looks again.
    failures.check()
    failures.note(0, UnknownQueue(queue="work"))
    with pytest.raises(UnknownQueue):
        failures.check()
    failures.note(1, away)
    failures.note(1, None)
    failures.check()


def handled_by(make, client):
    """Run a worker of a queue of all partitions until it has handled all; gives what it was given."""
    client.apply(WORK)
    client.publish_many("orders", messages_of(20, 5), key=key_of)
    seen = []
    worker = make(seen)
    running = threading.Thread(target=worker.run)
    running.start()
    eventually(lambda: len(seen) == 100, within=20.0)
    worker.stop()
    running.join(20)
    assert not running.is_alive()
    figures = client.admin.queue_stats("work")
    assert (figures.depth, figures.leased, figures.subscriptions) == (0, 0, 0)
    return seen


async def note_later(seen, message):
    seen.append(message.data)


@pytest.mark.parametrize("kind", ["function", "coroutine"])
@pytest.mark.parametrize("own_client", [True, False], ids=["own client", "given client"])
def test_a_worker_handles_messages_of_all_partitions(client, instance, kind, own_client):
    def make(seen):
        if kind == "function":

            def handle(message):
                seen.append(message.data)

        else:

            async def handle(message):
                await note_later(seen, message)

        where = {"url": f"{client.url}?partitions=4", "instance": instance} if own_client else {"client": client}
        return Worker(handle, "work", max_backlog=20, **where)

    seen = handled_by(make, client)

    assert sorted(each["number"] for each in seen) == list(range(100))


def test_an_asyncio_worker_handles_messages_of_all_partitions(client, instance):
    async def run():
        seen = []

        async def handle(message):
            await note_later(seen, message)
            if len(seen) == 40:
                worker.stop()

        worker = AsyncWorker(handle, "work", url=f"{client.url}?partitions=4", instance=instance, max_backlog=20)
        async with asyncio.timeout(30):
            await worker.run()
        return seen

    client.apply(WORK)
    client.publish_many("orders", messages_of(20, 2), key=key_of)

    assert len(asyncio.run(run())) == 40
    figures = client.admin.queue_stats("work")
    assert (figures.depth, figures.subscriptions) == (0, 0)
    with pytest.raises(DefinitionError, match="works on parts of a client"):
        _ = client._store


def test_an_asyncio_handler_gets_the_messages_and_a_cancelled_get_loses_none(server, instance):
    asyncio.run(_handle_and_cancel(server, instance))


async def _handle_and_cancel(server, instance):
    async with AsyncClient(server.url, instance=instance, partitions=TOTAL) as client:
        await client.apply(WORK)
        seen, done = [], asyncio.Event()

        async def handle(message):
            seen.append(message.data["number"])
            await message.ack()
            if len(seen) == 20:
                done.set()

        subscription = await client.subscribe("work", max_backlog=8)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(subscription.get(), 0.05)
        await client.publish_many("orders", messages_of(20, 1), key=key_of)
        got = [await subscription.get("5s") for _ in range(3)]
        assert all(got)
        await subscription.close()
        with pytest.raises(Closed):
            await subscription.get()
        async with client.subscribe("work", max_backlog=8, on_message=handle):
            await asyncio.wait_for(done.wait(), 10)
        assert sorted(seen) == list(range(20))
