"""Batches of one `publish_many` that are on their way to several partitions at once, on one server."""

from __future__ import annotations

import asyncio

import pytest
from partitioned import TOTAL, client_of_partitions

from ampsq import AsyncClient, Topic
from ampsq.base.errors import DefinitionError, MissingKey
from ampsq.base.partitions import partition_of_key

client = client_of_partitions


def partition(client, bookmark):
    return client.partitions.index(bookmark.origin.rpartition(".")[0])


def test_batches_are_sent_before_those_of_other_partitions_are_answered_and_keys_stay_in_order(client):
    client.apply(Topic(name="orders"))
    messages = [{"key": f"k{number % 50}", "number": number} for number in range(5_000)]
    client.publish_many("orders", messages[:500], key=lambda each: each["key"])

    bookmarks = client.publish_many("orders", messages, key=lambda each: each["key"])
    single = client.publish_many("orders", messages[:40], batch=1)

    expected = [partition_of_key(each["key"], TOTAL) for each in messages]
    assert [partition(client, each) for each in bookmarks] == expected
    assert len(set(map(str, [*bookmarks, *single]))) == 5_040
    numbers = {}
    by_bookmark = {str(bookmark): each for bookmark, each in zip(bookmarks, messages, strict=True)}
    with client.subscribe_topic("orders", bookmark="epoch") as read:
        for _ in range(5_540):
            message = read.get("10s")
            if str(message.bookmark) in by_bookmark:
                # Each bookmark is that of its own message
                assert message.data == by_bookmark[str(message.bookmark)]
                numbers.setdefault(message.data["key"], []).append(message.data["number"])
    assert numbers == {f"k{key}": list(range(key, 5_000, 50)) for key in range(50)}


def test_what_is_on_its_way_when_a_batch_is_refused_is_told_where_it_was_recorded(client):
    client.apply(Topic(name="orders", key="/id"))
    client.publish_many("orders", [{"id": number} for number in range(100)], batch=5)
    wrong = [{"id": number} for number in range(200)]
    wrong[77] = {"none": 1}

    with pytest.raises(MissingKey) as raised:
        client.publish_many("orders", wrong, batch=10, key=lambda message: str(message.get("id", 7)))

    published = raised.value.published
    recorded = [number for number, bookmark in enumerate(published) if bookmark is not None]
    assert 77 not in recorded
    assert recorded
    there = {str(each.bookmark) for each in client.sow("orders")}
    assert {str(bookmark) for bookmark in published if bookmark is not None} <= there
    # What comes next is recorded as ever
    assert len(client.publish_many("orders", [{"id": number} for number in range(50)], batch=5)) == 50


def test_a_topic_that_somebody_else_removed_is_made_again(client, connect_partitions):
    client.apply(Topic(name="orders"))
    client.publish_many("orders", [{"number": number} for number in range(40)], batch=5)
    connect_partitions().admin.remove(Topic(name="orders"))

    assert len(client.publish_many("orders", [{"number": number} for number in range(40)], batch=5)) == 40
    # What was recorded before stays, too.
    assert client.admin.topics()["orders"].messages == 80


def test_messages_that_cannot_be_encoded_leave_nothing_on_its_way(client):
    client.apply(Topic(name="orders"))
    client.publish_many("orders", [{"number": number} for number in range(40)], batch=5)

    def some():
        for number in range(100):
            yield {"number": number} if number < 63 else object()

    with pytest.raises(DefinitionError) as raised:
        client.publish_many("orders", some(), batch=10)
    assert sum(each is not None for each in raised.value.published) == 60
    assert client.admin.topics()["orders"].messages == 100
    pools = [each._store._connections.used[1] for each in client.clients]
    assert all(not pool._in_use_connections for pool in pools)


def test_a_task_that_is_cancelled_while_batches_are_on_their_way_reads_no_answer_of_another(server, instance):
    async def scene():
        async with AsyncClient(server.url, instance=instance, partitions=TOTAL) as client:
            await client.apply(Topic(name="orders"))
            messages = [{"number": number} for number in range(4_000)]
            await client.publish_many("orders", messages[:40], batch=5)
            for pause in (0.0, 0.001, 0.005, 0.01, 0.02):
                publishing = asyncio.create_task(client.publish_many("orders", messages, batch=5))
                # So much is on its way then.
                await asyncio.sleep(pause)
                publishing.cancel()
                await asyncio.wait([publishing])
                assert all(not each._store._connections.used[1]._in_use_connections for each in client.clients)
                bookmarks = await client.publish_many("orders", messages[:40], batch=5)
                numbers = [partition(client, each) for each in bookmarks]
                assert [numbers[place : place + 5].count(numbers[place]) for place in range(0, 40, 5)] == [5] * 8
            return [partition(client, each) for each in await client.publish_many("orders", messages, batch=50)]

    assert len(asyncio.run(scene())) == 4_000
