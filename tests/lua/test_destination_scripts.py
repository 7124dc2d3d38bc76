"""Destinations, the instance's group, and whose the messages of a queue are: what the scripts that define them do."""

from __future__ import annotations

import pytest
from world import ref, version_after

from ampsq.base.errors import CatalogChanged, QueueNotEmpty


def test_a_destination_is_defined_and_changed_and_the_catalog_has_it(world):
    world.mark()
    world.run("define_destination", world.version(), "nyc-2", '{"name":"nyc-2"}', 0)
    assert world.changes() == {
        ":destinations": {"nyc-2": '{"name":"nyc-2"}'},
        ":instance": {"catalog": version_after(1)},
    }
    world.run("define_destination", world.version(), "nyc-2", "{}", 0)
    assert world.run("read_catalog", "")[-7:-2] == [["nyc-2", "{}"], [], "i", "i", ""]


def test_of_a_removed_destination_nothing_is_left_and_of_others_everything(world):
    world.topic("orders")
    for name in ("nyc-2", "ldn-1"):
        world.run("define_destination", world.version(), name, "{}", 0)
    for suffix in (":sent:nyc-2", ":sent:ldn-1"):
        world.store.redis.hset(world.key(suffix), "log orders", "1-0")
    for kept in ("link nyc-2", "link ldn-1", "nyc-2"):
        world.run("keep_duty", 1_000, kept, "me", 5_000)
    world.mark()

    assert world.run("remove_destination", "nyc-2") == 1

    assert world.changes() == {
        ":destinations": {"nyc-2": None},
        ":keepers": {"link nyc-2": None},
        ":sent:nyc-2": None,
        ":instance": {"catalog": version_after(4)},
    }
    world.mark()
    assert world.run("remove_destination", "nyc-2") == 0
    assert world.changes() == {}


def test_an_instance_is_of_the_group_that_it_was_given_and_else_of_its_own_name(world):
    world.run("define_instance", world.version(), "NYC", "New York", "", "")
    assert world.run("read_catalog", "")[-5:-2] == ["i", "NYC", "New York"]
    world.mark()
    world.run("define_instance", world.version(), "", "", "", "")
    assert world.changes() == {":instance": {"group": None, "label": None, "catalog": version_after(2)}}
    assert world.run("read_catalog", "")[-5:-2] == ["i", "i", ""]


def test_an_instance_that_takes_defined_topics_alone_has_a_field_that_says_so(world):
    assert world.run("read_catalog", "")[-1] == ""
    world.mark()
    world.run("define_instance", world.version(), "", "", "", 1)
    assert world.changes() == {":instance": {"defined_only": "1", "catalog": version_after(1)}}
    assert world.run("read_catalog", "")[-1] == "1"
    world.run("define_instance", world.version(), "", "", "", "")
    assert world.run("read_catalog", "")[-1] == ""


@pytest.mark.parametrize(
    ("name", "arguments"), [("define_destination", ["nyc-2", "{}", 1]), ("define_instance", ["NYC", "", "", ""])]
)
def test_what_was_worked_out_from_an_old_catalog_is_refused(world, name, arguments):
    world.topic("orders")
    world.mark()
    with pytest.raises(CatalogChanged):
        world.run(name, "0", *arguments)
    assert world.changes() == {}


def test_a_queue_has_the_owner_of_its_messages_and_how_long_what_is_told_of_them_waits(world):
    world.mark()
    world.queue("work", "orders", owner="nyc-1", domain="NYC", deferral=5_000)
    fields = {"owner": "nyc-1", "domain": "NYC", "deferral": "5000"}
    assert {name: world.changes()[":q:work"][name] for name in fields} == fields
    world.mark()
    world.queue("work", "orders")
    assert world.changes() == {":q:work": dict.fromkeys(fields), ":instance": {"catalog": version_after(2)}}


def unread(world):
    world.publish("orders", "one")


def ready(world):
    world.publish("orders", "one")
    subscription = world.subscribe("work")
    world.unsubscribe(subscription, world.take(subscription))
    assert world.state()[":q:work:ready"]


def leased(world):
    world.publish("orders", "one")
    world.take(world.subscribe("work"))


def delayed(world):
    world.publish("orders", "one")
    (message,) = world.take(world.subscribe("work"))
    world.settle("cancelled", [message], period=5_000)


def scheduled(world):
    world.publish("orders", "one", due=9_000)
    world.take(world.subscribe("work"))
    assert world.state()[":q:work"]["scheduled"] == "1"


def remote(world):
    """Owned elsewhere."""
    world.store.redis.zadd(world.key(":q:work:remote"), {ref("1000-0"): 0})


@pytest.mark.parametrize("holding", [unread, ready, leased, delayed, scheduled, remote])
@pytest.mark.parametrize("change", [{"owner": "nyc-2"}, {"owner": "*", "domain": "US"}, {"owner": ""}])
def test_the_owner_of_a_queue_with_a_message_anywhere_is_not_changed(world, holding, change):
    world.queue("work", "orders", owner="*")
    holding(world)
    world.mark()

    with pytest.raises(QueueNotEmpty) as refusal:
        world.queue("work", "orders", **change)

    assert refusal.value.detail == {"queue": "work"}
    assert world.changes() == {}
    # Nor is anything else refused
    world.queue("work", "orders", owner="*", room=7)


@pytest.mark.parametrize("sorted_by", [{"priority": "/p"}, {"barrier": "/b"}])
def test_nor_of_one_that_sorts_its_messages(world, sorted_by):
    world.queue("work", "orders", owner="*", **sorted_by)
    world.publish("orders", '{"b": 1}', '{"p": 1}')
    world.take(world.subscribe("work", asked=1))
    with pytest.raises(QueueNotEmpty):
        world.queue("work", "orders", owner="nyc-2", **sorted_by)


def test_nor_of_one_that_is_being_rebuilt(world):
    world.queue("work", "orders", owner="*")
    world.run("begin_rebuild", world.now, "work", "me", 5_000, 0, "orders 0-0 0")
    with pytest.raises(QueueNotEmpty):
        world.queue("work", "orders", owner="")


def test_it_is_once_everything_is_settled(world):
    world.queue("work", "orders", owner="*")
    world.publish("orders", "one", "two")
    world.settle("acknowledged", world.take(world.subscribe("work", asked=2), 2))
    world.queue("work", "orders", owner="nyc-2", domain="NYC")
    assert world.state()[":q:work"]["owner"] == "nyc-2"
