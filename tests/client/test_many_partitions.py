"""Clients of many partitions of an instance: they share connections, and bells are heard by a channel of each."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest
from observing import eventually
from partitioned import WORK, key_of, messages_of

from ampsq import AsyncClient, Client, Queue, Topic
from ampsq.base.errors import DefinitionError, NameInUse, OtherIncarnation
from ampsq.base.partitions import MOST_PARTITIONS, partition_of_key
from ampsq.client.partition_rules import SEPARATELY
from ampsq.protocol.schema import key
from ampsq.transport import known_functions
from ampsq.transport.shard_channels import ShardChannels

MANY = SEPARATELY + 6
KEYS = 200


def connections(server):
    with server.client() as plain:
        return len(plain.client_list()) - 1


def drain(subscription, number):
    found = {}
    for _ in range(number):
        message = subscription.get("20s")
        assert message is not None, f"{sum(map(len, found.values()))} of {number} came"
        found.setdefault(message.data["key"], []).append(message.data["number"])
        message.ack()
    return found


def test_partitions_of_a_server_share_a_connection(connect_partitions, server):
    before = connections(server)
    client = connect_partitions(partitions=32)
    client.apply(WORK)
    client.publish_many("orders", messages_of(KEYS, 2), key=key_of)

    assert client.admin.queue_stats("work").depth == 2 * KEYS
    assert connections(server) - before == 1
    client.close()
    eventually(lambda: connections(server) == before, within=5.0)


def test_each_partition_is_greeted_on_a_connection_that_another_one_has_made(connect_partitions, server):
    # Given a client, and an instance of which one partition is made anew meanwhile
    client = connect_partitions(partitions=8, retry_timeout="0s")
    keys = {partition_of_key(f"k{number}", 8): f"k{number}" for number in range(100)}
    for each in keys.values():
        client.publish("orders", {"key": each}, key=each)
    with server.client() as plain:
        plain.hset(key(client.partitions[3], "instance"), "origin", f"{client.partitions[3]}.another")
        plain.client_kill_filter(_type="normal", skipme=True)

    # When all publish again, the first of them on a new connection
    for number in (0, 1, 2, 4, 5, 6, 7):
        client.publish("orders", {"key": keys[number]}, key=keys[number])

    # Then that partition is refused on the same connection
    with pytest.raises(OtherIncarnation):
        client.publish("orders", {"key": keys[3]}, key=keys[3])
    client.publish("orders", {"key": keys[0]}, key=keys[0])


def test_partitions_learn_of_server_functions_together(connect_partitions, server, monkeypatch):
    monkeypatch.setattr(known_functions, "_FEW", 9)
    client = connect_partitions(partitions=16)
    client.apply(WORK)
    with server.client(protocol=2) as plain:
        plain.config_resetstat()
        for number in range(32):
            client.publish("orders", {"number": number})
        stats = plain.info("commandstats")

    # Two calls of each partition, and only the first ones of all are those of scripts.
    assert stats["cmdstat_fcall"]["calls"] >= 20
    assert stats["cmdstat_function|list"]["calls"] == 1


def test_a_consumer_of_many_partitions_hears_the_bells_of_all_on_one_connection(connect_partitions, server):
    client, consumer = connect_partitions(partitions=MANY), connect_partitions(partitions=MANY)
    client.apply(Queue(**{**WORK.elements(), "max_per_subscription_backlog": 10}))
    before = connections(server)
    with consumer.subscribe("work", max_backlog=20) as subscription:
        assert isinstance(subscription._bells, ShardChannels)
        assert subscription.get("200ms") is None
        # That of signs of life, and that of the bells.
        assert connections(server) - before <= 3

        # What comes one by one wakes it, in whichever partition
        for number in range(MANY):
            client.publish("orders", {"key": "k", "number": number}, key=f"k{number}")
            began = time.monotonic()
            message = subscription.get("20s")
            assert message.data["number"] == number
            # A look by itself would come after a second.
            assert time.monotonic() - began < 0.8
            message.ack(wait=True)

        # And what comes at once comes once, those of a key in their order
        client.publish_many("orders", messages_of(KEYS, 5), key=key_of)
        found = drain(subscription, 5 * KEYS)
        assert subscription.get("100ms") is None
    assert found == {f"k{each}": list(range(each, 5 * KEYS, KEYS)) for each in range(KEYS)}
    figures = client.admin.queue_stats("work")
    assert (figures.depth, figures.leased, figures.acknowledged) == (0, 0, MANY + 5 * KEYS)


def test_with_a_backlog_of_one_every_message_of_many_partitions_comes(connect_partitions):
    client = connect_partitions(partitions=MANY)
    client.apply(WORK)
    client.publish_many("orders", messages_of(KEYS, 1), key=key_of)
    with client.subscribe("work", max_backlog=1) as subscription:
        assert len(drain(subscription, KEYS)) == KEYS


def test_a_consumer_of_many_partitions_whose_connections_are_lost_hears_again(connect_partitions, server):
    client, consumer = connect_partitions(partitions=MANY), connect_partitions(partitions=MANY)
    client.apply(WORK)
    with consumer.subscribe("work", max_backlog=20) as subscription:
        assert subscription.get("200ms") is None
        for turn in range(3):
            with server.client() as plain:
                plain.client_kill_filter(_type="pubsub")
                plain.client_kill_filter(_type="normal", skipme=True)
            client.publish_many("orders", messages_of(KEYS, 1), key=key_of)
            assert len(drain(subscription, KEYS)) == KEYS, turn
        # It listens as before
        assert subscription.get("1s") is None
        client.publish("orders", {"key": "k1", "number": 1}, key="k1")
        began = time.monotonic()
        assert subscription.get("20s") is not None
        assert time.monotonic() - began < 0.8


def test_many_partitions_with_asyncio(server, instance):
    async def scene():
        async with AsyncClient(server.url, instance=instance, partitions=MANY) as client:
            await client.apply(WORK)
            # A name lets it publish again what was on its way on a connection that is killed
            async with client.publisher("till") as till, client.subscribe("work", max_backlog=20) as subscription:
                assert await subscription.get(0.2) is None
                for number in range(MANY):
                    await client.publish("orders", {"key": "k", "number": number}, key=f"k{number}")
                    began = time.monotonic()
                    message = await subscription.get(20)
                    assert message.data["number"] == number
                    assert time.monotonic() - began < 0.8
                    await message.ack(wait=True)
                for turn in range(2):
                    with server.client() as plain:
                        plain.client_kill_filter(_type="pubsub")
                        plain.client_kill_filter(_type="normal", skipme=True)
                    await till.publish_many("orders", messages_of(KEYS, 1), key=key_of)
                    for _ in range(KEYS):
                        message = await subscription.get(20)
                        assert message is not None, turn
                        await message.ack()
            return await client.admin.queue_stats("work")

    figures = asyncio.run(scene())
    assert (figures.depth, figures.leased, figures.acknowledged) == (0, 0, MANY + 2 * KEYS)


def read(subscription, number):
    """Read so many messages; gives the numbers of each key."""
    found = {}
    for _ in range(number):
        message = subscription.get("20s")
        assert message is not None, f"{sum(map(len, found.values()))} of {number} came"
        found.setdefault(message.data["key"], []).append(message.data["number"])
    return found


def in_order(each):
    return {f"k{key}": list(range(key, each * KEYS, KEYS)) for key in range(KEYS)}


def test_topics_of_many_partitions_are_read_without_a_connection_for_each(connect_partitions, server):
    client, reader = connect_partitions(partitions=MANY), connect_partitions(partitions=MANY)
    client.apply(Topic(name="orders"))
    client.publish_many("orders", messages_of(KEYS, 5), key=key_of)
    before = connections(server)
    with reader.subscribe_topic("orders", bookmark="epoch") as subscription:
        assert read(subscription, 5 * KEYS) == in_order(5)
        assert subscription.get("500ms") is None
        assert connections(server) - before <= 12

        # What comes one by one wakes it, in whichever partition
        for number in range(MANY):
            client.publish("orders", {"key": "k", "number": number}, key=f"k{number}")
            began = time.monotonic()
            assert subscription.get("20s").data["number"] == number
            assert time.monotonic() - began < 0.8

        # It goes on where connections are lost
        for turn in range(3):
            with server.client() as plain:
                plain.client_kill_filter(_type="normal", skipme=True)
            client.publish_many("orders", messages_of(KEYS, 1), key=key_of)
            assert read(subscription, KEYS) == in_order(1), turn
        assert subscription.get("300ms") is None
        # Paused, nothing comes, until it is resumed
        subscription.pause()
        client.publish("orders", {"key": "k", "number": 1}, key="k1")
        assert subscription.get("300ms") is None
        subscription.resume()
        assert subscription.get("20s").data["number"] == 1
        place = subscription.position
    client.publish_many("orders", messages_of(KEYS, 1), key=key_of)
    with reader.subscribe_topic("orders", bookmark=place) as subscription:
        assert read(subscription, KEYS) == in_order(1)
        assert subscription.get("100ms") is None
    with reader.subscribe_topic("orders", bookmark="epoch", rate="50") as paced:
        began = time.monotonic()
        assert sum(map(len, read(paced, 20).values())) == 20
        assert time.monotonic() - began > 0.3
    with pytest.raises(DefinitionError, match=f"conflation over {MANY} partitions needs a connection for each"):
        reader.subscribe_topic("orders", conflation="100ms", conflation_key="/key")
    with pytest.raises(DefinitionError, match="fully_durable over"):
        reader.subscribe_topic("orders", fully_durable=True)


def test_a_durable_subscription_and_topics_that_come_are_read_in_many_partitions(connect_partitions):
    client, reader = connect_partitions(partitions=MANY), connect_partitions(partitions=MANY, ack_timeout="200ms")
    with reader.subscribe_topic("^ord", bookmark="most_recent", sub_id="readers") as subscription:
        assert subscription.get("100ms") is None
        client.publish_many("orders", messages_of(KEYS, 2), key=key_of)
        assert read(subscription, 2 * KEYS) == in_order(2)
        # What was handled is written down while messages are asked for
        assert subscription.get("2500ms") is None
        with connect_partitions(partitions=MANY).subscribe_topic(
            "^ord", bookmark="most_recent", sub_id="readers"
        ) as next_one:
            assert next_one.get("500ms") is None
            client.publish_many("orders", messages_of(KEYS, 1), key=key_of)
            assert read(next_one, KEYS) == in_order(1)
            with pytest.raises(NameInUse):
                read(subscription, KEYS)


def test_records_of_many_partitions_are_followed(connect_partitions, server):
    client, reader = connect_partitions(partitions=MANY), connect_partitions(partitions=MANY)
    client.apply(Topic(name="rooms", key="/key"))
    client.publish_many("rooms", [{"key": f"k{number}", "number": 0} for number in range(KEYS)])
    before = connections(server)
    with reader.sow_and_subscribe("rooms", "/number < 5", order_by="/key", oof=True) as changes:
        found = [changes.get("20s") for _ in range(KEYS)]
        assert [each.data["key"] for each in found] == sorted(f"k{number}" for number in range(KEYS))
        assert changes.get("300ms") is None
        assert connections(server) - before <= 12
        for number in range(20):
            client.publish("rooms", {"key": f"k{number}", "number": 1})
            began = time.monotonic()
            assert changes.get("20s").data == {"key": f"k{number}", "number": 1}
            assert time.monotonic() - began < 0.8
        client.publish_many("rooms", [{"key": f"k{number}", "number": 9} for number in range(KEYS)])
        assert [changes.get("20s").command for _ in range(KEYS)] == ["oof"] * KEYS
    with pytest.raises(DefinitionError, match="conflation over"):
        reader.sow_and_subscribe("rooms", conflation="1s")


def test_the_end_of_a_range_of_many_partitions_is_noticed(connect_partitions):
    client = connect_partitions(partitions=MANY)
    client.apply(Topic(name="orders"))
    client.publish_many("orders", messages_of(KEYS, 1), key=key_of)
    end = datetime.now(UTC) + timedelta(seconds=2)
    began = time.monotonic()
    with client.subscribe_topic("orders", bookmark=f"[epoch:{end.isoformat()}]") as subscription:
        found = [message.data["number"] for message in subscription]
        assert subscription.completed
    assert sorted(found) == list(range(KEYS))
    assert 1.0 < time.monotonic() - began < 10.0


def test_where_servers_may_not_tell_of_news_each_partition_is_looked_at(connect_partitions, server, caplog):
    client = connect_partitions(partitions=MANY)
    client.apply(Topic(name="orders"))
    with server.client() as plain:
        plain.execute_command("ACL SETUSER former on nopass ~* &* +@all -client|tracking")
    path = server.url.removeprefix("unix://")
    address = (
        f"unix://former:any@{path}" if server.url.startswith("unix://") else server.url.replace("://", "://former:any@")
    )
    with (
        Client(address, instance=client.instance, partitions=MANY) as reader,
        reader.subscribe_topic("orders", bookmark="now") as subscription,
    ):
        assert subscription.get("300ms") is None
        client.publish("orders", {"key": "k", "number": 1}, key="k1")
        assert subscription.get("20s").data["number"] == 1
    assert "the rules of its user are those of an older release" in caplog.text


def test_topics_and_records_of_many_partitions_with_asyncio(server, instance):
    async def scene():
        async with AsyncClient(server.url, instance=instance, partitions=MANY) as client:
            await client.apply(Topic(name="rooms", key="/key"))
            await client.publish_many("rooms", [{"key": f"k{number}", "number": 0} for number in range(KEYS)])
            async with (
                # A name lets it publish again what was on its way on a connection that is killed
                client.publisher("till") as till,
                client.subscribe_topic("rooms", bookmark="epoch") as topics,
                client.sow_and_subscribe("rooms") as changes,
            ):
                assert len({(await topics.get(20)).data["key"] for _ in range(KEYS)}) == KEYS
                assert len({(await changes.get(20)).data["key"] for _ in range(KEYS)}) == KEYS
                assert await topics.get(0.3) is None
                assert await changes.get(0.3) is None
                for number in range(MANY):
                    await client.publish("rooms", {"key": f"k{number}", "number": 1})
                    began = time.monotonic()
                    assert (await topics.get(20)).data["key"] == f"k{number}"
                    assert (await changes.get(20)).data["key"] == f"k{number}"
                    assert time.monotonic() - began < 0.8
                with server.client() as plain:
                    plain.client_kill_filter(_type="normal", skipme=True)
                await till.publish("rooms", {"key": "k1", "number": 2})
                assert (await topics.get(20)).data["number"] == 2
                assert (await changes.get(20)).data["number"] == 2
                waiting = asyncio.create_task(topics.get(20))
                await asyncio.sleep(0.1)  # it waits by then
                waiting.cancel()
                await client.publish("rooms", {"key": "k1", "number": 3})
                assert (await topics.get(20)).data["number"] == 3
            with pytest.raises(DefinitionError, match="conflation over"):
                await client.sow_and_subscribe("rooms", conflation="1s")

    asyncio.run(scene())


@pytest.mark.slow
def test_the_most_partitions_are_published_to_consumed_and_administered(server, instance):
    with Client(server.url, instance=instance, partitions=MOST_PARTITIONS) as client:
        client.apply(WORK)
        client.publish_many("orders", messages_of(4_000, 2), key=key_of)
        with client.subscribe("work", max_backlog=200) as subscription:
            found = drain(subscription, 8_000)
            client.publish("orders", {"key": "k", "number": 1}, key="k")
            assert subscription.get("20s").data["key"] == "k"
        assert all(numbers == [int(name[1:]), int(name[1:]) + 4_000] for name, numbers in found.items())
        figures = client.admin.queue_stats("work")
        assert (figures.acknowledged, figures.depth) == (8_000, 1)
        assert all(report.clean for report in client.admin.check("work"))
        assert connections(server) < 20
