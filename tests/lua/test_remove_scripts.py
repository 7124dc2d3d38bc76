"""remove_queue, remove_action, remove_view, remove_setting and remove_transport."""

from __future__ import annotations

import pytest

from ampsq.base.errors import QueueInUse


def remove(world, name="work"):
    return world.run("remove_queue", world.version(), name)


def test_a_queue_goes_with_all_its_keys_and_the_log_stays(world):
    world.queue("work", "orders", lease=5_000)
    world.queue("other", "orders")
    world.publish("orders", "one", "two", "three")
    subscription = world.subscribe("work", asked=5)
    messages = world.take(subscription, 3)
    world.settle("acknowledged", messages[:1])
    world.settle("cancelled", messages[1:])
    world.unsubscribe(subscription)
    world.mark()

    assert remove(world) == 1

    left = world.state()
    assert not [suffix for suffix in left if suffix.startswith(":q:work")]
    assert not [member for member in left.get(":due", {}) if " work" in member]
    assert (left[":queues"], left[":routes"]) == ({"other": "{}"}, {"orders": "other", "other": ">orders"})
    assert {suffix for suffix in world.changes() if not suffix.startswith(":q:work")} <= {
        ":queues", ":routes", ":due", ":instance",
    }  # fmt: skip
    assert [message.body for message in world.take(world.subscribe("other", asked=5), 5)] == ["one", "two", "three"]


def test_a_queue_that_is_defined_anew_begins_anew(world):
    world.queue("work", "orders", "returns")
    world.publish("orders", "one")
    subscription = world.subscribe("work")
    world.settle("acknowledged", world.take(subscription))
    world.unsubscribe(subscription)
    remove(world)

    world.queue("work", "orders")

    assert [message.body for message in world.take(world.subscribe("work"))] == ["one"]


def test_the_mark_of_a_topic_with_a_key_stays(world):
    world.queue("work", "orders")
    world.run("define_topic", 1_000, world.version(), "orders", '{"key":["/id"]}', 0, '["f","id"]\t/id', "", "work")
    assert world.state()[":routes"]["orders"] == "* work"

    remove(world)

    assert world.state()[":routes"] == {"orders": "* "}


def subscribed(world):
    world.subscribe("work")


def leased(world):
    world.publish("orders", "one")
    world.take(world.subscribe("work"))


def delayed(world):
    world.publish("orders", "one")
    subscription = world.subscribe("work")
    world.settle("cancelled", world.take(subscription), period=5_000)
    world.unsubscribe(subscription)


def scheduled(world):
    world.publish("orders", "one", due=9_000)
    subscription = world.subscribe("work")
    world.take(subscription)
    world.unsubscribe(subscription)


def rebuilt(world):
    world.run("begin_rebuild", 1_000, "work", "me", 5_000, 0, "orders 0-0 0")


@pytest.mark.parametrize("using", [subscribed, leased, delayed, scheduled, rebuilt])
def test_a_queue_in_use_is_not_removed(world, using):
    world.queue("work", "orders")
    using(world)
    world.mark()

    with pytest.raises(QueueInUse) as refusal:
        remove(world)

    assert refusal.value.detail["queue"] == "work"
    assert world.changes() == {}


def test_what_is_not_there_is_not_removed(world):
    world.queue("work", "orders")
    world.mark()
    assert remove(world, "other") == 0
    for script in ("remove_view", "remove_setting", "remove_transport", "remove_conflated"):
        assert world.run(script, world.version(), "a") == 0
    assert world.run("remove_action", world.version(), "a", 0) == 0
    assert world.changes() == {}


def test_the_timetable_passes_over_what_it_has_of_queues_that_are_gone(world):
    world.queue("other", "orders")
    for kind in ("leases gone", "dispatch gone", "expiry gone", "read gone", "ready gone m1/o", "scheduled gone m1/o"):
        world.store.redis.zadd(world.key(":due"), {kind: 1_000})
    world.mark()

    assert world.run("sweep", 5_000)[0] == 0

    assert not world.state().get(":due")
    assert not [suffix for suffix in world.changes() if "gone" in suffix]


def test_an_action_goes_and_its_numbers_stay(world):
    world.queue("work", "orders")
    world.run("define_action", 1_000, world.version(), "a", "{}", 1, "follow", "expire work", "journal work")
    world.run("advance_action", "a", "expire work", "0-0", "5-0", 3, 1, 1)
    world.run("set_event_aside", "a", "expire work", "5-0", "6-0", 4, 1, "{}", "why", 2_000)

    assert world.run("remove_action", world.version(), "a", 0) == 1

    left = world.state()
    assert ":actions" not in left
    assert not [suffix for suffix in left if suffix.startswith(":action:a:")]
    assert "heard" not in left[":instance"]
    assert left[":action:a"]["sequence expire work"] == "4"
    assert not [field for field in left[":action:a"] if field.startswith(("cursor", "read", "error"))]


def test_a_view_a_setting_a_transport_and_a_conflated_topic_go(world):
    world.run("define_conflated", world.version(), "c", "{}")
    world.run("define_view", world.version(), "v", "{}")
    world.store.redis.hset(world.key(":view:v"), "state", "{}")
    world.run("define_setting", world.version(), "s", "{}")
    world.run("define_transport", world.version(), "t", "{}", "- - - -")

    named = {"remove_view": "v", "remove_setting": "s", "remove_transport": "t", "remove_conflated": "c"}
    for script, name in named.items():
        assert world.run(script, world.version(), name) == 1

    assert not {":conflated", ":views", ":view:v", ":settings", ":transports", ":limits"} & world.state().keys()
