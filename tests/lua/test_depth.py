"""Target depth: how many messages are active, and that what is beyond goes on as they are settled, and no sooner."""

from __future__ import annotations

import pytest
from judged import journal_of, message, numbers, put

from ampsq.protocol.limits import BATCH


def quiet(world):
    """The sweep has nothing to do, however often it is called."""
    world.sweep_all()
    return world.sweep()[0] == 0


@pytest.fixture
def queue(world):
    world.queue("work", "orders", depth=5)
    return world


def test_no_more_than_the_depth_is_delivered_and_the_rest_goes_on_as_they_are_acknowledged(queue):
    world = queue
    subscription = world.subscribe("work", asked=9)
    put(world, *map(message, range(12)))
    held = world.take(subscription, 9)
    assert numbers(held) == [0, 1, 2, 3, 4]
    assert world.take(subscription, 9) == []
    assert quiet(world)
    world.mark()
    assert world.settle("acknowledged", held[:2]) == {}
    assert set(world.changes()) == {
        ":q:work:leases", ":q:work:journal", ":q:work", ":q:work:cursors", f":s:{subscription}:inbox",
    } | ({f":s:{subscription}"} & set(world.changes()))  # fmt: skip
    assert numbers(world.take(subscription, 9)) == [5, 6]
    assert numbers(world.take(subscription, 9, held[2:])) == [7, 8, 9]


def test_an_acknowledgement_by_one_s_take_lets_another_one_go_on(queue):
    world = queue
    one, two = world.subscribe("work", asked=5), world.subscribe("work", asked=5)
    put(world, *map(message, range(8)))
    held = {name: world.take(name, 5) for name in (one, two)}
    assert sorted(numbers(held[one] + held[two])) == [0, 1, 2, 3, 4]
    taken = world.take(one, 1, held[one][:1])
    assert len(taken) + len(world.inbox(one)) + len(world.inbox(two)) == 1
    assert len(world.holders("work")) == 5


@pytest.mark.parametrize("state", ["leased", "ready", "delayed", "sorted"])
def test_every_active_state_counts(queue, state):
    world = queue
    wish = {"filter": "/n > 99"} if state == "sorted" else {}
    first = world.subscribe("work", asked=9, **wish)
    places = put(world, *map(message, range(12)))
    held = world.take(first, 9)
    if state in ("ready", "delayed"):
        world.replace(first, "work", asked=0)
        world.settle("cancelled", held, period=0 if state == "ready" else 90_000)
    assert quiet(world)
    assert world.state()[":q:work:cursors"] == {"orders": "1000-4 5"}
    second = world.subscribe("work", asked=9)
    taken = world.take(second, 9)
    assert numbers(taken) == ([0, 1, 2, 3, 4] if state in ("ready", "sorted") else [])
    # Whatever is settled of them makes room for as many
    world.settle("expired", {"work": [(places[1], ""), (places[3], "")]})
    assert quiet(world)
    assert world.state()[":q:work:cursors"] == {"orders": "1000-6 7"}


def test_what_is_settled_beyond_the_depth_is_skipped_later(queue):
    world = queue
    subscription = world.subscribe("work", asked=9)
    places = put(world, *map(message, range(9)))
    held = world.take(subscription, 9)
    assert world.settle("acknowledged", {"work": [(places[k], "") for k in (5, 7)]}) == {}
    assert world.state()[":q:work:ahead"] == {places[5]: "acknowledged", places[7]: "acknowledged"}
    assert numbers(world.take(subscription, 9, held[:3])) == [6, 8]
    assert ":q:work:ahead" not in world.state()
    assert sorted(journal_of(world, "acknowledged")) == sorted([*places[:3], places[5], places[7]])


def test_settling_all_of_the_active_part_by_bookmark_brings_the_next(queue):
    world = queue
    places = put(world, *map(message, range(12)))
    reader = world.subscribe("work", asked=9, filter="/n > 99")
    world.take(reader, 9)
    world.settle("expired", {"work": [(place, "") for place in places[:5]]})
    assert quiet(world)
    assert set(world.state()[":q:work:sorted:none"]) == set(places[5:10])


@pytest.mark.parametrize("free", [1, 9])
def test_where_nothing_active_matches_nothing_is_given_and_nobody_is_busy(queue, free):
    world = queue
    subscription = world.subscribe("work", asked=free, filter="/n >= 6")
    places = put(world, *map(message, range(12)))
    assert world.take(subscription, 9) == []
    assert quiet(world)
    world.mark()
    assert world.take(subscription, 9) == []
    assert quiet(world)
    assert world.changes() == {}
    # As they are settled, those that match come
    world.settle("expired", {"work": [(places[0], ""), (places[1], "")]})
    assert numbers(world.take(subscription, 1)) == [6]
    assert quiet(world)


def test_the_queue_s_own_filter_refuses_without_making_anything_active(world):
    world.queue("work", "orders", depth=3, entry="/n % 10 = 0")
    subscription = world.subscribe("work", asked=9)
    put(world, *map(message, range(61)))
    world.sweep_all()
    held = world.take(subscription, 9)
    assert numbers(held) == [0, 10, 20]
    assert quiet(world)
    assert numbers(world.take(subscription, 9, held)) == [30, 40, 50]
    assert world.state()[":q:work"]["filtered"] == "45"


@pytest.mark.parametrize("fits", [True, False])
def test_thousands_go_through_in_order(world, fits):
    world.queue("work", "orders", depth=1_000 if fits else 100)
    for first in range(0, 3_000, BATCH):
        put(world, *map(message, range(first, first + BATCH)))
    subscription = world.subscribe("work", asked=500)
    got, held = [], []
    for _ in range(200):
        held = world.take(subscription, 500, held)
        got += numbers(held)
        assert len(world.holders("work")) <= (1_000 if fits else 100)
        if not held and len(got) >= 3_000:
            break
    assert got == list(range(3_000))


def test_several_topics_share_one_depth(world):
    world.queue("work", "orders", "letters", depth=4)
    subscription = world.subscribe("work", asked=9)
    for number in range(5):
        put(world, message(2 * number))
        put(world, message(2 * number + 1), topic="letters")
    held = world.take(subscription, 9)
    assert numbers(held) == [0, 1, 2, 3]
    assert quiet(world)
    assert numbers(world.take(subscription, 9, held)) == [4, 5, 6, 7]
    assert quiet(world)


def test_at_most_once_what_was_sent_is_not_active(world):
    world.queue("work", "orders", depth=3, once=1, fairness="round-robin")
    subscription = world.subscribe("work", asked=8)
    put(world, *map(message, range(12)))
    world.sweep_all()
    got = world.take(subscription, 9)
    while more := world.take(subscription, 9):
        got += more
    assert numbers(got) == list(range(8))


def test_what_comes_back_is_active_already(queue):
    world = queue
    subscription = world.subscribe("work", asked=9)
    put(world, *map(message, range(9)))
    held = world.take(subscription, 9)
    world.settle("cancelled", held)
    again = world.take(subscription, 9)
    assert [(n, m.delivery) for n, m in zip(numbers(again), again, strict=True)] == [(n, 2) for n in range(5)]
    assert quiet(world)


def test_a_smaller_depth_keeps_what_is_active_and_a_larger_one_goes_on_at_once(queue):
    world = queue
    subscription = world.subscribe("work", asked=20)
    put(world, *map(message, range(20)))
    held = world.take(subscription, 20)
    world.queue("work", "orders", depth=2)
    assert len(world.holders("work")) == 5
    assert world.take(subscription, 9, held[:3]) == []
    assert numbers(world.take(subscription, 9, held[3:4])) == [5]
    world.queue("work", "orders", depth=8)
    assert len(world.holders("work")) == 8
    assert quiet(world)
    world.queue("work", "orders")
    world.sweep_all()
    assert len(world.holders("work")) == 16


def test_a_depth_that_comes_while_more_is_active_waits_until_it_is_less(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work", asked=9)
    put(world, *map(message, range(12)))
    held = world.take(subscription, 9)
    assert len(held) == 9
    world.queue("work", "orders", depth=4)
    assert world.take(subscription, 9, held[:5]) == []
    assert quiet(world)
    assert numbers(world.take(subscription, 9, held[5:7])) == [9, 10]


def test_missing_ones_make_room(queue):
    world = queue
    subscription = world.subscribe("work", asked=9)
    put(world, *map(message, range(9)))
    held = world.take(subscription, 9)
    world.store.redis.xdel(world.key(":log:orders"), "1000-0", "1000-1", "1000-6")
    world.settle("cancelled", held[:3])
    world.sweep_all()
    assert len(journal_of(world, "missing")) == 2
    assert numbers(world.take(subscription, 9)) == [2, 5, 7]
