"""Clients with several instances: publishers and consumers of queues go on when a server is killed, or refuse to."""

from __future__ import annotations

import logging
import threading
import time

import pytest
from homes import at
from observing import eventually

from ampsq import Client, Destination, MemoryPublishStore
from ampsq.base.errors import DefinitionError, NotPersisted, StaleLease
from ampsq.protocol.schema import key
from ampsq.transport.instances import InstanceAddress, parse_instances

pytestmark = pytest.mark.slow


@pytest.fixture
def pair(homes):
    """Two instances whose servers may be killed."""
    return homes


def test_addresses_say_their_instances():
    assert parse_instances(["redis://one", "redis://two#b", "redis://three#b"], "a") == [
        InstanceAddress("redis://one", "a"),
        InstanceAddress("redis://two,redis://three", "b"),
    ]
    assert parse_instances("redis://one,redis://two", "a") == [InstanceAddress("redis://one,redis://two", "a")]
    with pytest.raises(DefinitionError, match="behind the # is no instance's name"):
        parse_instances("redis://one#no name", "a")


def test_an_unknown_policy_is_refused(valkey):
    with pytest.raises(DefinitionError, match="allowed: 'refuse'"):
        Client(valkey.url, failover="maybe")


def test_a_publisher_goes_on_at_the_other_instance_without_loss_or_double(pair):
    client = pair.client()
    till = client.publisher("till", store=MemoryPublishStore(), persisted="fsync")
    number = 0
    for number in range(1, 301):
        till.publish("orders", number)
    till.flush("30s")
    stopped = threading.Event()

    def publish_on():
        count = 300
        while not stopped.wait(0.001):
            count += 1
            till.publish("orders", count)
        numbers.append(count)

    numbers = []
    thread = threading.Thread(target=publish_on)
    thread.start()
    time.sleep(0.3)  # some are published at a
    pair.kill("a")
    at(pair, client, "b")
    time.sleep(0.3)  # some are published at b
    stopped.set()
    thread.join()
    # The other direction would be waited for.
    pair.admins["b"].admin.downgrade_replication("a")
    till.flush("30s")

    last = numbers[0]
    assert pair.bodies("b") == list(range(1, last + 1))

    # The one that is back has each of them, once: in the order in which it received them.
    pair.restart("a")
    eventually(lambda: len(pair.bodies("a")) >= last, 30)
    assert sorted(pair.bodies("a")) == list(range(1, last + 1))
    assert pair.bodies("b") == list(range(1, last + 1))


def test_across_a_downgraded_link_a_client_stays_and_says_why(pair):
    client = pair.client()
    till = client.publisher("till", store=MemoryPublishStore())
    pair.admins["a"].admin.downgrade_replication("b")
    eventually(lambda: any("downgraded" in why for why in client._connection._failover._barriers.values()))
    pair.kill("a")

    till.publish("orders", b"1")
    with pytest.raises(
        NotPersisted, match=r"not going on elsewhere.*was downgraded at .*may lack messages.*failover='warn'"
    ):
        till.flush("5s")
    assert client.instance == pair.name("a")
    pair.restart("a")
    till.flush("30s")

    assert pair.bodies("a") == [1]


def test_with_a_warning_a_client_goes_on_across_a_downgraded_link(pair, caplog):
    client = pair.client(failover="warn")
    till = client.publisher("till", store=MemoryPublishStore())
    pair.admins["a"].admin.downgrade_replication("b")
    eventually(lambda: any("downgraded" in why for why in client._connection._failover._barriers.values()))
    pair.kill("a")

    with caplog.at_level(logging.WARNING, "ampsq"):
        at(pair, client, "b")
    pair.admins["b"].admin.downgrade_replication("a")
    till.publish("orders", 1)
    till.flush("30s")

    assert "though destination 'b'" in caplog.text
    assert pair.bodies("b") == [1]


def test_an_instance_that_lacks_what_was_told_to_be_persisted_is_refused(pair):
    client = pair.client()
    till = client.publisher("till", store=MemoryPublishStore())
    for number in range(3):
        till.publish("orders", number)
    till.flush("30s")
    redis = pair.admins["b"]._store.redis
    redis.hset(key(pair.name("b"), "publishers"), "till", "2 1-0 orders")
    pair.kill("a")

    till.publish("orders", 3)
    with pytest.raises(NotPersisted, match="has messages of publisher 'till' up to 2, and up to 3 it was told"):
        till.flush("3s")
    assert client.instance == pair.name("a")


def test_a_publisher_stays_where_the_other_instance_would_pass_over_what_it_does_not_have(pair):
    elsewhere = Destination(name="c", sync_type="sync", topics=["local"], addresses=["redis://nobody.invalid#c"])
    pair.admins["a"].apply(elsewhere)
    client = pair.client()
    till = client.publisher("till", store=MemoryPublishStore())
    till.publish("local", b"1")
    till.publish("orders", b"2")
    eventually(lambda: pair.bodies("b") == [2], 30)
    pair.kill("a")

    with pytest.raises(NotPersisted, match=r"up to 2, and is not sent topic 'local'.* replicate all topics"):
        till.flush("3s")
    assert client.instance == pair.name("a")
    pair.restart("a")
    pair.admins["a"].admin.remove_destination("c")
    till.flush("30s")


def test_calls_without_a_store_go_to_the_other_instance(pair):
    client = pair.client()
    client.publish("orders", 1)
    eventually(lambda: pair.bodies("b") == [1], 30)
    pair.kill("a")
    at(pair, client, "b")

    client.publish("orders", 2)

    assert pair.bodies("b") == [1, 2]
    assert client.origin == pair.admins["b"].origin


def test_a_new_client_begins_at_the_instance_that_can_be_reached(pair):
    pair.kill("a")

    client = pair.client()

    assert client.instance == pair.name("b")


def test_a_consumer_goes_on_with_what_is_published_at_the_other_instance(pair):
    client = pair.client()
    with client.subscribe("work", max_backlog=10) as messages:
        pair.admins["a"].publish("orders", 1)
        first = messages.get(30)
        first.ack(wait=True)
        eventually(lambda: pair.admins["b"].admin.queue_stats("work").acknowledged == 1, 30)
        pair.kill("a")
        at(pair, client, "b")
        pair.admins["b"].publish("orders", 2)

        second = messages.get(30)
        assert (first.data, second.data) == (1, 2)
        second.ack(wait=True)
        assert messages.get(0.3) is None
    assert pair.admins["b"].admin.queue_stats("work").acknowledged == 2


def test_what_was_leased_at_the_other_instance_is_not_settled_at_this_one(pair):
    client = pair.client()
    with client.subscribe("work", max_backlog=10) as messages:
        pair.admins["a"].publish("orders", 1)
        message = messages.get(30)
        eventually(lambda: pair.bodies("b") == [1], 30)
        pair.kill("a")
        at(pair, client, "b")

        message.ack()
        with pytest.raises(StaleLease):
            message.cancel()
        assert pair.admins["b"].admin.queue_stats("work").acknowledged == 0


@pytest.mark.parametrize("when", ["before the client has gone on", "after it"])
@pytest.mark.parametrize("verb", ["ack", "cancel", "extend"])
def test_a_message_of_a_lost_instance_is_refused_as_soon_as_the_client_has_gone_on(pair, verb, when):
    # Given a client that repeats calls for long, and a message that the lost instance handed out
    client = pair.client(retry_timeout="60s")
    verbs = {
        "ack": lambda message: message.ack(wait=True),
        "cancel": lambda message: message.cancel(),
        "extend": lambda message: message.extend("1m"),
    }
    pair.admins["a"].publish("orders", 1)
    with client.subscribe("work") as messages:
        message = messages.get(30)
        pair.kill("a")
        if when == "after it":
            eventually(lambda: client.instance == pair.name("b"))
        # When it is settled
        started = time.monotonic()
        with pytest.raises(StaleLease) as refused:
            verbs[verb](message)
        # Then that is refused, long before the call would be given up
        assert time.monotonic() - started < 30
        assert pair.name("a") in str(refused.value)


def test_so_is_a_message_of_a_subscription_that_was_closed(pair):
    client = pair.client(retry_timeout="60s")
    pair.admins["a"].publish("orders", 1)
    with client.subscribe("work") as messages:
        message = messages.get(30)
    pair.kill("a")
    at(pair, client, "b")
    started = time.monotonic()
    with pytest.raises(StaleLease):
        message.ack(wait=True)
    assert time.monotonic() - started < 30


def test_iterating_goes_on_at_the_other_instance(pair):
    client = pair.client()
    seen = []
    messages = client.subscribe(
        "work", max_backlog=10, on_message=lambda message: (seen.append(message.data), message.ack())
    )
    pair.admins["a"].publish("orders", 1)
    eventually(lambda: seen == [1])
    pair.kill("a")
    at(pair, client, "b")
    pair.admins["b"].publish("orders", 2)

    eventually(lambda: seen == [1, 2], 30)
    messages.close()
