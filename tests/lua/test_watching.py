"""The events of a queue that is watched, and who keeps a view."""

from __future__ import annotations

import pytest
from judged import message, put

from ampsq.protocol.limits import EVENTS


def events(world, queue="work"):
    return [fields["refs"].split(" ") for _, fields in world.state().get(f":q:{queue}:events", [])]


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
