"""An acknowledgement goes at once where somebody waits for what it lets come, and with the next batch elsewhere."""

from __future__ import annotations

import asyncio
import threading

import pytest
from observing import eventually

from ampsq import AsyncClient, Client, Queue, Topic

#: Nothing here waits for it.
LONG = "1h"
GROUPED = {"group_by": "/g", "max_per_subscription_backlog": 9}


def bodies(number):
    return [{"g": "a", "n": n} for n in range(number)]


def numbers_by_two(subscription, number):
    """Numbers that one thread gets, each of which another one acknowledges once the first waits for the next."""
    found, left = [], []
    attention = first_managed(subscription).core.inbox.attention

    def read():
        while len(found) < number and (message := subscription.get(30)):
            found.append(message.data["n"])
            left.append(message)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(number):
        eventually(lambda: left, 30)
        eventually(lambda: attention.now or not reader.is_alive(), 30)
        left.pop().ack()
    reader.join(60)
    return found


def first_managed(subscription):
    """The managed subscription of one; of one of all partitions that of the first."""
    parts = vars(subscription).get("_parts")
    return parts[0] if parts else subscription._managed


@pytest.mark.parametrize(
    ("elements", "partitions"),
    [(GROUPED, None), (GROUPED, 3), ({"max_per_subscription_backlog": 1}, None)],
    ids=["the next of a group", "the next of a group in a partition", "room"],
)
def test_what_is_waited_for_comes_as_soon_as_what_keeps_it_back_is_acknowledged(server, instance, elements, partitions):
    with Client(server.url, instance=instance, ack_timeout=LONG, partitions=partitions) as client:
        client.apply(Topic(name="orders", partition_by="/g"), Queue(name="work", underlying_topic="orders", **elements))
        client.publish_many("orders", bodies(5))
        with client.subscribe("work", max_backlog=9) as subscription:
            assert numbers_by_two(subscription, 5) == [0, 1, 2, 3, 4]


def test_a_barrier_comes_as_soon_as_what_is_before_it_is_acknowledged(server, instance):
    with Client(server.url, instance=instance, ack_timeout=LONG) as client:
        client.apply(
            Queue(
                name="work",
                underlying_topic="orders",
                barrier_expression="/n IN (0, 2)",
                max_per_subscription_backlog=9,
            )
        )
        client.publish_many("orders", bodies(4))
        with client.subscribe("work", max_backlog=9) as subscription:
            # That the queue has barriers is known by the first one.
            assert numbers_by_two(subscription, 4) == [0, 1, 2, 3]


async def in_tasks(url, instance, partitions):
    """Numbers that one task gets, each of which another one acknowledges a moment later."""
    found = []
    async with AsyncClient(url, instance=instance, ack_timeout=LONG, partitions=partitions) as client:
        await client.apply(
            Topic(name="orders", partition_by="/g"), Queue(name="work", underlying_topic="orders", **GROUPED)
        )
        await client.publish_many("orders", bodies(5))
        async with client.subscribe("work", max_backlog=9) as subscription, asyncio.TaskGroup() as tasks:
            attention = first_managed(subscription).core.inbox.attention

            async def acknowledge(message):
                while not attention.now and len(found) < 5:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)  # until the other task waits
                await message.ack()

            while len(found) < 5 and (message := await subscription.get(30)):
                found.append(message.data["n"])
                tasks.create_task(acknowledge(message))
    return found


@pytest.mark.parametrize("partitions", [None, 3])
def test_the_same_with_asyncio(server, instance, partitions):
    assert asyncio.run(in_tasks(server.url, instance, partitions)) == [0, 1, 2, 3, 4]


def test_what_lets_nothing_come_waits_for_its_batch(valkey, instance):
    with Client(valkey.url, instance=instance, ack_timeout=LONG) as client:
        client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=9))
        client.publish("orders", {"n": 1})
        with client.subscribe("work", max_backlog=9) as subscription:
            message = subscription.get(30)
            attention = first_managed(subscription).core.inbox.attention
            reader = threading.Thread(target=subscription.get, args=(30,))
            reader.start()
            eventually(lambda: attention.now, 30)
            message.ack()
            assert client.admin.queue_stats("work").leased == 1
            client.publish("orders", {"n": 2})
            reader.join(60)
