"""Bells of partitions that are heard at the wrong time, or never: no message waits for the next one to ring."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import redis

from ampsq import AsyncClient, Client, Queue
from ampsq.client.partition_turns import PartitionTurns
from ampsq.protocol.schema import key

TOTAL = 2
WORK = Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=50)


def turns_of(number):
    """Turns of so many partitions, of which none has anything."""
    table = SimpleNamespace(registration=SimpleNamespace(max_backlog=5), number_held=0, acks=[])
    turns = PartitionTurns([table] * number, 5)
    for each in range(number):
        turns.begin(each)
        turns.end(each, 0, is_done=True)
    return turns


def test_a_bell_that_is_heard_before_the_answer_to_the_visit_before_it_has_its_turn():
    turns = turns_of(2)
    turns.ring(1)
    assert turns.next(0.0) == 1
    turns.begin(1)

    # The visit found all; then a message came, and its mark was read first.
    turns.ring(1)
    turns.end(1, 0, is_done=True)

    assert turns.next(0.0) == 1
    turns.begin(1)
    turns.end(1, 0, is_done=True)
    assert turns.next(0.0) is None


def test_a_bell_of_another_partition_that_is_heard_during_a_visit_leads_to_no_second_visit():
    turns = turns_of(3)
    turns.ring(1)
    turns.begin(1)
    turns.ring(2)
    turns.end(1, 0, is_done=True)

    assert turns.next(0.0) == 2
    turns.begin(2)
    turns.end(2, 0, is_done=True)
    assert turns.next(0.0) is None


def test_a_turn_goes_on_without_a_look_at_the_bells_until_its_time_or_its_partition_is_over():
    turns = turns_of(2)
    turns.ring(1)
    assert not turns.goes_on(0.0)
    assert turns.next(0.0) == 1
    turns.begin(1)
    turns.end(1, 0, is_done=False)

    assert turns.goes_on(0.0)
    assert not turns.goes_on(0.2)
    turns.begin(1)
    # Its answer is missing: what came of it is asked first.
    assert not turns.goes_on(0.0)
    turns.end(1, 0, is_done=True)
    assert not turns.goes_on(0.0)


def test_a_partition_whose_last_message_is_held_has_its_turn_no_more_and_its_credits_come_back_by_acknowledging():
    tables = [SimpleNamespace(registration=SimpleNamespace(max_backlog=5), number_held=0, acks=[]) for _ in range(2)]
    turns = PartitionTurns(tables, 5)
    turns.begin(0)
    tables[0].number_held = 5
    turns.end(0, 5, is_done=True)

    # Nothing is lent elsewhere before it is settled, and no visit is made for that.
    assert turns.next(0.0) == 1
    assert not turns.is_worth(1)
    assert turns.acknowledged(1) == []
    tables[0].acks = [1, 2, 3, 4, 5]
    assert not turns.is_worth(1)
    assert turns.acknowledged(1) == [0]
    tables[0].acks, tables[0].number_held = [], 0
    assert turns.is_full(1)
    turns.begin(1)
    turns.end(1, 0, is_done=True)
    assert turns.next(0.0) is None


def test_a_partition_of_which_as_much_is_held_as_its_queue_allows_keeps_no_credit_from_the_others():
    tables = [SimpleNamespace(registration=SimpleNamespace(max_backlog=3), number_held=0, acks=[]) for _ in range(3)]
    turns = PartitionTurns(tables, 5)
    turns.begin(0)
    tables[0].number_held = 3
    turns.end(0, 3, is_done=False)

    # More waits there, and two credits are free.
    assert turns.next(0.0) == 1
    assert turns.is_worth(1)
    turns.begin(1)
    turns.end(1, 0, is_done=True)
    assert turns.next(0.0) == 2
    turns.begin(2)
    turns.end(2, 0, is_done=True)
    assert turns.next(0.0) == 0
    assert not turns.is_worth(0)
    turns.ring(1)
    assert turns.next(0.0) == 1
    # Some of it is settled by its next visit.
    tables[0].acks = [1]
    turns.begin(1)
    turns.end(1, 0, is_done=True)
    assert turns.next(0.0) == 0
    assert turns.is_worth(0)


def calls_of_scripts(raw):
    stats = raw.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "fcall"))


def test_what_full_visits_have_taken_is_settled_without_a_visit_that_finds_nothing(server, instance):
    raw = redis.Redis.from_url(server.url)
    with Client(server.url, instance=instance, partitions=TOTAL) as client:
        client.apply(WORK)
        with client.subscribe("work", max_backlog=10) as subscription:
            assert subscription.get("50ms") is None
            client.publish_many("orders", [{"id": number} for number in range(60)], batch=10)
            takes, visits = [], subscription._turns.begin
            subscription._turns.begin = lambda number: takes.append(number) or visits(number)
            raw.config_resetstat()

            for _ in range(60):
                subscription.get("5s").ack()
            subscription.flush()

            # Three full calls in each partition, and one that settles what the third had taken.
            assert len(takes) == 3 * TOTAL
            assert calls_of_scripts(raw) <= 4 * TOTAL + 1
            assert client.admin.queue_stats("work").depth == 0
            # Its bell is heard all the same.
            client.publish("orders", {"id": 60})
            assert subscription.get("5s").data == {"id": 60}


def swallow_marks(server, client, subscription):
    """Do as if each bell had rung, and the marks had gone to reads that were lost with their connections."""
    raw = redis.Redis.from_url(server.url)
    for partition, name in zip(client.partitions, subscription.id.split(", "), strict=True):
        assert raw.hset(key(partition, "subscription", name), "bell", "0") == 0
        assert raw.llen(key(partition, "bell", name)) == 0


def test_messages_whose_bell_was_not_heard_come_after_the_next_look(server, instance):
    with Client(server.url, instance=instance, partitions=TOTAL) as client:
        client.apply(WORK)
        with client.subscribe("work") as subscription:
            assert subscription.get("50ms") is None
            swallow_marks(server, client, subscription)

            client.publish("orders", {"id": 1})

            message = subscription.get("20s")
            assert message is not None
            assert message.data == {"id": 1}
            message.ack()


def test_an_asyncio_subscription_gets_messages_whose_bell_was_not_heard(server, instance):
    async def consume():
        async with AsyncClient(server.url, instance=instance, partitions=TOTAL) as client:
            await client.apply(WORK)
            async with client.subscribe("work") as subscription:
                assert await subscription.get("50ms") is None
                swallow_marks(server, client, subscription)
                await client.publish("orders", {"id": 1})
                message = await subscription.get("20s")
                assert message is not None
                assert message.data == {"id": 1}
                await message.ack()

    asyncio.run(consume())
