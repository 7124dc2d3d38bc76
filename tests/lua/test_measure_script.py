"""measure: how old what is in a queue is."""

from __future__ import annotations

import pytest
from world import ref

from ampsq.base.errors import UnknownQueue


def measured(world, name="work"):
    """Milliseconds: of the oldest deliverable and the oldest leased message, and since when the oldest lease is."""
    now, *moments = world.run("measure_ages", world.now, name)[:4]
    assert now == str(world.now)
    return moments


def publish(world, topic="orders", *, bodies=("{}",), at=None):
    world.now = at or world.now
    return world.run("publish", world.now, topic, "", "", "b", *bodies)


def test_nothing_is_measured_of_a_queue_that_has_nothing(world):
    world.topic("orders")
    world.queue("work", "orders")
    world.mark()

    assert world.run("measure_ages", world.now, "work") == [str(world.now), "", "", "", 0, 0, ""]
    assert world.changes() == {}
    with pytest.raises(UnknownQueue):
        world.run("measure_ages", world.now, "nowhere")


def test_the_oldest_unread_message_counts_and_then_what_came_back(world):
    world.topic("orders")
    world.queue("work", "orders", lease=30_000)
    publish(world, at=2_000)
    publish(world, at=3_000)
    assert measured(world) == ["2000", "", ""]

    subscription = world.subscribe("work", asked=1)
    world.run("take", world.now, subscription, 1)
    world.now = 5_000
    assert measured(world) == ["3000", "2000", "3000"]

    world.run("unsubscribe", world.now, subscription)
    world.now = 40_000
    for _ in range(10):
        world.run("sweep", world.now)
    assert measured(world) == ["2000", "", ""]


def test_of_leases_the_oldest_counts_since_it_was_made(world):
    world.topic("orders")
    world.queue("work", "orders", lease=10_000)
    world.subscribe("work", asked=5)
    publish(world, at=2_000)
    publish(world, at=4_000)

    world.now = 6_000

    assert measured(world) == ["", "2000", "2000"]


def test_of_a_lease_that_never_lapses_nobody_knows_since_when_it_is(world):
    world.topic("orders")
    world.queue("work", "orders")
    world.subscribe("work", asked=5)
    publish(world, at=2_000)

    assert measured(world) == ["", "2000", ""]


def test_of_a_queue_with_priorities_what_waits_longest_counts_not_what_is_next(world):
    world.topic("orders")
    world.queue("work", "orders", priority="/p")
    publish(world, bodies=['{"p": 1}'], at=2_000)
    publish(world, bodies=['{"p": 9}'] * 150, at=3_000)
    for _ in range(10):
        world.run("sweep", world.now)

    assert measured(world) == ["2000", "", ""]


def test_what_another_instance_owns_is_not_to_be_delivered_here(world):
    world.topic("orders")
    world.queue("work", "orders", owner="elsewhere")
    publish(world, at=2_000)
    assert measured(world) == ["", "", ""]

    world.store.redis.zadd(world.key(":q:work:remote"), {ref("2000-0"): 0})
    world.run("set_proxied_transfer", "work", 1)
    world.store.redis.hset(world.key(":deferred:orders"), "work x~1-1", "5000 acknowledged")

    assert world.run("measure_ages", world.now, "work")[1:] == ["", "", "", 1, 1, ""]


def test_of_very_many_leases_a_thousand_are_looked_at(world):
    world.topic("orders")
    world.queue("work", "orders", lease=10_000, room=5_000)
    for _ in range(4):
        publish(world, bodies=["{}"] * 500, at=2_000)
    subscription = world.subscribe("work", asked=2_000)
    for _ in range(4):
        world.run("take", world.now, subscription, 500)

    assert world.run("read_stats", "work")[1] == 2_000
    assert measured(world)[1:] == ["2000", "2000"]
