"""Returned messages: cancelled, lapsed, given back; at their old place, with deliveries counted."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from observing import eventually
from scene import data_of, pick_up, rest_of
from scene import define_work as define

from ampsq.base.errors import AlreadyAcked, StaleLease


def test_a_cancelled_message_is_again_the_oldest(either):
    # Given three messages of which the first two are out
    define(either)
    either.publish_many("work", list("abc"))
    with either.subscribe("work", max_backlog=2) as messages:
        first, second = pick_up(messages, 2)
        # When they are cancelled in the wrong order
        second.cancel()
        first.cancel()
        # Then they come in their old order, before what was never delivered, and say that they come again
        got = []
        for _ in range(3):
            message = pick_up(messages, 1)[0]
            got.append((message.data, message.delivery))
            message.ack(wait=True)
        # (the second went out again at once, into the room that its cancel left)
        assert sorted(got) == [("a", 2), ("b", 2), ("c", 1)]
        assert got[2] == ("c", 1)


def test_what_is_returned_while_nobody_has_room_comes_in_the_order_of_publication(client):
    define(client)
    client.publish_many("work", list("abcdef"))
    with client.subscribe("work", max_backlog=4) as messages:
        held = pick_up(messages, 4)
        # When all four go back, last first, while another subscription cannot take them
        client.ack("work", [message.bookmark for message in reversed(held)], "cancel")
    with client.subscribe("work", max_backlog=10) as messages:
        got = pick_up(messages, 6)
        assert data_of(got) == list("abcdef")


def test_a_delayed_cancel_comes_back_when_its_time_has_come(either):
    # Given a message that is cancelled with a delay
    define(either)
    either.publish_many("work", list("ab"))
    with either.subscribe("work") as messages:
        first = pick_up(messages, 1)[0]
        started = time.monotonic()
        first.cancel(delay="300ms")
        # Then the next comes meanwhile
        second = pick_up(messages, 1)[0]
        assert second.data == "b"
        second.ack(wait=True)
        # And the first after the delay, without a coordinator within about a second
        again = pick_up(messages, 1)[0]
        assert (again.data, again.delivery) == ("a", 2)
        assert time.monotonic() - started >= 0.3


@pytest.mark.usefixtures("coordinator")
def test_with_a_coordinator_a_delay_ends_in_time(client):
    define(client)
    client.publish("work", "a")
    with client.subscribe("work") as messages:
        message = pick_up(messages, 1)[0]
        message.cancel(delay="200ms")
        started = time.monotonic()
        pick_up(messages, 1)
        assert 0.15 <= time.monotonic() - started < 5.0


def test_expire_removes_a_message_at_once(either):
    define(either)
    either.publish_many("work", list("ab"))
    with either.subscribe("work") as messages:
        pick_up(messages, 1)[0].expire()
        assert data_of(pick_up(messages, 1)) == ["b"]
    stats = either.admin.queue_stats("work")
    assert (stats.expired, stats.depth) == (1, 1)


def test_a_lease_says_when_it_ends(client):
    define(client, lease_period="30s")
    client.publish("work", 1)
    with client.subscribe("work") as messages:
        until = pick_up(messages, 1)[0].lease_until
        assert 25 < (until - datetime.now(UTC)).total_seconds() <= 30.5


def test_without_a_lease_period_a_lease_never_ends(client):
    define(client)
    client.publish("work", 1)
    with client.subscribe("work") as messages:
        assert pick_up(messages, 1)[0].lease_until is None


def test_a_lapsed_message_comes_again_without_a_coordinator(either):
    # Given a lease of a second and two consumers
    define(either, lease_period="1s", fairness_model="round-robin")
    either.publish("work", 1)
    with either.subscribe("work") as sleepy, either.subscribe("work") as awake:
        held = pick_up(sleepy, 1)[0]
        # When the first does nothing, then the other gets it, as its second delivery
        again = pick_up(awake, 1)[0]
        assert (again.data, again.delivery) == (1, 2)
        # And the first has lost it
        with pytest.raises(StaleLease):
            held.ack(wait=True)
        again.ack(wait=True)
        with pytest.raises(AlreadyAcked):
            held.ack(wait=True)


@pytest.mark.usefixtures("coordinator")
def test_a_lapsed_message_comes_again_in_time_with_a_coordinator(client):
    define(client, lease_period="200ms", fairness_model="round-robin")
    client.publish("work", 1)
    with client.subscribe("work") as sleepy, client.subscribe("work") as awake:
        started = time.monotonic()
        pick_up(sleepy, 1)
        pick_up(awake, 1)
        assert 0.15 <= time.monotonic() - started < 5.0


@pytest.mark.usefixtures("coordinator")
def test_an_extended_lease_holds_longer(client):
    # Given two messages with a lease of two seconds, of which one is extended
    define(client, lease_period="2s")
    client.publish_many("work", ["extended", "left"])
    with client.subscribe("work", max_backlog=2) as messages, client.subscribe("work", max_backlog=2) as others:
        extended, left = rest_of(messages) + rest_of(others)
        extended.extend("1h")
        # When the period is over, then only the other one came back
        again = eventually(lambda: rest_of(messages) + rest_of(others))
        assert data_of(again) == ["left"]
        extended.ack(wait=True)
        with pytest.raises(StaleLease):
            left.extend("10s")


def test_deliveries_are_counted_and_giving_back_counts_for_nothing(client):
    define(client)
    client.publish("work", 1)
    for expected in (1, 2, 3):
        # A subscription that picked the message up and closes with it unseen burns nothing
        unseen = client.subscribe("work")
        unseen._managed.store.run(unseen._managed.core.inbox.fetch(unseen._managed.pipeline, 0.0))
        assert client.admin.queue_stats("work").leased == 1
        unseen.close()
        # One that saw it does
        with client.subscribe("work") as messages:
            message = pick_up(messages, 1)[0]
            assert message.delivery == expected
            message.cancel()


def test_settling_twice_is_told(client):
    define(client)
    client.publish_many("work", range(4))
    with client.subscribe("work", max_backlog=4) as messages:
        acked, cancelled, expired, extended = pick_up(messages, 4)
        acked.ack(wait=True)
        expired.expire()
        extended.extend("1h")
        for message in (acked, expired):
            for verb in (message.cancel, message.expire, lambda message=message: message.ack(wait=True)):
                with pytest.raises(AlreadyAcked):
                    verb()
        cancelled.cancel(delay="1h")
        with pytest.raises(StaleLease):
            cancelled.cancel()
        extended.ack(wait=True)
