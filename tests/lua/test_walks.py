"""Looking through a queue without changing it: walk, browse, look; and the events of a watched queue."""

from __future__ import annotations

import json

import pytest
from judged import message, put, put_many
from world import ref

from ampsq.base.errors import UnknownQueue
from ampsq.expressions import parse
from ampsq.protocol.limits import BATCH


def rows(reply):
    return [dict(zip(("ref", "fields", "deliveries", "holder", "score", "member"), reply[i : i + 6], strict=True))
            for i in range(0, len(reply), 6)]  # fmt: skip


def browse_step(world, queue, source, after="", until="", *, text=""):
    tree = parse(text, "query").json if text else ""
    following, available, *found = world.run("browse", world.now, queue, source, after, until, tree)
    return following, available, rows(found)


def browse(world, queue, source, until="", text=""):
    """All steps of one source; gives the number of available ones and the rows."""
    after, total, found = "", 0, []
    for _ in range(1_000):
        after, available, more = browse_step(world, queue, source, after, until, text=text)
        total += available
        found += more
        if not after:
            return total, found
    raise AssertionError("browsing never ends")


def walk(world, queue):
    last, active, is_sorted, _, *cursors = world.run("begin_browse", queue)
    return last, active, is_sorted, dict(zip(cursors[::2], cursors[1::2], strict=True))


def refs(found):
    return [row["ref"] for row in found]


def look(world, queue, *places):
    looked, *found = world.run("read_available", world.now, queue, *places)
    assert looked == len(places)
    return refs(rows(found))


@pytest.fixture
def everywhere(world):
    """A filtered queue with a message in every state: settled, leased, delayed, sorted, ready, unread."""
    world.queue("work", "orders")
    world.places = put(world, *map(message, range(6)))
    world.holder = world.subscribe("work", asked=2, filter="/n < 3")
    held = world.take(world.holder, 2)
    world.take(world.holder, 2, held[:1])
    (third,) = [p for p in world.holders("work") if p == world.places[2]]
    world.settle("cancelled", {"work": [(third, "")]}, period=9_000)
    world.places += put(world, message(6), message(7))
    return world


# -- nothing is changed


@pytest.mark.parametrize("source", ["ready", "sorted", "held", "leases", "log orders"])
def test_browsing_and_looking_change_nothing(everywhere, source):
    world = everywhere
    world.mark()
    browse(world, "work", source, "+", "/n > 0")
    look(world, "work", *world.places, ref("9-9"), "nonsense")
    walk(world, "work")
    assert world.changes() == {}


@pytest.mark.parametrize("call", [
    lambda world: world.run("browse", world.now, "nowhere", "ready", "", "", ""),
    lambda world: world.run("read_available", world.now, "nowhere", "d1000a0/orders"),
    lambda world: world.run("begin_browse", "nowhere"),
    lambda world: world.run("watch_queue", world.now, "nowhere", 60_000),
])  # fmt: skip
def test_an_unknown_queue_is_refused_and_nothing_changes(everywhere, call):
    everywhere.mark()
    with pytest.raises(UnknownQueue) as refusal:
        call(everywhere)
    assert refusal.value.detail == {"queue": "nowhere"}
    assert everywhere.changes() == {}


# -- what is where


def test_each_source_has_its_own_and_none_is_in_two(everywhere):
    world = everywhere
    zero, one, two, *waiting = world.places
    last, active, is_sorted, cursors = walk(world, "work")
    assert (last, active, is_sorted) == ("1000-7", -1, 1)
    found = {source: refs(browse(world, "work", source)[1]) for source in ("ready", "sorted", "held", "leases")}
    after = browse_step(world, "work", "log orders", cursors["orders"], last)
    unread = refs(after[2])
    assert found["leases"] == [one]
    assert sorted(found["sorted"] + found["ready"] + unread) == waiting
    assert found["held"] == []
    assert zero not in unread
    assert two not in [place for places in found.values() for place in places]


def test_a_row_has_body_deliveries_and_holder(everywhere):
    world = everywhere
    _, (row,) = browse(world, "work", "leases")
    assert row == {
        "ref": world.places[1], "fields": ["b", message(1)], "deliveries": "0", "holder": world.holder, "score": "0",
        "member": world.places[1],
    }  # fmt: skip


def test_what_came_back_says_how_often_it_was_delivered(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work")
    (place,) = put(world, message(0))
    held = world.take(subscription)
    world.replace(subscription, "work", asked=0)
    world.settle("cancelled", held)
    total, (row,) = browse(world, "work", "ready")
    assert total == 1
    assert (row["ref"], row["deliveries"], row["holder"]) == (place, "1", "")


def test_a_filter_counts_what_is_available_and_gives_what_matches(world):
    world.queue("work", "orders")
    put_many(world, 700)
    total, found = browse(world, "work", "log orders", "1000-699", "/n % 100 = 5")
    assert total == 700
    assert [json.loads(row["fields"][1])["n"] for row in found] == list(range(5, 700, 100))


def test_a_query_may_ask_how_often_and_when(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work", asked=2)
    put(world, message(0), message(1))
    held = world.take(subscription, 2)
    world.replace(subscription, "work", asked=0)
    world.settle("cancelled", held[:1])
    world.settle("given_back", held[1:])
    assert refs(browse(world, "work", "ready", text="LEASE_COUNT() = 1")[1]) == [held[0].ref]
    assert refs(browse(world, "work", "ready", text="UNIX_TIMESTAMP() = 1")[1]) == [held[0].ref, held[1].ref]


def test_what_the_queue_s_filter_will_refuse_is_not_available(world):
    world.queue("work", "orders", entry="/n > 1")
    places = put(world, *map(message, range(4)))
    total, found = browse(world, "work", "log orders", "1000-9")
    assert (total, refs(found)) == (2, places[2:])
    assert look(world, "work", *places) == places[2:]


def test_what_is_settled_ahead_leased_or_delayed_is_not_available(everywhere):
    world = everywhere
    zero, one, two, three, *_ = world.places
    last = world.places[-1]
    world.settle("acknowledged", {"work": [(last, ""), (three, "")]})
    assert look(world, "work", *world.places) == world.places[4:-1]
    assert last not in refs(browse(world, "work", "log orders", "1000-99")[1])
    assert not {zero, one, two, three} & set(refs(browse(world, "work", "log orders", "1000-99")[1]))


def test_what_is_held_behind_a_barrier_is_available(world):
    world.queue("work", "orders", barrier="/end = 1")
    subscription = world.subscribe("work", asked=5)
    places = put(world, message(0), message(1, end=1), message(2))
    world.take(subscription)
    assert refs(browse(world, "work", "held")[1]) == places[1:]
    assert look(world, "work", *places) == places[1:]


def test_a_priority_s_places_come_in_its_order_with_their_scores(world):
    world.queue("work", "orders", priority="/p")
    places = put(world, *[message(i, p=p) for i, p in enumerate([1, 2**60 + 1, None, 2**60 + 2, 7])])
    world.sweep_all()
    total, found = browse(world, "work", "sorted")
    assert total == 5
    assert refs(found) == [places[k] for k in (3, 1, 4, 0, 2)]
    assert [float(row["score"]) for row in found] == [-(2.0**60), -(2.0**60), -7, -1, 1]
    assert all(row["member"].endswith(row["ref"]) for row in found)
    assert found[0]["member"] < found[1]["member"]


def test_what_somebody_removed_from_the_log_is_passed_over(everywhere):
    world = everywhere
    world.store.redis.delete(world.key(":log:orders"))
    for source in ("ready", "sorted", "held", "leases", "log orders"):
        assert browse(world, "work", source, "+") == (0, [])
    assert look(world, "work", *world.places) == []


def test_a_walk_knows_how_much_of_the_log_a_depth_makes_active(world):
    world.queue("work", "orders", depth=5)
    world.queue("plain", "orders")
    subscription = world.subscribe("work", asked=2)
    put(world, *map(message, range(9)))
    world.take(subscription, 2)
    assert walk(world, "work")[1] == 3
    assert walk(world, "plain")[1] == -1


def test_a_walk_ends_at_what_others_wrote_too(world):
    world.queue("work", "orders")
    put(world, message(0))
    world.xadd("orders", "7777-5", "x", "1")
    last, _, is_sorted, cursors = walk(world, "work")
    assert (last, is_sorted, cursors) == ("7777-5", 0, {"orders": "0-0"})
    assert [row["fields"] for row in browse(world, "work", "log orders", last)[1]][-1] == ["x", "1"]


# -- in steps, while the queue changes


@pytest.mark.parametrize("source", ["sorted", "ready", "log orders", "leases"])
def test_thousands_are_seen_once_in_bounded_steps(world, source):
    world.queue("work", "orders", room=5_000)
    places = put_many(world, 2_000)
    if source == "sorted":
        reader = world.subscribe("work", filter="/n > 99999")
        for _ in range(40):
            world.take(reader)
    elif source != "log orders":
        holder = world.subscribe("work", asked=2_000)
        while len(world.holders("work")) < 2_000:
            world.take(holder, 500)
        if source == "ready":
            world.unsubscribe(holder)
            world.sweep_all()
    after, found, steps = "", [], 0
    while after or not steps:
        after, _, more = browse_step(world, "work", source, after, "+")
        found += refs(more)
        assert len(more) <= BATCH
        steps += 1
    assert sorted(found) == sorted(places)
    assert steps > 3


@pytest.mark.parametrize("priority", ["", "/p"])
def test_a_step_goes_on_where_the_last_one_stopped_though_that_is_gone(world, priority):
    world.queue("work", "orders", priority=priority)
    for first in range(0, 1_500, BATCH):
        put(world, *[message(i, p=2**60 + i // 7) for i in range(first, first + BATCH)])
    reader = world.subscribe("work", filter="/n > 99999")
    world.sweep_all()
    for _ in range(40):
        world.take(reader)
    after, _, first = browse_step(world, "work", "sorted")
    stopped = refs(first)[-1]
    gone = refs(first)[-20:]
    world.settle("expired", {"work": [(place, "") for place in gone]})
    found = refs(first)
    while after:
        after, _, more = browse_step(world, "work", "sorted", after)
        found += refs(more)
    assert len(found) == len(set(found)) == 1_500
    assert stopped in found
