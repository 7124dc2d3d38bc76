"""Looking through a queue without changing it: walk, browse, look; and the events of a watched queue."""

from __future__ import annotations

import json

import pytest
from judged import message, put
from world import ref

from ampsq.base.errors import UnknownQueue
from ampsq.expressions import parse
from ampsq.protocol.limits import BATCH, EVENTS


def put_many(world, number):
    places = []
    for first in range(0, number, BATCH):
        places += put(world, *map(message, range(first, min(first + BATCH, number))))
    return places


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


def events(world, queue="work"):
    return [fields["refs"].split(" ") for _, fields in world.state().get(f":q:{queue}:events", [])]


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


# -- events


def watch(world, period=60_000):
    return world.run("watch_queue", world.now, "work", period)


def test_watching_marks_the_queue_for_a_while_and_answers_where_to_begin(world):
    world.queue("work", "orders")
    world.mark()
    assert watch(world) == ["0-0", str(world.now)]
    marked = {":q:work": {"watched": f"{world.now + 60_000} {world.now}"}, ":due": {"watch work": world.now + 60_000}}
    assert world.changes() == marked
    world.mark()
    assert watch(world, 1_000) == ["0-0", str(world.now)]
    assert world.changes() == {}
    put(world, message(0))
    world.subscribe("work")
    world.take(world.subscribe("work"))
    last, _ = watch(world)
    assert last == world.state()[":q:work:events"][-1][0]


def test_a_queue_that_nobody_watches_any_more_tells_nothing_and_keeps_nothing(world):
    # Given a queue that is watched, and once more before that is over
    world.queue("work", "orders")
    began = world.now
    watch(world)
    subscription = world.subscribe("work", asked=1)
    put(world, *map(message, range(3)))
    held = world.take(subscription)
    world.now += 40_000
    assert watch(world)[1] == str(began)
    # Then it goes on telling
    world.now = began + 60_000
    world.sweep_all()
    assert "watched" in world.state()[":q:work"]
    assert events(world)
    # When nobody did for the whole of it
    world.now = began + 100_000
    world.sweep_all()
    # Then nothing is left of it, nor comes
    assert "watched" not in world.state()[":q:work"]
    world.settle("cancelled", held)
    assert ":q:work:events" not in world.state()
    assert "watch work" not in world.state().get(":due", {})
    # And who watches again learns that there was a gap
    assert watch(world) == ["0-0", str(world.now)]


def test_a_sweep_that_ends_the_watching_and_delivers_tells_nothing(world):
    world.queue("work", "orders", lease=100_000)
    watch(world)
    put(world, message(0))
    held = world.take(world.subscribe("work", asked=1))
    world.settle("cancelled", held, period=60_000)
    world.now += 60_001
    world.sweep_all()
    assert world.holders("work")
    assert ":q:work:events" not in world.state()


def test_a_clock_that_went_far_back_does_not_keep_a_queue_watched(world):
    world.queue("work", "orders")
    world.now += 100_000_000
    watch(world)
    world.now -= 100_000_000
    watch(world)
    assert world.state()[":due"]["watch work"] == world.now + 60_000


def test_a_queue_that_nobody_watches_tells_nothing(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work")
    put(world, message(0))
    world.settle("acknowledged", world.take(subscription))
    assert ":q:work:events" not in world.state()


@pytest.mark.parametrize("wish", [None, "/n >= 0"])
def test_events_name_what_was_given_came_back_became_due_or_was_settled_while_it_waited(world, wish):
    world.queue("work", "orders", lease=1_000)
    watch(world)
    subscription = world.subscribe("work", asked=1, filter=wish)
    places = put(world, *map(message, range(3)))
    assert events(world) == [[places[0]]]
    held = world.take(subscription)
    world.replace(subscription, "work", asked=0, filter=wish)
    seen = len(events(world))
    # Cancelled until later, then due
    world.settle("cancelled", held, period=500)
    assert events(world)[seen:] == [[places[0]]]
    world.now += 500
    world.sweep_all()
    assert events(world)[seen:] == [[places[0]]] * 2
    # Settled by bookmark: one that waits again, one unread or in its place
    world.settle("expired", {"work": [(places[0], ""), (places[1], "")]})
    assert events(world)[seen + 2 :] == [places[:2]]
    # Given, and lapsed
    world.replace(subscription, "work", asked=1, filter=wish)
    world.take(subscription)
    world.replace(subscription, "work", asked=0, filter=wish)
    world.now += 1_001
    world.sweep_all()
    assert {place for named in events(world)[seen + 3 :] for place in named} == {places[2]}
    assert len(events(world)[seen + 3 :]) == 2


def test_an_acknowledgement_of_a_lease_tells_nothing_new(world):
    world.queue("work", "orders")
    watch(world)
    subscription = world.subscribe("work")
    put(world, message(0))
    held = world.take(subscription)
    seen = events(world)
    world.settle("acknowledged", held)
    assert events(world) == seen


def test_events_name_a_barrier_that_was_sent(world):
    world.queue("work", "orders", barrier="/end = 1")
    watch(world)
    world.subscribe("work", asked=0)
    (place,) = put(world, message(0, end=1))
    assert events(world) == [[place]]


@pytest.mark.parametrize("wish", [None, "/n >= 0"])
def test_events_name_what_waited_and_is_missing(world, wish):
    # Given a message that waits and that somebody removes from the log
    world.queue("work", "orders")
    watch(world)
    subscription = world.subscribe("work", filter=wish)
    (place,) = put(world, message(0))
    held = world.take(subscription)
    world.replace(subscription, "work", asked=0, filter=wish)
    world.settle("cancelled", held)
    reader = world.subscribe("work", filter="/n > 99") if wish else None
    if reader:
        world.take(reader)
    seen = len(events(world))
    world.store.redis.xdel(world.key(":log:orders"), "1000-0")
    # When the queue finds that it is missing
    world.replace(subscription, "work", asked=1, filter=wish)
    assert world.state()[":q:work"]["missing"] == "1"
    # Then it says so
    assert [place] in events(world)[seen:]


def test_the_events_are_bounded(world):
    world.queue("work", "orders")
    watch(world)
    subscription = world.subscribe("work")
    place = put(world, message(0))
    redis = world.store.redis.pipeline(transaction=False)
    for _ in range(EVENTS + 500):
        redis.execute_command("XADD", world.key(":q:work:events"), "*", "refs", place[0])
    redis.execute()
    world.settle("cancelled", world.take(subscription))
    assert EVENTS <= len(events(world)) <= EVENTS + 200


# -- who keeps a view


def test_one_holds_a_view_for_a_while_and_another_one_afterwards(world):
    def hold(owner, period=1_000):
        return world.run("keep_duty", world.now, "rows", owner, period)

    assert hold("one") == 1
    assert world.state()[":keepers"] == {"rows": "one 2000"}
    world.mark()
    assert hold("two") == 0
    assert world.changes() == {}
    world.now += 900
    assert hold("one") == 1
    world.now += 999
    assert hold("two") == 0
    world.now += 1
    assert hold("two") == 1
    assert hold("one") == 0
    # Given up at once
    assert hold("two", 0) == 1
    assert hold("one") == 1
    # A clock that went far back does not make it wait for ever
    world.store.redis.hset(world.key(":keepers"), "rows", f"one {world.now + 3_600_001}")
    assert hold("two") == 1
