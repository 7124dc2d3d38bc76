"""A reply that is lost, a request that arrives late: the effect is there exactly once, and nobody waits for ever."""

from __future__ import annotations

import asyncio

import pytest
from draining import define
from observing import eventually
from scene import take_ahead

from ampsq import AsyncClient, Topic
from ampsq.base.errors import AlreadyAcked

NUMBER = 150


def publish_all(client):
    """One by one and in batches."""
    for number in range(20):
        client.publish("orders", number)
    client.publish_many("orders", range(20, NUMBER), batch=10)


def consume(messages, number):
    """Settle in every way until `number` are acknowledged; gives (bookmark, delivery) of all that were handed out."""
    seen, acked = [], 0
    while acked < number:
        message = messages.get(30)
        assert message is not None, f"{acked} of {number} came; handed out {len(seen)}"
        seen.append((message.bookmark, message.delivery))
        if message.data % 10 == 3 and message.delivery == 1:
            message.cancel()
            continue
        message.ack(wait=message.data % 4 == 0)
        acked += 1
    messages.flush()
    return seen


@pytest.mark.parametrize("late", [None, 0.15], ids=["lost", "late"])
@pytest.mark.parametrize("backlog", [1, 10, 200])
@pytest.mark.parametrize("nth", [1, 2, 5])
@pytest.mark.parametrize("name", ["take", "settle"])
def test_a_consumer_s_lost_calls_take_effect_once(  # noqa: PLR0917 - fixtures and parameters
    valkey, proxy, connect, evidence_of, name, nth, backlog, late
):
    # Given messages, and a consumer behind a connection that breaks
    publisher = connect(valkey.url)
    define(publisher)
    publish_all(publisher)
    consumer = connect(proxy.url, ack_timeout="50ms")
    with consumer.subscribe("work", max_backlog=backlog) as messages:
        if backlog == 200:
            take_ahead(messages)
        proxy.lose(name, nth, late=late)
        # When it consumes everything
        seen = consume(messages, NUMBER)
        assert messages.late == []
    # Then the fault has happened, each delivery was handed out once, under its own count, and all is settled once
    if not (name == "take" and nth == 5 and backlog == 200):
        assert proxy.lost == [name]
    assert len(seen) == len(set(seen))
    assert {delivery for _, delivery in seen} == {1, 2}
    assert sum(delivery == 2 for _, delivery in seen) == NUMBER // 10
    eventually(lambda: publisher.admin.queue_stats("work").depth == 0, within=25.0)
    evidence_of(publisher).check("orders", "work", range(NUMBER))


@pytest.mark.parametrize("late", [None, 0.15], ids=["lost", "late"])
@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("backlog", [1, 50])
def test_what_a_lost_push_brought_comes_again(  # noqa: PLR0917 - fixtures and parameters
    valkey, proxy, connect, evidence_of, nth, backlog, late
):
    # Given a consumer that waits for pushes
    publisher = connect(valkey.url)
    define(publisher)
    consumer = connect(proxy.url)
    with consumer.subscribe("work", max_backlog=backlog) as messages:
        proxy.lose("BLMPOP", nth, late=late)
        seen = []
        for number in range(6):
            # When messages come one by one while it waits, and a reply is lost
            assert messages.get(0.02) is None
            publisher.publish("orders", number)
            message = messages.get(30)
            seen.append((message.data, message.delivery))
            message.ack(wait=True)
        # Then all come, as first deliveries
        assert seen == [(number, 1) for number in range(6)]
        assert messages.late == []
    assert proxy.lost == ["BLMPOP"]
    evidence_of(publisher).check("orders", "work", range(6))


@pytest.mark.parametrize("late", [None, 0.15], ids=["lost", "late"])
@pytest.mark.parametrize("nth", [1, 2, 5, 30])
def test_a_named_publisher_s_lost_publish_is_recorded_once(  # noqa: PLR0917 - fixtures and parameters
    valkey, proxy, connect, evidence_of, nth, late
):
    watcher = connect(valkey.url)
    define(watcher)
    client = connect(proxy.url)
    publisher = client.publisher("till-1")
    proxy.lose("publish", nth, late=late)
    # When it publishes, one by one and in batches, and a reply is lost
    publish_all(publisher)
    assert proxy.lost == ["publish"]
    # Then everything is recorded once and in order
    assert list(evidence_of(watcher).published("orders").values()) == list(range(NUMBER))


def test_a_nameless_publisher_s_lost_publish_is_told_and_not_repeated(valkey, proxy, connect, evidence_of):
    watcher = connect(valkey.url)
    define(watcher)
    publisher = connect(proxy.url)
    proxy.lose("publish", 3)
    # When the third reply is lost, then the caller is told that nobody knows
    publisher.publish("orders", 0)
    publisher.publish("orders", 1)
    with pytest.raises(ConnectionError):
        publisher.publish("orders", 2)
    # And it was recorded once
    publisher.publish("orders", 3)
    assert list(evidence_of(watcher).published("orders").values()) == [0, 1, 2, 3]


@pytest.mark.parametrize("late", [None, 0.15], ids=["lost", "late"])
def test_a_lost_subscribe_makes_one_subscription(valkey, proxy, connect, late):
    watcher = connect(valkey.url)
    define(watcher)
    client = connect(proxy.url)
    for name in ("work", "^w"):
        proxy.lose("subscribe", 1, late=late)
        with client.subscribe(name, max_backlog=5) as messages:
            assert messages.max_backlog == 5
            # A late one may still arrive, and finds what was made
            assert messages.get(0.3) is None
            assert watcher.admin.queue_stats("work").subscriptions == 1
    assert proxy.lost == ["subscribe", "subscribe"]
    assert watcher.admin.queue_stats("work").subscriptions == 0


@pytest.mark.parametrize("late", [None, 0.15], ids=["lost", "late"])
def test_a_lost_unsubscribe_gives_back_once(valkey, proxy, connect, late):
    watcher = connect(valkey.url)
    define(watcher)
    watcher.publish_many("orders", range(10))
    client = connect(proxy.url)
    messages = client.subscribe("work", max_backlog=10)
    assert messages.get(30).data == 0
    proxy.lose("unsubscribe", 1, late=late)
    messages.close()
    assert proxy.lost == ["unsubscribe"]
    with watcher.subscribe("work", max_backlog=20) as others:
        got = [others.get(30) for _ in range(10)]
        assert [(message.data, message.delivery) for message in got] == [(0, 2)] + [(n, 1) for n in range(1, 10)]
        # The late one, when it comes, takes nothing from the next subscription
        assert others.get(0.3) is None
        assert watcher.admin.queue_stats("work").leased == 10


def test_an_acknowledgement_that_was_done_before_the_reply_was_lost_is_done(valkey, proxy, connect):
    client = connect(proxy.url)
    define(client)
    client.publish("orders", 1)
    with client.subscribe("work") as messages:
        message = messages.get(30)
        proxy.lose("settle")
        message.ack(wait=True)
        with pytest.raises(AlreadyAcked):
            message.ack(wait=True)
    assert connect(valkey.url).admin.queue_stats("work").acknowledged == 1


@pytest.mark.parametrize("name", ["take", "settle", "BLMPOP", "publish"])
@pytest.mark.parametrize("backlog", [1, 200])
def test_the_asyncio_client_survives_the_same(  # noqa: PLR0917 - fixtures and parameters
    valkey, proxy, connect, evidence_of, name, backlog
):
    watcher = connect(valkey.url)
    define(watcher)

    async def main():
        async with AsyncClient(proxy.url, instance=watcher.instance) as client, client.publisher("till-1") as till:
            proxy.lose(name, 2)
            seen = []
            async with await client.subscribe("work", max_backlog=backlog) as messages:
                for _ in range(2):
                    assert await messages.get(0.02) is None
                await till.publish_many("orders", range(100), batch=10)
                while len(seen) < 100:
                    message = await messages.get(30)
                    assert message is not None
                    seen.append((message.data, message.delivery))
                    await message.ack(wait=message.data % 3 == 0)
                await messages.flush()
                assert messages.late == []
            assert sorted(seen) == [(number, 1) for number in range(100)]

    asyncio.run(main())
    assert proxy.lost == [name]
    evidence_of(watcher).check("orders", "work", range(100))


@pytest.mark.parametrize("late", [None, 0.15], ids=["lost", "late"])
@pytest.mark.parametrize("name", ["publish", "sow_delete", "browse_records", "catch_up_records"])
def test_changes_and_queries_of_records_whose_reply_was_lost_are_made_once(valkey, proxy, connect, name, late):
    # Given a topic that keeps records, and a publisher with a name behind a connection that breaks
    other = connect(valkey.url)
    other.apply(Topic(name="orders", key="/id"))
    other.publish("orders", {"id": 1, "v": 1})
    client = connect(proxy.url)
    till = client.publisher("p")
    proxy.lose(name, 1, late=late)
    # When it merges, deletes and queries
    till.delta_publish("orders", {"id": 1, "w": 1})
    till.publish("orders", {"id": 2})
    till.sow_delete("orders", keys=[2])
    found = client.sow("orders")
    # Then each was done once
    assert proxy.lost == [name]
    assert [record.data for record in found] == [{"id": 1, "v": 1, "w": 1}]
    assert other.admin.topics()["orders"].messages == 4


@pytest.mark.parametrize("nth", [4, 5, 6])
def test_what_a_take_brought_comes_at_once_that_was_refused_ahead_and_then_lost_its_reply(
    valkey, proxy, connect, evidence_of, nth
):
    # Given a consumer that asks ahead
    publisher = connect(valkey.url)
    define(publisher)
    publish_all(publisher)
    consumer = connect(proxy.url)
    with consumer.subscribe("work", max_backlog=64) as messages, valkey.client() as server:
        take_ahead(messages)
        proxy.lose("take", nth)
        seen = []
        while len(seen) < NUMBER:
            # Then what the lost reply brought comes, and not when its leases end
            message = messages.get(0.5)
            assert message is not None, f"{len(seen)} of {NUMBER} came"
            message.ack()
            seen.append((message.data, message.delivery))
            if len(seen) == 1:
                # When the server forgets the script, so that what is asked ahead next is refused, and made again
                server.script_flush()
        messages.flush()
        assert messages.late == []
    assert proxy.lost == ["take"]
    assert sorted(seen) == [(number, 1) for number in range(NUMBER)]
    evidence_of(publisher).check("orders", "work", range(NUMBER))
