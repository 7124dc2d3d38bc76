"""open, define_*, catalog, stats and notice."""

from __future__ import annotations

import re

import pytest
from observing import eventually
from world import decoded, ref, version_after

from ampsq.base.errors import CatalogChanged, SlotKeyTaken, UnknownQueue
from ampsq.protocol.schema import COUNTED_SINCE, FORMAT


def test_open_makes_an_instance_and_finds_it_again(world):
    world.store.redis.delete(world.key(":instance"))
    world.mark()

    assert world.run("open", 5_000, "nyc-1", "t6w1xk") == ["nyc-1.t6w1xk", "0", 5_000]
    found = {"format": str(FORMAT), "name": "nyc-1", "origin": "nyc-1.t6w1xk", "catalog": "0"}
    assert world.changes() == {":instance": found | {"run": world.store.redis.info("server")["run_id"]}}
    world.mark()
    assert world.run("open", 6_000, "nyc-1", "other") == ["nyc-1.t6w1xk", "0", 6_000]
    assert world.changes() == {}


def test_an_instance_whose_slot_key_somebody_made_is_not_opened(world):
    name = f"{{{world.store.instance}}}"
    world.store.redis.set(name, "of another program")
    world.mark()

    with pytest.raises(SlotKeyTaken, match=re.escape(f"a key named {name!r}")):
        world.run("open", 5_000, "nyc-1", "t6w1xk")

    assert world.changes() == {}
    world.store.redis.delete(name)
    assert world.run("open", 5_000, "nyc-1", "t6w1xk")[2] == 5_000


def test_a_topic_is_defined_and_feeds_the_queues_that_it_is_told(world):
    world.queue("work", "orders", pattern=True)
    world.mark()

    world.topic("returns", "work")

    assert world.changes() == {
        ":topics": {"returns": "{}"},
        ":routes": {"returns": "*work"},
        ":q:work:cursors": {"returns": "0-0 0"},
        ":instance": {"catalog": version_after(2)},
    }


def test_a_topic_defined_twice_only_raises_the_version(world):
    world.queue("work", "orders", pattern=True)
    world.topic("returns", "work")
    world.mark()

    world.topic("returns", "work")

    assert world.changes() == {":instance": {"catalog": version_after(3)}}


def milliseconds(time):
    seconds, microseconds = time
    return seconds * 1_000 + microseconds // 1_000


def test_a_version_that_a_server_lost_is_not_given_to_another_catalog(world):
    # Given an instance whose versions follow the clock, and a server that loses its last definition
    redis, name = world.store.redis, world.key(":instance")
    redis.hset(name, "catalog", 0)
    world.topic("orders")
    before = world.version()
    world.topic("returns")
    lost = world.version()
    redis.hset(name, "catalog", before)

    # When another one is made, later by the server's clock
    eventually(lambda: milliseconds(redis.time()) > int(lost) + COUNTED_SINCE)
    world.topic("trades")

    assert int(before) < int(lost) < int(world.version())


def test_who_defines_a_topic_or_a_queue_is_told_the_version_with_it(world):
    assert decoded(world.topic("orders")) == world.version() == version_after(1)
    assert decoded(world.queue("work", "orders")) == world.version() == version_after(2)


def test_a_topic_that_others_filled_before_is_read_from_its_first_entry(world):
    world.queue("work", "orders", pattern=True)
    subscription = world.subscribe("work", asked=5)
    world.xadd("returns", "7-0", "b", "old")

    world.topic("returns", "work")

    assert [m.body for m in world.inbox(subscription)] == ["old"]


def test_a_queue_is_defined_with_its_topics_route_and_anchor(world):
    world.mark()

    world.queue("work", "orders", "returns", lease=5_000, room=7)

    assert world.changes() == {
        ":queues": {"work": "{}"},
        ":topics": {"orders": "{}", "returns": "{}"},
        ":routes": {"orders": "*work", "returns": "*work", "work": ">orders"},
        ":q:work": {"compiled": "5000 0 0 0 1 0 0 0 7 0", "target": "orders"},
        ":q:work:cursors": {"orders": "0-0 0", "returns": "0-0 0"},
        ":instance": {"catalog": version_after(1)},
    }
    assert world.store.redis.hlen(world.key(":q:work:leases")) == 1
    assert world.store.redis.object("encoding", world.key(":q:work:leases")) == b"hashtable"


def test_a_queue_over_one_topic_alone_is_routed_without_a_star(world):
    world.mark()

    world.queue("work", "orders")

    assert world.changes() == {
        ":queues": {"work": "{}"},
        ":topics": {"orders": "{}"},
        ":routes": {"orders": "work", "work": ">orders"},
        ":q:work": {"compiled": "0 0 0 0 1 0 0 0 1000 0 orders", "target": "orders"},
        ":q:work:cursors": {"orders": "0-0 0"},
        ":instance": {"catalog": version_after(1)},
    }


def test_a_queue_of_the_same_name_as_its_topic_is_no_alias(world):
    world.queue("orders", "orders")

    assert world.state()[":routes"] == {"orders": "orders"}
    assert world.publish("orders", "one")[0] == "orders"


def test_a_queue_defined_again_keeps_its_place_and_only_raises_the_version(world):
    world.queue("work", "orders")
    world.publish("orders", "one", "two")
    world.take(world.subscribe("work"))
    world.mark()

    world.queue("work", "orders")

    assert world.changes() == {":instance": {"catalog": version_after(2)}}


def test_a_second_queue_reads_the_topic_from_its_first_entry_too(world):
    world.queue("work", "orders")
    world.publish("orders", "one")

    world.queue("audit", "orders")

    assert world.state()[":routes"]["orders"] == "work audit"
    assert [m.body for m in world.take(world.subscribe("audit"))] == ["one"]


def test_a_larger_backlog_takes_effect_at_once(world):
    world.queue("work", "orders", room=1)
    subscription = world.subscribe("work", asked=5)
    world.publish("orders", "one", "two", "three")

    world.queue("work", "orders", room=2)

    assert [m.body for m in world.inbox(subscription)] == ["one", "two"]
    assert world.state()[f":s:{subscription}"]["max"] == "2"


def test_a_smaller_backlog_leaves_what_is_held_and_gives_no_more(world):
    world.queue("work", "orders", room=3)
    subscription = world.subscribe("work", asked=5)
    world.publish("orders", "one", "two", "three", "four")
    messages = world.take(subscription, 3)

    world.queue("work", "orders", room=1)
    assert len(world.holders("work")) == 3
    world.settle("acknowledged", messages[:2])
    assert list(world.holders("work")) == [messages[2].ref]

    world.settle("acknowledged", messages[2:])
    assert len(world.holders("work")) == 1


def test_another_fairness_model_takes_effect_at_once(world):
    world.queue("work", "orders")
    first, second = world.subscribe("work", asked=9), world.subscribe("work", asked=9)
    world.publish("orders", "one")

    world.queue("work", "orders", fairness="fast")
    world.publish("orders", "two", "three")

    assert world.state()[f":s:{second}"]["leased"] == "0"
    assert set(world.holders("work").values()) == {first}


def test_a_queue_takes_in_the_subscriptions_whose_pattern_matches(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work", asked=4, pattern=".*", version=world.version())

    world.queue("mail", "letters", subscriptions=[subscription, "s00000099"], room=2)

    state = world.state()
    assert state[f":s:{subscription}"]["queues"] == "work mail"
    assert state[f":s:{subscription}"]["max"] == "2"
    assert state[":q:mail:free:none"] == {subscription: 0.0}


def test_the_catalog_is_one_picture(world):
    world.queue("work", "orders")
    world.run("define_action", world.now, world.version(), "dead", "{}", 0)
    world.run("define_setting", world.version(), "ring.#", '{"name":"ring.#"}')
    world.subscribe("work", pattern="w.*", version=world.version())
    world.mark()

    assert world.run("read_catalog", "") == [
        version_after(4),
        ["orders", "{}"],
        ["work", "{}"],
        ["dead", "{}"],
        ["s00000001", "w.*"],
        [],
        ["ring.#", '{"name":"ring.#"}'],
        [],
        [],
        [],
        "i",
        "i",
        "",
        1_048_576,
        "",
    ]
    assert world.changes() == {}


def test_a_catalog_that_the_caller_has_is_not_sent_again(world):
    world.queue("work", "orders")
    known = world.version()

    assert world.run("read_catalog", known) == [known]
    world.queue("mail", "letters")
    assert world.run("read_catalog", known)[2] == ["work", "{}", "mail", "{}"]
    assert len(world.run("read_catalog", "")) == 15


def test_stats_of_an_unknown_queue_are_refused(world):
    with pytest.raises(UnknownQueue) as refusal:
        world.run("read_stats", "nowhere")

    assert refusal.value.detail == {"queue": "nowhere"}


def test_stats_count_each_thing_where_it_is(world):
    world.queue("work", "orders", "returns")
    world.publish("orders", *"abcde")
    subscription = world.subscribe("work", asked=2)
    first, _ = world.take(subscription, 2)
    world.settle("acknowledged", {"work": [(ref("1000-4"), "")]})
    world.settle("cancelled", [first], period=500)
    world.mark()

    fields, *numbers = world.run("read_stats", "work")

    assert dict(zip(fields[::2], fields[1::2], strict=True)) == {
        "compiled": "0 0 0 0 1 0 0 0 1000 0",
        "target": "orders",
        "token": "3",
        "acknowledged": "1",
        "returned": "1",
        "delayed": "1",
    }
    # leased, ready, subscriptions, ahead, sorted, held, remote; then each topic: unread, cursor, last ID
    assert numbers == [2, 0, 1, 1, 0, 0, 0, "orders", 2, "1000-2", "1000-4", "returns", 0, "0-0", "0-0"]
    assert world.changes() == {}


def test_notice_finds_entries_of_others_and_moves_the_clock_above_them(world):
    world.queue("work", "orders", "returns")
    world.xadd("orders", "5000-3", "b", "theirs")
    world.mark()

    assert world.run("scan_foreign_entries", world.now, "orders", "", "returns", "", "nowhere", "") == [
        "5000-3",
        "",
        "",
    ]
    assert world.changes() == {":clock": "5000-3", ":q:work:behind": {"orders": 0.0}}
    assert world.publish("returns", "ours")[2] == "5000-4"


def test_notice_of_what_was_seen_changes_nothing(world):
    world.queue("work", "orders")
    world.xadd("orders", "5000-3", "b", "theirs")
    world.mark()

    assert world.run("scan_foreign_entries", world.now, "orders", "5000-3") == ["5000-3"]
    assert world.changes() == {}


@pytest.mark.parametrize("pattern", [True, False])
def test_notice_late_or_twice_changes_nothing(world, pattern):
    world.queue("work", "orders", pattern=pattern)
    world.xadd("orders", "5000-3", "b", "theirs")
    world.run("scan_foreign_entries", world.now, "orders", "")
    world.take(world.subscribe("work", asked=5), 5)
    world.mark()

    assert world.run("scan_foreign_entries", world.now, "orders", "") == ["5000-3"]
    assert world.run("scan_foreign_entries", world.now, "orders", "4000-0") == ["5000-3"]
    assert world.changes() == {}


def test_notice_pushes_to_who_is_free(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work", asked=2)
    world.xadd("orders", "5000-3", "price", "1")

    world.run("scan_foreign_entries", world.now, "orders", "")

    assert [(m.kind, m.fields) for m in world.inbox(subscription)] == [("f", {"price": "1"})]


def test_a_setting_is_noted_and_the_catalog_changes(world):
    world.mark()

    assert world.run("define_setting", world.version(), "ring.#", '{"name":"ring.#"}') == 1
    assert world.changes() == {":settings": {"ring.#": '{"name":"ring.#"}'}, ":instance": {"catalog": version_after(1)}}


def test_a_setting_worked_out_from_another_catalog_is_refused_and_nothing_changes(world):
    world.topic("orders")
    world.mark()

    with pytest.raises(CatalogChanged):
        world.run("define_setting", 0, "ring.#", "{}")

    assert world.changes() == {}
