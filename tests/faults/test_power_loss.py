"""What a server that comes back without its last second can lose, and what must be right nevertheless.

A replica that takes over and is behind is the same to everybody.
"""

from __future__ import annotations

import pytest
from power import Everysec

from ampsq import Queue
from ampsq.errors import StaleLease


@pytest.fixture
def power(start_server):
    return Everysec(start_server)


@pytest.fixture
def client_of(power, connect):
    return lambda **options: connect(power.url, patience="30s", **options)


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
    assert one.queue_stats("work").acknowledged == 2


def test_deliveries_are_counted_one_by_one_whatever_the_clock_says(power, client_of):
    client = client_of()
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10))
    client.publish_many("orders", range(7))
    with client.subscribe("work", max_backlog=3) as messages:
        for _ in range(5):
            messages.get("30s").ack(wait=True)
    delivered = client.queue_stats("work").delivered
    assert 5 <= delivered <= 7
    # Also where tokens begin anew because the queue's were lost
    key = "{" + client.instance + "}:q:work"
    power.server.client().delete(key)
    client.check(repair=True)
    assert client.queue_stats("work").delivered <= delivered
