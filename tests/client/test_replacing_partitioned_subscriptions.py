"""Subscriptions to queues of all partitions that ask for something else, or whose queues allow something else."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from observing import eventually
from partitioned import TOTAL, WORK, client_of_partitions, key_of, messages_of

from ampsq import AsyncClient, Queue
from ampsq.base.errors import (
    Closed,
    DefinitionError,
    ExpressionError,
    TooManyFilters,
    Unavailable,
    UnknownQueue,
)

client = client_of_partitions


def numbers_of(subscription, number):
    """Return the numbers of so many messages, acknowledged."""
    found = []
    for _ in range(number):
        message = subscription.get("10s")
        assert message is not None, found
        found.append(message.data["number"])
        message.ack()
    return found


def test_a_subscription_asks_for_something_else_in_all_partitions(client):
    client.apply(WORK, Queue(**{**WORK.elements(), "name": "others", "underlying_topic": "others"}))
    client.publish_many("orders", messages_of(20, 5), key=key_of)
    with client.subscribe("work", max_backlog=8) as subscription:
        held = [subscription.get("5s") for _ in range(3)]

        # Another filter: what was at hand and does not match goes back
        subscription.replace(filter="/number >= 90")
        assert sorted(numbers_of(subscription, 10)) == list(range(90, 100))
        assert subscription.get("100ms") is None
        figures = client.admin.queue_stats("work")
        # Leases stay, also of messages that do not match
        assert (figures.leased, figures.depth) == (3, 90)
        for message in held:
            message.ack()

        # What comes from now on is chosen by it, too, and rings
        client.publish_many("orders", [{"key": f"k{n}", "number": n} for n in (1, 200, 2)], key=key_of)
        assert numbers_of(subscription, 1) == [200]

        # Everything, with a smaller backlog
        subscription.replace(filter=None, max_backlog=2)
        assert subscription.max_backlog == 2
        two = [subscription.get("5s") for _ in range(2)]
        assert None not in two
        assert subscription.get("200ms") is None
        assert client.admin.queue_stats("work").leased == 2
        for message in two:
            message.ack()

        # None, and a larger one
        subscription.replace(max_backlog=0)
        assert subscription.get("200ms") is None
        assert client.admin.queue_stats("work").leased == 0
        subscription.replace(max_backlog=500)
        assert subscription.max_backlog == 50 * TOTAL
        assert len(numbers_of(subscription, 87)) == 87

        # Another queue
        client.publish_many("others", messages_of(20, 1), key=key_of)
        subscription.replace(name="others", max_backlog=4)
        assert sorted(numbers_of(subscription, 20)) == list(range(20))
    assert all(report.clean for report in client.admin.check())


def test_what_one_partition_refuses_is_replaced_in_none(client):
    client.apply(WORK, Queue(**{**WORK.elements(), "name": "plain", "underlying_topic": "plain"}))
    client.publish_many("orders", messages_of(20, 1), key=key_of)
    # The third partition alone has it with as many filters as it may have
    filled = [client.clients[2].subscribe("plain", max_backlog=1, filter=f"/number = {number}") for number in range(32)]
    with client.subscribe("work", max_backlog=5) as subscription:
        with pytest.raises(UnknownQueue):
            subscription.replace(name="works")
        with pytest.raises(ExpressionError):
            subscription.replace(filter="/number >")
        with pytest.raises(DefinitionError, match="0 or more"):
            subscription.replace(max_backlog=-1)
        with pytest.raises(TooManyFilters):
            subscription.replace(name="plain", filter="/number = 1000")
        # All is as before, in those that had it already
        assert len(numbers_of(subscription, 20)) == 20
        client.publish("plain", {"number": 1_000}, key="k1")
        assert subscription.get("300ms") is None
        assert subscription.max_backlog == 5
    for each in filled:
        each.close()
    with pytest.raises(Closed):
        subscription.replace(max_backlog=1)


def test_a_subscription_that_somebody_waits_on_is_replaced_at_once(client):
    client.apply(WORK)
    got = []
    with client.subscribe("work", max_backlog=5, filter="/number = 1") as subscription:
        waiting = threading.Thread(target=lambda: got.append(subscription.get("20s")))
        waiting.start()
        eventually(lambda: subscription._lock.locked() and subscription._bells._reads, within=5.0)
        began = time.monotonic()
        subscription.replace(filter="/number = 2")
        # Nobody waits for the end of a blocked read.
        assert time.monotonic() - began < 0.8
        client.publish_many("orders", [{"key": f"k{n}", "number": n} for n in (1, 2)], key=key_of)
        waiting.join(20)
        assert got[0].data["number"] == 2


def test_what_a_partition_could_not_be_asked_for_is_asked_for_when_it_is_back(client, monkeypatch):
    client.apply(WORK)
    client.publish_many("orders", messages_of(20, 5), key=key_of)
    with client.subscribe("work", max_backlog=8) as subscription:
        run, away = subscription._stores[1].run, [True]

        def run_if_there(flow):
            if away:
                flow.close()
                raise Unavailable("away")
            return run(flow)

        monkeypatch.setattr(subscription._stores[1], "run", run_if_there)
        subscription.replace(filter="/number >= 50")
        away.clear()
        subscription.replace(max_backlog=5)
        # With what was asked for meanwhile
        assert sorted(numbers_of(subscription, 50)) == list(range(50, 100))
        assert subscription.get("100ms") is None


def test_replacing_with_asyncio(server, instance):
    async def scene():
        async with AsyncClient(server.url, instance=instance, partitions=TOTAL) as client:
            await client.apply(WORK)
            await client.publish_many("orders", messages_of(20, 5), key=key_of)
            async with client.subscribe("work", max_backlog=8, filter="/number = 1000") as subscription:
                waiting = asyncio.create_task(subscription.get(20))
                await asyncio.sleep(0.2)  # it waits for a bell by then, or begins to
                began = time.monotonic()
                await subscription.replace(filter="/number >= 90", max_backlog=4)
                assert time.monotonic() - began < 0.8
                message = await waiting
                found = [message.data["number"]]
                await message.ack()
                for _ in range(9):
                    message = await subscription.get(10)
                    found.append(message.data["number"])
                    await message.ack()
                assert sorted(found) == list(range(90, 100))
                assert await subscription.get(0.1) is None
                with pytest.raises(UnknownQueue):
                    await subscription.replace(name="works")
                await subscription.replace(filter=None, max_backlog=0)
                assert await subscription.get(0.1) is None
                await subscription.replace(max_backlog=100)
                for _ in range(90):
                    await (await subscription.get(10)).ack()
            with pytest.raises(Closed):
                await subscription.replace(max_backlog=1)
            return await client.admin.queue_stats("work")

    figures = asyncio.run(scene())
    assert (figures.depth, figures.leased, figures.acknowledged) == (0, 0, 100)


def test_the_backlog_follows_what_its_queues_allow_later(connect_partitions):
    client = connect_partitions(heartbeat="200ms")
    client.apply(Queue(**{**WORK.elements(), "max_per_subscription_backlog": 1}))
    client.publish_many("orders", messages_of(20, 10), key=key_of)

    with client.subscribe("work", max_backlog=50) as subscription:
        assert subscription.max_backlog == TOTAL
        held = [subscription.get("5s") for _ in range(TOTAL)]
        assert subscription.get("50ms") is None
        client.apply(Queue(**{**WORK.elements(), "max_per_subscription_backlog": 5}))
        # More is given to who waits.
        held += [subscription.get("20s") for _ in range(4 * TOTAL)]
        assert None not in held
        assert subscription.max_backlog == 5 * TOTAL
        client.apply(Queue(**{**WORK.elements(), "max_per_subscription_backlog": 2}))
        eventually(lambda: subscription.max_backlog == 2 * TOTAL)
