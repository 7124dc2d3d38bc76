"""The message flows of the AMPS documentation, *Message Flow for Queues*, step by step."""

from __future__ import annotations

import pytest
from observing import eventually
from scene import data_of, pick_up, rest_of

from ampsq import Queue


def queue(client, **elements):
    client.apply(Queue(name="work", underlying_topic="orders", **elements))


def reasons(journal):
    return [(how, reason) for how, reason, _ in journal.entries("work")]


@pytest.fixture
def once(client):
    """An at-most-once queue."""

    def define(**elements):
        queue(client, semantics="at-most-once", allow_redelivery_after_crash=True, **elements)
        return client

    return define


# -- at most once


def test_at_most_once_steps_1_to_3_a_published_message_is_sent_and_removed(once, journal):
    # 1. A publisher publishes a message to an underlying topic. 2. It becomes available in the queue.
    client = once()
    client.publish("orders", 1)
    assert client.admin.queue_stats("work").depth == 1
    # 3. It is published to a subscriber when one matches and has capacity; the queue removes it as it is published.
    with client.subscribe("work") as messages:
        assert data_of(pick_up(messages, 1)) == [1]
        assert client.admin.queue_stats("work").depth == 0
    assert reasons(journal) == [("delivered", "")]


def test_at_most_once_step_3_the_oldest_that_matches_goes_to_who_has_capacity_in_turn(once):
    client = once(max_per_subscription_backlog=2)
    client.publish_many("orders", [{"n": n} for n in range(5)])
    with (
        client.subscribe("work", max_backlog=1, filter="/n > 2") as picky,
        client.subscribe("work", max_backlog=2) as other,
    ):
        assert data_of(pick_up(picky, 1)) == [{"n": 3}]
        assert data_of(pick_up(other, 2)) == [{"n": 0}, {"n": 1}]


def test_at_most_once_step_4_a_barrier_waits_for_all_before_it_and_all_behind_it_for_it(once):
    client = once(barrier_expression="/end = 1", max_per_subscription_backlog=9)
    client.publish_many("orders", [{"n": 0}, {"end": 1}, {"n": 1}])
    with client.subscribe("work", max_backlog=9) as messages:
        first = pick_up(messages, 1)
        assert data_of(first) == [{"n": 0}]
        assert rest_of(messages) == []
        first[0].ack(wait=True)
        assert data_of(pick_up(messages, 2)) == [{"end": 1}, {"n": 1}]


@pytest.mark.usefixtures("coordinator")
def test_at_most_once_step_5_what_no_subscription_requested_expires_and_that_is_no_error(once, journal):
    client = once(expiration="200ms")
    client.publish("orders", 1)
    eventually(lambda: reasons(journal) == [("expired", "time_limit")])
    assert client.admin.queue_stats("work").depth == 0


def test_at_most_once_step_6_an_acknowledgement_makes_room_for_another_message(once):
    client = once()
    client.publish_many("orders", [1, 2])
    with client.subscribe("work", max_backlog=1) as messages:
        (first,) = pick_up(messages, 1)
        assert rest_of(messages) == []
        first.ack(wait=True)
        assert data_of(pick_up(messages, 1)) == [2]


# -- at least once


def test_at_least_once_steps_1_to_3_a_message_is_leased_and_stays_in_the_queue(client):
    queue(client, lease_period="30s")
    client.publish("orders", 1)
    with client.subscribe("work") as messages:
        (message,) = pick_up(messages, 1)
        # AMPS calculates the lease time and provides it along with the message.
        assert message.lease_until is not None
        assert client.admin.queue_stats("work").depth == client.admin.queue_stats("work").leased == 1


def test_at_least_once_step_4_a_barrier_waits_for_acknowledgements(client):
    queue(client, barrier_expression="/end = 1", max_per_subscription_backlog=9)
    client.publish_many("orders", [{"n": 0}, {"end": 1}, {"n": 1}])
    with client.subscribe("work", max_backlog=9) as messages:
        (first,) = pick_up(messages, 1)
        assert rest_of(messages) == []
        first.ack(wait=True)
        assert data_of(pick_up(messages, 2)) == [{"end": 1}, {"n": 1}]


@pytest.mark.usefixtures("coordinator")
def test_at_least_once_step_5_what_is_not_leased_expires_when_its_time_is_over(client, journal):
    queue(client, expiration="200ms")
    with client.subscribe("work", max_backlog=1) as messages:
        client.publish_many("orders", [1, 2])
        (leased,) = pick_up(messages, 1)
        eventually(lambda: reasons(journal) == [("expired", "time_limit")])
        assert [(stats.leased, stats.depth) for stats in [client.admin.queue_stats("work")]] == [(1, 1)]
        # The one that is leased can still be acknowledged, however late.
        leased.ack(wait=True)
    assert reasons(journal)[-1] == ("acknowledged", "")


@pytest.mark.parametrize(
    ("elements", "ends"),
    [
        ({}, None),
        ({"expiration": "3s", "lease_period": "3500ms"}, "time_limit"),
        ({"max_deliveries": 1}, "max_deliveries"),
        ({"expiration": "3s", "lease_period": "3500ms", "max_deliveries": 1}, "max_deliveries,time_limit"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("coordinator")
def test_at_least_once_step_6_a_lease_that_lapses_returns_the_message_or_ends_it(client, journal, elements, ends):
    queue(client, **{"lease_period": "1s", **elements})
    client.publish("orders", 1)
    with client.subscribe("work") as messages:
        pick_up(messages, 1)
        if ends is None:
            (again,) = pick_up(messages, 1)
            assert again.delivery == 2
        else:
            eventually(lambda: reasons(journal) == [("expired", ends)])
            assert client.admin.queue_stats("work").depth == 0


def test_at_least_once_step_7_an_acknowledgement_removes_the_message(client, journal):
    queue(client)
    client.publish("orders", 1)
    with client.subscribe("work") as messages:
        pick_up(messages, 1)[0].ack(wait=True)
    assert client.admin.queue_stats("work").depth == 0
    assert reasons(journal) == [("acknowledged", "")]
