"""Links that coordinators run: found by their definitions, through failures, in both directions."""

from __future__ import annotations

from observing import eventually
from sites import shared, to

from ampsq import Instance
from ampsq.schema import key


def test_a_message_published_at_one_instance_is_delivered_at_another_that_has_room(world):
    a = world.site("a", *shared(), to(world, "b"))
    b = world.site("b", *shared(), to(world, "a"))

    a.publish("orders", {"id": 1})

    with b.subscribe("work") as messages:
        message = messages.get(10)
        assert message.data == {"id": 1}
        message.ack()
    eventually(lambda: a.queue_stats("work").acknowledged == 1)


def test_a_destination_without_address_is_served_by_the_link_of_the_other_side(world):
    a = world.site("a", *shared(), to(world, "b", name=world.name("b"), addresses=[]))
    b = world.site("b", *shared(), to(world, "a"))

    a.publish("orders", {"id": 1})

    with b.subscribe("work") as messages:
        message = messages.get(10)
        assert message.data == {"id": 1}
        message.ack()
    eventually(lambda: a.queue_stats("work").acknowledged == 1)


def test_the_next_address_is_taken_where_the_first_does_not_answer(world):
    addresses = [f"unix:///tmp/nobody-is-here#{world.name('c')}", world.address("b")]
    a = world.site("a", *shared(), to(world, "b", addresses=addresses, reconnect_timeout="1s"))
    b = world.site("b", *shared(), to(world, "a"))

    a.publish("orders", {"id": 1})

    eventually(lambda: b.queue_stats("work").topics, 10)
    state = eventually(
        lambda: (found := world.link_of("a", "out to-b")) and found["state"] == "connected" and found, 10
    )
    assert state["instance"] == world.name("b")


def test_a_link_to_an_instance_of_another_group_is_refused_and_says_so(world):
    world.site("b", Instance(group="London"), *shared(), to(world, "a"), coordinated=False)
    world.site("a", *shared(), to(world, "b", group="NewYork"))

    state = eventually(lambda: (found := world.link_of("a", "out to-b")) and found["state"] == "refused" and found, 10)

    assert "'London'" in state["reason"]
    assert "NewYork" in state["reason"]


def test_a_link_that_is_defined_later_brings_what_was_published_before(world):
    a = world.site("a", *shared())
    b = world.site("b", *shared(), to(world, "a"))
    a.publish_many("orders", [{"id": number} for number in range(1200)])

    a.apply(to(world, "b"))

    log = key(world.name("b"), "log", "orders")
    eventually(lambda: b._store.redis.xlen(log) == 1200, 10)


def test_a_new_topic_that_matches_a_destination_s_pattern_is_carried(world):
    prices = {"name": "^prices\\.", "exclude_validation": "replicate,cascade"}
    a = world.site("a", to(world, "b", topics=[prices]))
    b = world.site("b", coordinated=False)

    a.publish("prices.eur", {"x": 1})
    a.publish("orders", {"x": 2})

    eventually(lambda: b._store.redis.xlen(key(world.name("b"), "log", "prices.eur")) == 1, 10)
    assert not b._store.redis.exists(key(world.name("b"), "log", "orders"))
