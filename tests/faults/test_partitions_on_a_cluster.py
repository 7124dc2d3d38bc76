"""Partitions of an instance on three primaries: spread over them, while the slots of some are moved."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial

import pytest
from cluster_harness import Cluster
from observing import eventually

from ampsq import AsyncClient, Client, Queue, Topic
from ampsq.base.partitions import partition_of_key, partitions_of
from ampsq.operations.doctor.partitions import examine_partitions
from ampsq.transport.discovery import slot_of

pytestmark = pytest.mark.slow

RECORDS = Topic(name="rooms", key="/key")

TOTAL, KEYS, ROUNDS, MANY = 6, 40, 20, 200


@pytest.fixture(params=[64, 4], ids=["a connection each", "told of news"])
def reading(request, monkeypatch):
    """The number of partitions up to which topics and records are read by a connection each."""
    monkeypatch.setattr("ampsq.client.tracked_feeds.SEPARATELY", request.param)
    monkeypatch.setattr("ampsq.client.partitioned_client.SEPARATELY", request.param)


def numbers_by_key(bodies):
    found = {}
    for body in bodies:
        found.setdefault(body["key"], []).append(body["number"])
    return found


def messages_of(turn):
    return [{"key": f"k{number % KEYS}", "number": number} for number in range(turn * MANY, (turn + 1) * MANY)]


def noting(failures, work):
    """Work in a thread; what it raises is noted."""
    try:
        work()
    except Exception as failure:
        failures.append(failure)
        raise


def move_every_other(cluster, client, moved):
    """Move the slot of every other partition to another primary."""
    for name in client.partitions[::2]:
        slot = slot_of(name)
        source = cluster.owner(slot)
        cluster.move_by_keys(slot, next(each for each in cluster.primaries() if each is not source))
        moved.append(name)


@pytest.mark.usefixtures("reading")
@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_nothing_is_lost_and_keys_stay_in_order_while_partitions_are_moved(kind, start_node, instance):
    cluster = Cluster(lambda **options: start_node(kind=kind, **options))
    url = "cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes) + f"?partitions={TOTAL}"
    with Client(url, instance=instance, retry_timeout="30s") as client:
        client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=50, lease_period="1m"))
        # The partitions are spread evenly over the primaries.
        owners = [cluster.owner(slot_of(name)) for name in client.partitions]
        assert [owners.count(node) for node in cluster.primaries()] == [TOTAL // 3] * 3
        moved, failures = [], []

        def publish():
            for turn in range(ROUNDS):
                client.publish_many("orders", messages_of(turn), key=lambda message: message["key"])

        works = [publish, partial(move_every_other, cluster, client, moved)]
        threads = [threading.Thread(target=noting, args=(failures, work)) for work in works]
        with (
            client.subscribe_topic("orders", bookmark="epoch") as followed,
            client.subscribe("work", max_backlog=20 * TOTAL) as subscription,
        ):
            for each in threads:
                each.start()
            got = []
            while len(got) < ROUNDS * MANY:
                message = subscription.get("30s")
                assert message is not None, f"{len(got)} of {ROUNDS * MANY} came; {failures}"
                got.append(message.data)
                message.ack()
            for each in threads:
                each.join(60)
            read = [followed.get("30s").data for _ in range(ROUNDS * MANY)]
        assert failures == []
        assert moved == list(client.partitions[::2])
        in_order = {f"k{key}": list(range(key, ROUNDS * MANY, KEYS)) for key in range(KEYS)}
        assert numbers_by_key(got) == in_order
        # A subscription to the topic reads each once, too, in the order of its key.
        assert numbers_by_key(read) == in_order
        eventually(lambda: client.admin.queue_stats("work").acknowledged == ROUNDS * MANY, within=20.0)
        assert all(report.clean for report in client.admin.check("work"))


@pytest.mark.usefixtures("reading")
@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_partitions_whose_primary_is_away_do_not_hold_up_the_others_and_come_back(kind, start_node, instance, caplog):
    # Given partitions on three primaries, and a consumer that waits
    options = ["--cluster-require-full-coverage", "no", "--appendonly", "yes", "--appendfsync", "always"]
    cluster = Cluster(lambda **more: start_node(kind=kind, **more), options=options)
    url = "cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes) + f"?partitions={TOTAL}"
    with (
        Client(url, instance=instance, retry_timeout="30s") as client,
        Client(url, instance=instance, retry_timeout="30s") as consumer,
    ):
        client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=50, lease_period="1m"))
        keys = {}
        for number in range(1_000):
            keys.setdefault(partition_of_key(f"k{number}", TOTAL), f"k{number}")
        owners = [cluster.owner(slot_of(name)) for name in client.partitions]
        lost = owners[1]
        there = [number for number, owner in enumerate(owners) if owner is not lost]
        with (
            consumer.subscribe_topic("orders", bookmark="now") as followed,
            consumer.subscribe("work", max_backlog=1) as subscription,
        ):
            assert subscription.get("1s") is None
            assert followed.get("1s") is None
            # When one primary is killed
            lost.kill()
            waited = []
            for turn in range(40):
                key = keys[there[turn % len(there)]]
                client.publish("orders", {"key": key, "turn": turn}, key=key)
                began = time.monotonic()
                message = subscription.get("20s")
                waited.append(time.monotonic() - began)
                assert message.data == {"key": key, "turn": turn}
                message.ack()
                # A subscription to the topic has it, too
                assert followed.get("20s").data == {"key": key, "turn": turn}
            # Then messages of the others come at once, but for the moment in which it is found out
            assert sorted(waited)[len(waited) // 2] < 0.5
            assert max(waited) < 10
            assert f"partition {owners.index(lost)} cannot be read, the others are" in caplog.text
            # The doctor names them, and looks at the others
            gone = tuple(number for number, owner in enumerate(owners) if owner is lost)
            found = examine_partitions(url.partition("?")[0], partitions_of(instance, TOTAL), 0.1)
            assert [each.partitions for each in found if each.check == "answers" and each.partitions] == [gone]
            assert {each.text.partition(" of ")[0] for each in found if each.check == "leases"} == {f"in {len(there)}"}
            # When it is back, its messages come as those of others do
            lost.start()
            for number, key in keys.items():
                client.publish("orders", {"key": key, "turn": number}, key=key)
            got = set()
            while len(got) < TOTAL:
                message = subscription.get("30s")
                assert message is not None, got
                got.add(message.data["key"])
                message.ack()
            assert sorted(followed.get("30s").data["key"] for _ in range(TOTAL)) == sorted(keys.values())
        assert got == set(keys.values())
        assert all(report.clean for report in client.admin.check("work"))


def changes_of(changes, number):
    found = []
    while len(found) < number:
        change = changes.get("30s")
        assert change is not None, f"{len(found)} of {number} came"
        found.append(change)
    return found


@pytest.mark.usefixtures("reading")
@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_changes_of_records_come_once_and_in_order_while_partitions_are_moved(kind, start_node, instance):
    # Given records in all partitions, and subscriptions to what changes them
    cluster = Cluster(lambda **options: start_node(kind=kind, **options))
    url = "cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes) + f"?partitions={TOTAL}"
    with Client(url, instance=instance, retry_timeout="30s") as client:
        client.apply(RECORDS)
        client.publish_many("rooms", [{"key": f"k{number}", "number": number} for number in range(KEYS)])
        client.publish_many("rooms", [{"key": f"old{number}", "number": 0} for number in range(KEYS)])
        failures, deleted = [], []

        def publish():
            for turn in range(1, ROUNDS):
                client.publish_many("rooms", messages_of(turn))
                deleted.append(client.sow_delete("rooms", keys=[f"old{turn}"]))

        works = [publish, partial(move_every_other, cluster, client, [])]
        with (
            client.sow_and_subscribe("rooms", oof=True) as changes,
            client.sow_and_subscribe("rooms", "/number < 400", oof=True) as few,
        ):
            # When all of them change, some are deleted, and the slots of partitions are moved meanwhile
            threads = [threading.Thread(target=noting, args=(failures, work)) for work in works]
            for each in threads:
                each.start()
            found = changes_of(changes, 2 * KEYS + (ROUNDS - 1) * (MANY + 1))
            for each in threads:
                each.join(60)
            # The changes that still match the filter, and one `oof` of each record that matches no more or is deleted
            matching = changes_of(few, 2 * KEYS + MANY + KEYS + ROUNDS - 1)
            assert changes.get("0.5s") is None
            assert few.get("0.2s") is None
        # Then each change came once, those of a record in their order
        assert failures == []
        assert deleted == [1] * (ROUNDS - 1)
        assert [each.command for each in found[: 2 * KEYS]] == ["sow"] * 2 * KEYS
        published = [each.data for each in found if each.command == "publish"]
        in_order = {f"k{key}": [*range(MANY + key, ROUNDS * MANY, KEYS)] for key in range(KEYS)}
        assert numbers_by_key(published) == in_order
        gone = [(each.reason, each.key) for each in found if each.command == "oof"]
        assert sorted(gone) == sorted(("deleted", f"old{turn}") for turn in range(1, ROUNDS))
        kept = [each.data for each in matching if each.command == "publish"]
        assert numbers_by_key(kept) == {key: [each for each in some if each < 400] for key, some in in_order.items()}
        assert sorted(each.key for each in matching if each.reason == "match") == sorted(in_order)
        assert {each.key: each.data["number"] for each in client.sow("rooms", "/number > 0")} == {
            key: some[-1] for key, some in in_order.items()
        }


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_records_whose_primary_is_away_do_not_hold_up_the_others_and_come_when_it_is_back(
    kind, start_node, instance, caplog
):
    # Given records in all partitions on three primaries, and a subscription to what changes them
    options = ["--cluster-require-full-coverage", "no", "--appendonly", "yes", "--appendfsync", "always"]
    cluster = Cluster(lambda **more: start_node(kind=kind, **more), options=options)
    url = "cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes) + f"?partitions={TOTAL}"
    with (
        Client(url, instance=instance, retry_timeout="30s") as client,
        Client(url, instance=instance, retry_timeout="2s") as reader,
    ):
        client.apply(RECORDS)
        keys = {}
        for number in range(1_000):
            keys.setdefault(partition_of_key(f"k{number}", TOTAL), f"k{number}")
        owners = [cluster.owner(slot_of(name)) for name in client.partitions]
        lost = owners[1]
        there = [number for number, owner in enumerate(owners) if owner is not lost]
        client.publish_many("rooms", [{"key": key, "turn": -1} for key in keys.values()])
        with reader.sow_and_subscribe("rooms", order_by="/key", oof=True) as changes:
            assert [each.key for each in changes_of(changes, TOTAL)] == sorted(keys.values())
            assert changes.get("1s") is None
            # When one primary is killed
            lost.kill()
            waited = []
            for turn in range(30):
                key = keys[there[turn % len(there)]]
                client.publish("rooms", {"key": key, "turn": turn})
                began = time.monotonic()
                change = changes.get("20s")
                waited.append(time.monotonic() - began)
                assert (change.command, change.data) == ("publish", {"key": key, "turn": turn})
            # Then changes in the other partitions come at once, but for the moment in which it is found out
            assert sorted(waited)[len(waited) // 2] < 0.5
            assert max(waited) < 10
            text = f"partition {owners.index(lost)} cannot be read, the others are"
            eventually(lambda: changes.get("100ms") is None and text in caplog.text, within=20.0)
            # When it is back, its changes come as those of others do, and none comes twice
            lost.start()
            for key in keys.values():
                client.publish("rooms", {"key": key, "turn": 100})
            back = changes_of(changes, TOTAL)
            assert sorted((each.command, each.key, each.data["turn"]) for each in back) == [
                ("publish", key, 100) for key in sorted(keys.values())
            ]
            assert client.sow_delete("rooms", keys=list(keys.values())) == TOTAL
            assert sorted((each.reason, each.key) for each in changes_of(changes, TOTAL)) == [
                ("deleted", key) for key in sorted(keys.values())
            ]
            assert changes.get("0.5s") is None
        assert client.sow("rooms") == []


def consume_then(kill, url, instance, *, closes_each):
    """Consume, read the topic and its records with a client; then kill, and close; gives the seconds of the latter."""
    consumer = Client(url, instance=instance, retry_timeout="2s")
    subscriptions = [
        consumer.subscribe("work", max_backlog=60),
        consumer.subscribe_topic("orders", bookmark="epoch", sub_id="reader"),
        consumer.sow_and_subscribe("rooms"),
    ]
    held = [subscriptions[0].get("20s") for _ in range(KEYS)]
    assert subscriptions[1].get("20s") is not None
    for message in held:
        message.ack()
    kill()
    began = time.monotonic()
    if closes_each:
        for each in subscriptions:
            each.close()
    consumer.close()
    return time.monotonic() - began


async def consume_with_asyncio_then(kill, url, instance):
    async with AsyncClient(url, instance=instance, retry_timeout="2s") as consumer:
        subscription = await consumer.subscribe("work", max_backlog=60)
        following = await consumer.subscribe_topic("orders", bookmark="epoch")
        for _ in range(KEYS):
            await (await subscription.get(20)).ack()
        assert await following.get(20) is not None
        await asyncio.to_thread(kill)
        began = time.monotonic()
        await subscription.close()
        await following.close()
    return time.monotonic() - began


@pytest.mark.parametrize("closes", ["subscriptions", "client", "asyncio"])
@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_subscriptions_and_clients_close_while_a_primary_is_away(kind, closes, start_node, instance, caplog):
    options = ["--cluster-require-full-coverage", "no", "--appendonly", "yes", "--appendfsync", "always"]
    cluster = Cluster(lambda **more: start_node(kind=kind, **more), options=options)
    url = "cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes) + f"?partitions={TOTAL}"
    with Client(url, instance=instance, retry_timeout="30s") as client:
        client.apply(
            Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=50, lease_period="5s"), RECORDS
        )
        owners = [cluster.owner(slot_of(name)) for name in client.partitions]
        lost, there = owners[1], sum(owner is not owners[1] for owner in owners)
        client.publish_many("orders", messages_of(0)[:KEYS], key=lambda message: message["key"])

        # When they are closed while one primary is away, nothing is raised
        if closes == "asyncio":
            seconds = asyncio.run(consume_with_asyncio_then(lost.kill, url, instance))
        else:
            seconds = consume_then(lost.kill, url, instance, closes_each=closes == "subscriptions")
        assert seconds < 20
        assert f"ended with {TOTAL - there} of {TOTAL} partitions away" in caplog.text
        # Then what was acknowledged at the others is done, and the rest comes again
        lost.start()
        with client.subscribe("work", max_backlog=60) as again:
            deadline = time.monotonic() + 60
            while client.admin.queue_stats("work").depth:
                assert time.monotonic() < deadline
                if (message := again.get("1s")) is not None:
                    message.ack()
                    assert owners[partition_of_key(message.data["key"], TOTAL)] is lost
        assert all(report.clean for report in client.admin.check("work"))
