"""The scripts of actions, and what other scripts tell them: deliveries and happenings."""

from __future__ import annotations

import pytest
from world import ref, version_after

from ampsq.base.errors import MissingKey, UnknownTopic

FIRST, SECOND = ref("1000-0"), ref("1000-1")


def define(world, *orders, heard=0, text="{}"):
    return world.run("define_action", world.now, world.version(), "a", text, heard, *orders)


def failed(world, *publishers, expected="0-0", sequence=1):
    place = ("expire work", expected, "1-0", sequence, 1)
    return world.run("set_event_aside", "a", *place, '{"x":1}', "why", 2_000, *publishers)


# -- define_action


def test_an_action_begins_at_the_end_of_what_it_follows(world):
    world.queue("work", "orders")
    world.publish("orders", "one", "two")
    world.settle("expired", {"work": [(FIRST, "")]})
    ((last, _),) = world.store.redis.xrevrange(world.key(":q:work:journal"), count=1)
    world.mark()

    orders = ("follow", "expire work", "journal work", "follow", "publish orders", "log orders")
    assert define(world, *orders, "follow", "event x", "happenings ", "wait", "schedule 4h", "", heard=1) == 1

    changes = world.changes()
    assert changes.pop(":instance") == {"catalog": version_after(2), "heard": "1"}
    assert changes == {
        ":actions": {"a": "{}"},
        ":action:a": {
            "cursor expire work": last.decode(), "sequence expire work": "0", "read expire work": "1",
            "cursor publish orders": "1000-1", "sequence publish orders": "0", "read publish orders": "2",
            "cursor event x": "0-0", "sequence event x": "0", "read event x": "0",
            "cursor schedule 4h": "1000", "sequence schedule 4h": "0", "read schedule 4h": "0",
        },
    }  # fmt: skip


def test_an_action_keeps_its_places_and_drops_those_that_it_leaves(world):
    world.queue("work", "orders")
    world.publish("orders", "one")
    define(world, "begin", "track orders", "log orders", "follow", "expire work", "journal work", heard=1)
    world.run("advance_action", "a", "expire work", "0-0", "7-0", 5, 5, 2)
    world.run("track_matches", "a", "track orders", "0-0", "1000-0", 1, 500, "orders [1]", 1_000, "1000-0", "one")
    world.mark()

    again = ("follow", "expire work", "journal work", "leave", "publish orders", "", "forget", "track orders", "")
    define(world, *again, "begin", "track orders", "log orders", text='{"b":1}')

    assert world.changes() == {
        ":actions": {"a": '{"b":1}'},
        ":action:a": {"cursor track orders": "0-0", "read track orders": "0"},
        ":action:a:tracked": None,
        ":action:a:waits": None,
        ":instance": {"catalog": version_after(3), "heard": None},
    }
    # A source that is left loses its cursor, not its sequence
    world.mark()
    define(world, "leave", "expire work", "", text='{"b":1}')
    assert world.changes() == {":action:a": {"cursor expire work": None}, ":instance": {"catalog": version_after(4)}}


def test_deliveries_are_recorded_as_an_action_asks(world):
    world.queue("work", "orders")
    world.mark()
    define(world, "record", "work", "")
    assert world.changes()[":q:work"] == {"recorded": "1"}
    world.mark()
    define(world, "ignore", "work", "")
    assert world.changes()[":q:work"] == {"recorded": None}


# -- advance, set_aside, redo


def test_an_action_advances_only_from_where_it_is(world):
    world.mark()

    assert world.run("advance_action", "a", "expire work", "0-0", "5-0+2", 3, 4, 2) == 1
    assert world.changes() == {
        ":action:a": {"cursor expire work": "5-0+2", "sequence expire work": "3", "read expire work": "4", "done": "2"}
    }
    world.mark()
    assert world.run("advance_action", "a", "expire work", "0-0", "5-0", 4, 5, 1) == 0
    assert world.run("advance_action", "a", "expire work", "5-0", "6-0", 4, 5, 1) == 0
    assert world.changes() == {}
    # Nothing done raises no figure
    world.run("advance_action", "a", "expire work", "5-0+2", "5-0", 4, 5, 0)
    assert world.changes() == {
        ":action:a": {"cursor expire work": "5-0", "sequence expire work": "4", "read expire work": "5"}
    }


def test_what_failed_is_set_aside_with_its_numbers_used_up(world):
    world.topic("dead")
    world.publish("dead", "former", publisher="p", sequence=3)
    world.mark()

    assert failed(world, "p", "dead", "q", "other", sequence=4) == [1, 1]

    assert world.changes() == {
        ":publishers": {"p": "4 1000-0 dead", "q": "4 0-0 other"},
        ":action:a": {
            "cursor expire work": "1-0", "sequence expire work": "4", "read expire work": "1", "failures": "1",
            "error": "why",
        },
        ":action:a:failed": {"1": '1 {"x":1}'},
        ":action:a:retries": {"1": 2_000.0},
    }  # fmt: skip
    # A late publish of that number is a duplicate, and the next one is none
    world.mark()
    assert world.publish("dead", "late", publisher="p", sequence=4)[1:4] == [1, "", 0]
    assert (
        world.publish("other", "late", publisher="q", sequence=4)[1:4] == [1, "", 0] if world.topic("other") else True
    )
    assert world.publish("dead", "next", publisher="p", sequence=5)[1] == 0


def test_nothing_is_set_aside_from_another_place_or_after_it_was_published(world):
    world.topic("dead")
    world.publish("dead", "one", publisher="q", sequence=1)
    world.mark()

    assert failed(world, "p", "dead", expected="9-0") == [0, 0]
    assert failed(world, "p", "dead", "q", "dead", "r", "dead") == [2, 2]
    world.store.redis.hset(world.key(":action:a:failed"), mapping={str(n): "1 {}" for n in range(10_000)})
    world.mark()
    assert failed(world, "p", "dead") == [3, 0]
    assert world.changes() == {}


def test_a_failed_event_moves_on_and_publishes_in_one_step(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work")
    failed(world)
    world.mark()

    arguments = (world.now, "a", 1, 1, '{"x":2}', 9_000, "", "work", "body", '{"h":"1"}', "action:a:failed:1:0")
    world.topic("orders")
    world.mark()
    assert world.run("retry_event", *arguments) == 1

    changes = world.changes()
    assert changes[":log:orders"] == [("1000-0", {"b": "body", "p": "action:a:failed:1:0", "n": "1", "h": '{"h":"1"}'})]
    assert changes[":action:a:failed"] == {"1": '2 {"x":2}'}
    assert changes[":action:a:retries"] == {"1": 9_000.0}
    assert [message.body for message in world.inbox(subscription)] == ["body"]
    assert ":publishers" not in changes
    # Again, it changes nothing
    world.mark()
    assert world.run("retry_event", *arguments) == 0
    assert world.run("retry_event", world.now, "a", 7, 1, "", 0, "", "", "", "", "") == 0
    assert world.changes() == {}


def test_a_failed_event_that_is_done_leaves_nothing_behind(world):
    failed(world)
    world.run("raise_counter", "a", "failed 1", 1, "seen")
    world.mark()

    assert world.run("retry_event", world.now, "a", 1, 1, "", 0, "done", "", "", "", "") == 1

    assert world.changes() == {
        ":action:a:failed": None,
        ":action:a:retries": None,
        ":action:a": {"counted failed 1": None, "done": "1"},
    }


def test_a_failed_event_is_not_published_to_an_unknown_topic(world):
    failed(world)
    world.mark()
    with pytest.raises(UnknownTopic) as refusal:
        world.run("retry_event", world.now, "a", 1, 1, "", 0, "", "nowhere", "body", "", "p")
    assert refusal.value.detail == {"name": "nowhere"}
    assert world.changes() == {}


def test_a_failed_event_of_a_topic_with_a_key_is_recorded_by_its_rules(world):
    world.keyed("prices")
    failed(world)
    world.mark()

    # Without its key it is refused, as by publish, and stays where it was
    with pytest.raises(MissingKey) as refusal:
        world.run("retry_event", world.now, "a", 1, 1, "", 0, "done", "prices", '{"x":1}', "", "p")
    assert refusal.value.detail == {"topic": "prices", "key": "/id", "message": 0}
    assert world.changes() == {}

    # With it, it has a record as any message
    assert world.run("retry_event", world.now, "a", 1, 1, "", 0, "done", "prices", '{"id":7}', "", "p") == 1
    recorded = world.store.redis.hkeys(world.key(":records:prices"))
    assert len(recorded) == 1
    world.publish("prices", '{"id":7}')
    assert world.store.redis.hkeys(world.key(":records:prices")) == recorded


# -- count


def test_a_counter_rises_once_for_each_sequence(world):
    world.mark()
    assert world.run("raise_counter", "a", "expire work 0", 3, "seen") == "1"
    assert world.changes() == {":counters": {"seen": "1"}, ":action:a": {"counted expire work 0": "3 1"}}
    assert world.run("raise_counter", "b", "expire work 0", 1, "seen") == "2"
    world.mark()
    assert world.run("raise_counter", "a", "expire work 0", 3, "seen") == "1"
    assert world.run("raise_counter", "a", "expire work 0", 2, "seen") == "2"
    assert world.changes() == {}
    assert world.run("raise_counter", "a", "expire work 0", 4, "seen") == "3"


# -- happenings


def told(world):
    return [fields for _, fields in world.state().get(":happenings", [])]


def test_nothing_is_told_while_nobody_asks(world):
    world.queue("work", "orders")
    world.mark()
    assert world.run("emit_event", world.now, "connect", "c", "", "") == 0
    assert world.run("emit_event", world.now, "event", "", "x", "data") == 0
    assert world.changes() == {}
    world.unsubscribe(world.subscribe("work"))
    assert told(world) == []


def test_comings_goings_and_events_are_told(world):
    define(world, heard=1)
    assert [world.run("emit_event", world.now, "connect", "c", "", "") for _ in range(2)] == [1, 0]
    assert world.run("emit_event", world.now, "event", "c", "lost", "data") == 1
    assert [world.run("emit_event", world.now, "disconnect", "c", "", "") for _ in range(2)] == [1, 0]
    assert told(world) == [
        {"what": "connect", "client": "c", "topic": "", "data": ""},
        {"what": "event", "client": "c", "topic": "lost", "data": "data"},
        {"what": "disconnect", "client": "c", "topic": "", "data": ""},
    ]


def test_subscriptions_are_told_with_what_they_ask_for(world):
    world.queue("work", "orders")
    world.queue("mail", "orders")
    define(world, heard=1)
    one = world.subscribe("work", asked=7, filter="/a = 1", client="host-1/3")
    assert world.subscribe("work", asked=7, filter="/a = 1", client="host-1/3") == one
    two = world.subscribe("work", "mail", pattern="^w|^m", version=world.version(), client="host-2/1")
    world.unsubscribe(one)
    world.unsubscribe(one)
    world.unsubscribe(two)
    tree = '["=",["f","a"],["n",1]]'
    mine = {"client": "host-1", "queues": "work", "topic": "work", "options": "max_backlog=7", "tree": tree}
    other = {"client": "host-2", "queues": "work mail", "topic": "^w|^m", "options": "max_backlog=1", "tree": ""}
    assert told(world) == [
        {"what": "subscribe", **mine},
        {"what": "subscribe", **other},
        {"what": "unsubscribe", **mine},
        {"what": "unsubscribe", **other},
    ]
    assert set(world.state()[":clients"]) == {"host-1", "host-2"}


# -- deliveries


def deliveries(world):
    return [fields for _, fields in world.state().get(":q:work:deliveries", [])]


@pytest.mark.parametrize("priority", ["", "/p"])
def test_deliveries_and_returns_of_a_recorded_queue_say_who_and_why(world, priority):
    world.queue("work", "orders", recorded=1, lease=100, priority=priority)
    one = world.subscribe("work", asked=2, client="host-1/1")
    two = world.subscribe("work", asked=2, client="host-2/1")
    world.publish("orders", '{"p":1}', '{"p":1}')
    taken = [*world.take(one, 2), *world.take(two, 2)]
    assert len(taken) == 2
    holders = [world.holders("work")[place] for place in (FIRST, SECOND)]
    clients = {one: "host-1", two: "host-2"}
    delivered = [entry for entry in deliveries(world) if not entry["cause"]]
    assert {
        place: (by, client)
        for entry in delivered
        for place, by, client in zip(*(entry[name].split() for name in ("refs", "by", "client")), strict=True)
    } == {place: (holder, clients[holder]) for place, holder in zip((FIRST, SECOND), holders, strict=True)}
    # And what comes back
    before = len(deliveries(world))
    world.settle("cancelled", [message for message in taken if message.ref == FIRST])
    first = deliveries(world)[before]
    assert (first["refs"], first["by"], first["client"], first["cause"]) == (
        FIRST, holders[0], clients[holders[0]], "cancelled",
    )  # fmt: skip
    world.unsubscribe(one)
    world.unsubscribe(two)
    world.now += 1_000
    world.sweep_all()
    last = deliveries(world)[-1]
    assert (last["cause"], last["client"]) == ("disconnected", clients[last["by"]])


def test_a_plain_queue_records_no_deliveries(world):
    world.queue("work", "orders")
    one = world.subscribe("work")
    world.publish("orders", "a")
    world.settle("cancelled", world.take(one))
    assert deliveries(world) == []


# -- track and overdue


def test_what_matches_is_tracked_from_its_first_message_on(world):
    world.mark()
    changes = ("orders [1]", 5_000, "5000-0", "one", "orders [2]", 6_000, "6000-0", "two\nlines")
    assert world.run("track_matches", "a", "track orders", "0-0", "6000-0", 2, 500, *changes) == 1
    assert world.changes() == {
        ":action:a": {"cursor track orders": "6000-0", "read track orders": "2"},
        ":action:a:tracked": {"orders [1]": "5000 0 5000-0\none", "orders [2]": "6000 0 6000-0\ntwo\nlines"},
        ":action:a:waits": {"orders [1]": 5_500.0, "orders [2]": 6_500.0},
    }
    world.mark()
    assert world.run("track_matches", "a", "track orders", "0-0", "7000-0", 3, 500, "orders [1]", "", "", "") == 0
    assert world.changes() == {}
    later = ("orders [1]", 7_000, "7000-0", "new", "orders [2]", "", "", "")
    assert world.run("track_matches", "a", "track orders", "6000-0", "7000-0", 4, 500, *later) == 1
    assert world.changes() == {
        ":action:a": {"cursor track orders": "7000-0", "read track orders": "4"},
        ":action:a:tracked": {"orders [1]": "5000 0 7000-0\nnew", "orders [2]": None},
        ":action:a:waits": {"orders [2]": None},
    }


def test_a_time_that_is_over_is_told_once(world):
    changes = ("orders [1]", 5_000, "5000-0", "one\nbody", "orders [2]", 6_000, "6000-0", "two")
    world.run("track_matches", "a", "track orders", "0-0", "6000-0", 2, 500, *changes)
    world.now = 5_500
    world.mark()
    assert world.run("emit_overdue", world.now, "a") == 1
    told = world.changes()
    ((_, entry),) = told.pop(":action:a:overdue")
    assert entry == {"topic": "orders", "key": "[1]", "since": "5000", "id": "5000-0", "b": "one\nbody"}
    assert told == {
        ":action:a:tracked": {"orders [1]": "5000 1 5000-0\none\nbody"},
        ":action:a:waits": {"orders [1]": None},
    }
    assert world.run("emit_overdue", world.now, "a") == 0
    # What still matches is told no more, until it did not match
    world.run("track_matches", "a", "track orders", "6000-0", "7000-0", 3, 500, "orders [1]", 7_000, "7000-0", "three")
    assert world.state()[":action:a:tracked"]["orders [1]"] == "5000 1 7000-0\nthree"
    again = ("orders [1]", "", "", "", "orders [1]", 9_000, "9000-0", "four")
    world.run("track_matches", "a", "track orders", "7000-0", "9000-0", 5, 500, *again)
    assert world.state()[":action:a:waits"]["orders [1]"] == 9_500.0
