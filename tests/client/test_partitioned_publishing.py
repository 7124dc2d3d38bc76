"""Publishing to all partitions by what a topic's definition says of keys, on one server."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from ampsq import AsyncClient, Client, Queue, Topic
from ampsq.base.errors import DefinitionError, PartitionByFixed
from ampsq.base.partitions import partition_of_key
from ampsq.protocol.calls.catalog import catalog
from ampsq.protocol.calls.definitions import define_topic

TOTAL = 4
ORDERS = Topic(name="orders", partition_by="/customer")


@pytest.fixture
def connect(server, instance):
    """Open clients of all partitions of the test's instance; they are closed with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(Client(server.url, instance=instance, partitions=TOTAL))


@pytest.fixture
def client(connect):
    return connect()


def partition(client, bookmark):
    return client.partitions.index(bookmark.origin.rpartition(".")[0])


def customers(number):
    return [{"customer": f"c{each % 7}", "number": each} for each in range(number)]


def test_messages_are_in_the_partition_of_what_partition_by_names(client):
    client.apply(ORDERS, Queue(name="work", underlying_topic="orders"))
    messages = customers(200)

    many = client.publish_many("orders", messages)
    encoded = client.publish_many("orders", (json.dumps(each).encode() for each in messages))
    single = [client.publish("orders", each) for each in messages[:20]]
    through_queue = client.publish("work", messages[3])

    expected = [partition_of_key(each["customer"], TOTAL) for each in messages]
    assert [partition(client, each) for each in many] == expected
    assert [partition(client, each) for each in encoded] == expected
    assert [partition(client, each) for each in single] == expected[:20]
    assert partition(client, through_queue) == expected[3]
    found = [message.data for one in client.clients for message in one.sow("work")]
    assert sorted(each["number"] for each in found) == sorted([*range(200)] * 2 + [*range(20), 3])


def test_a_key_of_the_call_goes_before_that_of_the_topic_and_what_lacks_its_value_goes_on(client):
    client.apply(ORDERS)
    message = {"customer": "c1"}

    assert partition(client, client.publish("orders", message, key="till-4")) == partition_of_key("till-4", TOTAL)
    assert partition(client, client.publish("orders", message, group="g")) == partition_of_key("c1", TOTAL)
    assert partition(client, client.publish("orders", {}, group="g")) == partition_of_key("g", TOTAL)
    assert partition(client, client.publish("orders", {}, deduplication_id="i")) == partition_of_key("i", TOTAL)
    assert len({partition(client, client.publish("orders", {})) for _ in range(TOTAL)}) == TOTAL


def test_deduplication_ids_of_many_messages_hold_in_the_partitions_of_their_topics_key(client):
    client.apply(ORDERS)
    messages = customers(30)

    first = client.publish_many("orders", messages, deduplication_id=lambda message: f"i{message['number']}")
    again = client.publish_many("orders", messages, deduplication_id=lambda message: f"i{message['number']}")

    assert list(first) == list(again)
    assert [partition(client, each) for each in first] == [
        partition_of_key(each["customer"], TOTAL) for each in messages
    ]


def test_what_others_define_counts_from_the_first_message_on(client, connect):
    later = connect()
    # Given a client that has asked for a topic before it was defined
    assert later._topic_key("orders").paths == ()

    client.apply(ORDERS)

    assert partition(later, later.publish("orders", {"customer": "c3"})) == partition_of_key("c3", TOTAL)


def test_a_topic_that_is_made_by_publishing_to_it_is_asked_for_until_it_is_there(client):
    client.publish("letters", 1)
    bookmark = client.publish("letters", 2, key="c3")

    assert partition(client, bookmark) == partition_of_key("c3", TOTAL)
    client.publish("letters", 3)
    assert client._topic_keys["letters"].paths == ()


def test_partition_by_stays_once_any_partition_has_had_a_message(client):
    client.apply(ORDERS)
    client.apply(Topic(name="orders", partition_by=["/customer", "/till"]))
    client.apply(ORDERS)
    client.publish("orders", {"customer": "c3"})

    for changed in (Topic(name="orders"), Topic(name="orders", partition_by="/till")):
        with pytest.raises(PartitionByFixed, match="the partitions that its `partition_by` chose"):
            client.apply(changed)
    # Other elements change, and a removed definition leaves it, since the messages stay.
    client.apply(Topic(name="orders", partition_by="/customer", retention_count=1_000))
    client.admin.remove(ORDERS)
    assert client.admin.definitions() == [ORDERS]


def test_a_partition_refuses_it_by_itself_where_a_message_came_meanwhile(client):
    client.apply(Topic(name="orders"))
    # Given one that has planned it, and a message that comes before it is defined
    first = client.clients[0]
    version = first._store.call(catalog()).version
    first.publish("orders", {"customer": "c"})

    with pytest.raises(PartitionByFixed):
        first._store.call(define_topic(version, "orders", ORDERS.to_json(), []))
    assert client.admin.definitions() == [Topic(name="orders")]


def test_an_instance_without_partitions_takes_it_and_it_says_nothing_there(server, instance):
    with Client(server.url, instance=instance) as client:
        client.apply(ORDERS)
        client.publish("orders", {"customer": "c"})
        assert client.admin.plan(Topic(name="orders"))[0].outcome == "changed"
        client.apply(Topic(name="orders", partition_by="/till"))
        assert len(client.publish_many("orders", customers(10))) == 10


@pytest.mark.parametrize(
    ("elements", "told"),
    [
        ({"partition_by": "customer +"}, "partition_by"),
        ({"partition_by": []}, "partition_by: .*allowed is a list of identifiers"),
        ({"partition_by": "/a = 1"}, "partition_by: .* is no identifier"),
        ({"partition_by": "/a", "message_type": "binary"}, "partition_by: .*reads the body"),
    ],
)
def test_what_names_no_value_of_a_body_is_refused(elements, told):
    with pytest.raises(DefinitionError, match=told):
        Topic(name="orders", **elements)


def test_data_that_cannot_be_published_is_refused_before_anything_is_recorded(client):
    client.apply(ORDERS)

    with pytest.raises(DefinitionError, match="cannot be published"):
        client.publish("orders", {"customer": object()})
    with pytest.raises(DefinitionError, match="cannot be published"):
        client.publish_many("orders", [object()])
    with pytest.raises(DefinitionError):
        client.publish(17, {"customer": "c"})


def test_an_asyncio_client_does_the_same(server, instance):
    async def publish():
        async with AsyncClient(server.url, instance=instance, partitions=TOTAL) as client:
            await client.apply(ORDERS)
            messages = customers(50)
            many = await client.publish_many("orders", messages)
            one = await client.publish("orders", messages[3])
            assert [partition(client, each) for each in [*many, one]] == [
                partition_of_key(each["customer"], TOTAL) for each in [*messages, messages[3]]
            ]
            with pytest.raises(PartitionByFixed):
                await client.apply(Topic(name="orders"))

    asyncio.run(publish())
