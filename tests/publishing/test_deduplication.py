"""Deduplication: a message whose ID is known in the topic is not recorded again, whoever publishes it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ampsq import AsyncClient, Client, Queue, Topic
from ampsq.base.errors import DefinitionError, TooManyDeduplicationIds
from ampsq.testing import Instance


@pytest.fixture(params=["memory", "valkey", "redis"])
def held(request, _session_servers):
    """An instance on each server, whose time is the test's."""
    server = "memory" if request.param == "memory" else _session_servers(request.param).url
    with Instance(server) as instance:
        yield instance


def number_in(client, topic):
    return client.admin.topics()[topic].messages


def test_the_same_id_is_recorded_once_whoever_publishes(either, connect_to_each):
    # Given a message that was published under an ID
    other = connect_to_each()
    first = either.publish("invoices", {"id": 17}, deduplication_id="invoice-17", within="5m")
    # When others publish under it, with other data
    again = other.publish("invoices", {"id": 17, "copy": True}, deduplication_id="invoice-17", within="1s")
    # Then they get its bookmark, and nothing is recorded
    assert again == first
    assert number_in(either, "invoices") == 1
    # And other IDs, other topics and messages without an ID are recorded
    assert either.publish("invoices", {"id": 18}, deduplication_id="invoice-18") != first
    assert either.publish("invoices", {"id": 17}) != first
    assert either.publish("reminders", {"id": 17}, deduplication_id="invoice-17").topic == "reminders"
    assert number_in(either, "invoices") == 3


def test_a_window_ends_by_itself(held):
    with Client(held.url) as client:
        first = client.publish("invoices", 17, deduplication_id="invoice-17", within="5m")
        held.advance("299s")
        assert client.publish("invoices", 17, deduplication_id="invoice-17", within="5m") == first

        held.advance("2s")

        assert client.publish("invoices", 17, deduplication_id="invoice-17", within="5m") != first
        assert number_in(client, "invoices") == 2


def test_many_are_published_with_an_id_of_each(either):
    # Given one that was published before
    known = either.publish("invoices", {"id": 3}, deduplication_id="3")
    # When many are published in batches, some twice and some without an ID
    ids = [1, 2, 3, 2, None, None, 4, 5, 5, 1]
    messages = ({"id": number} for number in ids)
    found = either.publish_many(
        "invoices",
        messages,
        batch=4,
        deduplication_id=lambda message: message["id"] and str(message["id"]),
        within="1h",
    )
    # Then each has the bookmark of the first one with its ID
    assert len(found) == len(ids)
    assert found[2] == known
    assert (found[3], found[8], found[9]) == (found[1], found[7], found[0])
    assert len(set(found)) == 7
    assert number_in(either, "invoices") == 7


def test_a_consumer_gets_it_once_with_headers_and_delay(either):
    either.apply(Queue(name="work", underlying_topic="invoices"))
    for _ in range(3):
        either.publish("invoices", 17, headers={"of": "till-1"}, deduplication_id="17", expiration="1h")
    with either.subscribe("work", max_backlog=5) as messages:
        message = messages.get("10s")
        assert (message.data, message.headers) == (17, {"of": "till-1"})
        message.ack(wait=True)
        assert messages.get("100ms") is None


def test_of_threads_that_publish_at_once_one_records(either, connect_to_each):
    clients = [either, connect_to_each(), connect_to_each()]
    found = []

    def publish(client):
        found.extend(client.publish("invoices", 17, deduplication_id=str(number)) for number in range(50))

    threads = [threading.Thread(target=publish, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 150
    assert len(set(found)) == number_in(either, "invoices") == 50


def test_an_asyncio_client_does_the_same(client, valkey):
    first = client.publish("invoices", 17, deduplication_id="17")

    async def publish():
        async with AsyncClient(valkey.url, instance=client.instance) as other:
            alone = await other.publish("invoices", 17, deduplication_id="17", within="1h")
            many = await other.publish_many("invoices", [17, 18, 17], deduplication_id=str)
            return alone, many

    alone, many = asyncio.run(publish())

    assert alone == first == many[0] == many[2]
    assert number_in(client, "invoices") == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"deduplication_id": ""}, "1 to 256 bytes"),
        ({"deduplication_id": 17}, "1 to 256 bytes"),
        ({"deduplication_id": "é" * 129}, "1 to 256 bytes"),
        ({"deduplication_id": "half \ud83d"}, "1 to 256 bytes"),
        ({"deduplication_id": "17", "within": 0}, "1ms or longer"),
        ({"deduplication_id": "17", "within": "soon"}, "not an interval"),
        ({"within": "5m"}, "only with a deduplication_id"),
    ],
)
def test_what_is_no_id_or_no_window_is_refused_with_what_is_allowed(client, options, said):
    with pytest.raises(DefinitionError, match=said):
        client.publish("invoices", 17, **options)

    assert "invoices" not in client.admin.topics()


@pytest.mark.parametrize("given", ["17", lambda _: 17])
def test_many_messages_need_a_function_that_gives_texts(client, given):
    with pytest.raises(DefinitionError, match="deduplication_id"):
        client.publish_many("invoices", [1, 2], deduplication_id=given)

    assert "invoices" not in client.admin.topics()


def test_a_publisher_with_a_name_says_where_ids_are_taken(client):
    with client.publisher("till-1") as publisher, pytest.raises(TypeError, match=r"client\.publish"):
        publisher.publish("invoices", 17, deduplication_id="17")


def test_a_topic_knows_as_many_ids_as_its_definition_says(held):
    # Given a topic with room for two IDs
    client = held.client
    client.apply(Topic(name="invoices", deduplication_ids=2))
    first = client.publish("invoices", 1, deduplication_id="one", within="1m")
    client.publish("invoices", 2, deduplication_id="two", within="2m")
    # When there is a third one, alone or among others
    for publish in (
        lambda: client.publish("invoices", 3, deduplication_id="three"),
        lambda: client.publish_many("invoices", ["one", "three"], deduplication_id=str),
    ):
        with pytest.raises(TooManyDeduplicationIds) as refused:
            publish()
        # Then it is refused with how many there are, and nothing is recorded
        assert refused.value.detail["ids"] == refused.value.detail["most"] == 2
        assert refused.value.detail["frees_in"] == 60_000
    assert number_in(client, "invoices") == 2
    # And what is known, and what has no ID, is published as before
    assert client.publish("invoices", 1, deduplication_id="one") == first
    client.publish("invoices", 4)
    # And the third one once a window is over, or once there is more room
    held.advance("60s")
    client.publish("invoices", 3, deduplication_id="three")
    client.apply(Topic(name="invoices"))
    client.publish("invoices", 5, deduplication_id="five")
    assert number_in(client, "invoices") == 5


@pytest.mark.parametrize("number", [0, -1, 1.5, "many", True])
def test_a_number_of_ids_that_cannot_be_is_explained(number):
    with pytest.raises(DefinitionError, match=r"deduplication_ids: .*allowed: a whole number from [01] to 1000000000"):
        Topic(name="invoices", deduplication_ids=number)
