"""Topics with a key over all partitions, on one server: records queried, changed, deleted and followed."""

from __future__ import annotations

import asyncio
import itertools
import time
from datetime import UTC, datetime

import pytest
from observing import eventually
from partitioned import TOTAL, origin_of

from ampsq import AsyncClient, Client, MemoryPublishStore, Queue, Topic
from ampsq.base.errors import DefinitionError, MissingKey, NoRecords, PartitionByFixed
from ampsq.base.partitions import partition_of_key

ORDERS = Topic(name="orders", key="/id")


@pytest.fixture
def client(connect_partitions):
    return connect_partitions()


@pytest.fixture
def orders(client):
    """A client whose orders have forty records, in all partitions."""
    client.apply(ORDERS)
    client.publish_many("orders", [{"id": number, "price": number % 10} for number in range(40)])
    return client


def ids(messages):
    return [message.data["id"] for message in messages]


def partition(client, bookmark):
    return client.partitions.index(origin_of(bookmark))


# -- where they are


def test_the_key_of_the_topic_chooses_the_partition_where_nothing_goes_before_it(client):
    client.apply(ORDERS, Topic(name="bills", key=["/region", "/id"], partition_by="/region"))

    of_key = [client.publish("orders", {"id": number}) for number in range(20)]
    many = client.publish_many("orders", [{"id": str(number)} for number in range(20)])
    by = client.publish("bills", {"region": "north", "id": 7})
    named = client.publish("bills", {"region": "north", "id": 7}, key="south")

    expected = [partition_of_key(str(number), TOTAL) for number in range(20)]
    assert [partition(client, each) for each in of_key] == expected
    assert [partition(client, each) for each in many] == expected
    assert len(set(expected)) == TOTAL
    assert partition(client, by) == partition_of_key("north", TOTAL)
    assert partition(client, named) == partition_of_key("south", TOTAL)


def test_a_message_that_lacks_what_partition_by_names_is_where_its_key_says(client):
    client.apply(Topic(name="orders", key="/id", partition_by="/customer"))

    for number in range(10):
        assert partition(client, client.publish("orders", {"id": number})) == partition_of_key(str(number), TOTAL)
    with pytest.raises(MissingKey):
        client.publish("orders", {"customer": "c"})


def test_the_key_stays_once_any_partition_has_had_a_message(client):
    client.apply(ORDERS)
    client.apply(Topic(name="orders", key="/number"))
    client.apply(ORDERS)
    client.publish("orders", {"id": 7})

    for changed in (Topic(name="orders"), Topic(name="orders", key="/number")):
        with pytest.raises(PartitionByFixed, match="`partition_by` or `key` chose"):
            client.apply(changed)
    # By the same identifiers the same messages are in the same partitions.
    client.apply(Topic(name="orders", key="/id", partition_by="/id", expiration="1h"))
    client.apply(ORDERS)
    client.admin.remove(ORDERS)
    assert client.admin.definitions() == [Topic(name="orders", partition_by="/id")]
    client.apply(ORDERS)
    assert ids(client.sow("orders")) == [7]


def test_what_others_define_before_the_first_message_counts(client, connect_partitions):
    client.apply(Topic(name="orders"))
    later = connect_partitions()
    # Given a client that has asked for the definition
    assert later._router.topic_key("orders").paths == ()

    client.apply(ORDERS)

    assert partition(later, later.publish("orders", {"id": 3})) == partition_of_key("3", TOTAL)


# -- queries


def test_a_query_is_one_over_all_partitions(orders):
    assert sorted(ids(orders.sow("orders"))) == list(range(40))
    assert all(len(each.sow("orders")) < 40 for each in orders.clients)
    assert sorted(ids(orders.sow("orders", "/price > 7"))) == [8, 9, 18, 19, 28, 29, 38, 39]
    assert sorted(ids(orders.sow("orders", sow_keys=[3, "17", 99]))) == [3, 17]
    assert [record.key for record in orders.sow("orders", sow_keys=[3])] == ["3"]


def test_order_and_limits_are_those_of_one_instance(orders, server, instance):
    limits = [(5, None), (1, None), (7, 4), (100, 38), (3, 0)]
    with Client(server.url, instance=f"{instance}-one") as one:
        one.apply(ORDERS)
        one.publish_many("orders", [{"id": number, "price": number % 10} for number in range(40)])
        for order_by, (top, skip) in itertools.product(["/id", "/id DESC", ["/price DESC", "/id"]], limits):
            asked = {"order_by": order_by, "top_n": top, "skip_n": skip}
            assert ids(orders.sow("orders", "/id > 3", **asked)) == ids(one.sow("orders", "/id > 3", **asked))


def test_without_an_order_records_come_in_that_of_their_last_messages(client):
    client.apply(ORDERS)
    for number in (5, 3, 8, 1, 3):
        client.publish("orders", {"id": number})
        # The next one is recorded in another millisecond, in whichever partition it is.
        time.sleep(0.002)

    assert ids(client.sow("orders")) == [5, 8, 1, 3]
    assert ids(client.sow("orders", top_n=2)) == [5, 8]


def test_a_queue_is_queried_over_all_partitions(client):
    client.apply(
        Topic(name="orders", partition_by="/id"),
        Queue(name="work", underlying_topic="orders"),
        Queue(name="urgent", underlying_topic="orders", priority="/price"),
    )
    client.publish_many("orders", [{"id": number, "price": number % 10} for number in range(40)])

    assert sorted(ids(client.sow("work"))) == list(range(40))
    assert len(client.sow("work", top_n=7)) == 7
    assert ids(client.sow("work", order_by="/id DESC", top_n=3)) == [39, 38, 37]
    # Priorities are those of all; within a partition the order of delivery stays.
    assert sorted(ids(client.sow("urgent", top_n=4))) == [9, 19, 29, 39]
    found = client.sow("work")
    for each in client.clients:
        mine = [message.bookmark for message in found if origin_of(message.bookmark) == each.instance]
        assert mine == [message.bookmark for message in each.sow("work")]


def test_records_as_they_were_at_a_time_or_at_a_place_in_each_partition(orders):
    with orders.subscribe_topic("orders", bookmark="epoch") as messages:
        while messages.get("1s") is not None:
            pass
        position = messages.position
    at = datetime.now(UTC)
    # Places in time are of milliseconds.
    time.sleep(0.002)
    orders.publish("orders", {"id": 3, "price": 100})
    orders.sow_delete("orders", keys=[4])

    assert {record.key: record.data["price"] for record in orders.sow("orders", sow_keys=[3, 4])} == {"3": 100}
    for bookmark in (at, at.isoformat(), position):
        then = orders.sow("orders", sow_keys=[3, 4], bookmark=bookmark)
        assert {record.key: record.data["price"] for record in then} == {"3": 3, "4": 4}
    (only, *_) = position.split(",")
    with pytest.raises(DefinitionError, match="says nothing of partitions 1, 2, 3; allowed: a bookmark of each"):
        orders.sow("orders", bookmark=only)
    with pytest.raises(DefinitionError, match="is of instance 'elsewhere', which is no partition here"):
        orders.sow("orders", bookmark="orders~elsewhere.t6w1xk~1-0")


def test_what_is_no_query_is_told_as_at_one_instance(orders):
    with pytest.raises(DefinitionError, match="skip_n=3 needs top_n"):
        orders.sow("orders", skip_n=3)
    orders.apply(Queue(name="work"))
    with pytest.raises(DefinitionError, match="keys and bookmark are for the records of a topic with a key"):
        orders.sow("work", sow_keys=[1])


# -- changes


def test_a_change_is_merged_into_the_record_wherever_it_is(orders):
    before = orders.sow("orders", sow_keys=[7])[0]

    bookmark = orders.delta_publish("orders", {"id": 7, "state": "paid"})

    (record,) = orders.sow("orders", sow_keys=[7])
    assert record.data == {"id": 7, "price": 7, "state": "paid"}
    assert origin_of(bookmark) == origin_of(before.bookmark) == origin_of(record.bookmark)
    assert len(orders.sow("orders")) == 40


def test_a_change_has_to_say_the_partition_of_its_record(client):
    client.apply(Topic(name="orders", key="/id", partition_by="/customer"))
    client.publish("orders", {"id": 7, "customer": "c", "price": 1})
    client.publish("orders", {"id": 8, "price": 1}, key="till")

    with pytest.raises(DefinitionError, match="its partition_by is /customer, and the change does not say it"):
        client.delta_publish("orders", {"id": 7, "price": 2})
    client.delta_publish("orders", {"id": 7, "customer": "c", "price": 2})
    client.delta_publish("orders", {"id": 8, "price": 2}, key="till")

    assert {record.key: record.data["price"] for record in client.sow("orders")} == {"7": 2, "8": 2}


def test_a_change_takes_a_key_at_one_instance_too(server, instance):
    with Client(server.url, instance=instance) as one, one.publisher("till") as till:
        one.apply(ORDERS)
        one.delta_publish("orders", {"id": 1}, key="k")
        till.delta_publish("orders", {"id": 1}, key="k")
        with pytest.raises(DefinitionError, match="key: 17 is not a text"):
            one.delta_publish("orders", {"id": 1}, key=17)
        with pytest.raises(DefinitionError, match="key: 17 is not a text"):
            till.delta_publish("orders", {"id": 1}, key=17)
        assert len(one.sow("orders")) == 1


def test_records_are_deleted_by_key_message_or_filter_in_all_partitions(orders):
    assert orders.sow_delete("orders", keys=[1, "2", 99]) == 2
    assert orders.sow_delete("orders", data={"id": 3}) == 1
    assert orders.sow_delete("orders", filter="/price = 9") == 4
    assert sorted(set(range(40)) - {*ids(orders.sow("orders"))}) == [1, 2, 3, 9, 19, 29, 39]
    assert orders.sow_delete("orders", keys=[1]) == 0
    with pytest.raises(DefinitionError, match="allowed: one of keys, filter and data"):
        orders.sow_delete("orders")
    orders.apply(Topic(name="letters"))
    with pytest.raises(NoRecords):
        orders.sow_delete("letters", keys=[1])


@pytest.mark.parametrize("keeps", [False, True])
def test_a_publisher_changes_and_deletes_records_in_its_order(client, keeps):
    client.apply(ORDERS)
    with client.publisher("till", store=MemoryPublishStore() if keeps else None) as till:
        till.publish_many("orders", [{"id": number, "price": 1} for number in range(20)])
        receipt = till.delta_publish("orders", {"id": 7, "price": 2})
        deleted = till.sow_delete("orders", keys=[1, 2, 3])
        by_message = till.sow_delete("orders", data={"id": 4})

        assert origin_of(receipt.bookmark("5s")) == client.partitions[partition_of_key("7", TOTAL)]
        assert (deleted.deleted("5s"), by_message.deleted("5s")) == (3, 1)
        with pytest.raises(DefinitionError, match="each partition has its own number of it"):
            _ = deleted.sequence
        assert "PartitionedDeletionReceipt, orders" in repr(deleted)
    found = {record.data["id"]: record.data["price"] for record in client.sow("orders")}
    assert found == {number: 2 if number == 7 else 1 for number in range(20) if number not in (1, 2, 3, 4)}


# -- followed


def changes_of(subscription, number):
    return list(itertools.islice(iter(lambda: subscription.get("5s"), None), number))


def test_records_come_first_in_the_order_asked_for_and_then_what_changes_them(orders):
    with orders.sow_and_subscribe("orders", "/price >= 5", order_by="/id DESC", top_n=5, oof=True) as changes:
        assert [(each.command, each.data["id"]) for each in changes_of(changes, 5)] == [
            ("sow", number) for number in (39, 38, 37, 36, 35)
        ]
        orders.publish("orders", {"id": 100, "price": 9})
        orders.publish("orders", {"id": 101, "price": 1})
        orders.publish("orders", {"id": 38, "price": 1})
        # It was not among the five, so no `oof` message comes for it.
        orders.publish("orders", {"id": 5, "price": 1})
        orders.sow_delete("orders", keys=[37, 27])

        found = sorted((each.command, each.reason, each.key) for each in changes_of(changes, 3))
        assert found == [("oof", "deleted", "37"), ("oof", "match", "38"), ("publish", "", "100")]
        assert changes.get("0.2s") is None
        assert "PartitionedRecordSubscription" in repr(changes)
    assert orders._subscriptions == []


def test_no_change_is_missed_or_doubled_while_others_publish(orders):
    seen = {}
    with orders.sow_and_subscribe("orders") as changes:
        orders.publish_many("orders", [{"id": number % 40, "price": number} for number in range(400)])
        for change in changes_of(changes, 440):
            seen.setdefault(change.key, []).append(change)
        assert changes.get("0.2s") is None
    for key, of_one in seen.items():
        assert [each.command for each in of_one] == ["sow"] + ["publish"] * 10
        assert [each.data["price"] for each in of_one[1:]] == [int(key) + 40 * turn for turn in range(10)]


def test_conflated_changes_are_the_latest_of_each_record(orders):
    with orders.sow_and_subscribe("orders", "/id < 8", conflation="300ms") as changes:
        assert len(changes_of(changes, 8)) == 8
        for price in range(5):
            orders.publish_many("orders", [{"id": number, "price": price} for number in range(8)])

        found = changes_of(changes, 8)
        assert sorted((each.data["id"], each.data["price"]) for each in found) == [(number, 4) for number in range(8)]


def test_records_are_followed_from_a_time_on(orders):
    at = datetime.now(UTC)
    # Places in time are of milliseconds.
    time.sleep(0.002)
    orders.publish("orders", {"id": 3, "price": 100})

    with orders.sow_and_subscribe("orders", "/id = 3", bookmark=at) as changes:
        assert [(each.command, each.data["price"]) for each in changes_of(changes, 2)] == [("sow", 3), ("publish", 100)]


def test_a_topic_without_records_is_refused_and_nothing_is_left_open(client):
    client.apply(Topic(name="letters"))

    with pytest.raises(NoRecords):
        client.sow_and_subscribe("letters")
    assert [each._connection.all_subscriptions for each in client.clients] == [[]] * TOTAL


def test_all_of_it_awaited(server, instance):
    async def scene():
        async with AsyncClient(server.url, instance=instance, partitions=TOTAL) as client:
            await client.apply(ORDERS)
            async with client.publisher("till") as till:
                await till.publish_many("orders", [{"id": number, "price": number % 10} for number in range(40)])
                await till.delta_publish("orders", {"id": 39, "state": "paid"})
                assert await (await till.sow_delete("orders", keys=[1, 2])).deleted("5s") == 2
            await client.delta_publish("orders", {"id": 38, "state": "paid"})
            assert await client.sow_delete("orders", filter="/id < 5") == 3
            assert ids(await client.sow("orders", order_by="/id DESC", top_n=2, skip_n=1)) == [38, 37]
            paid = await client.sow("orders", "/state = 'paid'", order_by="/id")
            assert ids(paid) == [38, 39]

            async with client.sow_and_subscribe("orders", order_by="/id", oof=True) as changes:
                assert [(await changes.get("5s")).data["id"] for _ in range(35)] == list(range(5, 40))
                await client.publish("orders", {"id": 7, "price": 100})
                assert (await changes.get("5s")).data["price"] == 100
                assert await changes.get("0.1s") is None
                waiting = asyncio.create_task(changes.get())
                await client.sow_delete("orders", keys=[7])
                assert (await waiting).reason == "deleted"
                await client.publish("orders", {"id": 8, "price": 100})
                async for change in changes:
                    assert change.data == {"id": 8, "price": 100}
                    break
        assert client._subscriptions == []

    asyncio.run(scene())


def test_iterating_ends_where_it_is_closed(orders):
    changes = orders.sow_and_subscribe("orders")
    found = []
    for change in changes:
        found.append(change.key)
        if len(found) == 40:
            changes.close()
    assert len(set(found)) == 40
    changes.close()
    eventually(lambda: orders._subscriptions == [], within=1.0)
