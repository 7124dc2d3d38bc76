"""Losses of a server that comes back without its last second, and what must be right nevertheless.

A replica that takes over and is behind is the same to everybody.
"""

from __future__ import annotations

import contextlib

import pytest
from observing import eventually
from power import Everysec

from ampsq import MemoryBookmarkStore, MemoryPublishStore, Queue, RedisBookmarkStore, SqliteBookmarkStore, Topic
from ampsq.base.errors import NameInUse, StaleLease
from ampsq.protocol.calls import publish as publish_calls
from ampsq.protocol.calls import readers as reader_calls
from ampsq.transport.store import Store

pytestmark = pytest.mark.slow


@pytest.fixture
def power(start_server):
    return Everysec(start_server)


@pytest.fixture
def client_of(power, connect):
    return lambda **options: connect(power.url, retry_timeout="30s", **options)


# Tokens: a delivery that was lost has none in common with the one after it


@pytest.mark.parametrize("priority", [None, "/rank"], ids=["plain", "sorted"])
def test_a_late_acknowledgement_of_a_delivery_that_was_lost_settles_nobody_elses_lease(power, client_of, priority):
    # Given two consumers of one at a time, each with a message, and a third one that waits
    one, other = client_of(), client_of()
    one.apply(Queue(name="work", underlying_topic="orders", lease_period="1h", priority=priority))
    with one.subscribe("work") as first, other.subscribe("work") as second:
        one.publish_many("orders", [{"rank": 3}, {"rank": 2}, {"rank": 1}])
        held, others = first.get("30s"), second.get("30s")
        mark = power.mark()
        # When one of them is done and gets it, and the server loses that
        held.ack(wait=True)
        lost = first.get("30s")
        power.lose_power(mark)
        # And the other one is given it
        others.ack(wait=True)
        again = second.get("30s")
        assert again.bookmark == lost.bookmark
        # Then the first one's acknowledgement comes too late
        with pytest.raises(StaleLease):
            lost.ack(wait=True)
        again.ack(wait=True)
    assert one.admin.queue_stats("work").acknowledged == 2


def test_deliveries_are_counted_one_by_one_whatever_the_clock_says(power, client_of):
    client = client_of()
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10))
    client.publish_many("orders", range(7))
    with client.subscribe("work", max_backlog=3) as messages:
        for _ in range(5):
            messages.get("30s").ack(wait=True)
    delivered = client.admin.queue_stats("work").delivered
    assert 5 <= delivered <= 7
    # Also where tokens begin anew because the queue's were lost
    key = "{" + client.instance + "}:q:work"
    power.server.client().delete(key)
    client.admin.check(repair=True)
    assert client.admin.queue_stats("work").delivered <= delivered


# Sessions: a later one has a higher number, also where the one before it was lost


@pytest.fixture
def ask(power, instance):
    """Make a call past any client: ``ask(call)``."""

    def ask(call):
        with contextlib.closing(Store(power.url, instance, retry_timeout=30.0)) as store:
            return store.call(call)

    return ask


@pytest.fixture
def publisher_of(client_of):
    return lambda: client_of().publisher("till", store=MemoryPublishStore(), persisted="memory")


def published(client):
    with client.subscribe_topic("orders", bookmark="[epoch:now]") as messages:
        return [message.data for message in messages]


def test_a_publisher_whose_logon_was_lost_goes_on_beside_a_dead_one_s(power, client_of, publisher_of, ask):
    # Given a client that was logged on under the name, and died
    client_of().apply(Topic(name="orders"))
    ask(publish_calls.logon("till", "somebody dead", 1, None))
    mark = power.mark()
    # When another one logs on and publishes, and the server loses that
    publisher = publisher_of()
    publisher.publish_many("orders", ["lost"] * 3)
    publisher.flush("60s")
    power.lose_power(mark)
    # Then it goes on
    publisher.publish("orders", "here")
    publisher.flush("60s")
    assert published(client_of()) == ["here"]


def test_a_publisher_whose_logon_was_lost_is_fenced_by_the_next_one(power, client_of, publisher_of, ask):
    client_of().apply(Topic(name="orders"))
    mark = power.mark()
    publisher = publisher_of()
    publisher.publish("orders", "lost")
    publisher.flush("60s")
    power.lose_power(mark)
    # When somebody else logs on before it knows
    ask(publish_calls.logon("till", "somebody else", 1, None))
    # Then that one has the name
    publisher.publish("orders", "too late")
    with pytest.raises(NameInUse, match="somebody else"):
        publisher.flush("60s")
    assert published(client_of()) == []


@pytest.fixture(params=["memory", "file", "redis"])
def bookmark_store(request, tmp_path):
    if request.param == "memory":
        yield MemoryBookmarkStore()
    elif request.param == "redis":
        yield RedisBookmarkStore()
    else:
        with contextlib.closing(SqliteBookmarkStore(tmp_path / "places")) as store:
            yield store


def durable(client, store):
    return client.subscribe_topic("orders", bookmark="most_recent", sub_id="audit", bookmark_store=store)


@pytest.mark.parametrize("before", [None, "somebody dead"], ids=["the first of its name", "not the first"])
def test_a_durable_subscription_whose_beginning_was_lost_begins_again(client_of, power, ask, bookmark_store, before):
    client = client_of()
    instance = client.instance
    client.apply(Topic(name="orders"))
    client.publish_many("orders", range(5))
    if before:
        ask(reader_calls.claim("audit", before))
    mark = power.mark()
    with durable(client, bookmark_store) as messages:
        assert [messages.get("30s").data for _ in range(3)] == [0, 1, 2]
        messages.flush()
        # When the server loses that it began, and all that it noted
        power.lose_power(mark)
        lost = ask(reader_calls.holder_of(instance, "audit"))
        assert (lost[1] if lost else None) == before
        # Then it begins again at its place, which is written down whole
        eventually(lambda: messages.get("100ms") is None, within=60.0)
        eventually(lambda: ask(reader_calls.holder_of(instance, "audit")) != lost or messages.get("100ms"), within=60.0)
    # And the next one goes on behind it
    client.publish("orders", "new")
    with durable(client_of(), bookmark_store) as messages:
        assert messages.get("30s").data == "new"


def test_a_durable_subscription_whose_beginning_was_lost_is_ended_by_a_later_one(power, client_of, ask, bookmark_store):
    client = client_of()
    client.apply(Topic(name="orders"))
    client.publish_many("orders", range(5))
    mark = power.mark()
    with durable(client, bookmark_store) as messages:
        assert messages.get("30s").data == 0
        power.lose_power(mark)
        ask(reader_calls.claim("audit", "somebody else"))
        with pytest.raises(NameInUse, match="somebody else"):
            eventually(lambda: messages.get("100ms") == "never", within=60.0)


# Names of subscriptions


def test_the_name_of_a_subscription_that_was_lost_is_nobody_elses(power, client_of):
    one, other = client_of(), client_of()
    one.apply(Queue(name="work", underlying_topic="orders", lease_period="1h"))
    mark = power.mark()
    with one.subscribe("work") as first:
        lost = first.id
        # When the server loses a subscription, and the next one comes before its client knows
        power.lose_power(mark)
        with other.subscribe("work") as second:
            assert second.id != lost
            one.publish_many("orders", range(2))
            # Then its client subscribes anew, and each of both gets a message of its own
            held = [first.get("60s"), second.get("60s")]
            assert {message.data for message in held} == {0, 1}
            assert first.id not in {lost, second.id}
            for message in held:
                message.ack(wait=True)
    assert one.admin.queue_stats("work").acknowledged == 2
